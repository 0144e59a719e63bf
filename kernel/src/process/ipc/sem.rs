//! System V semaphores: sets that processes find by number or key.

use super::budget::{self, Charge};
use super::sleeper::Sleeper;
use super::{BrokenOff, Owner, READ, WRITE, pid, seconds};
use crate::process;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use logic::ipc_ids::IpcIds;
use logic::own::Token;
use logic::semaphores::{Attempt, Caller, MAX_VALUE, Operation, Set};
use machine::arch::clock::Nanos;
use machine::sync::SpinLock;

/// The limits on System V semaphores that `/proc/sys/kernel/sem` shows.
#[derive(Debug)]
pub struct Limits {
    /// The most semaphores in a set (`SEMMSL`).
    pub of_set: AtomicU64,
    /// The most semaphores in all sets together (`SEMMNS`).
    pub all: AtomicU64,
    /// The most operations in one call (`SEMOPM`).
    pub operations: AtomicU64,
    /// The most sets (`SEMMNI`).
    pub sets: AtomicU64,
}

/// The limits on System V semaphores in force. They start as Linux's defaults.
pub static LIMITS: Limits = Limits {
    of_set: AtomicU64::new(32_000),
    all: AtomicU64::new(32_000 * 32_000),
    operations: AtomicU64::new(500),
    sets: AtomicU64::new(32_000),
};

/// The most semaphores in a set, even if the limit is higher: their indices have 16 bits.
const MAX_OF_SET: u64 = u16::MAX as u64;

type Waiter = Arc<Sleeper<Result<(), Errno>>>;

struct Semaphores {
    owner: Owner,
    /// The time of the last operation, in seconds since 1970; 0 if there was none.
    used: i64,
    set: Set<Waiter>,
    _charge: Charge,
}

struct Table {
    sets: IpcIds<Semaphores>,
    /// The number of semaphores in all sets.
    count: u64,
    /// The memory charge for each undo list's adjustments, by undo list and set.
    adjusted: BTreeMap<(u64, i32), Charge>,
}

/// Taken with no other lock held. A sleeper's lock is taken under it.
static TABLE: SpinLock<Table> = SpinLock::new(Table {
    sets: IpcIds::new(),
    count: 0,
    adjusted: BTreeMap::new(),
});

/// The `SEM_UNDO` adjustments of a task, or of tasks that share the list (`CLONE_SYSVSEM`).
/// Dropping the last reference applies the adjustments; the caller holds no lock then.
#[derive(Debug)]
pub struct UndoList {
    id: u64,
}

impl UndoList {
    /// Returns a list without adjustments.
    pub fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the number itself matters.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id })
    }
}

impl Drop for UndoList {
    fn drop(&mut self) {
        // Ends: each turn removes one entry, and no task adds any.
        loop {
            let mut table = TABLE.lock();
            let mut own = table.adjusted.range((self.id, 0)..=(self.id, i32::MAX));
            let Some((&(_, id), _)) = own.next() else {
                return;
            };
            table.adjusted.remove(&(self.id, id));
            if let Ok(one) = table.sets.get_mut(id) {
                one.set.undo(self.id, pid());
                one.used = seconds();
                one.settle_all();
            }
        }
    }
}

fn tell(waiter: Waiter, result: Result<(), Errno>) {
    waiter.tell(result);
}

impl Semaphores {
    /// Completes the waiting operations that have become possible since the semaphores `changed`
    /// got new values.
    fn settle(&mut self, changed: impl IntoIterator<Item = u16>) {
        if self.set.settle(changed, &mut tell) {
            self.used = seconds();
        }
    }

    fn settle_all(&mut self) {
        let count = u16::try_from(self.set.len()).unwrap_or(u16::MAX);
        self.settle(0..count);
    }

    fn index(&self, semaphore: i32) -> Result<u16, Errno> {
        let index = u16::try_from(semaphore).map_err(|_| Errno::EINVAL)?;
        if usize::from(index) >= self.set.len() {
            return Err(Errno::EINVAL);
        }
        Ok(index)
    }
}

/// Returns the number of the set with the key `key` after a check of its size and of the rights in
/// `flags`. Returns `None` if a `get` call with `flags` must create the set. Fails with `ENOENT`,
/// `EEXIST`, `EINVAL` and `EACCES` as `semget(2)` does.
fn existing(table: &Table, key: i32, count: u64, flags: u32) -> Result<Option<i32>, Errno> {
    let Some(id) = super::find(&table.sets, key, flags)? else {
        return Ok(None);
    };
    let one = table.sets.get(id)?;
    if count > one.set.len() as u64 {
        return Err(Errno::EINVAL);
    }
    one.owner.check_get(flags)?;
    Ok(Some(id))
}

/// Returns the number of the set of semaphores with the key `key` (`semget(2)`). Creates the set
/// with `count` semaphores if `flags` say so, or if `key` is `IPC_PRIVATE`.
///
/// # Errors
/// Fails with `EINVAL` if `count` is negative, above the limit, above the size of the set, or 0 for
/// a new set. Fails with `ENOENT` if there is no such set, with `EEXIST` if `flags` demand a new
/// one, and with `EACCES` if the calling task lacks a right in `flags`. Fails with `ENOSPC` at the
/// limit on sets or semaphores, and with `ENOMEM`.
pub fn get(key: i32, count: i32, flags: u32) -> Result<i32, Errno> {
    let count = u64::try_from(count).map_err(|_| Errno::EINVAL)?;
    // Relaxed, as for all limits: no other data depends on them.
    if count > LIMITS.of_set.load(Ordering::Relaxed).min(MAX_OF_SET) {
        return Err(Errno::EINVAL);
    }
    let all = |table: &Table| {
        let sum = table.count.checked_add(count);
        let most = LIMITS.all.load(Ordering::Relaxed);
        sum.filter(|&sum| sum <= most).ok_or(Errno::ENOSPC)
    };
    {
        let table = TABLE.lock();
        if let Some(id) = existing(&table, key, count, flags)? {
            return Ok(id);
        }
        if count == 0 {
            return Err(Errno::EINVAL);
        }
        all(&table)?;
    }
    let size = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    let one = Semaphores {
        owner: Owner::new(key, flags),
        used: 0,
        _charge: budget::charge(count * Set::<Waiter>::bytes_each() as u64 + 512)?,
        set: Set::new(size)?,
    };
    let most = usize::try_from(LIMITS.sets.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
    let mut table = TABLE.lock();
    // Another task may have created it in between.
    if let Some(id) = existing(&table, key, count, flags)? {
        return Ok(id);
    }
    let sum = all(&table)?;
    let id = table.sets.insert(key, most, |_| one)?;
    table.count = sum;
    Ok(id)
}

/// Does all `operations` on the set `id` at once, or waits until they can be done
/// (`semtimedop(2)`). The wait ends at `deadline` on the monotonic clock; `None` means no time
/// limit.
///
/// # Errors
/// Fails with `EINVAL` if no set has this number, with `EFBIG` if the set has no semaphore that an
/// operation names, and with `EACCES` if the calling task lacks the right to read or change the
/// set. Fails with `EAGAIN` if an operation with `IPC_NOWAIT` would wait, and at `deadline`. Fails
/// with `ERANGE` if a value or an adjustment would be too large, and with `ENOMEM`. Fails with
/// `EIDRM` if the set is removed during the wait, and with `EINTR` at a signal.
pub fn operate(
    id: i32,
    operations: Box<[Operation]>,
    deadline: Option<Nanos>,
    token: &mut Token,
) -> Result<(), Errno> {
    let undo = operations.iter().any(|one| one.undo);
    let undo = undo.then(|| process::current().undo_list(token).id);
    let caller = Caller { pid: pid(), undo };
    let (sleeper, ticket) = {
        let mut table = TABLE.lock();
        let table = &mut *table;
        let one = table.sets.get_mut(id)?;
        let count = one.set.len();
        if let Some(owner) = undo
            && !table.adjusted.contains_key(&(owner, id))
        {
            let charge = budget::charge(count as u64 * 2 + 128)?;
            one.set.prepare(owner)?;
            table.adjusted.insert((owner, id), charge);
        }
        if operations
            .iter()
            .any(|op| usize::from(op.semaphore) >= count)
        {
            return Err(Errno::EFBIG);
        }
        let changes = operations.iter().any(|op| op.change != 0);
        one.owner.check(if changes { WRITE } else { READ })?;
        match one.set.attempt(&operations, caller)? {
            Attempt::Done => {
                one.used = seconds();
                let changed = operations.iter().filter(|op| op.change != 0);
                one.settle(changed.map(|op| op.semaphore));
                return Ok(());
            }
            Attempt::Blocked(at) => {
                let sleeper = Sleeper::new();
                let ticket = one.set.wait(operations, caller, at, sleeper.clone());
                (sleeper, ticket)
            }
        }
    };
    if let Some(why) = sleeper.sleep(deadline) {
        let mut table = TABLE.lock();
        let set = table.sets.get_mut(id);
        if set.is_ok_and(|one| one.set.cancel(ticket).is_some()) {
            return Err(match why {
                BrokenOff::TimedOut => Errno::EAGAIN,
                // Never restarted, as on Linux.
                BrokenOff::Interrupted => Errno::EINTR,
            });
        }
    }
    // A sleeper that was taken out has been given a result.
    sleeper.take().unwrap_or(Err(Errno::EIDRM))
}

/// The status of a set of semaphores, for `semctl(2)`.
#[derive(Copy, Clone, Debug)]
pub struct Status {
    /// The set's number.
    pub id: i32,
    /// The set's owner.
    pub owner: Owner,
    /// The time of the last operation, in seconds since 1970; 0 if there was none.
    pub used: i64,
    /// The number of semaphores.
    pub count: usize,
}

impl Table {
    fn status(&self, id: i32) -> Result<Status, Errno> {
        let one = self.sets.get(id)?;
        Ok(Status {
            id,
            owner: one.owner,
            used: one.used,
            count: one.set.len(),
        })
    }
}

/// Returns the status of the set with the number `id`. Checks no permissions.
///
/// # Errors
/// Fails with `EINVAL` if no set has this number.
pub fn status(id: i32) -> Result<Status, Errno> {
    TABLE.lock().status(id)
}

/// Returns the status of the set at the index `place` of the table. Checks no permissions.
///
/// # Errors
/// Fails with `EINVAL` if no set is there.
pub fn status_at(place: i32) -> Result<Status, Errno> {
    let table = TABLE.lock();
    table.status(table.sets.at(place)?)
}

/// Returns the status of the first set at or behind the index `place` of the table, and the index
/// behind that set. Returns `None` if there is no such set.
pub fn next_from(place: usize) -> Option<(Status, usize)> {
    let table = TABLE.lock();
    let (id, next) = table.sets.next_from(place)?;
    Some((table.status(id).ok()?, next))
}

/// Returns the number of sets, the number of semaphores in all sets, and the highest index of the
/// table that is in use.
pub fn totals() -> (usize, u64, usize) {
    let table = TABLE.lock();
    (table.sets.len(), table.count, table.sets.highest())
}

/// The state of one semaphore, which [`look`] returns.
#[derive(Copy, Clone, Debug)]
pub struct Look {
    /// The semaphore's value.
    pub value: u16,
    /// The process that last changed the semaphore or operated on it; 0 if there was none.
    pub pid: u32,
    /// The number of calls that wait for a larger value.
    pub growing: usize,
    /// The number of calls that wait for the value zero.
    pub zero: usize,
}

/// Returns the state of the semaphore with the index `semaphore` in the set `id`. Checks no
/// permissions.
///
/// # Errors
/// Fails with `EINVAL` if there is no such set or semaphore.
pub fn look(id: i32, semaphore: i32) -> Result<Look, Errno> {
    let table = TABLE.lock();
    let one = table.sets.get(id)?;
    let index = one.index(semaphore)?;
    let (value, pid) = one.set.value(index.into()).ok_or(Errno::EINVAL)?;
    Ok(Look {
        value,
        pid,
        growing: one.set.count_waiting(index, false),
        zero: one.set.count_waiting(index, true),
    })
}

/// Returns the values of all semaphores of the set `id` in order (`GETALL`). Checks no permissions.
///
/// # Errors
/// Fails with `EINVAL` if no set has this number, and with `ENOMEM`.
pub fn values(id: i32) -> Result<Vec<u16>, Errno> {
    let count = status(id)?.count;
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    let table = TABLE.lock();
    // A set keeps its size, and its number is not reused within this time.
    let set = &table.sets.get(id)?.set;
    values.extend(set.values().take(count));
    Ok(values)
}

/// Sets the values of all semaphores of the set `id` to `values` (`SETALL`). The caller has checked
/// the permission.
///
/// # Errors
/// Fails with `EINVAL` if no set has this number, and with `ERANGE` if a value is above `SEMVMX`.
pub fn set_all(id: i32, values: &[u16]) -> Result<(), Errno> {
    if values.iter().any(|&value| value > MAX_VALUE) {
        return Err(Errno::ERANGE);
    }
    let mut table = TABLE.lock();
    let one = table.sets.get_mut(id)?;
    one.set.set_all(values, pid());
    one.owner.changed = seconds();
    one.settle_all();
    Ok(())
}

/// Sets the value of the semaphore with the index `semaphore` in the set `id` to `value`
/// (`SETVAL`). `may` checks the permission of the calling task for the set's owner.
///
/// # Errors
/// Fails with `ERANGE` if `value` is negative or above `SEMVMX`, with `EINVAL` if there is no such
/// set or semaphore, and with the error of `may`. Checks these in this order.
pub fn set_value(
    id: i32,
    semaphore: i32,
    value: i32,
    may: impl Fn(&Owner) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let value = u16::try_from(value).map_err(|_| Errno::ERANGE)?;
    if value > MAX_VALUE {
        return Err(Errno::ERANGE);
    }
    let mut table = TABLE.lock();
    let one = table.sets.get_mut(id)?;
    let index = one.index(semaphore)?;
    may(&one.owner)?;
    one.set.set_value(index, value, pid());
    one.owner.changed = seconds();
    one.settle([index]);
    Ok(())
}

/// Gives the set `id` the owner `owner` (user and group) and the permission bits `permissions`
/// (`IPC_SET`). The caller has checked that the task may do so.
///
/// # Errors
/// Fails with `EINVAL` if no set has this number, or if an ID of `owner` is -1.
pub fn set(id: i32, owner: [u32; 2], permissions: u32) -> Result<(), Errno> {
    TABLE.lock().sets.get_mut(id)?.owner.set(owner, permissions)
}

/// Removes the set `id` (`IPC_RMID`). Tasks that wait at the set get `EIDRM`. The caller has
/// checked that the task may do so.
///
/// # Errors
/// Fails with `EINVAL` if no set has this number.
pub fn remove(id: i32) -> Result<(), Errno> {
    let gone = {
        let mut table = TABLE.lock();
        let table = &mut *table;
        let mut gone = table.sets.remove(id)?;
        table.count -= gone.set.len() as u64;
        for owner in gone.set.owners() {
            table.adjusted.remove(&(owner, id));
        }
        gone.set.close(&mut tell);
        gone
    };
    drop(gone);
    Ok(())
}

/// Returns the number that was requested for the next set (`kernel.sem_next_id`), or `None`.
pub fn next_id() -> Option<i32> {
    TABLE.lock().sets.next_id()
}

/// Requests `id` as the number of the next set (`kernel.sem_next_id`).
pub fn set_next_id(id: i32) {
    TABLE.lock().sets.set_next_id(id);
}

//! A set of System V semaphores: values, operations that wait, and adjustments at the end of a
//! process.
//!
//! Waiting operations are tried in the order of Linux. Those that wait for zero come first, the
//! others follow in the order of their arrival. The search starts again at the front when one
//! operation has made others possible. Each semaphore has a separate order as long as every waiting
//! operation is for one semaphore.
//!
//! Nothing here blocks. The caller keeps the set under a lock and puts waiting tasks to sleep.

use crate::errno::Errno;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

/// The highest value of a semaphore (`SEMVMX`), and the largest adjustment (`SEMAEM`).
pub const MAX_VALUE: u16 = 32_767;

/// One operation of a `semop` call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Index of the semaphore in the set.
    pub semaphore: u16,
    /// The number added to the value. 0 waits until the value is zero.
    pub change: i16,
    /// `IPC_NOWAIT`.
    pub nowait: bool,
    /// `SEM_UNDO`.
    pub undo: bool,
}

/// The caller of `semop`.
#[derive(Copy, Clone, Debug)]
pub struct Caller {
    /// The process ID, for `GETPID`.
    pub pid: u32,
    /// The owner of the adjustments that `SEM_UNDO` changes. It must have called [`Set::prepare`].
    pub undo: Option<u64>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Semaphore {
    value: u16,
    pid: u32,
}

/// A waiting call.
#[derive(Debug)]
struct Waiting<W> {
    who: W,
    caller: Caller,
    operations: Box<[Operation]>,
    /// Index of the operation that could not be done.
    blocking: usize,
}

impl<W> Waiting<W> {
    /// Returns the key in [`Set::simple`] of this call, whose ticket is `ticket`. Returns `None` if
    /// the call has several operations.
    fn simple(&self, ticket: u64) -> Option<(u16, bool, u64)> {
        match *self.operations {
            [one] => Some((one.semaphore, one.change != 0, ticket)),
            _ => None,
        }
    }

    fn alters(&self) -> bool {
        self.operations.iter().any(|one| one.change != 0)
    }
}

/// The result of an attempt at a call's operations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// All operations were done.
    Done,
    /// No operation was done. The one with this index has to wait.
    Blocked(usize),
}

/// A set of System V semaphores. `W` represents a caller that waits.
#[derive(Debug)]
pub struct Set<W> {
    semaphores: Box<[Semaphore]>,
    waiting: BTreeMap<u64, Waiting<W>>,
    /// Waiting calls with one operation: semaphore, whether it alters the value, ticket.
    simple: BTreeSet<(u16, bool, u64)>,
    /// Number of waiting calls with several operations.
    complex: usize,
    next_ticket: u64,
    /// For each owner of adjustments, the numbers that are added to the values when it ends.
    adjustments: BTreeMap<u64, Box<[i16]>>,
}

/// Returns `count` copies of `value`. Fails with `ENOMEM` if memory is short.
fn filled<T: Clone>(count: usize, value: T) -> Result<Box<[T]>, Errno> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    all.resize(count, value);
    Ok(all.into_boxed_slice())
}

/// Does all `operations` on `semaphores` in turn, or none of them. `adjustments` are those of the
/// caller, for `SEM_UNDO`, and `pid` is its process ID. The result and the errors are those of
/// [`Set::attempt`].
fn attempt(
    semaphores: &mut [Semaphore],
    mut adjustments: Option<&mut Box<[i16]>>,
    operations: &[Operation],
    pid: u32,
) -> Result<Attempt, Errno> {
    let mut refused = None;
    for (index, one) in operations.iter().enumerate() {
        let at = usize::from(one.semaphore);
        let Some(semaphore) = semaphores.get_mut(at) else {
            refused = Some((index, Err(Errno::EFBIG)));
            break;
        };
        let sum = i32::from(semaphore.value) + i32::from(one.change);
        let must_wait = sum < 0 || one.change == 0 && semaphore.value != 0;
        if must_wait {
            let blocked = if one.nowait {
                Err(Errno::EAGAIN)
            } else {
                Ok(Attempt::Blocked(index))
            };
            refused = Some((index, blocked));
            break;
        }
        let value = u16::try_from(sum).unwrap_or(u16::MAX);
        let adjusted = if one.undo {
            let Some(adjustments) = adjustments.as_deref_mut() else {
                refused = Some((index, Err(Errno::ENOMEM)));
                break;
            };
            let most = i32::from(MAX_VALUE);
            let sum = i32::from(adjustments[at]) - i32::from(one.change);
            let fits = (-most - 1..=most).contains(&sum);
            i16::try_from(sum).ok().filter(|_| fits)
        } else {
            Some(0)
        };
        let (Some(adjusted), true) = (adjusted, value <= MAX_VALUE) else {
            refused = Some((index, Err(Errno::ERANGE)));
            break;
        };
        semaphore.value = value;
        if let (true, Some(adjustments)) = (one.undo, adjustments.as_deref_mut()) {
            adjustments[at] = adjusted;
        }
    }
    let Some((done, result)) = refused else {
        for one in operations {
            semaphores[usize::from(one.semaphore)].pid = pid;
        }
        return Ok(Attempt::Done);
    };
    // Undone in reverse: each value on the way back occurred on the way here, so it is within the
    // bounds.
    for one in operations[..done].iter().rev() {
        let at = usize::from(one.semaphore);
        let value = i32::from(semaphores[at].value) - i32::from(one.change);
        semaphores[at].value = u16::try_from(value).unwrap_or(0);
        if let (true, Some(adjustments)) = (one.undo, adjustments.as_deref_mut()) {
            adjustments[at] = adjustments[at].wrapping_add(one.change);
        }
    }
    result
}

impl<W> Set<W> {
    /// Returns a set of `count` semaphores with the value 0.
    ///
    /// # Errors
    /// `ENOMEM` if memory is short.
    pub fn new(count: usize) -> Result<Self, Errno> {
        Ok(Self {
            semaphores: filled(count, Semaphore::default())?,
            waiting: BTreeMap::new(),
            simple: BTreeSet::new(),
            complex: 0,
            next_ticket: 0,
            adjustments: BTreeMap::new(),
        })
    }

    /// Returns the number of semaphores.
    pub fn len(&self) -> usize {
        self.semaphores.len()
    }

    /// Returns whether the set has no semaphores, which is never so in practice.
    pub fn is_empty(&self) -> bool {
        self.semaphores.is_empty()
    }

    /// Returns the memory that one semaphore takes in bytes, for accounting.
    pub const fn bytes_each() -> usize {
        size_of::<Semaphore>()
    }

    /// Returns the value of the semaphore with index `semaphore`, and the ID of the process that
    /// last operated on it (`GETPID`). Returns `None` if there is no such semaphore.
    pub fn value(&self, semaphore: usize) -> Option<(u16, u32)> {
        self.semaphores.get(semaphore).map(|s| (s.value, s.pid))
    }

    /// Returns the values of all semaphores, in order.
    pub fn values(&self) -> impl Iterator<Item = u16> {
        self.semaphores.iter().map(|semaphore| semaphore.value)
    }

    /// Returns the number of calls that wait for the semaphore with index `semaphore`: for the
    /// value 0 if `for_zero`, else for a larger value. Each call waits for one semaphore.
    pub fn count_waiting(&self, semaphore: u16, for_zero: bool) -> usize {
        let waits = |waiting: &&Waiting<W>| {
            let one = waiting.operations[waiting.blocking];
            one.semaphore == semaphore && (one.change == 0) == for_zero
        };
        self.waiting.values().filter(waits).count()
    }

    /// Allocates memory for the adjustments of `owner`, which `SEM_UNDO` needs, and returns `true`.
    /// Returns `false` if `owner` has that memory already.
    ///
    /// # Errors
    /// `ENOMEM` if memory is short.
    pub fn prepare(&mut self, owner: u64) -> Result<bool, Errno> {
        if self.adjustments.contains_key(&owner) {
            return Ok(false);
        }
        let none = filled(self.len(), 0_i16)?;
        self.adjustments.insert(owner, none);
        Ok(true)
    }

    /// Returns the owners that have adjustments.
    pub fn owners(&self) -> impl Iterator<Item = u64> {
        self.adjustments.keys().copied()
    }

    /// Tries the `operations` of a call by `caller` once. Returns [`Attempt::Done`] if all of them
    /// were done. If one has to wait, does none and returns [`Attempt::Blocked`].
    ///
    /// # Errors
    /// `EAGAIN` if an operation would have to wait and must not. `ERANGE` if a value or an
    /// adjustment would exceed its bounds. `EFBIG` if there is no such semaphore. `ENOMEM` if
    /// `SEM_UNDO` is set and the owner has no adjustments. No operation was done then.
    pub fn attempt(&mut self, operations: &[Operation], caller: Caller) -> Result<Attempt, Errno> {
        let adjustments = caller.undo.and_then(|id| self.adjustments.get_mut(&id));
        attempt(&mut self.semaphores, adjustments, operations, caller.pid)
    }

    /// Adds a waiting call of `caller` with `operations`, for which [`Self::attempt`] returned
    /// [`Attempt::Blocked`] of `blocking`. `who` identifies the call when its wait ends. Returns
    /// its ticket for [`Self::cancel`].
    pub fn wait(
        &mut self,
        operations: Box<[Operation]>,
        caller: Caller,
        blocking: usize,
        who: W,
    ) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let waiting = Waiting {
            who,
            caller,
            operations,
            blocking,
        };
        match waiting.simple(ticket) {
            Some(key) => {
                self.simple.insert(key);
            }
            None => self.complex += 1,
        }
        self.waiting.insert(ticket, waiting);
        ticket
    }

    /// Removes the waiting call with this `ticket`, and returns the value that identifies it.
    /// Returns `None` if it no longer waits.
    pub fn cancel(&mut self, ticket: u64) -> Option<W> {
        let waiting = self.waiting.remove(&ticket)?;
        match waiting.simple(ticket) {
            Some(key) => {
                self.simple.remove(&key);
            }
            None => self.complex -= 1,
        }
        Some(waiting.who)
    }

    /// Tries the waiting call with this `ticket` again. Returns its result if it is done or fails.
    /// The caller then removes it. Returns `None` if it must wait on, or if no call with this
    /// ticket waits.
    fn retry(&mut self, ticket: u64) -> Option<Result<(), Errno>> {
        let waiting = self.waiting.get_mut(&ticket)?;
        let caller = waiting.caller;
        let adjustments = caller.undo.and_then(|id| self.adjustments.get_mut(&id));
        let operations = &waiting.operations;
        match attempt(&mut self.semaphores, adjustments, operations, caller.pid) {
            Ok(Attempt::Done) => Some(Ok(())),
            Ok(Attempt::Blocked(index)) => {
                waiting.blocking = index;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Ends the waiting calls that became possible because the semaphores in `changed` have
    /// changed. Calls `end` with each of them and its result. Returns whether a call succeeded,
    /// which may have changed further values.
    pub fn settle(
        &mut self,
        changed: impl IntoIterator<Item = u16>,
        end: &mut impl FnMut(W, Result<(), Errno>),
    ) -> bool {
        if self.complex > 0 {
            return self.settle_all(end);
        }
        let mut any = false;
        for semaphore in changed {
            if self.simple.is_empty() {
                break;
            }
            any |= self.settle_one(semaphore, end);
        }
        any
    }

    /// Ends the waiting calls with one operation that have become possible on the semaphore with
    /// index `semaphore`. Calls `end` with each of them and its result. Returns whether a call
    /// succeeded. Besides waits for zero, only decreases can wait. So a call that succeeds can make
    /// no others possible than waits for zero.
    fn settle_one(&mut self, semaphore: u16, end: &mut impl FnMut(W, Result<(), Errno>)) -> bool {
        let mut any = false;
        let mut from = 0;
        // Each iteration ends a call or skips one.
        loop {
            let is_zero = self.semaphores[usize::from(semaphore)].value == 0;
            // At zero the value cannot decrease.
            let first = (semaphore, !is_zero, if is_zero { 0 } else { from });
            let last = (semaphore, !is_zero, u64::MAX);
            let Some(&(_, _, ticket)) = self.simple.range(first..=last).next() else {
                return any;
            };
            from = ticket + 1;
            if let Some(result) = self.retry(ticket)
                && let Some(who) = self.cancel(ticket)
            {
                any |= result.is_ok();
                end(who, result);
            }
        }
    }

    /// Ends all waiting calls that have become possible, in the order of their arrival. Calls `end`
    /// with each of them and its result. Returns whether a call succeeded.
    fn settle_all(&mut self, end: &mut impl FnMut(W, Result<(), Errno>)) -> bool {
        let mut any = self.pass(false, end).0;
        // Each iteration but the last ends a call.
        loop {
            let (done, again) = self.pass(true, end);
            any |= done;
            if !again {
                return any;
            }
        }
    }

    /// Tries the waiting calls that alter values if `altering`, else those that do not, in the
    /// order of their arrival. Calls `end` with each call that ends and its result. After a call
    /// that alters values has succeeded, ends the possible calls that alter none, and stops,
    /// because earlier calls may be possible now. Returns whether a call succeeded, and whether
    /// this stopped early.
    fn pass(&mut self, altering: bool, end: &mut impl FnMut(W, Result<(), Errno>)) -> (bool, bool) {
        let mut any = false;
        let mut passed = Bound::Unbounded;
        loop {
            let mut behind = self.waiting.range((passed, Bound::Unbounded));
            let next = behind.find(|(_, waiting)| waiting.alters() == altering);
            let Some((&ticket, _)) = next else {
                return (any, false);
            };
            passed = Bound::Excluded(ticket);
            if let Some(result) = self.retry(ticket)
                && let Some(who) = self.cancel(ticket)
            {
                any |= result.is_ok();
                end(who, result);
                if altering && result.is_ok() {
                    self.pass(false, end);
                    return (true, true);
                }
            }
        }
    }

    /// Sets the semaphore with index `semaphore` to `value` (`SETVAL`) and clears all adjustments
    /// of it. `pid` is the ID of the calling process. Returns `true`, and the caller must then call
    /// [`Self::settle`]. Returns `false` if there is no such semaphore.
    pub fn set_value(&mut self, semaphore: u16, value: u16, pid: u32) -> bool {
        let at = usize::from(semaphore);
        let Some(place) = self.semaphores.get_mut(at) else {
            return false;
        };
        *place = Semaphore { value, pid };
        for adjustments in self.adjustments.values_mut() {
            adjustments[at] = 0;
        }
        true
    }

    /// Sets all semaphores to `values`, in order (`SETALL`), and clears all adjustments. `pid` is
    /// the ID of the calling process. The caller must then call [`Self::settle`].
    pub fn set_all(&mut self, values: &[u16], pid: u32) {
        for (place, &value) in self.semaphores.iter_mut().zip(values) {
            *place = Semaphore { value, pid };
        }
        for adjustments in self.adjustments.values_mut() {
            adjustments.fill(0);
        }
    }

    /// Adds the adjustments of `owner`, which has ended, to the values, and removes them. The
    /// values stay within their bounds. `pid` is the ID of the process that ends, for `GETPID`. The
    /// caller must then call [`Self::settle`] for all semaphores.
    pub fn undo(&mut self, owner: u64, pid: u32) {
        let Some(adjustments) = self.adjustments.remove(&owner) else {
            return;
        };
        for (place, &adjustment) in self.semaphores.iter_mut().zip(&adjustments) {
            if adjustment != 0 {
                let sum = i32::from(place.value) + i32::from(adjustment);
                let value = sum.clamp(0, i32::from(MAX_VALUE));
                place.value = u16::try_from(value).unwrap_or(0);
                place.pid = pid;
            }
        }
    }

    /// Ends all waiting calls with `EIDRM`, because the set is removed. Calls `end` with each of
    /// them.
    pub fn close(&mut self, end: &mut impl FnMut(W, Result<(), Errno>)) {
        self.simple.clear();
        self.complex = 0;
        while let Some((_, waiting)) = self.waiting.pop_first() {
            end(waiting.who, Err(Errno::EIDRM));
        }
    }
}

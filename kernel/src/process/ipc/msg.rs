//! System V message queues, which processes find by number or key.

use super::sleeper::Sleeper;
use super::{Body, BrokenOff, Owner, QueueSleeper, READ, Told, WRITE, budget, pid, seconds};
use alloc::sync::Arc;
use alloc::vec::Vec;
use budget::Charge;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use logic::ipc_ids::IpcIds;
use logic::message_queue::{Mark, Message, Queue, Taking};
use machine::sync::SpinLock;

/// The limits on System V message queues that `/proc/sys/kernel/msg*` shows.
#[derive(Debug)]
pub struct Limits {
    /// The most bytes of a message (`msgmax`).
    pub message: AtomicU64,
    /// The most bytes of all messages in a new queue (`msgmnb`).
    pub queue: AtomicU64,
    /// The most queues (`msgmni`).
    pub queues: AtomicU64,
}

/// The limits on System V message queues in force. They start as Linux's defaults.
pub static LIMITS: Limits = Limits {
    message: AtomicU64::new(8192),
    queue: AtomicU64::new(16_384),
    queues: AtomicU64::new(32_000),
};

struct MessageQueue {
    owner: Owner,
    queue: Queue<Body, QueueSleeper>,
    _charge: Charge,
}

/// Taken with no other lock held. A sleeper's lock is taken under it.
static TABLE: SpinLock<IpcIds<MessageQueue>> = SpinLock::new(IpcIds::new());

/// Returns a limit as a number of bytes or objects.
fn bytes(limit: &AtomicU64) -> usize {
    // Relaxed, as for all limits: no other data depends on them.
    usize::try_from(limit.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
}

/// Returns the current process and time.
fn mark() -> Mark {
    Mark {
        pid: pid(),
        seconds: seconds(),
    }
}

/// Returns the number of the queue with the key `key` after a check of the rights in `flags`.
/// Returns `None` if a `get` call with `flags` must create the queue. Fails with `ENOENT`, `EEXIST`
/// and `EACCES` as `msgget(2)` does.
fn existing(table: &IpcIds<MessageQueue>, key: i32, flags: u32) -> Result<Option<i32>, Errno> {
    let found = super::find(table, key, flags)?;
    if let Some(id) = found {
        table.get(id)?.owner.check_get(flags)?;
    }
    Ok(found)
}

/// Returns the number of the System V message queue with the key `key` (`msgget(2)`). Creates the
/// queue if `flags` say so, or if `key` is `IPC_PRIVATE`.
///
/// # Errors
/// Fails with `ENOENT` if there is no such queue, with `EEXIST` if `flags` demand a new one, and
/// with `EACCES` if the calling task lacks a right in `flags`. Fails with `ENOSPC` at the limit on
/// queues, and with `ENOMEM`. Fails with `EINVAL` if a negative number was requested for the next
/// queue.
pub fn get(key: i32, flags: u32) -> Result<i32, Errno> {
    if let Some(id) = existing(&TABLE.lock(), key, flags)? {
        return Ok(id);
    }
    let one = MessageQueue {
        owner: Owner::new(key, flags),
        queue: Queue::new(bytes(&LIMITS.queue)),
        _charge: budget::charge(512)?,
    };
    let mut table = TABLE.lock();
    // Another task may have created it in between.
    if let Some(id) = existing(&table, key, flags)? {
        return Ok(id);
    }
    table.insert(key, bytes(&LIMITS.queues), |_| one)
}

/// Sends `message` to the System V message queue `id`, and waits for room unless `nowait`
/// (`msgsnd(2)`). The caller has checked that the type of the message is 1 or more, and its size.
///
/// # Errors
/// Fails with `EINVAL` if no queue has this number, and with `EACCES` if the calling task may not
/// write. Fails with `EAGAIN` if `nowait` is set and there is no room. Fails with `EIDRM` if the
/// queue is removed during the wait, and with `ERESTARTNOHAND` at a signal.
pub fn send(id: i32, message: Message<Body>, nowait: bool) -> Result<(), Errno> {
    let (sleeper, ticket) = {
        let mut table = TABLE.lock();
        let one = table.get_mut(id)?;
        one.owner.check(WRITE)?;
        match one.queue.send(message, mark()) {
            Ok(()) => return Ok(()),
            Err(message) if nowait => {
                drop(table);
                drop(message);
                return Err(Errno::EAGAIN);
            }
            Err(message) => {
                let sleeper = Sleeper::new();
                let ticket = one.queue.wait_to_send(message, pid(), sleeper.clone());
                (sleeper, ticket)
            }
        }
    };
    if sleeper.sleep(None).is_some() {
        let mut table = TABLE.lock();
        let one = table.get_mut(id).ok();
        let gone = one.and_then(|one| one.queue.cancel_send(ticket));
        drop(table);
        if gone.is_some() {
            return Err(Errno::ERESTARTNOHAND);
        }
    }
    // A sleeper that was taken out has been given a result.
    match sleeper.take() {
        Some(Told::Sent(result)) => result,
        _ => Err(Errno::EIDRM),
    }
}

/// Removes the message that `taking` selects from the System V message queue `id` and returns it
/// (`msgrcv(2)`). Waits for such a message unless `nowait`. The message may be larger than the
/// receiver's buffer, if `taking` allows that.
///
/// # Errors
/// Fails with `EINVAL` if no queue has this number, and with `EACCES` if the calling task may not
/// read. Fails with `ENOMSG` if `nowait` is set and there is no such message, and with `E2BIG` if
/// the message is too large for `taking`. Fails with `EIDRM` if the queue is removed during the
/// wait, and with `ERESTARTNOHAND` at a signal.
pub fn receive(id: i32, taking: Taking, nowait: bool) -> Result<Message<Body>, Errno> {
    let (sleeper, ticket) = {
        let mut table = TABLE.lock();
        let one = table.get_mut(id)?;
        one.owner.check(READ)?;
        if let Some(message) = one.queue.receive(taking, mark())? {
            return Ok(message);
        }
        if nowait {
            return Err(Errno::ENOMSG);
        }
        let sleeper: Arc<Sleeper<Told>> = Sleeper::new();
        let ticket = one.queue.wait_to_receive(taking, pid(), sleeper.clone());
        (sleeper, ticket)
    };
    if sleeper.sleep(None) == Some(BrokenOff::Interrupted) {
        let mut table = TABLE.lock();
        let one = table.get_mut(id).ok();
        if one.is_some_and(|one| one.queue.cancel_receive(ticket).is_some()) {
            return Err(Errno::ERESTARTNOHAND);
        }
    }
    match sleeper.take() {
        Some(Told::Received(result)) => result,
        _ => Err(Errno::EIDRM),
    }
}

/// Copies the message that has `n` others before it in the System V message queue `id` into `room`,
/// without removing it (`msgrcv(2)` with `MSG_COPY`). Returns the type and the size in bytes of the
/// message.
///
/// # Errors
/// Fails with `EINVAL` if no queue has this number, and with `EACCES` if the calling task may not
/// read. Fails with `ENOMSG` if there is no such message, with `E2BIG` if it is too large for
/// `taking`, and with `EINVAL` if it is too large for `room`.
pub fn copy(id: i32, n: i64, taking: Taking, room: &mut [u8]) -> Result<(i64, usize), Errno> {
    let table = TABLE.lock();
    let one = table.get(id)?;
    one.owner.check(READ)?;
    let n = usize::try_from(n).ok();
    let message = n.and_then(|n| one.queue.peek(n)).ok_or(Errno::ENOMSG)?;
    taking.check(message.bytes)?;
    let room = room.get_mut(..message.bytes).ok_or(Errno::EINVAL)?;
    room.copy_from_slice(message.body.bytes());
    Ok((message.kind, message.bytes))
}

/// The status of a System V message queue, for `msgctl(2)`.
#[derive(Copy, Clone, Debug)]
pub struct Status {
    /// The queue's number.
    pub id: i32,
    /// The queue's owner.
    pub owner: Owner,
    /// The last sender, and when it sent.
    pub sent: Mark,
    /// The last receiver, and when it received.
    pub received: Mark,
    /// Bytes in the queue.
    pub bytes: usize,
    /// Messages in the queue.
    pub messages: usize,
    /// The most bytes that the queue may hold.
    pub most_bytes: usize,
}

fn status_of(table: &IpcIds<MessageQueue>, id: i32) -> Result<Status, Errno> {
    let one = table.get(id)?;
    Ok(Status {
        id,
        owner: one.owner,
        sent: one.queue.sent,
        received: one.queue.received,
        bytes: one.queue.bytes(),
        messages: one.queue.len(),
        most_bytes: one.queue.most_bytes(),
    })
}

/// Returns the status of the queue with the number `id`. Checks no permissions.
///
/// # Errors
/// Fails with `EINVAL` if no queue has this number.
pub fn status(id: i32) -> Result<Status, Errno> {
    status_of(&TABLE.lock(), id)
}

/// Returns the status of the queue at the index `place` of the table. Checks no permissions.
///
/// # Errors
/// Fails with `EINVAL` if no queue is there.
pub fn status_at(place: i32) -> Result<Status, Errno> {
    let table = TABLE.lock();
    status_of(&table, table.at(place)?)
}

/// Returns the status of the first queue at or behind the index `place` of the table, and the index
/// behind that queue. Returns `None` if there is no such queue.
pub fn next_from(place: usize) -> Option<(Status, usize)> {
    let table = TABLE.lock();
    let (id, next) = table.next_from(place)?;
    Some((status_of(&table, id).ok()?, next))
}

/// Figures for all System V message queues together.
#[derive(Copy, Clone, Debug)]
pub struct Totals {
    /// The number of queues.
    pub queues: usize,
    /// The highest index of the table that is in use; 0 without queues.
    pub highest: usize,
    /// The number of messages in all queues.
    pub messages: usize,
    /// The bytes of all these messages.
    pub bytes: usize,
}

/// Returns the figures for all System V message queues together.
pub fn totals() -> Totals {
    let table = TABLE.lock();
    let mut totals = Totals {
        queues: table.len(),
        highest: table.highest(),
        messages: 0,
        bytes: 0,
    };
    for one in table.ids().filter_map(|id| table.get(id).ok()) {
        totals.messages += one.queue.len();
        totals.bytes += one.queue.bytes();
    }
    totals
}

/// Gives the System V message queue `id` the owner `owner` (user and group), the permission bits
/// `permissions`, and the limit `most_bytes` on the bytes of its messages (`IPC_SET`). The caller
/// has checked that the task may raise the limit.
///
/// # Errors
/// Fails with `EINVAL` if no queue has this number, or if an ID of `owner` is -1. Fails with
/// `EPERM` if the calling task may not change the queue.
pub fn set(id: i32, owner: [u32; 2], permissions: u32, most_bytes: u64) -> Result<(), Errno> {
    let mut table = TABLE.lock();
    let one = table.get_mut(id)?;
    one.owner.check_change()?;
    one.owner.set(owner, permissions)?;
    let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
    one.queue.set_most_bytes(most_bytes, seconds());
    Ok(())
}

/// Removes the System V message queue `id` with its messages (`IPC_RMID`). Tasks that wait at the
/// queue get `EIDRM`.
///
/// # Errors
/// Fails with `EINVAL` if no queue has this number, and with `EPERM` if the calling task may not
/// remove the queue.
pub fn remove(id: i32) -> Result<(), Errno> {
    let gone = {
        let mut table = TABLE.lock();
        table.get(id)?.owner.check_change()?;
        let mut gone = table.remove(id)?;
        gone.queue.close();
        gone
    };
    drop(gone);
    Ok(())
}

/// Returns a zeroed buffer of `size` bytes, or of the size of the largest allowed message
/// (`kernel.msgmax`) if that is less.
///
/// # Errors
/// Fails with `ENOMEM`.
pub fn room(size: usize) -> Result<Vec<u8>, Errno> {
    let size = size.min(bytes(&LIMITS.message));
    let mut room = Vec::new();
    room.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
    room.resize(size, 0);
    Ok(room)
}

/// Returns the number that was requested for the next queue (`kernel.msg_next_id`), or `None`.
pub fn next_id() -> Option<i32> {
    TABLE.lock().next_id()
}

/// Requests `id` as the number of the next queue (`kernel.msg_next_id`).
pub fn set_next_id(id: i32) {
    TABLE.lock().set_next_id(id);
}

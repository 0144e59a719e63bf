//! A POSIX message queue: sending, receiving, waiting.

use super::names::Making;
use super::notice::{Notice, Registration};
use super::size::{Counted, One, Size};
use crate::fs::node::{NodeId, next_anonymous_inode};
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{Timestamp, devices};
use crate::process;
use crate::process::ipc::budget::{self, Charge};
use crate::process::ipc::sleeper::Sleeper;
use crate::process::ipc::{Body, BrokenOff, QueueSleeper, Told, pid};
use crate::process::signal::Signal;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::errno::Errno;
use logic::message_queue::Message;
use logic::priority_queue::{PriorityQueue, Sent};
use machine::arch::clock::Nanos;
use machine::sync::SpinLock;

/// The attributes of a message queue's file that can change.
#[derive(Copy, Clone, Debug)]
pub(super) struct Attributes {
    pub(super) permissions: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
}

struct State {
    queue: PriorityQueue<Body, QueueSleeper>,
    registration: Option<Registration>,
    attributes: Attributes,
}

/// A POSIX message queue. It lasts until its name is removed and no descriptor refers to it.
pub struct MessageQueue {
    id: NodeId,
    name: Arc<[u8]>,
    unlinked: AtomicBool,
    size: Size,
    /// Taken with no other lock held. A sleeper's lock is taken under it.
    state: SpinLock<State>,
    pub(super) notifier: Arc<Notifier>,
    _one: One,
    _counted: Counted,
    _charge: Charge,
}

impl core::fmt::Debug for MessageQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MessageQueue")
            .field("id", &self.id)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl MessageQueue {
    /// Returns an empty queue with the name `name` and the properties `making`. The calling task
    /// owns the queue. `msgqueue_limit` bounds the bytes of all queues (`RLIMIT_MSGQUEUE`).
    ///
    /// # Errors
    /// Fails with `ENOSPC` if there are too many queues, with `EINVAL` if the size is not allowed,
    /// with `EMFILE` if the bytes would exceed `msgqueue_limit`, and with `ENOMEM`.
    pub(super) fn new(name: &[u8], making: Making, msgqueue_limit: u64) -> Result<Self, Errno> {
        let one = One::take(making.any_number)?;
        if !making.any_size && !making.size.is_within_limits() {
            return Err(Errno::EINVAL);
        }
        let counted = Counted::take(making.size.counted()?, msgqueue_limit)?;
        let charge = budget::charge(1024)?;
        let credentials = process::current().credentials();
        let now = Timestamp::now();
        // At most `MAX_MESSAGES`.
        let messages = usize::try_from(making.size.messages).unwrap_or(0);
        Ok(Self {
            id: NodeId {
                device: devices::MQUEUE,
                inode: next_anonymous_inode(),
            },
            name: Arc::from(name),
            unlinked: AtomicBool::new(false),
            size: making.size,
            state: SpinLock::new(State {
                queue: PriorityQueue::new(messages),
                registration: None,
                attributes: Attributes {
                    permissions: making.permissions & 0o7777,
                    uid: credentials.users.file,
                    gid: credentials.groups.file,
                    accessed: now,
                    modified: now,
                    changed: now,
                },
            }),
            notifier: Arc::new(Notifier::new()),
            _one: one,
            _counted: counted,
            _charge: charge,
        })
    }

    /// Returns the device and inode number of the queue's file.
    pub(super) fn file_id(&self) -> NodeId {
        self.id
    }

    /// Returns the queue's name, and whether the queue still has it. It is `false` once the name
    /// was removed.
    pub(super) fn name(&self) -> (&[u8], bool) {
        (&self.name, !self.unlinked.load(Ordering::Relaxed))
    }

    /// Marks the queue's name as removed. Only the link count and the path of the queue's file show
    /// this.
    pub(super) fn lose_name(&self) {
        // Relaxed: the flag is only shown.
        self.unlinked.store(true, Ordering::Relaxed);
    }

    /// Calls `call` with the attributes of the queue's file, which `call` may change. Returns the
    /// result of `call`. `call` runs with the queue's lock held.
    pub(super) fn with_attributes<R>(&self, call: impl FnOnce(&mut Attributes) -> R) -> R {
        call(&mut self.state.lock().attributes)
    }

    /// Returns the most messages that the queue can hold, and the most bytes of each.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the number of messages in the queue.
    pub fn messages(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Returns `READABLE` if the queue has a message, and `WRITABLE` if it has room for another
    /// one.
    pub(super) fn ready(&self) -> PollMask {
        let state = self.state.lock();
        let mut mask = PollMask::empty();
        mask.set(PollMask::READABLE, !state.queue.is_empty());
        mask.set(PollMask::WRITABLE, !state.queue.is_full());
        mask
    }

    /// Returns what a read of the queue's file shows: the bytes of all messages, then the `SIGEV_*`
    /// value, the signal's number and the process of the registration. The last three are 0 if no
    /// process is registered.
    pub(super) fn status(&self) -> (usize, u32, u32, u32) {
        const SIGEV_SIGNAL: u32 = 0;
        const SIGEV_NONE: u32 = 1;
        const SIGEV_THREAD: u32 = 2;
        let state = self.state.lock();
        let bytes = state.queue.bytes();
        match state.registered() {
            None => (bytes, 0, 0, 0),
            Some(one) => match &one.notice {
                Notice::Nothing => (bytes, SIGEV_NONE, 0, one.pid),
                Notice::Thread(_) => (bytes, SIGEV_THREAD, 0, one.pid),
                Notice::Signal(signal, _) => {
                    let number = signal.map_or(0, Signal::number);
                    (bytes, SIGEV_SIGNAL, number, one.pid)
                }
            },
        }
    }

    /// Sends `message`, whose type is its priority. If the queue is full, the call waits for room:
    /// `wait` `None` means not at all, `Some(None)` without a time limit, and `Some(Some(time))`
    /// until `time` on the monotonic clock. The caller has checked the size and the priority of the
    /// message.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if the queue is full and `wait` is `None`. Fails with `ETIMEDOUT` at the
    /// end of the time, and with `ERESTARTSYS` at a signal.
    pub fn send(&self, message: Message<Body>, wait: Option<Option<Nanos>>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let message = match state.queue.send(message) {
            Ok(sent) => {
                let now = Timestamp::now();
                state.attributes.modified = now;
                state.attributes.changed = now;
                let told = if sent == Sent::First {
                    state.registration.take()
                } else {
                    None
                };
                drop(state);
                if let Some(told) = told {
                    told.tell();
                }
                if sent != Sent::Received {
                    self.notifier.notify(PollMask::READABLE);
                }
                return Ok(());
            }
            Err(message) => message,
        };
        let Some(deadline) = wait else {
            drop(state);
            drop(message);
            return Err(Errno::EAGAIN);
        };
        let sleeper = Sleeper::new();
        let nice = process::current().rank();
        let place = state.queue.wait_to_send(nice, message, sleeper.clone());
        drop(state);
        if let Some(why) = sleeper.sleep(deadline) {
            let gone = self.state.lock().queue.cancel_send(place);
            if gone.is_some() {
                return Err(broken_off(why));
            }
        }
        match sleeper.take() {
            Some(Told::Sent(result)) => result,
            _ => Err(Errno::EINTR),
        }
    }

    /// Removes the oldest message of the highest priority and returns it. If the queue is empty,
    /// the call waits for a message: `wait` `None` means not at all, `Some(None)` without a time
    /// limit, and `Some(Some(time))` until `time` on the monotonic clock.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if the queue is empty and `wait` is `None`. Fails with `ETIMEDOUT` at
    /// the end of the time, and with `ERESTARTSYS` at a signal.
    pub fn receive(&self, wait: Option<Option<Nanos>>) -> Result<Message<Body>, Errno> {
        let mut state = self.state.lock();
        if let Some(message) = state.queue.receive() {
            let now = Timestamp::now();
            state.attributes.accessed = now;
            state.attributes.changed = now;
            let mask = if state.queue.is_full() {
                // A waiting sender has put its message into the free place.
                None
            } else {
                Some(PollMask::WRITABLE)
            };
            drop(state);
            if let Some(mask) = mask {
                self.notifier.notify(mask);
            }
            return Ok(message);
        }
        let Some(deadline) = wait else {
            return Err(Errno::EAGAIN);
        };
        let sleeper: QueueSleeper = Sleeper::new();
        let nice = process::current().rank();
        let place = state.queue.wait_to_receive(nice, sleeper.clone());
        drop(state);
        if let Some(why) = sleeper.sleep(deadline) {
            let gone = self.state.lock().queue.cancel_receive(place);
            if gone.is_some() {
                return Err(broken_off(why));
            }
        }
        match sleeper.take() {
            Some(Told::Received(result)) => result,
            _ => Err(Errno::EINTR),
        }
    }

    /// Registers the current process to be notified, as `notice` says, of the next message that
    /// arrives at the empty queue (`mq_notify(3)`).
    ///
    /// # Errors
    /// Fails with `EBUSY` if a living process is registered already.
    pub fn register(&self, notice: Notice) -> Result<(), Errno> {
        let current = process::current();
        let process = current.process();
        let mut state = self.state.lock();
        if state.registered().is_some() {
            return Err(Errno::EBUSY);
        }
        state.registration = Some(Registration::new(process, notice));
        state.attributes.changed = Timestamp::now();
        Ok(())
    }

    /// Ends the registration of the current process at this queue. Does nothing if it is not
    /// registered.
    pub fn unregister(&self) {
        let own = self
            .state
            .lock()
            .registration
            .take_if(|one| one.pid == pid());
        if let Some(own) = own {
            own.end();
        }
    }
}

impl State {
    /// Returns the registration if its process still exists. Returns `None` otherwise.
    fn registered(&self) -> Option<&Registration> {
        let one = self.registration.as_ref()?;
        one.holds().then_some(one)
    }
}

fn broken_off(why: BrokenOff) -> Errno {
    match why {
        BrokenOff::TimedOut => Errno::ETIMEDOUT,
        BrokenOff::Interrupted => Errno::ERESTARTSYS,
    }
}

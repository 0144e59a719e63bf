//! POSIX message queues: by name, with priorities, and a notice for who wants to hear of the first
//! message.

use super::budget::{self, Charge};
use super::sleeper::Sleeper;
use super::{Body, BrokenOff, QueueSleeper, Told, pid};
use crate::fs::node::{NodeId, next_anonymous_inode};
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{Timestamp, devices};
use crate::process;
use crate::process::signal::{Detail, SI_MESGQ, SigInfo, Signal, send_to_process};
use crate::process::task::Process;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::errno::Errno;
use logic::message_queue::Message;
use logic::priority_queue::{PriorityQueue, Sent};
use machine::arch::clock::Nanos;
use machine::sync::SpinLock;

/// The most that `fs.mqueue.msg_max` can be; root's queues may be so long whatever it says.
pub const MAX_MESSAGES: u64 = 65_536;
/// The most that `fs.mqueue.msgsize_max` can be, likewise.
pub const MAX_MESSAGE_BYTES: u64 = 16 << 20;
/// Priorities are lower than this.
pub const PRIORITIES: u32 = 32_768;

/// `/proc/sys/fs/mqueue`. What is above the first three root may still make, and everybody is root.
#[derive(Debug)]
pub struct Limits {
    /// Queues.
    pub queues: AtomicU64,
    /// Messages of a queue.
    pub messages: AtomicU64,
    /// Bytes of a message.
    pub message_bytes: AtomicU64,
    /// Messages of a queue that is made without a word about it.
    pub default_messages: AtomicU64,
    /// Bytes of a message of such a queue.
    pub default_message_bytes: AtomicU64,
}

/// Linux's defaults.
pub static LIMITS: Limits = Limits {
    queues: AtomicU64::new(256),
    messages: AtomicU64::new(10),
    message_bytes: AtomicU64::new(8192),
    default_messages: AtomicU64::new(10),
    default_message_bytes: AtomicU64::new(8192),
};

/// The size of a queue.
#[derive(Copy, Clone, Debug)]
pub struct Size {
    /// Messages.
    pub messages: u64,
    /// Bytes of each.
    pub message_bytes: u64,
}

impl Size {
    /// What a queue gets that is made without a word about it.
    pub fn default_size() -> Self {
        // Relaxed: each a value of its own.
        let least =
            |a: &AtomicU64, b: &AtomicU64| a.load(Ordering::Relaxed).min(b.load(Ordering::Relaxed));
        Self {
            messages: least(&LIMITS.messages, &LIMITS.default_messages),
            message_bytes: least(&LIMITS.message_bytes, &LIMITS.default_message_bytes),
        }
    }

    /// Bytes that it counts for against `RLIMIT_MSGQUEUE`, as on Linux: all messages, and for each what
    /// Linux needs beside it.
    fn counted(self) -> Result<u64, Errno> {
        const OF_MESSAGE: u64 = 48;
        const OF_PRIORITY: u64 = 48;
        if !(1..=MAX_MESSAGES).contains(&self.messages)
            || !(1..=MAX_MESSAGE_BYTES).contains(&self.message_bytes)
        {
            return Err(Errno::EINVAL);
        }
        let priorities = self.messages.min(PRIORITIES.into());
        // At most 2^40 by the bounds above.
        Ok(self.messages * (self.message_bytes + OF_MESSAGE) + priorities * OF_PRIORITY)
    }
}

/// What a process is told when a message comes to an empty queue where nobody waits.
#[derive(Copy, Clone, Debug)]
pub enum Notice {
    /// Nothing: it only holds the place.
    Nothing,
    /// A signal with a value; `None` is signal 0, which nobody gets.
    Signal(Option<Signal>, u64),
}

struct Registration {
    process: Weak<Process>,
    pid: u32,
    notice: Notice,
}

/// What can change of a queue as a file.
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

/// A queue. It lasts until its name is gone and nobody has it open.
pub struct MessageQueue {
    id: NodeId,
    name: Arc<[u8]>,
    unlinked: AtomicBool,
    size: Size,
    /// Taken with no other lock held; a sleeper's is taken under it.
    state: SpinLock<State>,
    pub(super) notifier: Arc<Notifier>,
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

/// The queues that have names.
static NAMES: SpinLock<BTreeMap<Arc<[u8]>, Arc<MessageQueue>>> = SpinLock::new(BTreeMap::new());

/// What all queues count for against `RLIMIT_MSGQUEUE`: there is one user.
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// So many bytes of [`COUNTED`].
struct Counted(u64);

impl Counted {
    fn take(bytes: u64, limit: u64) -> Result<Self, Errno> {
        // Relaxed: a sum of its own.
        let sum = COUNTED.fetch_add(bytes, Ordering::Relaxed);
        let counted = Self(bytes);
        // Each is at most 2^40.
        if sum + bytes > limit {
            return Err(Errno::EMFILE);
        }
        Ok(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed: as above.
        COUNTED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// How [`open`] goes about a name.
#[derive(Copy, Clone, Debug)]
pub struct Making {
    /// It must not be there.
    pub exclusive: bool,
    /// Permissions of a new queue.
    pub permissions: u32,
    /// Its size.
    pub size: Size,
}

/// Checks a name, which has no slash in front.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    const MAX_NAME: usize = 255;
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EACCES),
        _ if name.contains(&b'/') => Err(Errno::EACCES),
        _ if name.len() > MAX_NAME => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

/// The queue of this name, made if that is asked for; says whether it was.
///
/// # Errors
/// As `mq_open(3)`.
pub fn open(
    name: &[u8],
    making: Option<Making>,
    msgqueue_limit: u64,
) -> Result<(Arc<MessageQueue>, bool), Errno> {
    check_name(name)?;
    let found = NAMES.lock().get(name).cloned();
    let exclusive = making.is_some_and(|making| making.exclusive);
    let new = match (found, making) {
        (Some(_), Some(_)) if exclusive => return Err(Errno::EEXIST),
        (Some(found), _) => return Ok((found, false)),
        (None, None) => return Err(Errno::ENOENT),
        (None, Some(making)) => Arc::new(MessageQueue::new(name, making, msgqueue_limit)?),
    };
    let mut names = NAMES.lock();
    // Another may have been faster.
    if let Some(found) = names.get(name) {
        return if exclusive {
            Err(Errno::EEXIST)
        } else {
            Ok((found.clone(), false))
        };
    }
    names.insert(new.name.clone(), new.clone());
    Ok((new, true))
}

/// `mq_unlink(3)`: takes the name away. Who has the queue open keeps it.
///
/// # Errors
/// As `mq_unlink(3)`.
pub fn unlink(name: &[u8]) -> Result<(), Errno> {
    check_name(name)?;
    let gone = NAMES.lock().remove(name).ok_or(Errno::ENOENT)?;
    // Relaxed: only shown.
    gone.unlinked.store(true, Ordering::Relaxed);
    drop(gone);
    Ok(())
}

impl MessageQueue {
    fn new(name: &[u8], making: Making, msgqueue_limit: u64) -> Result<Self, Errno> {
        let counted = Counted::take(making.size.counted()?, msgqueue_limit)?;
        let charge = budget::charge(1024)?;
        let credentials = process::current().process().credentials();
        let now = Timestamp::now();
        // At most MAX_MESSAGES.
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
                    uid: credentials.uid[1],
                    gid: credentials.gid[1],
                    accessed: now,
                    modified: now,
                    changed: now,
                },
            }),
            notifier: Arc::new(Notifier::new()),
            _counted: counted,
            _charge: charge,
        })
    }

    /// Identity as a file.
    pub(super) fn file_id(&self) -> NodeId {
        self.id
    }

    /// Its name, and whether it has it still.
    pub(super) fn name(&self) -> (&[u8], bool) {
        (&self.name, !self.unlinked.load(Ordering::Relaxed))
    }

    /// Looks at or changes what it is as a file.
    pub(super) fn with_attributes<R>(&self, call: impl FnOnce(&mut Attributes) -> R) -> R {
        call(&mut self.state.lock().attributes)
    }

    /// Its size.
    pub fn size(&self) -> Size {
        self.size
    }

    /// How many messages it has.
    pub fn messages(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// What it is ready for.
    pub(super) fn ready(&self) -> PollMask {
        let state = self.state.lock();
        let mut mask = PollMask::empty();
        mask.set(PollMask::READABLE, !state.queue.is_empty());
        mask.set(PollMask::WRITABLE, !state.queue.is_full());
        mask
    }

    /// What a read of its file says: bytes, how the registered process is told, by which signal, and
    /// who it is.
    pub(super) fn status(&self) -> (usize, u32, u32, u32) {
        const SIGEV_SIGNAL: u32 = 0;
        const SIGEV_NONE: u32 = 1;
        let state = self.state.lock();
        let bytes = state.queue.bytes();
        match state.registered() {
            None => (bytes, 0, 0, 0),
            Some(one) => match one.notice {
                Notice::Nothing => (bytes, SIGEV_NONE, 0, one.pid),
                Notice::Signal(signal, _) => {
                    let number = signal.map_or(0, Signal::number);
                    (bytes, SIGEV_SIGNAL, number, one.pid)
                }
            },
        }
    }

    /// Sends a message; its type is its priority. `None`: it does not wait.
    ///
    /// # Errors
    /// As `mq_timedsend(3)`.
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
        let nice = process::current().nice();
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

    /// Receives a message. `None`: it does not wait.
    ///
    /// # Errors
    /// As `mq_timedreceive(3)`.
    pub fn receive(&self, wait: Option<Option<Nanos>>) -> Result<Message<Body>, Errno> {
        let mut state = self.state.lock();
        if let Some(message) = state.queue.receive() {
            let now = Timestamp::now();
            state.attributes.accessed = now;
            state.attributes.changed = now;
            let mask = if state.queue.is_full() {
                // A sender that waited has the place.
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
        let nice = process::current().nice();
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

    /// `mq_notify(3)`: the process that runs wants to be told of the next message to the empty queue.
    ///
    /// # Errors
    /// `EBUSY`: a process wants it already.
    pub fn register(&self, notice: Notice) -> Result<(), Errno> {
        let current = process::current();
        let process = current.process();
        let mut state = self.state.lock();
        if state.registered().is_some() {
            return Err(Errno::EBUSY);
        }
        state.registration = Some(Registration {
            process: Arc::downgrade(process),
            pid: process.pid(),
            notice,
        });
        state.attributes.changed = Timestamp::now();
        Ok(())
    }

    /// The process that runs does not want to be told any more, if it did.
    pub fn unregister(&self) {
        let mut state = self.state.lock();
        if state
            .registration
            .as_ref()
            .is_some_and(|one| one.pid == pid())
        {
            state.registration = None;
        }
    }
}

impl State {
    /// Who is registered, and lives.
    fn registered(&self) -> Option<&Registration> {
        let one = self.registration.as_ref()?;
        (one.process.strong_count() > 0).then_some(one)
    }
}

fn broken_off(why: BrokenOff) -> Errno {
    match why {
        BrokenOff::TimedOut => Errno::ETIMEDOUT,
        BrokenOff::Interrupted => Errno::ERESTARTSYS,
    }
}

impl Registration {
    /// Tells the process of a message that the one that runs has sent.
    fn tell(self) {
        let (Notice::Signal(Some(signal), value), Some(process)) =
            (self.notice, self.process.upgrade())
        else {
            return;
        };
        let current = process::current();
        let sender = current.process();
        let info = SigInfo {
            signal,
            errno: 0,
            code: SI_MESGQ,
            detail: Detail::Queued {
                pid: sender.pid(),
                uid: sender.credentials().uid[0],
                value,
            },
        };
        // A queue of signals that is full loses one, as on Linux.
        let _ = send_to_process(&process, info);
    }
}

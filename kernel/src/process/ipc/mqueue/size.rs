//! Limits on the size of POSIX message queues, and their count against `RLIMIT_MSGQUEUE`.

use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;

/// The highest value of `fs.mqueue.msg_max`. It also bounds the queues of creators whom that limit
/// does not bind.
pub const MAX_MESSAGES: u64 = 65_536;
/// The highest value of `fs.mqueue.msgsize_max`. It also bounds the queues of creators whom that
/// limit does not bind.
pub const MAX_MESSAGE_BYTES: u64 = 16 << 20;
/// The number of priorities of POSIX messages. Each priority is below this number.
pub const PRIORITIES: u32 = 32_768;

/// The limits on POSIX message queues in `/proc/sys/fs/mqueue`. A creator with `CAP_SYS_RESOURCE`
/// may exceed `queues`, `messages` and `message_bytes`.
#[derive(Debug)]
pub struct Limits {
    /// The most queues (`queues_max`).
    pub queues: AtomicU64,
    /// The most messages in a queue (`msg_max`).
    pub messages: AtomicU64,
    /// The most bytes of a message (`msgsize_max`).
    pub message_bytes: AtomicU64,
    /// The most messages in a queue that is created without attributes (`msg_default`).
    pub default_messages: AtomicU64,
    /// The most bytes of a message in a queue that is created without attributes
    /// (`msgsize_default`).
    pub default_message_bytes: AtomicU64,
}

/// The limits on POSIX message queues in force. They start as Linux's defaults.
pub static LIMITS: Limits = Limits {
    queues: AtomicU64::new(256),
    messages: AtomicU64::new(10),
    message_bytes: AtomicU64::new(8192),
    default_messages: AtomicU64::new(10),
    default_message_bytes: AtomicU64::new(8192),
};

/// The most messages that a POSIX message queue can hold, and the most bytes of each message.
#[derive(Copy, Clone, Debug)]
pub struct Size {
    /// The most messages.
    pub messages: u64,
    /// The most bytes of each message.
    pub message_bytes: u64,
}

impl Size {
    /// Returns the size of a POSIX message queue that is created without attributes.
    pub fn default_size() -> Self {
        // Relaxed: no other data depends on the limits.
        let least =
            |a: &AtomicU64, b: &AtomicU64| a.load(Ordering::Relaxed).min(b.load(Ordering::Relaxed));
        Self {
            messages: least(&LIMITS.messages, &LIMITS.default_messages),
            message_bytes: least(&LIMITS.message_bytes, &LIMITS.default_message_bytes),
        }
    }

    /// Returns whether the size is within `fs.mqueue.msg_max` and `fs.mqueue.msgsize_max`. Any
    /// process may create a queue of such a size.
    pub(super) fn is_within_limits(self) -> bool {
        self.messages <= LIMITS.messages.load(Ordering::Relaxed)
            && self.message_bytes <= LIMITS.message_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that a queue of this size counts for against `RLIMIT_MSGQUEUE`: all
    /// messages, and what Linux needs beside each of them.
    ///
    /// # Errors
    /// Fails with `EINVAL` if a part of the size is zero, or above [`MAX_MESSAGES`] or
    /// [`MAX_MESSAGE_BYTES`].
    pub(super) fn counted(self) -> Result<u64, Errno> {
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

/// The bytes that all queues of all users count for against `RLIMIT_MSGQUEUE`.
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// The number of queues, those without a name included.
static QUEUES: AtomicU64 = AtomicU64::new(0);

/// A queue that counts in [`QUEUES`] until this value is dropped.
pub(super) struct One(());

impl One {
    /// Counts one queue until the result is dropped. `exempt` says that `fs.mqueue.queues_max` does
    /// not bind the creator.
    ///
    /// # Errors
    /// Fails with `ENOSPC` if that number of queues exists already and binds the creator.
    pub(super) fn take(exempt: bool) -> Result<Self, Errno> {
        // Relaxed: no other data depends on the sum.
        let before = QUEUES.fetch_add(1, Ordering::Relaxed);
        let one = Self(());
        if !exempt && before >= LIMITS.queues.load(Ordering::Relaxed) {
            return Err(Errno::ENOSPC);
        }
        Ok(one)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        // Relaxed: no other data depends on the sum.
        QUEUES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bytes of a queue, which count in [`COUNTED`] until this value is dropped.
pub(super) struct Counted(u64);

impl Counted {
    /// Counts `bytes` bytes of a queue until the result is dropped. `limit` bounds the bytes of all
    /// queues of all users.
    ///
    /// # Errors
    /// Fails with `EMFILE` if the sum would exceed `limit`.
    pub(super) fn take(bytes: u64, limit: u64) -> Result<Self, Errno> {
        // Relaxed: no other data depends on the sum.
        let sum = COUNTED.fetch_add(bytes, Ordering::Relaxed);
        let counted = Self(bytes);
        // Each queue counts for at most 2^40 bytes, so the sum does not overflow.
        if sum + bytes > limit {
            return Err(Errno::EMFILE);
        }
        Ok(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed: no other data depends on the sum.
        COUNTED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

//! How large POSIX message queues may be, and what they count for.

use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;

/// The most that `fs.mqueue.msg_max` can be; root's queues may be so long whatever it says.
pub const MAX_MESSAGES: u64 = 65_536;
/// The most that `fs.mqueue.msgsize_max` can be, likewise.
pub const MAX_MESSAGE_BYTES: u64 = 16 << 20;
/// Priorities are lower than this.
pub const PRIORITIES: u32 = 32_768;

/// `/proc/sys/fs/mqueue`. What is above the last two of the first three root may still make.
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

    /// Whether everybody may make such a queue.
    pub(super) fn is_within_limits(self) -> bool {
        self.messages <= LIMITS.messages.load(Ordering::Relaxed)
            && self.message_bytes <= LIMITS.message_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that it counts for against `RLIMIT_MSGQUEUE`, as on Linux: all messages, and for each what
    /// Linux needs beside it.
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

/// What all queues count for against `RLIMIT_MSGQUEUE`: those of all users.
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// Queues that there are, those without a name too.
static QUEUES: AtomicU64 = AtomicU64::new(0);

/// One of [`QUEUES`], until this goes.
pub(super) struct One(());

impl One {
    /// Counts a queue. `exempt`: `fs.mqueue.queues_max` does not hold for its maker.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many.
    pub(super) fn take(exempt: bool) -> Result<Self, Errno> {
        // Relaxed: a sum of its own.
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
        // Relaxed: as above.
        QUEUES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// So many bytes of [`COUNTED`], until this goes.
pub(super) struct Counted(u64);

impl Counted {
    pub(super) fn take(bytes: u64, limit: u64) -> Result<Self, Errno> {
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

//! Resource limits.

use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use machine::sync::SpinLock;

/// The number of resource limits.
pub const COUNT: usize = 16;

/// A resource limit: the limit in force, and its upper bound. A value of [`INFINITY`] means no
/// limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit in force.
    pub current: u64,
    /// The highest value to which `current` may be raised.
    pub maximum: u64,
}

/// The value of a resource limit that does not limit.
pub const INFINITY: u64 = u64::MAX;

/// The resource limits of a process, indexed by `RLIMIT_*`.
#[derive(Copy, Clone, Debug)]
pub struct Limits(pub [Limit; COUNT]);

/// `RLIMIT_*` as indices.
pub mod index {
    use super::raw;
    /// The index of the limit on CPU time, in seconds.
    pub const CPU: usize = raw::RLIMIT_CPU as usize;
    /// The index of the limit on the size of files, in bytes.
    pub const FSIZE: usize = raw::RLIMIT_FSIZE as usize;
    /// The index of the limit on private writable memory, in bytes.
    pub const DATA: usize = raw::RLIMIT_DATA as usize;
    /// The index of the limit on the main thread's stack, in bytes.
    pub const STACK: usize = raw::RLIMIT_STACK as usize;
    /// The index of the limit on core files, in bytes.
    pub const CORE: usize = raw::RLIMIT_CORE as usize;
    /// The index of the limit on the tasks of the user.
    pub const NPROC: usize = raw::RLIMIT_NPROC as usize;
    /// The index of the limit on file descriptors.
    pub const NOFILE: usize = raw::RLIMIT_NOFILE as usize;
    /// The index of the limit on locked memory, in bytes.
    pub const MEMLOCK: usize = raw::RLIMIT_MEMLOCK as usize;
    /// The index of the limit on the address space, in bytes.
    pub const AS: usize = raw::RLIMIT_AS as usize;
    /// The index of the limit on queued signals.
    pub const SIGPENDING: usize = raw::RLIMIT_SIGPENDING as usize;
    /// The index of the limit on bytes in message queues.
    pub const MSGQUEUE: usize = raw::RLIMIT_MSGQUEUE as usize;
    /// The index of the limit on nice values: 20 minus the lowest value that may be set.
    pub const NICE: usize = raw::RLIMIT_NICE as usize;
    /// The index of the limit on the real-time priority.
    pub const RTPRIO: usize = raw::RLIMIT_RTPRIO as usize;
}

/// The resource limits of one process. Threads read the limits in force without a lock, because
/// system calls do so often.
#[derive(Debug)]
pub struct OwnLimits {
    all: SpinLock<Limits>,
    /// The `current` values of `all`, written with its lock held.
    current: [AtomicU64; COUNT],
}

impl OwnLimits {
    /// Returns the resource limits of a process, which start as `limits`.
    pub fn new(limits: Limits) -> Self {
        Self {
            all: SpinLock::new(limits),
            current: limits.0.map(|limit| AtomicU64::new(limit.current)),
        }
    }

    /// Returns the limit in force with the index `index` (see [`index`]).
    pub fn current(&self, index: usize) -> u64 {
        // Relaxed: no other data depends on the limits.
        self.current[index].load(Ordering::Relaxed)
    }

    /// Returns all limits of the process.
    pub fn all(&self) -> Limits {
        *self.all.lock()
    }

    /// Changes the limit with the index `index` (see [`index`]) to `limit`. Returns all limits
    /// after the change.
    pub fn set(&self, index: usize, limit: Limit) -> Limits {
        let mut all = self.all.lock();
        all.0[index] = limit;
        self.current[index].store(limit.current, Ordering::Relaxed);
        *all
    }
}

impl OwnLimits {
    /// Raises the limit in force with the index `index` by one if it is still `current`. Returns
    /// whether it was.
    pub fn raise(&self, index: usize, current: u64) -> bool {
        let mut all = self.all.lock();
        let limit = &mut all.0[index];
        if limit.current != current {
            return false;
        }
        limit.current = current.saturating_add(1);
        self.current[index].store(limit.current, Ordering::Relaxed);
        true
    }
}

/// The limit in force on the stack of the first program, in bytes.
pub const DEFAULT_STACK: u64 = 8 << 20;

impl Limits {
    /// Returns the resource limits of the first program. `tasks` bounds its processes and threads
    /// (`RLIMIT_NPROC`).
    pub fn initial(tasks: u64) -> Self {
        let unlimited = Limit {
            current: INFINITY,
            maximum: INFINITY,
        };
        let both = |value| Limit {
            current: value,
            maximum: value,
        };
        let mut limits = [unlimited; COUNT];
        limits[index::STACK] = Limit {
            current: DEFAULT_STACK,
            maximum: INFINITY,
        };
        limits[index::CORE] = Limit {
            current: 0,
            maximum: INFINITY,
        };
        limits[index::NPROC] = both(tasks);
        limits[index::NOFILE] = Limit {
            current: 1024,
            maximum: 1 << 20,
        };
        limits[index::MEMLOCK] = both(8 << 20);
        limits[index::SIGPENDING] = both(4096);
        limits[index::MSGQUEUE] = both(819_200);
        limits[index::NICE] = both(0);
        limits[index::RTPRIO] = both(0);
        Self(limits)
    }

    /// Returns the limit in force with the index `index` (see [`index`]).
    pub fn current(&self, index: usize) -> u64 {
        self.0[index].current
    }
}

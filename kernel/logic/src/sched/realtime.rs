//! The arithmetic of real-time policies: the order of waiting threads, and the share of a CPU that
//! they may use together.

/// The highest real-time priority; the lowest is 1.
pub const HIGHEST: u32 = 99;
/// Nanoseconds that a thread of `SCHED_RR` runs before others of its priority, unless a knob sets
/// another value.
pub const RR_SLICE_NS: u64 = 100_000_000;

/// Number of the low bits of a key, which order threads of one priority. The bits above order the
/// priorities.
const PLACE_BITS: u32 = 56;

/// The keys of threads that enter a queue of real-time threads next, at the front or at the back of
/// the threads of their priority.
#[derive(Debug)]
pub struct Places {
    front: u64,
    back: u64,
}

impl Places {
    /// Returns the places of an empty queue.
    pub const fn new() -> Self {
        const MIDDLE: u64 = 1 << (PLACE_BITS - 1);
        Self {
            front: MIDDLE,
            back: MIDDLE,
        }
    }

    /// Returns the key of a thread with `priority` that enters the queue now: before all others of
    /// its priority if `at_front`, else after them. The thread with the least key runs first.
    pub const fn key(&mut self, priority: u32, at_front: bool) -> u64 {
        // 2^55 entries at either end would take a CPU centuries, so the places do not overflow.
        let place = if at_front {
            self.front -= 1;
            self.front
        } else {
            self.back += 1;
            self.back
        };
        ((HIGHEST - priority) as u64) << PLACE_BITS | place
    }
}

impl Default for Places {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the priority in `key`, which [`Places::key`] has returned.
pub const fn priority_of(key: u64) -> u32 {
    HIGHEST - (key >> PLACE_BITS) as u32
}

/// The time of each period that real-time threads may run on a CPU together.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Length of a period in nanoseconds, not 0.
    pub period_ns: u64,
    /// Nanoseconds of a period for real-time threads. At least `period_ns` means no limit.
    pub runtime_ns: u64,
}

/// The time that real-time threads have run on a CPU, compared with their [`Share`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// When the period ends, in nanoseconds.
    pub period_end_ns: u64,
    /// Nanoseconds that the threads ran, minus [`Share::runtime_ns`] for each period that has
    /// ended, but at least 0.
    pub ran_ns: u64,
}

impl Spent {
    /// Returns this value as of `now_ns`. Each period that has ended since subtracts
    /// `share.runtime_ns` from the time that the threads ran.
    pub const fn at(self, now_ns: u64, share: Share) -> Self {
        if now_ns < self.period_end_ns {
            return self;
        }
        let ended = (now_ns - self.period_end_ns) / share.period_ns + 1;
        Self {
            period_end_ns: self
                .period_end_ns
                .saturating_add(ended.saturating_mul(share.period_ns)),
            ran_ns: self
                .ran_ns
                .saturating_sub(ended.saturating_mul(share.runtime_ns)),
        }
    }

    /// Returns this value after real-time threads ran for `ran_ns` nanoseconds until `now_ns`,
    /// under `share`. Only the part in the current period counts, and at most one period's runtime
    /// is carried over. So a thread that ran alone for long is throttled for at most one period
    /// once other threads come.
    pub const fn charged(self, now_ns: u64, ran_ns: u64, share: Share) -> Self {
        let spent = self.at(now_ns, share);
        let left_of_period = spent.period_end_ns.saturating_sub(now_ns);
        let begun_ns = share.period_ns.saturating_sub(left_of_period);
        let carried = if spent.ran_ns < share.runtime_ns {
            spent.ran_ns
        } else {
            share.runtime_ns
        };
        let ran_ns = if ran_ns < begun_ns { ran_ns } else { begun_ns };
        Self {
            ran_ns: carried.saturating_add(ran_ns),
            ..spent
        }
    }

    /// Returns for how many nanoseconds of this period real-time threads may still run, under
    /// `share`. Returns `None` if `share` sets no limit.
    pub const fn left_ns(self, share: Share) -> Option<u64> {
        if share.runtime_ns >= share.period_ns {
            return None;
        }
        Some(share.runtime_ns.saturating_sub(self.ran_ns))
    }
}

//! The scheduler's arithmetic: weights, slices, placement.

/// Length of a thread's slice of the CPU.
pub const SLICE_NS: u64 = 10_000_000;
/// Length of a slice while more than [`MANY`] threads wait.
pub const SHORT_SLICE_NS: u64 = 4_000_000;
/// Lower bound of a slice's length.
pub const LEAST_SLICE_NS: u64 = 1_000_000;
/// If more threads than this wait, slices are short.
pub const MANY: usize = 4;
/// How far before the least virtual time of the queue a thread may be placed after a sleep.
pub const SLEEPER_CREDIT_NS: u64 = SLICE_NS / 2;
/// A woken thread preempts the running thread only if the virtual time of the woken thread is less
/// by more than this.
pub const WAKE_GRANULARITY_NS: u64 = 1_000_000;
/// The time for which a running thread keeps the CPU in each slice before a woken thread may
/// preempt it.
pub const UNDISTURBED_NS: u64 = 200_000;

/// Weight of nice 0.
const NICE_0_WEIGHT: u64 = 1024;

/// The nice value, beyond the last real one, of tasks that only use time that other tasks leave.
pub const IDLE_NICE: i32 = 20;
/// The nice value of threads that do not share the CPU by weight.
pub const NO_WEIGHT: i32 = i32::MIN;
/// The weight of [`IDLE_NICE`].
const IDLE_WEIGHT: u64 = 3;

/// Returns the weight of a thread with the nice value `nice`. Each step of `nice` changes the
/// weight by a factor of 1.25, as on Linux.
pub const fn weight(nice: i32) -> u64 {
    const WEIGHTS: [u64; 40] = weights();
    if nice >= IDLE_NICE {
        return IDLE_WEIGHT;
    }
    let nice = if nice < -20 {
        -20
    } else if nice > 19 {
        19
    } else {
        nice
    };
    WEIGHTS[(nice + 20).cast_unsigned() as usize]
}

const fn weights() -> [u64; 40] {
    let mut weights = [NICE_0_WEIGHT; 40];
    let mut i = 21;
    while i < 40 {
        weights[i] = (weights[i - 1] * 4).div_ceil(5);
        i += 1;
    }
    let mut i = 20;
    while i > 0 {
        i -= 1;
        weights[i] = weights[i + 1] * 5 / 4;
    }
    weights
}

/// Returns the virtual time that a thread with the nice value `nice` gets for `ran_ns` nanoseconds
/// on a CPU.
pub fn scaled(ran_ns: u64, nice: i32) -> u64 {
    if nice == 0 {
        ran_ns
    } else {
        ran_ns.saturating_mul(NICE_0_WEIGHT) / weight(nice)
    }
}

/// Returns the slice in nanoseconds of a thread with the nice value `nice` while `waiting` threads
/// wait. A thread of less weight than nice 0 has a proportionally shorter slice, down to
/// [`LEAST_SLICE_NS`], so that other threads do not wait long for it.
pub fn slice_ns(waiting: usize, nice: i32) -> u64 {
    let full = if waiting > MANY {
        SHORT_SLICE_NS
    } else {
        SLICE_NS
    };
    if nice <= 0 {
        return full;
    }
    (full * weight(nice) / NICE_0_WEIGHT).max(LEAST_SLICE_NS)
}

/// Returns for how many nanoseconds a thread with the nice value `nice` continues after its slice
/// has ended. Its virtual time is `lead_ns` less than that of all `waiting` threads. It runs until
/// it has caught up with them, at least [`LEAST_SLICE_NS`] and at most one slice.
pub fn renewal_ns(lead_ns: u64, waiting: usize, nice: i32) -> u64 {
    let catches_up = lead_ns.saturating_mul(weight(nice)) / NICE_0_WEIGHT;
    catches_up.clamp(LEAST_SLICE_NS, slice_ns(waiting, nice))
}

/// Returns the virtual time at which a thread with the virtual time `own` enters a queue whose
/// least virtual time is `min`. It is at least `min`, less the credit of a sleeper if the thread
/// `slept`. It is at most [`MAX_LAG_NS`] after `min`, so that the thread does not starve after a
/// long time on a crowded CPU.
pub const fn place(own: u64, min: u64, slept: bool) -> u64 {
    let earliest = if slept {
        min.saturating_sub(SLEEPER_CREDIT_NS)
    } else {
        min
    };
    let latest = min.saturating_add(MAX_LAG_NS);
    if own < earliest {
        earliest
    } else if own > latest {
        latest
    } else {
        own
    }
}

/// The most by which a thread is placed behind the first one of a queue, in virtual time. A slice
/// of the least weight, that of [`IDLE_NICE`], counts for about a third of it.
pub const MAX_LAG_NS: u64 = 1_000_000_000;

/// Returns the virtual time `own` minus `min`, the least virtual time of its queue, for a move to
/// another queue. Returns 0 if `own` is less than `min`.
pub const fn relative(own: u64, min: u64) -> u64 {
    own.saturating_sub(min)
}

/// Returns the virtual time of a thread with the virtual time `own` after its move to another
/// queue. `from` is the least virtual time of the old queue, and `to` that of the new one.
pub const fn moved(own: u64, from: u64, to: u64) -> u64 {
    if own >= from {
        to.saturating_add(own - from)
    } else {
        to.saturating_sub(from - own)
    }
}

//! The scheduler's arithmetic: weights, slices, placement.

/// Time on a CPU before others get their turn.
pub const SLICE_NS: u64 = 10_000_000;
/// The same while many wait.
pub const SHORT_SLICE_NS: u64 = 4_000_000;
/// No slice is shorter.
pub const LEAST_SLICE_NS: u64 = 1_000_000;
/// More threads than this wait: slices are short.
pub const MANY: usize = 4;
/// How far ahead of the waiting a thread comes back from a sleep.
pub const SLEEPER_CREDIT_NS: u64 = SLICE_NS / 2;
/// A woken thread takes the CPU from one that is further behind than this.
pub const WAKE_GRANULARITY_NS: u64 = 1_000_000;
/// A woken thread takes the CPU at the earliest when the running one has had it for this long.
pub const UNDISTURBED_NS: u64 = 200_000;

/// Weight of nice 0.
const NICE_0_WEIGHT: u64 = 1024;

/// Stands for a nice value beyond the last: of tasks that want no more than what others leave.
pub const IDLE_NICE: i32 = 20;
/// Stands for a nice value of threads that share no CPU by weight.
pub const NO_WEIGHT: i32 = i32::MIN;
/// The weight of those beyond the last nice value.
const IDLE_WEIGHT: u64 = 3;

/// The weight of a nice value: 1.25 times for each step, as Linux's.
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

/// Virtual time for time on a CPU.
pub fn scaled(ran_ns: u64, nice: i32) -> u64 {
    if nice == 0 {
        ran_ns
    } else {
        ran_ns.saturating_mul(NICE_0_WEIGHT) / weight(nice)
    }
}

/// Returns the slice in nanoseconds of a thread with the nice value `nice` while `waiting` threads
/// wait. A thread of less weight than nice 0 has a slice shorter in proportion, down to
/// [`LEAST_SLICE_NS`], so that others wait for it no longer than it waits for them.
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

/// Returns for how many nanoseconds a thread with the nice value `nice` goes on whose slice is over
/// while its virtual time is `lead_ns` less than that of all `waiting` threads: until it has caught up
/// with them, at least [`LEAST_SLICE_NS`] and at most a slice.
pub fn renewal_ns(lead_ns: u64, waiting: usize, nice: i32) -> u64 {
    let catches_up = lead_ns.saturating_mul(weight(nice)) / NICE_0_WEIGHT;
    catches_up.clamp(LEAST_SLICE_NS, slice_ns(waiting, nice))
}

/// Where a thread enters a queue whose least virtual time is `min`: not before the credit of a
/// sleeper, and not so far behind that it starves after a long time on a crowded CPU.
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

/// No thread is placed further behind the first than this. A slice of the least weight, that of
/// [`IDLE_NICE`], counts for about a third of it.
pub const MAX_LAG_NS: u64 = 1_000_000_000;

/// A virtual time relative to its queue, for a move to another.
pub const fn relative(own: u64, min: u64) -> u64 {
    own.saturating_sub(min)
}

/// Returns the virtual time of a thread that moves from a queue whose least is `from` to one whose least
/// is `to`.
pub const fn moved(own: u64, from: u64, to: u64) -> u64 {
    if own >= from {
        to.saturating_add(own - from)
    } else {
        to.saturating_sub(from - own)
    }
}

//! Measures the CPU time that others take, such as the kernel and its threads, while a program does
//! fixed work.
//!
//! The same piece of work is repeated. Its shortest time is taken as the time without others. Any
//! time beyond that in other repetitions went to others. With `--icount` this is exact: a
//! nanosecond is an instruction, and the work consists of instructions only.

use crate::clock::monotonic_ns;
use std::time::Duration;

/// Number of `nop` instructions in a piece of work. An emulator executes them quickly.
const PIECE: usize = 400;
/// Number of pieces between two readings of the clock.
const PIECES_A_LOOK: usize = 250;
/// Length of a part in nanoseconds. The part with the least time for others shows what they take
/// when the guest is idle.
const PART_NS: u64 = 1_000_000_000;

/// Works for `time` at the lowest priority. Returns the nanoseconds that others took of the CPU in
/// all complete seconds, beyond what they take in the quietest one. Returns 0 if there are fewer
/// than two complete seconds. Sets the program's priority back to 0 at the end.
pub(crate) fn taken(time: Duration) -> u64 {
    // SAFETY: the call takes numbers only. If it fails, others wait a little longer.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    let begin = monotonic_ns();
    let end = begin + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
    let mut looks = Looks::new(begin, time);
    let mut last = begin;
    while last < end {
        for _ in 0..PIECES_A_LOOK {
            piece();
        }
        let now = monotonic_ns();
        looks.add(now, now - last);
        last = now;
    }
    // SAFETY: the call takes numbers only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
    looks.beyond_the_quietest()
}

/// The times between two readings of the clock, summed by the second.
struct Looks {
    begin: u64,
    /// The shortest time between two readings.
    alone: u64,
    /// Number of readings in each second and their total time. The vector has its final length from
    /// the start, since allocating memory during the measurement would count as work of others.
    parts: Vec<(u64, u64)>,
}

impl Looks {
    fn new(begin: u64, time: Duration) -> Self {
        let parts = usize::try_from(time.as_secs()).unwrap_or(0) + 2;
        Self {
            begin,
            alone: u64::MAX,
            parts: vec![(0, 0); parts],
        }
    }

    /// Adds one reading at the time `at`, `took` nanoseconds after the last.
    fn add(&mut self, at: u64, took: u64) {
        let part = usize::try_from((at - self.begin) / PART_NS).unwrap_or(usize::MAX);
        let last = self.parts.len() - 1;
        let (looks, time) = &mut self.parts[part.min(last)];
        *looks += 1;
        *time += took;
        self.alone = self.alone.min(took);
    }

    /// Returns the time of others in all complete seconds, beyond that in the quietest second.
    fn beyond_the_quietest(&self) -> u64 {
        let used = self.parts.iter().rposition(|(looks, _)| *looks > 0);
        // The last second is not complete.
        let whole = &self.parts[..used.unwrap_or(0)];
        let taken = |(looks, time): &(u64, u64)| time - looks * self.alone;
        let quietest = whole.iter().map(taken).min().unwrap_or(0);
        whole.iter().map(|part| taken(part) - quietest).sum()
    }
}

/// Does one piece of work.
#[inline(never)]
fn piece() {
    // SAFETY: the instructions do nothing and access neither memory nor registers.
    unsafe {
        std::arch::asm!(
            ".rept {count}",
            "nop",
            ".endr",
            count = const PIECE,
            options(nomem, nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_all_the_time_is_not_counted() {
        // Ten readings a second. In each second a tick takes 5, and in the second one another task
        // takes 40.
        let seen = |count: u64| {
            let mut looks = Looks::new(7, Duration::from_secs(4));
            for look in 0..count {
                let took = match look {
                    12 => 140,
                    look if look % 10 == 3 => 105,
                    _ => 100,
                };
                looks.add(7 + look * PART_NS / 10, took);
            }
            looks.beyond_the_quietest()
        };
        assert_eq!(seen(41), 40);
        assert_eq!(seen(5), 0);
        assert_eq!(seen(0), 0);
        // Readings after the planned end must not fail.
        assert_eq!(seen(1000), 40);
    }
}

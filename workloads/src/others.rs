//! How much of a CPU others take: the kernel and its threads, while a program does fixed work.
//!
//! The same piece of work is done again and again. The least time that a piece ever took is what it
//! takes alone; whatever a piece takes longer, others had. With `--icount` this is exact: a
//! nanosecond is an instruction, and the work is nothing but instructions.

use crate::clock::monotonic_ns;
use std::time::Duration;

/// Instructions of a piece that do nothing, which an emulator gets through quickly.
const PIECE: usize = 400;
/// Pieces between two looks at the clock.
const PIECES_A_LOOK: usize = 250;
/// The quietest part of this length says what others take when there is nothing to do.
const PART_NS: u64 = 1_000_000_000;

/// Works for `time`, at the lowest priority, and returns what others had beyond what they have in
/// the quietest second of it.
pub(crate) fn taken(time: Duration) -> u64 {
    // SAFETY: a plain call with numbers. Where it fails others wait a little longer.
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
    // SAFETY: likewise.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
    looks.beyond_the_quietest()
}

/// What was seen of the time that pieces took, by the second.
struct Looks {
    begin: u64,
    /// The least time between two looks.
    alone: u64,
    /// Looks of each second, and their time; as many as there will be, since memory that is taken
    /// meanwhile would be others' work.
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

    fn add(&mut self, at: u64, took: u64) {
        let part = usize::try_from((at - self.begin) / PART_NS).unwrap_or(usize::MAX);
        let last = self.parts.len() - 1;
        let (looks, time) = &mut self.parts[part.min(last)];
        *looks += 1;
        *time += took;
        self.alone = self.alone.min(took);
    }

    fn beyond_the_quietest(&self) -> u64 {
        let used = self.parts.iter().rposition(|(looks, _)| *looks > 0);
        // The last one is not whole.
        let whole = &self.parts[..used.unwrap_or(0)];
        let taken = |(looks, time): &(u64, u64)| time - looks * self.alone;
        let quietest = whole.iter().map(taken).min().unwrap_or(0);
        whole.iter().map(|part| taken(part) - quietest).sum()
    }
}

/// One piece of work.
#[inline(never)]
fn piece() {
    // SAFETY: it does nothing, and touches neither memory nor registers.
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
        // Ten looks a second: in each second a tick takes 5, in the second one somebody 40 more.
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
        // A clock that runs on is no reason to fail.
        assert_eq!(seen(1000), 40);
    }
}

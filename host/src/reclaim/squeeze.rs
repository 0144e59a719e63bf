//! Reclaims memory with the balloon: inflates it as far as the guest has memory to spare, and
//! deflates it again. The guest keeps its size. The host keeps the memory that was in the balloon
//! until the guest uses it again.

use crate::qemu::{Balloon, BalloonError, BalloonStats};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A guest whose balloon does not change for this time is considered finished.
const STILL: Duration = Duration::from_secs(5);
/// A guest whose balloon needs more than this time for each [`STEP`] bytes is considered finished,
/// even if it makes progress. So a guest cannot keep the host waiting by tiny changes.
const STEP_TIME: Duration = Duration::from_secs(60);
/// The time to wait for new balloon statistics. QEMU asks the guest once a second, so a guest with
/// a driver answers within it.
const TELLING: Duration = Duration::from_secs(5);
/// The smallest change of the balloon in bytes that counts as progress.
const PROGRESS: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The largest growth of the balloon in bytes between two reads of the guest's statistics.
const STEP: u64 = 128 << 20;
/// A guest keeps one part in this number of its memory available, and at least [`KEPT_MIN`] bytes.
const KEPT_PART: u64 = 16;
const KEPT_MIN: u64 = 32 << 20;

/// The amount and kind of memory to reclaim by the balloon.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// The number of bytes to reclaim. `None` means as much as the guest can spare.
    pub(crate) target: Option<u64>,
    /// Whether to take only memory that is free, so that the guest need not drop caches.
    pub(crate) only_free: bool,
}

/// The result of a reclaim by the balloon, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Squeezed {
    /// The guest's memory.
    pub(crate) memory: u64,
    /// The largest size of the balloon.
    pub(crate) ballooned: u64,
    /// The memory that the guest has not taken back, by which it is now smaller.
    pub(crate) missing: u64,
}

/// Returns how many of the `available` bytes a guest with `total` bytes of memory can spare.
fn spare(total: u64, available: u64) -> u64 {
    available.saturating_sub((total / KEPT_PART).max(KEPT_MIN))
}

/// Inflates the balloon until `wanted` is reached, the guest has nothing to spare or makes no
/// progress, its statistics do not arrive within 5 s, or `stop` is set. Then deflates it, also
/// after an error, and waits until the guest has its memory back or makes no progress for 5 s.
/// Also stops to inflate or to wait if the guest needs more than a minute for each 128 MiB, so the
/// time is bounded by the guest's memory. Restores QEMU's interval for statistics. Returns the
/// amounts in bytes. Fails if the monitor fails.
pub(crate) fn squeeze(
    balloon: &mut Balloon,
    wanted: Wanted,
    stop: &AtomicBool,
) -> Result<Squeezed, BalloonError> {
    let memory = balloon.memory()?;
    let interval = balloon.interval()?;
    balloon.set_interval(1)?;
    let inflated = inflate(balloon, memory, wanted, stop);
    // This happens even if inflating failed. An error here is returned first, because the guest
    // then has another size than before.
    balloon.set_memory(memory)?;
    let left = wait_for_memory(balloon, memory, &AtomicBool::new(false))?;
    balloon.set_interval(interval)?;
    Ok(Squeezed {
        memory,
        ballooned: inflated?,
        missing: memory.saturating_sub(left),
    })
}

/// Deflates the balloon until the guest has `full` bytes of memory, `stop` is set, or the guest
/// makes no progress for 5 s or needs more than a minute for each 128 MiB. Returns the guest's
/// memory at the end in bytes, which may be less than `full`. Fails if the monitor fails.
pub(crate) fn deflate(
    balloon: &mut Balloon,
    full: u64,
    stop: &AtomicBool,
) -> Result<u64, BalloonError> {
    balloon.set_memory(full)?;
    wait_for_memory(balloon, full, stop)
}

/// Inflates the balloon step by step. Returns its size at the end in bytes. Fails if the monitor
/// fails.
fn inflate(
    balloon: &mut Balloon,
    memory: u64,
    wanted: Wanted,
    stop: &AtomicBool,
) -> Result<u64, BalloonError> {
    let target = wanted.target.unwrap_or(u64::MAX).min(memory);
    let mut taken = 0;
    // The guest chooses how small the steps are, so the time of all together has a limit.
    let end = Instant::now() + longest(target);
    while taken < target && Instant::now() < end && !stop.load(Ordering::Relaxed) {
        let Some(stats) = wait_for_news(balloon, stop)? else {
            break;
        };
        let available = if wanted.only_free {
            stats.free.unwrap_or(stats.available)
        } else {
            stats.available
        };
        let step = spare(stats.total, available).min(STEP).min(target - taken);
        if step < 1 << 20 && step < target - taken {
            break;
        }
        balloon.set_memory(memory - taken - step)?;
        let now = wait_for_memory(balloon, memory - taken - step, stop)?;
        let before = taken;
        taken = memory.saturating_sub(now);
        if taken < before + step {
            break;
        }
    }
    Ok(taken)
}

/// Waits for new statistics of the guest. Older ones may be from a time when it had more memory to
/// spare. Returns `None` if none arrive within [`TELLING`] or `stop` is set. Fails if the monitor
/// fails.
fn wait_for_news(
    balloon: &mut Balloon,
    stop: &AtomicBool,
) -> Result<Option<BalloonStats>, BalloonError> {
    let before = balloon.stats()?;
    let deadline = Instant::now() + TELLING;
    while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        let stats = balloon.stats()?;
        if stats.is_some() && stats != before {
            return Ok(stats);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

/// Waits until the guest has `wanted` bytes, makes no progress for [`STILL`], has used up
/// [`longest`], or `stop` is set. Returns the guest's memory in bytes. Fails if the monitor fails.
fn wait_for_memory(
    balloon: &mut Balloon,
    wanted: u64,
    stop: &AtomicBool,
) -> Result<u64, BalloonError> {
    let mut last = balloon.memory()?;
    let least = last.abs_diff(wanted);
    let mut progress = Progress { wanted, least };
    let end = Instant::now() + longest(least);
    let mut deadline = Instant::now() + STILL;
    while last != wanted && Instant::now() < deadline.min(end) && !stop.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY);
        last = balloon.memory()?;
        if progress.is_closer(last) {
            deadline = Instant::now() + STILL;
        }
    }
    Ok(last)
}

/// Returns the longest time to wait for a change of the balloon by `bytes`.
fn longest(bytes: u64) -> Duration {
    STEP_TIME.saturating_mul(u32::try_from(bytes.div_ceil(STEP)).unwrap_or(u32::MAX))
}

/// The distance between a guest's memory and its target. Only a new least distance counts as
/// progress, so a guest that oscillates makes none.
struct Progress {
    wanted: u64,
    /// The least distance so far in bytes.
    least: u64,
}

impl Progress {
    /// Returns whether `now` is closer to the target than ever before, by at least [`PROGRESS`]
    /// bytes or exactly there.
    fn is_closer(&mut self, now: u64) -> bool {
        let distance = now.abs_diff(self.wanted);
        let closer =
            distance == 0 && self.least != 0 || distance.saturating_add(PROGRESS) <= self.least;
        if closer {
            self.least = distance;
        }
        closer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_keeps_what_it_works_with() {
        assert_eq!(spare(1 << 30, 600 << 20), (600 - 64) << 20);
        assert_eq!(spare(256 << 20, 33 << 20), 1 << 20);
        assert_eq!(spare(1 << 30, 10 << 20), 0);
    }

    #[test]
    fn a_guest_has_a_minute_for_each_step() {
        assert_eq!(longest(4096), STEP_TIME);
        assert_eq!(longest(STEP), STEP_TIME);
        assert_eq!(longest(8 * STEP), 8 * STEP_TIME);
        // What a monitor claims is added to the present time, which must not overflow.
        assert!(Instant::now().checked_add(longest(u64::MAX)).is_some());
    }

    #[test]
    fn a_guest_that_goes_to_and_fro_gets_nowhere() {
        let mut progress = Progress {
            wanted: 100 << 20,
            least: 50 << 20,
        };
        for _ in 0..10 {
            assert!(
                !progress.is_closer(50 << 20)
                    && !progress.is_closer(40 << 20)
                    && !progress.is_closer(200 << 20)
            );
        }
        assert!(progress.is_closer(60 << 20));
        assert!(!progress.is_closer((60 << 20) + 4096) && !progress.is_closer(60 << 20));
        assert!(progress.is_closer(100 << 20));
        assert!(!progress.is_closer(100 << 20));
    }
}

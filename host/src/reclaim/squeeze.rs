//! Memory by the balloon: inflated as far as the guest has memory to spare, and deflated again, so that the guest keeps its size
//! and what was in the balloon stays with the host until it is used.

use crate::qemu::{Balloon, BalloonError, Told};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A guest that moves no page for so long moves none any more.
const STILL: Duration = Duration::from_secs(5);
/// QEMU asks the guest for figures once a second; one that has a driver has answered by then.
const TELLING: Duration = Duration::from_secs(5);
/// Less than this is no progress.
const PROGRESS: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The balloon grows by so much between two looks at what the guest has to spare.
const STEP: u64 = 128 << 20;
/// A guest keeps this part of its memory available, and at least [`KEPT_MIN`].
const KEPT_PART: u64 = 16;
const KEPT_MIN: u64 = 32 << 20;

/// What is to be had.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// So much; all that can be spared if there is none.
    pub(crate) target: Option<u64>,
    /// Nothing that the guest would have to drop something for.
    pub(crate) only_free: bool,
}

/// What came of it, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Squeezed {
    /// What the guest has.
    pub(crate) memory: u64,
    /// The most that was in the balloon.
    pub(crate) ballooned: u64,
    /// What the guest did not take back: it is smaller than it was.
    pub(crate) missing: u64,
}

/// What a guest with so much memory in all can spare of what is available in it.
fn spare(total: u64, available: u64) -> u64 {
    available.saturating_sub((total / KEPT_PART).max(KEPT_MIN))
}

/// Inflates and deflates, until `stop`; QEMU is left as it was found, also where something fails between.
pub(crate) fn squeeze(
    balloon: &mut Balloon,
    wanted: Wanted,
    stop: &AtomicBool,
) -> Result<Squeezed, BalloonError> {
    let memory = balloon.memory()?;
    let interval = balloon.interval()?;
    balloon.set_interval(1)?;
    let inflated = inflate(balloon, memory, wanted, stop);
    // Whatever came of it. An error here is told before that of inflating: the guest is not as it was.
    balloon.set_memory(memory)?;
    let left = settle(balloon, memory, &AtomicBool::new(false))?;
    balloon.set_interval(interval)?;
    Ok(Squeezed {
        memory,
        ballooned: inflated?,
        missing: memory.saturating_sub(left),
    })
}

/// Has the guest come to have `full` bytes; what it has at last.
pub(crate) fn deflate(
    balloon: &mut Balloon,
    full: u64,
    stop: &AtomicBool,
) -> Result<u64, BalloonError> {
    balloon.set_memory(full)?;
    settle(balloon, full, stop)
}

/// Inflates step by step; how much was in the balloon at last.
fn inflate(
    balloon: &mut Balloon,
    memory: u64,
    wanted: Wanted,
    stop: &AtomicBool,
) -> Result<u64, BalloonError> {
    let target = wanted.target.unwrap_or(u64::MAX).min(memory);
    let mut taken = 0;
    // Each turn takes a whole step, or is the last.
    while taken < target && !stop.load(Ordering::Relaxed) {
        let Some(told) = wait_for_news(balloon, stop)? else {
            break;
        };
        let available = if wanted.only_free {
            told.free.unwrap_or(told.available)
        } else {
            told.available
        };
        let step = spare(told.total, available).min(STEP).min(target - taken);
        if step < 1 << 20 && step < target - taken {
            break;
        }
        balloon.set_memory(memory - taken - step)?;
        let now = settle(balloon, memory - taken - step, stop)?;
        let before = taken;
        taken = memory.saturating_sub(now);
        if taken < before + step {
            break;
        }
    }
    Ok(taken)
}

/// What the guest tells from now on: what it told before may be of a time when it had more to spare. `None` if it tells
/// nothing.
fn wait_for_news(balloon: &mut Balloon, stop: &AtomicBool) -> Result<Option<Told>, BalloonError> {
    let before = balloon.told()?;
    let deadline = Instant::now() + TELLING;
    while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        let told = balloon.told()?;
        if told.is_some() && told != before {
            return Ok(told);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

/// Waits until the guest has `wanted` bytes, or comes no closer to them; what it has then.
fn settle(balloon: &mut Balloon, wanted: u64, stop: &AtomicBool) -> Result<u64, BalloonError> {
    let mut last = balloon.memory()?;
    let mut way = Way {
        wanted,
        least: last.abs_diff(wanted),
    };
    let mut deadline = Instant::now() + STILL;
    while last != wanted && Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY);
        last = balloon.memory()?;
        if way.is_closer(last) {
            deadline = Instant::now() + STILL;
        }
    }
    Ok(last)
}

/// How far a guest is from what is wanted of it. One that goes to and fro gets nowhere.
struct Way {
    wanted: u64,
    /// The least distance so far.
    least: u64,
}

impl Way {
    /// Whether the guest is closer than ever before, by what is worth waiting for.
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
    fn a_guest_that_goes_to_and_fro_gets_nowhere() {
        let mut way = Way {
            wanted: 100 << 20,
            least: 50 << 20,
        };
        for _ in 0..10 {
            assert!(
                !way.is_closer(50 << 20) && !way.is_closer(40 << 20) && !way.is_closer(200 << 20)
            );
        }
        assert!(way.is_closer(60 << 20));
        assert!(!way.is_closer((60 << 20) + 4096) && !way.is_closer(60 << 20));
        assert!(way.is_closer(100 << 20));
        assert!(!way.is_closer(100 << 20));
    }
}

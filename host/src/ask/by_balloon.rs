//! Asking a QEMU that `ebb` need not have started, by its balloon: inflated as far as the guest has memory to spare,
//! and deflated again, so that the guest keeps its size and what was in the balloon stays with the host until it is used.

use super::amount::mebibytes;
use crate::failure::Failure;
use crate::qemu::{Balloon, BalloonError, Told};
use crate::stdout;
use crate::text::Size;
use serde::Serialize;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::Path;
use std::sync::Arc;
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
/// The status for a target that was missed, and the first of those for signals.
const MISSED: u8 = 1;
const INTERRUPTED: u8 = 130;

/// What came of it, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
struct Outcome {
    pid: Option<i32>,
    target_bytes: Option<u64>,
    memory_bytes: u64,
    /// The most that was in the balloon.
    ballooned_bytes: u64,
    /// What the guest did not take back: it is smaller than it was.
    missing_bytes: u64,
    resident_before_bytes: Option<u64>,
    resident_after_bytes: Option<u64>,
}

/// What a guest with so much memory in all can spare of what is available in it.
fn spare(total: u64, available: u64) -> u64 {
    available.saturating_sub((total / KEPT_PART).max(KEPT_MIN))
}

/// Asks for `target`, or for all that can be spared.
pub(super) fn run(path: &Path, target: Option<Size>, json: bool) -> Result<u8, Failure> {
    let failed = |error: BalloonError| {
        Failure::Usage(format!("--qmp {}: {}", path.display(), whole(&error)))
    };
    let stop = catch()?;
    let mut balloon = Balloon::connect(path).map_err(failed)?;
    let outcome = reclaim(&mut balloon, target, &stop).map_err(failed)?;
    if json {
        let text = serde_json::to_string(&outcome).map_err(|error| {
            Failure::Usage(format!("what was reclaimed cannot be written: {error}"))
        })?;
        stdout::print(&format!("{text}\n"))?;
    } else {
        let resident = outcome
            .resident_before_bytes
            .zip(outcome.resident_after_bytes);
        let resident = resident.map_or_else(String::new, |(before, after)| {
            format!(
                ", QEMU resident {} → {}",
                mebibytes(before),
                mebibytes(after)
            )
        });
        let ballooned = mebibytes(outcome.ballooned_bytes);
        stdout::print(&format!("balloon  {ballooned:>9}{resident}\n"))?;
    }
    if outcome.missing_bytes != 0 {
        eprintln!(
            "ebb: the guest does not take {} back out of its balloon; it is allowed to",
            mebibytes(outcome.missing_bytes)
        );
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    match target {
        Some(target) if outcome.ballooned_bytes < target.bytes() => {
            eprintln!(
                "ebb: the balloon took {} of {target}: the guest uses the rest, or keeps it for itself",
                mebibytes(outcome.ballooned_bytes)
            );
            Ok(MISSED)
        }
        _ => Ok(0),
    }
}

/// An error with what it came from.
fn whole(error: &BalloonError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn catch() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The second one ends ebb at once, in the order in which these are registered.
        let second = flag::register_conditional_default(signal, Arc::clone(&stop));
        second
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|source| Failure::Setup {
                what: "signal handlers",
                source,
            })?;
    }
    Ok(stop)
}

/// Inflates and deflates; QEMU is left as it was found, also where something fails between.
fn reclaim(
    balloon: &mut Balloon,
    target: Option<Size>,
    stop: &AtomicBool,
) -> Result<Outcome, BalloonError> {
    let memory = balloon.memory()?;
    let interval = balloon.interval()?;
    let resident_before_bytes = resident(balloon.pid);
    balloon.set_interval(1)?;
    let inflated = inflate(balloon, memory, target.map(Size::bytes), stop);
    // Whatever came of it. An error here is told before that of inflating: the guest is not as it was.
    balloon.set_memory(memory)?;
    let left = settle(balloon, memory, &AtomicBool::new(false))?;
    balloon.set_interval(interval)?;
    Ok(Outcome {
        pid: balloon.pid,
        target_bytes: target.map(Size::bytes),
        memory_bytes: memory,
        ballooned_bytes: inflated?,
        missing_bytes: memory.saturating_sub(left),
        resident_before_bytes,
        resident_after_bytes: resident(balloon.pid),
    })
}

/// Inflates step by step; how much was in the balloon at last.
fn inflate(
    balloon: &mut Balloon,
    memory: u64,
    target: Option<u64>,
    stop: &AtomicBool,
) -> Result<u64, BalloonError> {
    let target = target.unwrap_or(u64::MAX).min(memory);
    let mut taken = 0;
    // Each turn takes a whole step, or is the last.
    while taken < target && !stop.load(Ordering::Relaxed) {
        let Some(told) = wait_for_news(balloon, stop)? else {
            break;
        };
        let step = spare(told.total, told.available)
            .min(STEP)
            .min(target - taken);
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
    let before = balloon.told()?.map_or(0, |told| told.at);
    let deadline = Instant::now() + TELLING;
    while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        if let Some(told) = balloon.told()?
            && told.at > before
        {
            return Ok(Some(told));
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

/// What a process holds of the host's memory.
fn resident(pid: Option<i32>) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", pid?)).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
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

    #[test]
    fn what_a_process_holds_is_known() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(resident(Some(own)).is_some_and(|bytes| bytes > 1 << 16));
        assert_eq!((resident(Some(-1)), resident(None)), (None, None));
    }
}

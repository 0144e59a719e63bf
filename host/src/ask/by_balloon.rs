//! Asking a QEMU that `ebb` need not have started, by its balloon: inflated as far as the guest has memory to spare,
//! and deflated again, so that the guest keeps its size and what was in the balloon stays with the host until it is used.

use super::amount::mebibytes;
use super::json::print_json;
use crate::failure::Failure;
use crate::qemu::{Balloon, BalloonError};
use crate::reclaim::{Wanted, deflate as let_go, squeeze};
use crate::stdout;
use crate::text::{Size, one_line, stderr};
use serde::Serialize;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Asks for `target`, or for all that can be spared.
pub(super) fn run(path: &Path, target: Option<Size>, json: bool) -> Result<u8, Failure> {
    let failed = |error: BalloonError| {
        Failure::Usage(format!("--qmp {}: {}", one_line(path), error.whole()))
    };
    let stop = catch()?;
    let mut balloon = Balloon::connect(path).map_err(failed)?;
    let outcome = reclaim(&mut balloon, target, &stop).map_err(failed)?;
    if json {
        print_json(&outcome)?;
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
        stderr::say(&format!(
            "ebb: the guest does not take {} back out of its balloon; it is allowed to",
            mebibytes(outcome.missing_bytes)
        ));
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    match target {
        Some(target) if outcome.ballooned_bytes < target.bytes() => {
            stderr::say(&format!(
                "ebb: the balloon took {} of {target}: the guest uses the rest, or keeps it for itself",
                mebibytes(outcome.ballooned_bytes)
            ));
            Ok(MISSED)
        }
        _ => Ok(0),
    }
}

/// What came of deflating, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
struct Deflated {
    pid: Option<i32>,
    memory_before_bytes: u64,
    memory_after_bytes: u64,
    /// What the guest was started with.
    memory_full_bytes: u64,
}

/// Has the guest take back all that is in its balloon.
pub(super) fn deflate(path: &Path, json: bool) -> Result<u8, Failure> {
    let failed = |error: BalloonError| {
        Failure::Usage(format!("--qmp {}: {}", one_line(path), error.whole()))
    };
    let stop = catch()?;
    let mut balloon = Balloon::connect(path).map_err(failed)?;
    let before = balloon.memory().map_err(failed)?;
    let full = balloon.full_memory().map_err(failed)?;
    let after = let_go(&mut balloon, full, &stop).map_err(failed)?;
    let deflated = Deflated {
        pid: balloon.pid,
        memory_before_bytes: before,
        memory_after_bytes: after,
        memory_full_bytes: full,
    };
    if json {
        print_json(&deflated)?;
    } else {
        let [before, after, full] = [before, after, full].map(mebibytes);
        stdout::print(&format!(
            "the guest has {} of {}, before {}\n",
            after, full, before
        ))?;
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    Ok(if after < full { MISSED } else { 0 })
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

/// Inflates and deflates, and says what QEMU held before and after.
fn reclaim(
    balloon: &mut Balloon,
    target: Option<Size>,
    stop: &AtomicBool,
) -> Result<Outcome, BalloonError> {
    let resident_before_bytes = balloon.resident().ok();
    let target_bytes = target.map(Size::bytes);
    let wanted = Wanted {
        target: target_bytes,
        only_free: false,
    };
    let squeezed = squeeze(balloon, wanted, stop)?;
    Ok(Outcome {
        pid: balloon.pid,
        target_bytes,
        memory_bytes: squeezed.memory,
        ballooned_bytes: squeezed.ballooned,
        missing_bytes: squeezed.missing,
        resident_before_bytes,
        resident_after_bytes: balloon.resident().ok(),
    })
}

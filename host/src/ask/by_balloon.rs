//! `ebb reclaim --qmp`: reclaims memory of any QEMU, which `ebb` need not have started, by its
//! balloon.
//!
//! The balloon is inflated as far as the guest has memory to spare, and deflated again. So the
//! guest keeps its size, and the host keeps the memory until the guest uses it again. The comments
//! on the fields of results are the text of docs/json.md.

use super::amount::{mebibytes, resident_change};
use super::json::print_json;
use crate::failure::Failure;
use crate::qemu::{Balloon, BalloonError};
use crate::reclaim::{Wanted, deflate as let_go, squeeze};
use crate::stdout;
use crate::system::without_ignored_hangup;
use crate::text::{Size, one_line, stderr};
use serde::Serialize;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit status if the target was missed.
const MISSED: u8 = 1;
/// The exit status after a signal: that for SIGINT.
const INTERRUPTED: u8 = 130;

/// The result of reclaiming by the balloon.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BalloonOutcome {
    /// QEMU's process number. Null if it is unknown.
    pid: Option<i32>,
    /// The value of `--target`. Null without it.
    target_bytes: Option<u64>,
    /// The guest's memory after the balloon was deflated.
    memory_bytes: u64,
    /// The largest size of the balloon.
    ballooned_bytes: u64,
    /// Memory that the guest has not taken back out of the balloon.
    missing_bytes: u64,
    /// QEMU's resident memory before. Null if it is unknown.
    resident_before_bytes: Option<u64>,
    /// QEMU's resident memory after. Null if it is unknown.
    resident_after_bytes: Option<u64>,
}

/// Reclaims `target`, or all memory that the guest can spare, from the QEMU whose QMP socket is at
/// `path`, and prints the result. Inflates the balloon and deflates it again. Installs handlers for
/// SIGINT, SIGTERM and SIGHUP.
///
/// Returns the exit status: 0, `MISSED` if the target was missed, or `INTERRUPTED` after a signal.
/// Prints a warning if the guest does not take all memory back, which does not change the status.
/// Fails if QEMU cannot be reached or has no balloon, or if the result cannot be printed.
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
        let ballooned = mebibytes(outcome.ballooned_bytes);
        let mut text = format!("balloon  {ballooned:>10} of the guest's memory at its largest\n");
        let resident = outcome
            .resident_before_bytes
            .zip(outcome.resident_after_bytes);
        // The host may have held less of the memory that was in the balloon.
        if let Some((before, after)) = resident {
            text.push_str(&format!("QEMU     {}\n", resident_change(before, after)));
        }
        stdout::print(&text)?;
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

/// The result of deflating.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Deflated {
    /// QEMU's process number. Null if it is unknown.
    pid: Option<i32>,
    /// The guest's memory before.
    memory_before_bytes: u64,
    /// The guest's memory after.
    memory_after_bytes: u64,
    /// The guest's memory with an empty balloon.
    memory_full_bytes: u64,
}

/// Deflates the balloon of the QEMU whose QMP socket is at `path`, and prints the guest's memory
/// before and after. Installs handlers for SIGINT, SIGTERM and SIGHUP.
///
/// Returns the exit status: 0, `MISSED` if the balloon is not empty afterwards, or `INTERRUPTED`
/// after a signal. Fails if QEMU cannot be reached or has no balloon, or if the result cannot be
/// printed.
pub(super) fn deflate(path: &Path, json: bool) -> Result<u8, Failure> {
    let failed = |error: BalloonError| {
        Failure::Usage(format!("--qmp {}: {}", one_line(path), error.whole()))
    };
    let stop = catch()?;
    let mut balloon = Balloon::connect(path).map_err(failed)?;
    let before = balloon.memory().map_err(failed)?;
    let full = balloon.full_memory().map_err(failed)?.balloonable;
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

/// Installs handlers for SIGINT, SIGTERM and SIGHUP, unless SIGHUP is ignored. Returns the flag
/// that the first signal sets.
fn catch() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in without_ignored_hangup([SIGINT, SIGTERM, SIGHUP]) {
        // The second signal ends `ebb` at once, because the conditional default is registered
        // first.
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

/// Inflates and deflates the balloon. Returns the result, with QEMU's resident memory before and
/// after.
fn reclaim(
    balloon: &mut Balloon,
    target: Option<Size>,
    stop: &AtomicBool,
) -> Result<BalloonOutcome, BalloonError> {
    let resident_before_bytes = balloon.resident().ok();
    let target_bytes = target.map(Size::bytes);
    let wanted = Wanted {
        target: target_bytes,
        only_free: false,
    };
    let squeezed = squeeze(balloon, wanted, stop)?;
    Ok(BalloonOutcome {
        pid: balloon.pid,
        target_bytes,
        memory_bytes: squeezed.memory,
        ballooned_bytes: squeezed.ballooned,
        missing_bytes: squeezed.missing,
        resident_before_bytes,
        resident_after_bytes: balloon.resident().ok(),
    })
}

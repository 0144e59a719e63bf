//! The experiment that measures how fast a guest shrinks and grows, with memory that it has never
//! touched and with memory that it has.

use super::super::elastic::Kind;
use super::super::schema::{Better, Event, Run, What};
use super::column::Column;
use super::guest::{Guest, Stop};
use super::memory_control::MemoryControl;
use super::resident_files::ResidentFiles;
use super::setup::Setup;
use super::sums::result;
use crate::failure::Failure;
use crate::text::Size;
use std::thread;
use std::time::{Duration, Instant};

/// The interval at which the RAM file is polled.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The time without progress after which shrinking counts as stuck.
const STUCK: Duration = Duration::from_secs(20);
/// The share of the touched memory that must go back to the host. A kernel keeps a little.
const NEARLY_ALL: f64 = 0.95;
/// The timeout for a guest to plug in all of its memory.
const READY: Duration = Duration::from_secs(120);

/// Runs one guest with `memory` as round `round` of `column`. Returns the run with its outcome and
/// figures. A guest that fails or cannot be reached makes the outcome a failure. Fails only if the
/// guest's process cannot be started or waited for.
pub(super) fn run(
    setup: &Setup<'_>,
    memory: Size,
    column: &Column,
    round: u32,
) -> Result<Run, Failure> {
    let kind = Kind::Memory;
    let mut guest = setup.start(kind, memory, column)?;
    let measured = measure(setup, memory, column, &mut guest);
    let (mut end, mut events) = guest.finish()?;
    match measured {
        Ok(more) => {
            events.extend(filled(&events, &more, kind.leaving(memory)));
            events.extend(more.events);
        }
        Err(stop) => end = stop.over(end),
    }
    Ok(setup.finished((kind, memory, column, round), end, events))
}

/// The host's measurements.
struct HostResults {
    events: Vec<Event>,
    /// The time until the guest had the touched memory again.
    grown: Duration,
}

/// Shrinks and grows the guest for untouched and for touched memory. Fails if the guest ends early
/// or cannot be reached.
fn measure(
    setup: &Setup<'_>,
    memory: Size,
    column: &Column,
    guest: &mut Guest<'_>,
) -> Result<HostResults, Stop> {
    if !guest.until("turn") {
        return Err(Stop::Ended);
    }
    let bytes = Kind::Memory.leaving(memory);
    let mut control = MemoryControl::connect(column.by, guest.pid(), &setup.socket(), bytes)?;
    let resident = ResidentFiles::of(guest.pid())?;
    let since = Instant::now();
    while !control.has_grown()? {
        if since.elapsed() > READY {
            return Err("the guest does not plug its memory in".into());
        }
        thread::sleep(LOOK_EVERY);
    }
    guest.go();
    let mut results = HostResults {
        events: Vec::new(),
        grown: Duration::ZERO,
    };
    for (phase, pages) in [("untouched", "untouched"), ("freed", "touched")] {
        if !guest.until(phase) {
            return Err(Stop::Ended);
        }
        let label = [("pages", pages)];
        let rate = |metric: &str, took: Duration| {
            let rate = per_second(bytes, took);
            result(metric, rate, "GiB/s", Better::Higher, &label)
        };
        let touched = pages == "touched";
        if let Some(took) = shrink(&mut control, &resident, bytes, touched)? {
            results.events.push(rate("shrink", took));
        }
        if touched {
            let left = float(resident.bytes());
            let event = result("held_after_shrink", left, "B", Better::Lower, &[]);
            results.events.push(event);
        }
        let since = Instant::now();
        control.start_grow()?;
        while !control.has_grown()? {
            if since.elapsed() > READY {
                return Err("the guest does not take its memory back".into());
            }
            thread::sleep(LOOK_EVERY);
        }
        if control.grows() {
            results.grown = since.elapsed();
            results.events.push(rate("grow", results.grown));
        }
        guest.go();
    }
    Ok(results)
}

/// Takes `bytes` from the guest and returns how long that took. Returns `None` if it does not
/// complete, or if its completion cannot be seen. Fails if the guest cannot be reached.
fn shrink(
    control: &mut MemoryControl,
    resident: &ResidentFiles,
    bytes: u64,
    touched: bool,
) -> Result<Option<Duration>, String> {
    let before = resident.bytes();
    let begin = Instant::now();
    control.start_shrink()?;
    let (mut least, mut moved) = (before, begin);
    loop {
        let now = resident.bytes();
        // Only steps of 1 MiB count, so that a guest which frees a page now and then counts as
        // stuck.
        if now + (1 << 20) <= least {
            (least, moved) = (now, Instant::now());
        }
        if touched && float(before.saturating_sub(now)) >= NEARLY_ALL * float(bytes) {
            return Ok(Some(begin.elapsed()));
        }
        match control.has_shrunk()? {
            Some(true) => return Ok(Some(begin.elapsed())),
            // The host holds no memory for untouched pages, so nothing can be seen.
            None if !touched => return Ok(None),
            _ if moved.elapsed() > STUCK => return Ok(None),
            _ => {}
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Returns the rate at which the guest got its memory with pages in place: by the host's time of
/// growing plus the guest's time of filling. Returns `None` if the guest did not report its time.
fn filled(events: &[Event], results: &HostResults, bytes: u64) -> Option<Event> {
    let fill = events.iter().rev().find_map(|event| match &event.what {
        What::Result { metric, value, .. } if metric == "fill_s" => Some(*value),
        _ => None,
    })?;
    let took = Duration::try_from_secs_f64(fill).ok()? + results.grown;
    Some(result(
        "grow_and_fill",
        per_second(bytes, took),
        "GiB/s",
        Better::Higher,
        &[("pages", "touched")],
    ))
}

/// Returns the rate in GiB per second.
fn per_second(bytes: u64, took: Duration) -> f64 {
    float(bytes) / float(1 << 30) / took.as_secs_f64().max(1e-9)
}

/// Converts bytes to a float. Amounts of one machine are exact in an `f64`.
#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

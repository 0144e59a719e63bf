//! How fast a guest shrinks and grows: memory that it has never touched, and memory that it has.

use super::super::elastic::Kind;
use super::super::schema::{Better, Event, Run, What};
use super::column::Column;
use super::guest::{Guest, Stop};
use super::hand::Hand;
use super::held::Held;
use super::setup::Setup;
use super::sums::result;
use crate::failure::Failure;
use crate::text::Size;
use std::thread;
use std::time::{Duration, Instant};

/// How often the RAM's file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A way that goes no further for this long does not get there.
const STUCK: Duration = Duration::from_secs(20);
/// All but this share of what was touched has to be back on the host: a kernel keeps a little.
const NEARLY_ALL: f64 = 0.95;
/// How long a guest may take to have all of its memory plugged in at first.
const READY: Duration = Duration::from_secs(120);

/// Runs one guest once.
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

/// What the host saw.
struct Seen {
    events: Vec<Event>,
    /// How long it took until the touched memory was the guest's again.
    grown: Duration,
}

fn measure(
    setup: &Setup<'_>,
    memory: Size,
    column: &Column,
    guest: &mut Guest<'_>,
) -> Result<Seen, Stop> {
    if !guest.until("turn") {
        return Err(Stop::Ended);
    }
    let bytes = Kind::Memory.leaving(memory);
    let mut hand = Hand::on(column.by, guest.pid(), &setup.socket(), bytes)?;
    let held = Held::of(guest.pid())?;
    let since = Instant::now();
    while !hand.has_come()? {
        if since.elapsed() > READY {
            return Err("the guest does not plug its memory in".into());
        }
        thread::sleep(LOOK_EVERY);
    }
    guest.go();
    let mut seen = Seen {
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
        if let Some(took) = shrink(&mut hand, &held, bytes, touched)? {
            seen.events.push(rate("shrink", took));
        }
        if touched {
            let left = float(held.bytes());
            let event = result("held_after_shrink", left, "B", Better::Lower, &[]);
            seen.events.push(event);
        }
        let since = Instant::now();
        hand.come()?;
        while !hand.has_come()? {
            if since.elapsed() > READY {
                return Err("the guest does not take its memory back".into());
            }
            thread::sleep(LOOK_EVERY);
        }
        if hand.grows() {
            seen.grown = since.elapsed();
            seen.events.push(rate("grow", seen.grown));
        }
        guest.go();
    }
    Ok(seen)
}

/// Has memory leave. Returns how long it took; `None` where it does not get there, or where nothing says so.
fn shrink(
    hand: &mut Hand,
    held: &Held,
    bytes: u64,
    touched: bool,
) -> Result<Option<Duration>, String> {
    let before = held.bytes();
    let begin = Instant::now();
    hand.leave()?;
    let (mut least, mut moved) = (before, begin);
    loop {
        let now = held.bytes();
        // In steps, so that a guest whose kernel frees a page now and then counts as stuck.
        if now + (1 << 20) <= least {
            (least, moved) = (now, Instant::now());
        }
        if touched && float(before.saturating_sub(now)) >= NEARLY_ALL * float(bytes) {
            return Ok(Some(begin.elapsed()));
        }
        match hand.has_left()? {
            Some(true) => return Ok(Some(begin.elapsed())),
            // The host holds none of it, so there is nothing to see.
            None if !touched => return Ok(None),
            _ if moved.elapsed() > STUCK => return Ok(None),
            _ => {}
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// How fast the guest had the memory again with its pages in place, by the host's time and its own.
fn filled(events: &[Event], seen: &Seen, bytes: u64) -> Option<Event> {
    let fill = events.iter().rev().find_map(|event| match &event.what {
        What::Result { metric, value, .. } if metric == "fill_s" => Some(*value),
        _ => None,
    })?;
    let took = Duration::try_from_secs_f64(fill).ok()? + seen.grown;
    Some(result(
        "grow_and_fill",
        per_second(bytes, took),
        "GiB/s",
        Better::Higher,
        &[("pages", "touched")],
    ))
}

/// GiB a second.
fn per_second(bytes: u64, took: Duration) -> f64 {
    float(bytes) / float(1 << 30) / took.as_secs_f64().max(1e-9)
}

/// Bytes of one machine are exact in a float.
#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

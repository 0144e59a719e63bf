//! The experiment with one guest, or three, that builds and rests: what the host holds for all of
//! them.

use super::super::elastic::Kind;
use super::super::schema::{Better, Outcome, Run};
use super::column::Column;
use super::guest::{Guest, Stop, WaitResult};
use super::resident_files::ResidentFiles;
use super::setup::Setup;
use super::sums::{MemoryCurve, result};
use crate::failure::Failure;
use crate::text::Size;
use std::time::{Duration, Instant};

/// The interval at which the host's memory is sampled, divided among the guests.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the guests of `kind`, one or three, with `memory` each, as round `round` of `column`.
/// Returns the run with its outcome and figures. A guest that fails or ends early makes the outcome
/// a failure. Fails only if a guest's process cannot be started or waited for.
pub(super) fn run(
    setup: &Setup<'_>,
    kind: Kind,
    memory: Size,
    column: &Column,
    round: u32,
) -> Result<Run, Failure> {
    let mut guests = Vec::new();
    for _ in 0..kind.guests() {
        guests.push(setup.start(kind, memory, column)?);
    }
    let curve = watch(&mut guests);
    let mut end = (Outcome::Ok, None);
    let mut events = Vec::new();
    for guest in guests {
        let (one, more) = guest.finish()?;
        if end.0 == Outcome::Ok {
            end = one;
        }
        events.extend(more);
    }
    match curve {
        Ok(curve) => {
            let area = curve.area() / 60.0;
            events.push(result("held_area", area, "GiB·min", Better::Lower, &[]));
            events.push(result("held_peak", curve.peak(), "B", Better::Lower, &[]));
            events.push(result("whole_s", curve.seconds(), "s", Better::Lower, &[]));
        }
        Err(stop) => end = stop.over(end),
    }
    Ok(setup.finished((kind, memory, column, round), end, events))
}

/// Lets the guests build, and returns the curve of the host's memory. Each guest starts when the
/// one before has finished its first round. Fails if a guest ends too early or its RAM file is not
/// found.
fn watch(guests: &mut [Guest<'_>]) -> Result<MemoryCurve, Stop> {
    let mut resident = Vec::new();
    for guest in guests.iter_mut() {
        if !guest.until("turn") {
            return Err(Stop::Ended);
        }
        resident.push(ResidentFiles::of(guest.pid())?);
    }
    let begin = Instant::now();
    let mut curve = MemoryCurve::default();
    let mut built = vec![0_u32; guests.len()];
    let mut over = vec![false; guests.len()];
    let mut gone = 0;
    guests[0].go();
    let mut started = 1;
    while gone < guests.len() {
        for (index, guest) in guests.iter_mut().enumerate() {
            if over[index] && resident[index].bytes() == 0 {
                continue;
            }
            match guest.wait_for_phase(LOOK) {
                WaitResult::Phase(name) if name == "built" => built[index] += 1,
                // The guest asks for a turn after its last round. It gets no more turns.
                WaitResult::Phase(name) if name == "turn" => guest.dismiss(),
                WaitResult::Ended if !over[index] => {
                    over[index] = true;
                    gone += 1;
                }
                _ => {}
            }
            let sum = resident.iter().map(ResidentFiles::bytes).sum();
            curve.add(begin.elapsed(), sum);
        }
        // The guests start a part of a round apart, however fast the machine is.
        if started < guests.len() && built[started - 1] > 0 {
            guests[started].go();
            started += 1;
        }
        if over.iter().take(started).any(|over| *over) && started < guests.len() {
            return Err(Stop::Ended);
        }
    }
    Ok(curve)
}

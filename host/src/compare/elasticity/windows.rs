//! The experiments with STREAM and FTQ, while memory leaves and returns.

use super::super::elastic::Kind;
use super::super::schema::Run;
use super::column::Column;
use super::guest::{Guest, Stop, WaitResult};
use super::memory_control::MemoryControl;
use super::setup::Setup;
use super::sums::losses;
use crate::failure::Failure;
use crate::text::Size;
use std::time::Duration;

/// The timeout of one wait for the next phase.
const LOOK: Duration = Duration::from_millis(100);

/// Runs one guest with `memory`, with all rounds of its windows, as round `round` of `column`.
/// Returns the run with its outcome, its figures and the losses. A guest that fails or cannot be
/// reached makes the outcome a failure. Fails only if the guest's process cannot be started or
/// waited for.
pub(super) fn run(
    setup: &Setup<'_>,
    kind: Kind,
    memory: Size,
    column: &Column,
    round: u32,
) -> Result<Run, Failure> {
    let mut guest = setup.start(kind, memory, column)?;
    let done = accompany(setup, kind, memory, column, &mut guest);
    let (mut end, mut events) = guest.finish()?;
    if let Err(stop) = done {
        end = stop.over(end);
    }
    events.extend(losses(&events));
    Ok(setup.finished((kind, memory, column, round), end, events))
}

/// Takes memory from the guest and returns it, in the phases of the guest's program that ask for
/// it. Fails if the guest ends early or cannot be reached.
fn accompany(
    setup: &Setup<'_>,
    kind: Kind,
    memory: Size,
    column: &Column,
    guest: &mut Guest<'_>,
) -> Result<(), Stop> {
    if !guest.until("turn") {
        return Err(Stop::Ended);
    }
    let bytes = kind.leaving(memory);
    let mut control = MemoryControl::connect(column.by, guest.pid(), &setup.socket(), bytes)?;
    guest.go();
    loop {
        match guest.wait_for_phase(LOOK) {
            WaitResult::Phase(name) => match name.as_str() {
                "leave" => control.start_shrink()?,
                "return" => control.start_grow()?,
                // All rounds are done.
                "end" => return Ok(()),
                _ => {}
            },
            WaitResult::Nothing => {}
            WaitResult::Ended => return Err(Stop::Ended),
        }
    }
}

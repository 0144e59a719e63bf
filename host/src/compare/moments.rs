//! Finds moments of a run in its timeline and its program's phases.

use super::schema::{Point, Run, What};

/// Returns when the phase `wanted` began, in seconds of the guest's clock. Returns `None` if the
/// program did not report that phase. Names of the first and last phase that other programs use
/// match, too.
pub(super) fn guest_clock(run: &Run, wanted: &str) -> Option<f64> {
    run.events.iter().find_map(|event| match &event.what {
        What::Phase { name, at_s, .. } if same_phase(name, wanted) => Some(*at_s),
        _ => None,
    })
}

/// Returns when the phase `wanted` began, in seconds of the timeline. Returns `None` if the program
/// did not report that phase, or its time is not known.
pub(crate) fn moment(run: &Run, wanted: &str) -> Option<f64> {
    run.events.iter().find_map(|event| match &event.what {
        What::Phase { name, .. } if same_phase(name, wanted) => event.host_s,
        _ => None,
    })
}

/// Returns when the phase `end` began, the last of a program, in seconds of the timeline. Returns
/// `None` if the program did not report it, or its time is not known.
pub(crate) fn ended(run: &Run) -> Option<f64> {
    moment(run, "end")
}

/// Returns whether two names mean the same phase. Similar programs name their first and last phases
/// differently.
fn same_phase(name: &str, wanted: &str) -> bool {
    name == wanted
        || matches!(
            (name, wanted),
            ("before", "start") | ("after", "end") | ("taken", "touched")
        )
}

/// Returns when the first event of the program arrived whose time is known, in seconds of the
/// timeline. Returns 0 if there is none.
pub(crate) fn began(run: &Run) -> f64 {
    run.events
        .iter()
        .find_map(|event| event.host_s)
        .unwrap_or(0.0)
}

/// Returns the resident bytes of the guest's RAM at `seconds` of the timeline: those of the last
/// sample not after that time, else of the first sample. Returns `None` if no sample has that
/// amount.
pub(super) fn resident_at(timeline: &[Point], seconds: f64) -> Option<f64> {
    let before = timeline
        .iter()
        .rev()
        .find(|point| point.t_ms <= seconds * 1e3 && point.resident.is_some());
    before
        .or_else(|| timeline.iter().find(|point| point.resident.is_some()))
        .and_then(|point| point.resident)
}

/// Returns the bytes that the program reported with its phase `freed`. Returns `None` if it
/// reported no such phase, or no amount with it.
pub(super) fn freed_bytes(run: &Run) -> Option<f64> {
    run.events.iter().find_map(|event| match &event.what {
        What::Phase { name, bytes, .. } if name == "freed" => *bytes,
        _ => None,
    })
}

/// Returns the largest amount of resident bytes of the guest's RAM from the phase `start` until the
/// phase `freed`. Returns `None` if one of the phases or all samples are missing.
pub(super) fn peak(run: &Run) -> Option<f64> {
    let (start, freed) = (moment(run, "start")?, moment(run, "freed")?);
    let before = resident_at(&run.timeline, start)?;
    let points = run
        .timeline
        .iter()
        .filter(|point| (start..=freed).contains(&(point.t_ms / 1e3)));
    Some(
        points
            .filter_map(|point| point.resident)
            .fold(before, f64::max),
    )
}

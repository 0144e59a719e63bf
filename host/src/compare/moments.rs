//! What a run's timeline and its program's phases say of moments.

use super::schema::{Point, Run, What};

/// When the guest's clock showed a phase.
pub(super) fn guest_clock(run: &Run, wanted: &str) -> Option<f64> {
    run.events.iter().find_map(|event| match &event.what {
        What::Phase { name, at_s, .. } if same_phase(name, wanted) => Some(*at_s),
        _ => None,
    })
}

/// When a phase began, on the timeline's clock.
pub(crate) fn moment(run: &Run, wanted: &str) -> Option<f64> {
    run.events.iter().find_map(|event| match &event.what {
        What::Phase { name, .. } if same_phase(name, wanted) => event.host_s,
        _ => None,
    })
}

/// When the last phase of a program began that gives memory back and stays.
pub(crate) fn ended(run: &Run) -> Option<f64> {
    moment(run, "end")
}

/// Programs of the same shape name their first and last phases differently.
fn same_phase(name: &str, wanted: &str) -> bool {
    name == wanted
        || matches!(
            (name, wanted),
            ("before", "start") | ("after", "end") | ("taken", "touched")
        )
}

/// When the program's first line came, on the timeline's clock.
pub(crate) fn began(run: &Run) -> f64 {
    run.events
        .iter()
        .find_map(|event| event.host_s)
        .unwrap_or(0.0)
}

/// What the guest's RAM held of the host at a moment: the last sample not after it, else the first.
pub(super) fn resident_at(timeline: &[Point], seconds: f64) -> Option<f64> {
    let before = timeline
        .iter()
        .rev()
        .find(|point| point.t_ms <= seconds * 1e3 && point.resident.is_some());
    before
        .or_else(|| timeline.iter().find(|point| point.resident.is_some()))
        .and_then(|point| point.resident)
}

/// Bytes that a program says it freed.
pub(super) fn freed_bytes(run: &Run) -> Option<f64> {
    run.events.iter().find_map(|event| match &event.what {
        What::Phase { name, bytes, .. } if name == "freed" => *bytes,
        _ => None,
    })
}

/// The most that the guest's RAM held of the host until the program freed its memory.
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

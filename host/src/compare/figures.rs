//! The figures of one run: what its program measured, and what the host saw.

use super::costs;
use super::experiment::Pace;
use super::experiments;
use super::figure::{Figure, lower};
use super::moments::{ended, freed_bytes, guest_clock, moment, peak, resident_at};
use super::schema::{Run, What};
use crate::text::Size;

/// Of what was freed, a difference of less than this share is as good as none: a kernel's own
/// memory grows and shrinks by more.
const NOISE_OF_FREED: f64 = 0.01;

/// Percentiles of a distribution that stand in the table; all of them are in the plot.
const PERCENTILES: [f64; 3] = [50.0, 95.0, 100.0];

/// All figures of a run, the program's own first.
pub(crate) fn of(run: &Run) -> Vec<Figure> {
    let mut figures = Vec::new();
    for event in &run.events {
        said(&event.what, &mut figures);
    }
    // Where instructions are counted sleep takes no time, so the host's clock says nothing.
    if run.icount {
        spent(run, &mut figures);
        costs::returned(run, &mut figures);
        figures.iter_mut().for_each(in_instructions);
    } else {
        started(run, &mut figures);
        let back_after_s = returned(run, &mut figures);
        costs::host_cpu(run, back_after_s, &mut figures);
        costs::wakeups(run, &mut figures);
        costs::areas(run, &mut figures);
        held(run, &mut figures);
        ran(run, &mut figures);
        spent(run, &mut figures);
        if run.turns.is_empty() || moment(run, "freed").is_some() {
            qemu(run, &mut figures);
        } else {
            qemu_by_round(run, &mut figures);
        }
    }
    let facts = [
        ("cpus", Some(run.cpus.to_string())),
        ("memory", Some(Size(run.memory_bytes).to_string())),
        ("icount", run.icount.then(|| "yes".to_owned())),
    ];
    for (name, value) in facts {
        let Some(value) = value else { continue };
        for figure in &mut figures {
            figure
                .labels
                .entry(name.to_owned())
                .or_insert_with(|| value.clone());
        }
    }
    figures
}

/// How a cost grows. Which guest's is the lower cost, the costs say: who is far ahead with little grows by more.
const GROWTH: &str = "growth";

fn said(what: &What, figures: &mut Vec<Figure>) {
    match what {
        What::Result {
            metric,
            value,
            unit,
            better,
            labels,
        } => figures.push(Figure {
            metric: metric.clone(),
            unit: match (metric.as_str(), unit.as_str()) {
                ("bytes_per_second", "1/s") => "B/s".to_owned(),
                _ => unit.clone(),
            },
            better: *better,
            value: *value,
            labels: labels.clone(),
            noise: 0.0,
            comparable: metric != GROWTH,
        }),
        What::Distribution {
            metric,
            unit,
            better,
            percentiles,
            labels,
            ..
        } => {
            for wanted in PERCENTILES {
                let Some((_, value)) = percentiles.iter().find(|(share, _)| *share == wanted)
                else {
                    continue;
                };
                let mut labels = labels.clone();
                labels.insert("percentile".into(), wanted.to_string());
                figures.push(Figure {
                    metric: metric.clone(),
                    unit: unit.clone(),
                    better: *better,
                    value: *value,
                    labels,
                    noise: 0.0,
                    comparable: true,
                });
            }
        }
        What::Phase { .. } | What::Unsupported { .. } => {}
    }
}

/// A nanosecond of the guest is then an instruction.
fn in_instructions(figure: &mut Figure) {
    let factor = match figure.unit.as_str() {
        "ns" => 1.0,
        "s" => 1e9,
        _ => return,
    };
    figure.value *= factor;
    figure.unit = "instructions".to_owned();
}

/// What using and freeing memory took the program itself.
fn spent(run: &Run, figures: &mut Vec<Figure>) {
    for (metric, from, to) in [
        ("touch_s", "start", "touched"),
        ("release_s", "free", "freed"),
    ] {
        // The program knows better: it leaves out the time in which others had their turn.
        if figures.iter().any(|figure| figure.metric == metric) {
            continue;
        }
        if let (Some(from), Some(to)) = (guest_clock(run, from), guest_clock(run, to))
            && to > from
        {
            figures.push(lower(metric, "s", to - from));
        }
    }
}

/// What ran in the guest.
pub(crate) fn program(run: &Run) -> String {
    run.arguments.join(" ")
}

/// The command of a run without what differs from round to round: names of temporary files, and
/// what is random.
pub(crate) fn command_in_short(run: &Run) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut skip = false;
    for word in &run.command {
        if std::mem::take(&mut skip) {
            continue;
        }
        match word.as_str() {
            "--timeline" | "--record" | "--timeout" | "--seed" => skip = true,
            // The program's own words follow, and those are short.
            "--" => break,
            word => words.push(word),
        }
    }
    format!("{} -- {}", words.join(" "), program(run))
}

/// What a guest takes before its program does anything; the program itself says what its own clock
/// showed.
fn started(run: &Run, figures: &mut Vec<Figure>) {
    let host = run.events.iter().find_map(|event| match &event.what {
        What::Result { metric, .. } if metric == "ready_s" => event.host_s,
        _ => None,
    });
    let Some(host) = host else { return };
    // `ebb run` looks for the start more often than the timeline has samples.
    let host = run
        .record
        .as_ref()
        .and_then(super::record::started_s)
        .unwrap_or(host);
    figures.push(lower("ready_on_host", "s", host));
    if let Some(bytes) = resident_at(&run.timeline, host) {
        figures.push(lower("resident_at_start", "B", bytes));
    }
}

/// What a program that holds what it touched holds of the host.
fn held(run: &Run, figures: &mut Vec<Figure>) {
    if let Some(bytes) = moment(run, "held").and_then(|at| resident_at(&run.timeline, at)) {
        figures.push(lower("resident_while_held", "B", bytes));
    }
}

/// When a program answered that was run as it is, and what it left in the guest.
fn ran(run: &Run, figures: &mut Vec<Figure>) {
    if let Some(seconds) = moment(run, "answered") {
        figures.push(lower("answered_on_host", "s", seconds));
    }
    if let Some(bytes) = moment(run, "over").and_then(|at| resident_at(&run.timeline, at)) {
        figures.push(lower("resident_when_over", "B", bytes));
    }
}

/// How freed memory came back: `freed` is time 0. Returns when nearly all of it had.
fn returned(run: &Run, figures: &mut Vec<Figure>) -> Option<f64> {
    let (start, freed, end) = (moment(run, "start")?, moment(run, "freed")?, ended(run)?);
    let bytes = freed_bytes(run);
    let before = resident_at(&run.timeline, start)?;
    let last = resident_at(&run.timeline, end)?;
    let peak = peak(run)?;
    let mut nearly_all = None;
    for (metric, share) in [("half_returned", 0.5), ("nearly_all_returned", 0.95)] {
        let reached = bytes.and_then(|bytes| {
            let goal = peak - bytes * share;
            run.timeline.iter().find(|point| {
                let at = point.t_ms / 1e3;
                at >= freed && at <= end && point.resident.is_some_and(|now| now <= goal)
            })
        });
        if let Some(point) = reached {
            // Before the end of a sample's step nobody knows; a figure of 0 would claim to.
            let seconds = (point.t_ms / 1e3 - freed).max(1e-3);
            figures.push(lower(metric, "s", seconds));
            nearly_all = Some(seconds).filter(|_| share > 0.9);
        }
    }
    if let Some(unused) = moment(run, "pooled").and_then(|at| resident_at(&run.timeline, at)) {
        figures.push(lower("pool_before_use", "B", unused - before));
    }
    figures.push(lower("resident_at_peak", "B", peak));
    figures.push(lower("resident_at_end", "B", last));
    figures.push(Figure {
        noise: bytes.unwrap_or(0.0) * NOISE_OF_FREED,
        ..lower("left_behind", "B", last - before)
    });
    nearly_all
}

/// What each round cost the host's CPUs.
fn qemu_by_round(run: &Run, figures: &mut Vec<Figure>) {
    // In the same time guests do different work, and the time is all that the figure shows.
    let timed = experiments::find(&run.experiment).is_some_and(|known| known.pace == Pace::Timed);
    figures.extend(run.turns.iter().filter_map(|turn| {
        Some(Figure {
            comparable: !timed,
            ..lower("qemu_cpu_round", "s", turn.qemu_cpu_s?)
        })
    }));
}

/// What the whole run cost the host's CPUs, boot included.
fn qemu(run: &Run, figures: &mut Vec<Figure>) {
    if let Some(seconds) = run.record.as_ref().and_then(super::record::cpu_seconds) {
        figures.push(lower("qemu_cpu", "s", seconds));
    }
}

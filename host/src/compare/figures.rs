//! Computes the figures of one run: what its program measured, and what the host saw.

use super::costs;
use super::experiment::Pace;
use super::experiments;
use super::figure::{Figure, lower};
use super::moments::{ended, freed_bytes, guest_clock, moment, peak, resident_at};
use super::requests::{self, REPORTS};
use super::schema::{Run, What};
use crate::text::Size;

/// A difference in resident memory that is less than this share of the freed memory counts as
/// noise. A kernel's own memory varies by more.
const NOISE_OF_FREED: f64 = 0.01;

/// The number of samples that a time must be long to be compared. The moment of a change is known
/// to a sample.
const SAMPLES_MIN: f64 = 4.0;

/// The percentiles of a distribution that are shown in the table. The plot shows all.
const PERCENTILES: [f64; 3] = [50.0, 95.0, 100.0];

/// Returns all figures of a run: those that its program measured first, then those that the host
/// saw. Each gets the labels `cpus` and `memory`, and `icount` if instructions are counted, unless
/// it has them. In that case times become instructions and most of the host's figures are left out.
pub(crate) fn of(run: &Run) -> Vec<Figure> {
    let mut figures = Vec::new();
    for event in &run.events {
        said(&event.what, &mut figures);
    }
    requests::conclude(run, &mut figures);
    // If instructions are counted, sleeping takes no time, so the host's clock has no meaning.
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
            host_processes(run, &mut figures);
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

/// Metrics that are not compared between guests. A guest whose cost is much lower has a larger
/// growth of the cost. Ebb counts a page fault as time of the program, Linux as time of the kernel.
/// Requests that report memory are of different sizes.
const NOT_COMPARED: [&str; 4] = ["growth", "user_s", "system_s", REPORTS];

/// Adds the figures that the program reported in `what`.
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
            comparable: !NOT_COMPARED.contains(&metric.as_str()),
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

/// Converts a figure from time to instructions, which take a nanosecond of guest time each.
fn in_instructions(figure: &mut Figure) {
    let factor = match figure.unit.as_str() {
        "ns" => 1.0,
        "s" => 1e9,
        _ => return,
    };
    figure.value *= factor;
    figure.unit = "instructions".to_owned();
}

/// Adds the time that the program itself needed to touch and free its memory.
fn spent(run: &Run, figures: &mut Vec<Figure>) {
    for (metric, from, to) in [
        ("touch_s", "start", "touched"),
        ("release_s", "free", "freed"),
    ] {
        // A time that the program reported is better: it excludes other guests' turns.
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

/// Returns the program of a run with its arguments, as one line without quotes.
pub(crate) fn program(run: &Run) -> String {
    run.arguments.join(" ")
}

/// Returns the command of a run as one line, with its program. The parts that differ between rounds
/// are left out: names of temporary files, the timeout and random seeds.
pub(crate) fn command_in_short(run: &Run) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut skip = false;
    for word in &run.command {
        if std::mem::take(&mut skip) {
            continue;
        }
        match word.as_str() {
            "--timeline" | "--record" | "--timeout" | "--seed" => skip = true,
            // The program's own arguments follow, which [`program`] adds.
            "--" => break,
            word => words.push(word),
        }
    }
    format!("{} -- {}", words.join(" "), program(run))
}

/// Adds the guest's boot time and resident memory before its program does anything. The program
/// itself reports what its own clock showed.
fn started(run: &Run, figures: &mut Vec<Figure>) {
    let host = run.events.iter().find_map(|event| match &event.what {
        What::Result { metric, .. } if metric == "ready_s" => event.host_s,
        _ => None,
    });
    let Some(host) = host else { return };
    // `ebb run` checks for the start more often than the timeline has samples.
    let record = run.record.as_ref();
    let host = record.and_then(super::record::started_s).unwrap_or(host);
    figures.push(lower("ready_on_host", "s", host));
    let resident = record.and_then(super::record::resident_at_start);
    if let Some(bytes) = resident.or_else(|| resident_at(&run.timeline, host)) {
        figures.push(lower("resident_at_start", "B", bytes));
    }
}

/// Adds the resident memory while the program holds the memory that it touched.
fn held(run: &Run, figures: &mut Vec<Figure>) {
    if let Some(bytes) = moment(run, "held").and_then(|at| resident_at(&run.timeline, at)) {
        figures.push(lower("resident_while_held", "B", bytes));
    }
}

/// Adds the time after which an unmodified program answered, and the resident memory after its end.
fn ran(run: &Run, figures: &mut Vec<Figure>) {
    if let Some(seconds) = moment(run, "answered") {
        figures.push(lower("answered_on_host", "s", seconds));
    }
    if let Some(bytes) = moment(run, "over").and_then(|at| resident_at(&run.timeline, at)) {
        figures.push(lower("resident_when_over", "B", bytes));
    }
}

/// Adds how freed memory went back to the host. Returns the seconds after which nearly all had,
/// counted from the phase `freed`. Returns `None` if it never did.
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
            run.timeline.iter().position(|point| {
                let at = point.t_ms / 1e3;
                at >= freed && at <= end && point.resident.is_some_and(|now| now <= goal)
            })
        });
        if let Some(index) = reached {
            let at = run.timeline[index].t_ms / 1e3;
            let before = index
                .checked_sub(1)
                .map(|index| run.timeline[index].t_ms / 1e3);
            // The time within a sample's step is unknown, so 0 would be wrong.
            let seconds = (at - freed).max(1e-3);
            figures.push(Figure {
                noise: before.map_or(0.0, |before| (at - before) * SAMPLES_MIN),
                ..lower(metric, "s", seconds)
            });
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

/// Adds the host's CPU time of each round.
fn qemu_by_round(run: &Run, figures: &mut Vec<Figure>) {
    // In turns of equal time guests do different amounts of work, so the CPU times are not
    // comparable.
    let timed = experiments::find(&run.experiment).is_some_and(|known| known.pace == Pace::Timed);
    figures.extend(run.turns.iter().filter_map(|turn| {
        Some(Figure {
            comparable: !timed,
            ..lower("qemu_cpu_round", "s", turn.qemu_cpu_s?)
        })
    }));
}

/// Adds the host's CPU time of the whole run, boot included: that of QEMU and that of `ebb run`.
fn host_processes(run: &Run, figures: &mut Vec<Figure>) {
    let Some(record) = &run.record else { return };
    for (metric, seconds) in [
        ("qemu_cpu", super::record::qemu_cpu_seconds(record)),
        ("ebb_cpu", super::record::ebb_cpu_seconds(record)),
    ] {
        figures.extend(seconds.map(|seconds| lower(metric, "s", seconds)));
    }
}

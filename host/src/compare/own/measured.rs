//! Computes the figures that are measured for any program, independent of its output: from the file
//! of `ebb run --record`, and from the memory curve.

use super::super::figure::{Figure, lower};
use super::super::figures;
use super::super::record::{ebb_cpu_seconds, qemu_cpu_seconds};
use super::super::reports;
use super::super::schema::Run;
use serde_json::Value;

/// Bytes per GiB.
const GIB: f64 = 1_073_741_824.0;
/// The metric of the program's exit status, which is 128 plus the signal if a signal ended the
/// program.
pub(crate) const EXIT_STATUS: &str = "exit_status";

/// A figure of a run, and whether the program or `ebb` measured it.
pub(crate) struct SourcedFigure {
    /// The figure.
    pub(crate) figure: Figure,
    /// Whether it is one of [`figures::of`], which are mostly the program's own. `false` for a
    /// figure from the record or the memory curve.
    pub(crate) by_program: bool,
}

/// Returns all figures of a run. The figures from the record and the memory curve are first, then
/// those of [`figures::of`] without the labels for CPUs, memory and counting. Counted figures of a
/// guest that reports memory and made no report meanwhile are left out.
pub(crate) fn of(run: &Run) -> Vec<SourcedFigure> {
    let mut figures: Vec<SourcedFigure> = Vec::new();
    let mut seen = |figure: Figure| {
        figures.push(SourcedFigure {
            figure,
            by_program: false,
        });
    };
    if let Some(record) = &run.record {
        of_record(run, record, &mut seen);
    }
    let of_run = figures::of(run);
    for figure in &of_run {
        if reports::is_refused(run, &of_run, figure) {
            continue;
        }
        let mut figure = figure.clone();
        // The record has the same figure under another name.
        if figure.metric == "qemu_cpu" {
            continue;
        }
        // These labels would put columns that differ in them into different rows.
        for label in ["cpus", "memory", "icount"] {
            figure.labels.remove(label);
        }
        figures.push(SourcedFigure {
            figure,
            by_program: true,
        });
    }
    figures
}

/// Passes the figures from the record and the memory curve to `seen`.
fn of_record(run: &Run, record: &Value, seen: &mut impl FnMut(Figure)) {
    let number = |path: &str| record.pointer(path).and_then(Value::as_f64);
    if let (Some(from), Some(to)) = (number("/started_guest_s"), number("/ended_guest_s")) {
        let seconds = (to - from).max(0.0);
        seen(if run.icount {
            lower("program", "instructions", (seconds * 1e9).round())
        } else {
            lower("program_s", "s", seconds)
        });
    }
    // If instructions are counted, the host's clock has no meaning.
    if !run.icount
        && let Some(seconds) = number("/started_s")
    {
        seen(lower("boot_s", "s", seconds));
    }
    for (metric, path) in [
        ("peak_used", "/summary/peak_used"),
        ("peak_resident", "/summary/peak_resident"),
        ("final_resident", "/summary/resident_now"),
    ] {
        if let Some(bytes) = number(path) {
            seen(lower(metric, "B", bytes));
        }
    }
    if let (Some(resident), Some(used)) =
        (number("/summary/resident_now"), number("/summary/used_now"))
    {
        seen(lower("stranded", "B", resident - used));
    }
    if !run.icount
        && let Some(area) = stranded_area(run, record)
    {
        seen(lower("stranded_area", "GiB·s", area));
    }
    if let Some(faults) = number("/faults") {
        seen(lower("faults", "", faults));
    }
    if !run.icount
        && let (Some(qemu), Some(ebb)) = (qemu_cpu_seconds(record), ebb_cpu_seconds(record))
    {
        seen(lower("host_cpu_s", "s", qemu + ebb));
    }
    if let Some(code) = number("/status/code") {
        seen(Figure {
            comparable: false,
            ..lower(EXIT_STATUS, "", code)
        });
    }
}

/// Returns the area between resident and used memory from the program's start on, in GiB·s. Each
/// sample holds until the next. Returns `None` if no sample has both amounts.
fn stranded_area(run: &Run, record: &Value) -> Option<f64> {
    let from_ms = record.get("started_s")?.as_f64()? * 1e3;
    let points = &run.timeline;
    let mut bytes_ms = 0.0;
    let mut known = false;
    for (point, next) in points.iter().zip(points.iter().skip(1)) {
        let (Some(resident), Some(used)) = (point.resident, point.used) else {
            continue;
        };
        known = true;
        let held_ms = next.t_ms - point.t_ms.max(from_ms);
        bytes_ms += (resident - used).max(0.0) * held_ms.max(0.0);
    }
    known.then_some(bytes_ms / 1e3 / GIB)
}

#[cfg(test)]
mod tests {
    use super::of as figures_of;
    use super::*;
    use crate::compare::guest::Guest;
    use crate::compare::schema::Point;
    use serde_json::json;

    fn run(icount: bool, record: Value) -> Run {
        let point = |t_ms: f64, resident: f64, used: f64| Point {
            t_ms,
            resident: Some(resident * GIB),
            used: Some(used * GIB),
            ..Point::default()
        };
        Run {
            icount,
            record: Some(record),
            timeline: vec![
                point(0.0, 9.0, 0.0),
                point(1000.0, 2.0, 1.0),
                point(2000.0, 3.0, 3.0),
                point(4000.0, 1.0, 1.0),
            ],
            ..Run::blank(Guest::Ebb)
        }
    }

    #[test]
    fn a_record_says_what_any_program_took() {
        let record = json!({"started_s": 1.0, "started_guest_s": 0.5, "ended_guest_s": 2.000_000_001,
            "faults": 7, "qemu_cpu_seconds": {"user": 0.25, "system": 0.5},
            "ebb_cpu_seconds": {"user": 1.0, "system": 2.0}, "status": {"code": 3},
            "summary": {"peak_used": 5, "peak_resident": 9, "resident_now": 4, "used_now": 1}});
        let of = |run: &Run| -> Vec<(String, f64)> {
            let figures = figures_of(run);
            figures
                .into_iter()
                .map(|it| (it.figure.metric, it.figure.value))
                .collect()
        };
        let plain = of(&run(false, record.clone()));
        for (metric, value) in [
            ("program_s", 1.500_000_001),
            ("boot_s", 1.0),
            ("peak_used", 5.0),
            ("peak_resident", 9.0),
            ("final_resident", 4.0),
            ("stranded", 3.0),
            ("stranded_area", 1.0),
            ("faults", 7.0),
            ("host_cpu_s", 3.75),
            (EXIT_STATUS, 3.0),
        ] {
            let found = plain.iter().find(|(name, _)| name == metric);
            let found = found.unwrap_or_else(|| panic!("{metric}")).1;
            assert!((found - value).abs() < 1e-9, "{metric} {found}");
        }
        let counted = of(&run(true, record));
        assert!(counted.contains(&("program".into(), 1_500_000_001.0)));
        assert!(!counted.iter().any(|(name, _)| name == "boot_s"));
        // An unknown value is not a figure.
        assert_eq!(of(&run(false, json!({"faults": null}))), []);
    }
}

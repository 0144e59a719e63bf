//! How figures are presented to users: names, units, numbers.

use super::requests::REPORTS;
use super::schema::{Interval, Row};

/// The names of metrics for which replacing underscores is not enough.
const NAMES: [(&str, &str); 80] = [
    ("shrink", "shrunk"),
    ("grow", "grown"),
    ("grow_and_fill", "grown and filled"),
    ("held_after_shrink", "held when shrunk"),
    ("fill_s", "filling"),
    ("stream_low", "STREAM, slowest hundredth"),
    ("quantum_work", "work in a quantum"),
    ("quantum_low", "work in the poorest hundredth"),
    ("held_area", "area under what is held"),
    ("held_peak", "most held at once"),
    ("area_of_off", "area, of no give-back"),
    ("peak_of_off", "peak, of no give-back"),
    ("others_ns", "the kernel's work after the free"),
    ("returned", "given back"),
    ("instructions_per_gib", "the guest's work for a GiB"),
    ("host_cpu_per_gib", "CPU of the host for a GiB"),
    ("qemu_wakeups", "wake-ups of QEMU"),
    ("ebb_wakeups", "wake-ups of ebb"),
    ("switches_per_second", "changes of tasks in the guest"),
    ("idle_cpu", "CPU of the host"),
    ("resident_area", "area under resident memory"),
    ("used_area", "area under used memory"),
    ("excess_area", "held beyond what is used"),
    ("job_s", "start to end of the job"),
    ("ready_s", "first statement"),
    ("ready_on_host", "program seen to run, host"),
    ("resident_at_start", "resident then"),
    ("touch_s", "touching"),
    ("release_s", "freeing"),
    ("touch_again_s", "touching again"),
    ("release_again_s", "freeing again"),
    (REPORTS, "requests that reported memory"),
    ("half_returned", "half back after"),
    ("nearly_all_returned", "95 % back after"),
    ("resident_at_peak", "resident at the peak"),
    ("resident_at_end", "resident at the end"),
    ("left_behind", "left behind"),
    ("qemu_cpu", "CPU time of QEMU"),
    ("ebb_cpu", "CPU time of `ebb run`"),
    ("qemu_cpu_round", "CPU time of QEMU, a round"),
    ("start_to_end", "start to end"),
    ("faults_per_second", "faults, all tasks"),
    ("faults_per_second_per_task", "faults a task"),
    ("fault_ns", "a fault, all in"),
    ("huge_share", "in huge pages"),
    ("elapsed_s", "elapsed"),
    ("message_ns", "a message"),
    ("huge_fault_ns", "a huge fault"),
    ("bytes_per_second", "throughput"),
    ("resident_while_held", "resident while it is held"),
    ("answered_on_host", "first output after"),
    ("resident_when_over", "resident when the program is over"),
    ("program_s", "the program, from call to end"),
    ("held_per_page", "held for a page"),
    ("blocks_gained", "blocks gained"),
    ("move_frame_ns", "a frame moved, all in"),
    ("moved_per_block", "frames moved for a block"),
    ("moved_per_page", "frames moved for a huge page"),
    ("scanned_per_page", "frames looked at for a huge page"),
    ("job_ns", "a job"),
    ("busy_share", "CPU in use"),
    ("in_30s_switches", "changes of tasks in 30 s"),
    ("compacting_half_seconds", "half seconds with compaction"),
    ("proactive_runs", "runs that compaction began"),
    ("scanned_per_block", "frames looked at for a block"),
    ("huge_pages", "pages obtained"),
    ("allocate_page_ns", "a page into the pool"),
    ("free_page_ns", "a page back"),
    ("saved_kib", "memory gained"),
    ("pool_share", "share of memory in the pool"),
    ("pin_page_ns", "a page looked up and read"),
    ("pin_call_ns", "a call that reads 512 pages"),
    ("hold_page_ns", "a page held"),
    ("hold_call_ns", "a call that holds 256 pages"),
    ("release_page_ns", "a page let go"),
    ("release_call_ns", "a call that lets 256 pages go"),
    ("allocate_each_ns", "each page into the pool"),
    ("free_each_ns", "each page back"),
    ("beyond_clearing_ns", "a fault beyond clearing"),
    ("pool_before_use", "taken by the pool, unused"),
];

/// A unit in which a figure is printed, and the divisor that converts the figure to it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Scale {
    pub(crate) unit: &'static str,
    pub(crate) divisor: f64,
}

/// Returns a scale that suits the value `typical` of a figure in `unit`, such as `MiB` for `B`.
/// Returns `None` if `unit` has no other scale, and values are printed unchanged.
pub(crate) fn scale(unit: &str, typical: f64) -> Option<Scale> {
    let typical = typical.abs();
    let steps: &[(&str, f64)] = match unit {
        "B" | "bytes" => &[("MiB", 1_048_576.0)],
        "B/s" | "bytes/s" => &[("MiB/s", 1_048_576.0), ("GiB/s", 1_073_741_824.0)],
        "KiB" => &[("KiB", 1.0), ("MiB", 1024.0)],
        "share" => &[("%", 0.01)],
        "ns" => &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)],
        "s" => &[("ms", 1e-3), ("s", 1.0)],
        "1/s" => &[("1/s", 1.0), ("k/s", 1e3), ("M/s", 1e6)],
        "instructions" => &[
            ("instr.", 1.0),
            ("k instr.", 1e3),
            ("M instr.", 1e6),
            ("G instr.", 1e9),
        ],
        _ => return None,
    };
    // Four digits before the point are easier to read than one digit with three decimals.
    let (unit, divisor) = steps
        .iter()
        .rev()
        .find(|(_, divisor)| typical >= divisor * if *divisor > 1.0 { 10.0 } else { 1.0 })
        .or(steps.first())?;
    // Seconds are more familiar than milliseconds.
    let (unit, divisor) = if *unit == "ms" && *divisor < 1.0 && typical >= 0.02 {
        ("s", 1.0)
    } else {
        (*unit, *divisor)
    };
    Some(Scale { unit, divisor })
}

/// Returns the unit in which a row's values are printed, and the divisor that converts them to it.
/// The smallest median decides. The divisor is 1 if the row's own unit has no scale.
pub(crate) fn scale_of(row: &Row) -> (String, f64) {
    let typical = row
        .cells
        .iter()
        .map(|cell| cell.median.abs())
        .fold(f64::INFINITY, f64::min);
    match scale(&row.unit, if typical.is_finite() { typical } else { 0.0 }) {
        Some(scale) => (scale.unit.to_owned(), scale.divisor),
        None => (row.unit.clone(), 1.0),
    }
}

/// Returns the name of the metric `name` in words, without its unit. A name that is not in the list
/// is changed: its unit is cut off, and underscores become blanks.
pub(crate) fn metric(name: &str) -> String {
    if let Some((_, words)) = NAMES.iter().find(|(known, _)| *known == name) {
        return (*words).to_owned();
    }
    let bare = ["_ns", "_s", "_seconds", "_bytes", "_kib"]
        .iter()
        .find_map(|unit| name.strip_suffix(unit))
        .unwrap_or(name);
    bare.replace("_per_", " a ").replace('_', " ")
}

/// Returns the tasks of a row and the CPUs that they share, such as `16 threads on 2 CPUs`. Returns
/// `None` if there are no more tasks than CPUs.
fn crowd(row: &Row) -> Option<String> {
    let number = |label| row.labels.get(label)?.parse::<u32>().ok();
    let (tasks, cpus) = (number("tasks")?, number("cpus")?);
    let kind = row.labels.get("kind").map_or("tasks", String::as_str);
    let plural = if cpus == 1 { "" } else { "s" };
    (tasks > cpus).then(|| format!("{tasks} {kind} on {cpus} CPU{plural}"))
}

/// Returns the name of a row: its metric in words, and the labels in which it differs from
/// `others`. These are the rows of the same metric in its experiment, itself included. If there are
/// more tasks than CPUs, the name says so anyway.
pub(crate) fn row_name(row: &Row, others: &[&Row]) -> String {
    let mut name = metric(&row.metric);
    let crowd = crowd(row);
    if let Some(crowd) = &crowd {
        name.push_str(", ");
        name.push_str(crowd);
    }
    for (label, value) in &row.labels {
        if crowd.is_some() && matches!(label.as_str(), "tasks" | "cpus" | "kind") {
            continue;
        }
        let all_have_it = others
            .iter()
            .all(|other| other.labels.get(label) == Some(value));
        // With one task on each CPU, the number of tasks follows from that of CPUs.
        let one_a_cpu = label == "tasks"
            && others
                .iter()
                .all(|o| o.labels.get("tasks") == o.labels.get("cpus"));
        if all_have_it || one_a_cpu {
            continue;
        }
        name.push_str(", ");
        name.push_str(&match label.as_str() {
            "cpus" if value == "1" => "1 CPU".to_owned(),
            "cpus" => format!("{value} CPUs"),
            "percentile" if value == "100" => "worst".to_owned(),
            "percentile" if value == "50" => "median".to_owned(),
            "percentile" => format!("{value} %"),
            "tasks" if value == "1" => "1 task".to_owned(),
            "tasks" => format!("{value} tasks"),
            "icount" => "counted".to_owned(),
            "memory" | "kind" | "mode" | "size" => value.clone(),
            _ => format!("{label} {value}"),
        });
    }
    name
}

/// Returns a number as text with three or four significant digits, and narrow spaces between
/// thousands if it has more than four digits before the point. Below 0.1 it has three decimals.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 100.0 || value == 0.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 0.1 {
        2
    } else {
        3
    };
    let text = format!("{size:.decimals$}");
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        // Four digits are easy to read without a space.
        if index > 0 && (whole.len() - index).is_multiple_of(3) && whole.len() > 4 {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    if let Some(fraction) = fraction {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    let zero = grouped.chars().all(|c| matches!(c, '0' | '.'));
    if value < 0.0 && !zero {
        format!("−{grouped}")
    } else {
        grouped
    }
}

/// Returns a ratio as text with three digits and `×`, such as `1.25×`.
pub(crate) fn times(ratio: f64) -> String {
    let decimals = match ratio {
        r if r >= 100.0 => 0,
        r if r >= 9.95 => 1,
        _ => 2,
    };
    format!("{ratio:.decimals$}×")
}

/// Returns the bounds of an interval of ratios as text, such as `1.20 to 1.31×`.
pub(crate) fn range(interval: Interval) -> String {
    format!(
        "{} to {}",
        times(interval.low).trim_end_matches('×'),
        times(interval.high)
    )
}

/// Returns `text` as a sentence, with a capital letter at the beginning and a full stop at the end,
/// unless it has a full stop or question mark there.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string())
        .unwrap_or_default();
    let end = if text.ends_with(['?', '.']) { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

/// Returns a share as a percentage: without decimals, or with one below 0.95 %. Shares below 0.05 %
/// give `0%`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.05 {
        "0%".to_owned()
    } else if percent >= 0.95 {
        format!("{percent:.0}%")
    } else {
        format!("{percent:.1}%")
    }
}

/// Metrics that only repeat another metric of the same experiment.
const DOUBLES: [&str; 7] = [
    "faults_per_second",
    "fault_ns",
    "message_ns",
    "allocate_s",
    "free_s",
    "first_fault_ns",
    "clear_ns",
];
/// Metrics that lead to another one or explain it.
const SECONDARY: [&str; 8] = [
    "huge_share",
    "resident_at_peak",
    "qemu_cpu",
    "ebb_cpu",
    "qemu_cpu_round",
    "ready_on_host",
    "touch_s",
    REPORTS,
];

/// Returns whether a row has information that no other row of its experiment repeats. The tables
/// and the comparison of ratios only use such rows.
pub(crate) fn speaks_alone(row: &Row) -> bool {
    // The free memory in each phase does not say how good a guest is.
    if row.labels.contains_key("phase") {
        return false;
    }
    // It says which other figures count. Where none was made in a timed run, nothing follows.
    if row.metric == REPORTS {
        return row.labels.contains_key("icount") || row.cells.iter().any(|cell| cell.max >= 1.0);
    }
    // If instructions are counted, they are the figure; a rate would only repeat it.
    if row.labels.contains_key("icount") && row.metric.contains("fault") {
        return row.metric.ends_with("fault_ns");
    }
    !DOUBLES.contains(&row.metric.as_str())
}

/// Returns whether a row is important enough for plots: it does not only repeat, explain or lead to
/// another one.
pub(crate) fn headline(row: &Row) -> bool {
    speaks_alone(row) && !SECONDARY.contains(&row.metric.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::Better;

    #[test]
    fn numbers_have_the_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (0.0684, "0.068"),
            (2.94, "2.94"),
            (12.25, "12.2"),
            (150.8, "151"),
            (4504.6, "4505"),
            (612_400.0, "612\u{202f}400"),
            (-3.0, "−3.00"),
            (-0.0001, "0.000"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(
            (times(10.04), times(0.853), times(2.0)),
            ("10.0×".into(), "0.85×".into(), "2.00×".into())
        );
    }

    #[test]
    fn units_suit_the_values() {
        let unit = |unit, typical| scale(unit, typical).map(|scale| scale.unit);
        assert_eq!(unit("B", 5e9), Some("MiB"));
        assert_eq!(unit("ns", 446.0), Some("ns"));
        assert_eq!(unit("ns", 5e6), Some("µs"));
        assert_eq!(unit("ns", 5e7), Some("ms"));
        assert_eq!(unit("1/s", 612_000.0), Some("k/s"));
        assert_eq!(unit("s", 0.068), Some("s"));
        assert_eq!(unit("s", 0.0068), Some("ms"));
        assert_eq!(unit("share", 0.99), Some("%"));
        assert_eq!(unit("parsecs", 1.0), None);
    }

    #[test]
    fn a_row_says_when_tasks_share_cpus() {
        let name = |labels: &[(&str, &str)]| {
            let labels = labels.iter();
            let row = Row {
                experiment: "faults/thp-16".into(),
                metric: "fault_ns".into(),
                unit: "instructions".into(),
                better: Better::Lower,
                labels: labels
                    .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
                    .collect(),
                cells: Vec::new(),
                ratio: None,
                interval: None,
            };
            row_name(&row, &[&row])
        };
        let threads = ("kind", "threads");
        assert_eq!(
            name(&[("cpus", "1"), threads, ("tasks", "16")]),
            "a fault, all in, 16 threads on 1 CPU"
        );
        assert_eq!(
            name(&[("cpus", "2"), ("tasks", "16")]),
            "a fault, all in, 16 tasks on 2 CPUs"
        );
        let two = [("cpus", "2"), threads, ("tasks", "2")];
        assert_eq!(name(&two), "a fault, all in");
        assert_eq!(name(&[("cpus", "1")]), "a fault, all in");
    }

    #[test]
    fn metrics_are_words() {
        assert_eq!(metric("left_behind"), "left behind");
        assert_eq!(metric("vmsplice_page_ns"), "vmsplice page");
        assert_eq!(metric("messages_per_second"), "messages a second");
    }
}

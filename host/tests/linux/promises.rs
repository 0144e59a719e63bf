//! Tests that guests keep the promises in SPECIFICATION.md. The bounds are read from its tables.

use crate::scratch::Scratch;
use crate::{ebb, experiments};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the bound of each promise that has a name in SPECIFICATION.md: the first number of the
/// last cell of its row.
fn bounds() -> BTreeMap<String, f64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../SPECIFICATION.md");
    let text = std::fs::read_to_string(path).expect("the page exists");
    let row = |line: &str| {
        let cells: Vec<&str> = line
            .strip_prefix("| `")?
            .split('|')
            .map(str::trim)
            .collect();
        let name = cells.first()?.trim_end_matches('`').to_owned();
        let bound = cells.get(2)?.split(' ').next()?.replace(',', "");
        Some((name, bound.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

/// Asserts that each value is within its bound.
#[track_caller]
fn are_kept(found: &[(&str, f64)]) {
    let bounds = bounds();
    let broken: Vec<String> = found
        .iter()
        .filter(|(name, value)| *value > bounds[*name])
        .map(|(name, value)| format!("{name}: {value}, promised {}", bounds[*name]))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
    for (name, value) in found {
        eprintln!("{name}: {value}");
    }
}

/// The experiments that count a promise: its name, the words of the experiment, the metric, and the
/// factor from the metric to the promise's unit.
const COUNTED: [(&str, &str, &str, f64); 10] = [
    ("call", "parallel dup 1 200r", "call_ns", 1.0),
    ("fault-4k", "page-fault 4k 1 10r", "fault_ns", 1.0),
    ("fault-huge", "page-fault thp 1 10r", "fault_ns", 1.0),
    ("fault-file", "page-fault file 1 10r", "fault_ns", 1.0),
    ("open-close", "parallel open 1 200r", "call_ns", 1.0),
    ("map-unmap", "parallel mmap 1 200r", "call_ns", 1.0),
    ("poll", "parallel poll 1 200r", "call_ns", 1.0),
    ("switch", "parallel switch 1 200r", "call_ns", 1.0),
    ("start", "idle 0", "ready_s", 1e9),
    ("idle", "idle 60", "switches_per_second", 60.0),
];

#[test]
fn counted_costs_are_within_their_bounds() {
    let file = format!("{}:/w", experiments::program().display());
    let options = ["-m", "1G", "-c", "1", "--icount", "--file", &file];
    let mut found = Vec::new();
    for (name, words, metric, factor) in COUNTED {
        let script = format!("/w --json {words}");
        let said = ebb::run(600, &options, &["sh", "-c", &script])
            .expect(0)
            .out();
        let value = said
            .lines()
            .map(|line| -> Value { serde_json::from_str(line).expect("an event") })
            .filter(|event| event["metric"] == metric)
            .find_map(|event| event["value"].as_f64());
        let value = value.unwrap_or_else(|| panic!("no {metric}:\n{said}"));
        found.push((name, value * factor));
    }
    are_kept(&found);
}

#[test]
fn a_guest_holds_little() {
    const MIB: f64 = 1024.0 * 1024.0;
    let scratch = Scratch::new("promises");
    let held = |cpus: &str| {
        let record = scratch.path(cpus);
        let options = ["-m", "1G", "-c", cpus, "--record", &record];
        ebb::run(600, &options, &["sleep", "3"]).expect(0);
        let text = std::fs::read_to_string(&record).expect("a record");
        let record: Value = serde_json::from_str(&text).expect("JSON");
        ["/resident_at_start", "/summary/qemu"].map(|key| {
            let value = record.pointer(key).and_then(Value::as_f64);
            value.unwrap_or_else(|| panic!("no {key}:\n{text}")) / MIB
        })
    };
    let [one, _] = held("1");
    let [two, beside] = held("2");
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_ebb")).expect("it is built");
    #[expect(clippy::cast_precision_loss, reason = "some MiB")]
    let size = program.len() as f64 / MIB;
    are_kept(&[
        ("resident", one),
        ("resident-cpu", two - one),
        ("beside", beside),
        ("command", size),
    ]);
}

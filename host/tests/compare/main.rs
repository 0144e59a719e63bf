//! Tests of the command `ebb compare`: the arguments that it refuses, the outputs that it makes
//! from a report, and one real comparison.

mod elasticity;
mod guests;
mod own;
mod reports;
#[path = "../parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;
mod usage;

use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// More time than a comparison of one small guest needs on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command
        .arg("compare")
        .args(arguments)
        .env_remove("EBB_KERNEL_IMAGE")
        .env_remove("EBB_WORKLOADS")
        .stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    compare(arguments).output().expect("ebb starts")
}

/// Reads the report at `path`.
fn read(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
}

fn refused(output: &Output, status: i32, words: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is missing in: {message}");
    }
}

fn run(experiment: &str, guest: &str, reporting: bool, events: &Value, timeline: &Value) -> Value {
    json!({
        "experiment": experiment, "arguments": ["ebb-workloads", experiment], "guest": guest,
        "give_back": if reporting { "reporting" } else { "off" }, "icount": false, "cpus": 1, "memory_bytes": 1u64 << 30, "round": 1,
        "command": ["ebb", "run", "--timeline", "/tmp/t", "--", "x"], "record": null,
        "events": events, "timeline": timeline, "outcome": "ok"
    })
}

/// Returns a small report of both guests, with hostile text at every place where text can come from
/// a guest or a file.
fn sample(complete: bool) -> Value {
    let hostile = "</script><img src=x onerror=alert(1)>&\"'|`";
    let rate = |value: f64| {
        json!([{"event": "result", "metric": "faults_per_second_per_task", "value": value,
            "unit": "1/s", "better": "higher", "labels": {"kind": hostile}},
            {"event": "distribution", "metric": "huge_fault_ns", "unit": "ns", "better": "lower",
             "percentiles": [[5, value], [50, value * 2.0], [100, value * 9.0]], "count": 3, "labels": {}}])
    };
    let phases = json!([
        {"host_s": 0.1, "event": "phase", "name": "start", "at_s": 0.1, "bytes": 104857600},
        {"host_s": 0.4, "event": "phase", "name": "pooled", "at_s": 0.4, "bytes": 104857600},
        {"host_s": 1.0, "event": "phase", "name": "touched", "at_s": 1.0, "bytes": 104857600},
        {"host_s": 2.0, "event": "phase", "name": "free", "at_s": 2.0, "bytes": 104857600},
        {"host_s": 2.0, "event": "phase", "name": "freed", "at_s": 2.1, "bytes": 104857600},
        {"host_s": 9.0, "event": "phase", "name": "end", "at_s": 9.0}
    ]);
    let curve = |slow: u64| -> Value {
        (0..100u64)
            .map(|step| {
                let t_ms = step * 100;
                let held = if t_ms < 1000 {
                    t_ms * 100_000
                } else if t_ms < 2000 + slow {
                    110_000_000
                } else {
                    4_000_000
                };
                json!({"t_ms": t_ms, "used": held / 2, "resident": held, "reported": 0})
            })
            .collect()
    };
    let mut unsupported = run("hugetlb", "ebb", true, &json!([]), &json!([]));
    unsupported["outcome"] = json!("unsupported");
    unsupported["error"] = json!(hostile);
    json!({
        "schema": 2, "complete": complete, "created": "2026-01-02T03:04:05Z",
        "host": {"cpu": hostile, "cpus": 2, "kernel": "Linux 6", "memory_bytes": 1u64 << 34},
        "ebb_version": "0.1.0", "qemu_version": "7.2", "options": ["ebb", "compare", hostile],
        "guests": [
            {"name": "ebb", "release": "0.1.0", "machine": "microvm", "kernel_arguments": "a"},
            {"name": "linux", "release": "6.1", "machine": "microvm", "kernel_arguments": hostile}],
        "differences": [hostile],
        "runs": [
            run("page-fault/4k", "ebb", true, &rate(1000.0), &json!([])),
            run("page-fault/4k", "linux", true, &rate(400.0), &json!([])),
            run("memhog", "ebb", true, &phases, &curve(1000)),
            run("memhog", "linux", true, &phases, &curve(4000)),
            unsupported
        ],
        "table": []
    })
}

/// Asserts that a page refers to no other address, has no script, and closes its tags.
fn stands_alone(page: &str, least_plots: usize) {
    for foreign in [
        "://", "src=", "<script", "<link", "url(", "@import", "<img", "<iframe",
    ] {
        let found = page
            .find(foreign)
            .map(|at| &page[at..(at + 60).min(page.len())]);
        // Text of a guest may contain anything as long as it stays text.
        assert!(
            found.is_none_or(|_| foreign == "src="),
            "{foreign}: {found:?}"
        );
    }
    assert!(!page.contains("<img src"), "text of a guest became a tag");
    let body = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    let mut closed = String::new();
    let mut rest = body;
    // HTML's void elements need no end tag, but XML requires the closing slash.
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        let end = tag.find('>').expect("a tag ends");
        let name = tag[1..end].split([' ', '/']).next().unwrap_or("");
        closed.push_str(before);
        closed.push_str(&tag[..end]);
        closed.push_str(if ["meta", "br"].contains(&name) {
            "/>"
        } else {
            ">"
        });
        rest = &tag[end + 1..];
    }
    closed.push_str(rest);
    let document = roxmltree::Document::parse(&closed).expect("the page is well-formed");
    let plots: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("svg"))
        .collect();
    assert!(plots.len() >= least_plots, "{} plots", plots.len());
    let mut ids = std::collections::BTreeSet::new();
    for id in document
        .descendants()
        .filter_map(|node| node.attribute("id"))
    {
        assert!(ids.insert(id), "{id} twice");
    }
    for plot in plots {
        for name in ["title", "desc"] {
            let text = plot
                .children()
                .find(|node| node.has_tag_name(name))
                .and_then(|node| node.text());
            assert!(
                text.is_some_and(|text| !text.is_empty()),
                "a plot without {name}"
            );
        }
        for id in plot
            .attribute("aria-labelledby")
            .expect("labelled")
            .split(' ')
        {
            assert!(ids.contains(id), "{id} is nowhere");
        }
    }
    assert!(
        document
            .descendants()
            .any(|node| node.has_tag_name("table"))
    );
}

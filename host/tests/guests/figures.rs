//! Tests of the figures of `ebb run` for a guest that takes memory and frees it.

use crate::guest::{ebb, run};
use crate::running::eventually;
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

#[test]
fn summary_and_timeline_tell_of_memory_that_came_back() {
    let path = std::env::temp_dir().join(format!("ebb-timeline-{}", std::process::id()));
    let script = "dd if=/dev/zero of=/tmp/x bs=1M count=120 2>/dev/null; read go; \
        rm /tmp/x; read go; sleep 8";
    let mut child = ebb(&[
        "--summary",
        "--timeline",
        path.to_str().expect("a plain path"),
        "--",
        "sh",
        "-c",
        script,
    ])
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("ebb starts");
    let mut input = child.stdin.take().expect("it is piped");
    // The used and resident memory in the lines so far. A line that is not written to its end is
    // not read.
    let points = || -> Vec<(u64, u64)> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().map(serde_json::from_str::<Value>);
        let point = |line: Value| Some((line["used"].as_u64()?, line["resident"].as_u64()?));
        lines.filter_map(|line| point(line.ok()?)).collect()
    };
    eventually("taking memory", || {
        let (used, resident) = *points().last()?;
        (used.min(resident) >= 120 * MIB).then_some(())
    });
    input.write_all(b"\n").expect("it reads");
    // As the summary has it, 95 % of the fall of used memory since the end of its peak.
    eventually("its return", || {
        let points = points();
        let (used, resident) = *points.last()?;
        let peak = points.iter().map(|(used, _)| *used).max()?;
        let freed = peak - used;
        let (_, full) = points
            .iter()
            .rfind(|(used, _)| *used >= peak - freed / 20)?;
        let most = resident + (freed - freed / 20) <= *full;
        (most && freed >= 110 * MIB && resident < 40 * MIB).then_some(())
    });
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let text = std::fs::read_to_string(&path).expect("the timeline is there");
    std::fs::remove_file(&path).expect("it is ours");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("95 % after"), "{message}");

    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let times: Vec<f64> = lines
        .iter()
        .map(|line| line["t_ms"].as_f64().expect("a time"))
        .collect();
    assert!(times.is_sorted());
    let last = lines.last().expect("a line");
    // A busy host delays lines, but not all of them.
    let apart: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The last line comes when the guest ends, and not at an interval.
    let in_time = apart.iter().rev().skip(1).filter(|apart| **apart <= 100.0);
    assert!(in_time.count() >= 3, "{apart:?}");

    let summary = &last["summary"];
    let bytes = |value: &Value| value.as_u64().expect("a number");
    assert!(bytes(&summary["peak_used"]) >= 120 * MIB);
    assert!(bytes(&summary["peak_resident"]) >= 120 * MIB);
    for figure in ["used", "resident"] {
        let most = lines.iter().filter_map(|line| line[figure].as_u64()).max();
        let peak = &summary[format!("peak_{figure}")];
        assert!(most.is_some_and(|most| bytes(peak) >= most), "{figure}");
    }
    assert!(bytes(&last["resident"]) < 40 * MIB);
    assert!(bytes(&last["taken"]) >= 100 * MIB);
    assert!(bytes(&summary["return"]["freed"]) >= 110 * MIB);
    assert!(summary["return"]["half"].is_number());
}

/// Shows that counted runs are identical and depend neither on the host nor on chance.
#[test]
fn counted_runs_are_alike() {
    let script = "for i in 1 2 3 4; do (dd if=/dev/zero bs=4k count=200 2>/dev/null | md5sum) & \
        done; wait; sleep 3; cat /proc/sys/kernel/random/uuid /proc/stat /proc/uptime";
    let counted = |seed| {
        let output = run(&[
            "-c", "1", "--icount", "--seed", seed, "--", "sh", "-c", script,
        ]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let first = counted("0");
    assert!(first.contains("ctxt "), "{first}");
    assert_eq!(counted("0"), first);
    assert_ne!(counted("1"), first);
}

#[test]
fn without_giving_back_memory_stays() {
    let script = "dd if=/dev/zero of=/tmp/x bs=1M count=100 2>/dev/null; rm /tmp/x; sleep 5";
    let output = run(&["--give-back", "off", "--summary", "--", "sh", "-c", script]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("0 % when the program ended"), "{message}");
}

//! Tests of the figures of a stock guest, and of the figures that are reported as unknown.

use crate::guest::{available, ebb, run};
use crate::running::eventually;
use crate::scratch::Scratch;
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

#[test]
fn memory_that_comes_back_is_seen() {
    let scratch = Scratch::new("figures");
    let (timeline, record) = (scratch.path("timeline"), scratch.path("record"));
    let script = "dd if=/dev/zero of=/tmp/x bs=1M count=120 2>/dev/null; read go; rm /tmp/x; \
        read go; exit 5";
    let arguments = [
        "--summary",
        "--timeline",
        &timeline,
        "--record",
        &record,
        "--",
        "sh",
        "-c",
        script,
    ];
    if !available() {
        return;
    }
    let mut child = ebb(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut input = child.stdin.take().expect("it is piped");
    // The numbers under a name in the lines so far.
    let numbers = |name: &str| -> Vec<u64> {
        let text = std::fs::read_to_string(&timeline).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str::<Value>);
        let number = |line: Result<Value, _>| line.ok()?[name].as_u64();
        lines.filter_map(number).collect()
    };
    eventually("taking memory", || {
        let (used, resident) = (numbers("used"), numbers("resident"));
        let taken = used.iter().max()? - used.first()? >= 110 * MIB;
        (taken && *resident.iter().max()? >= 110 * MIB).then_some(())
    });
    input.write_all(b"\n").expect("it reads");
    eventually("its return", || {
        let resident = numbers("resident");
        (resident.iter().max()? - resident.last()? >= 90 * MIB).then_some(())
    });
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{message}");
    assert!(message.contains("Linux 6.1"), "{message}");
    assert!(message.contains("not told by this kernel"), "{message}");

    let text = std::fs::read_to_string(&timeline).expect("the timeline is there");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(lines.iter().all(|line| line["reported"].is_null()));
    assert!(lines.iter().any(|line| line["used"].is_null()));
    let used: Vec<u64> = lines.iter().filter_map(|l| l["used"].as_u64()).collect();
    let resident: Vec<u64> = lines
        .iter()
        .filter_map(|line| line["resident"].as_u64())
        .collect();
    let peak_used = used.iter().max();
    let peak = resident.iter().max().expect("a line");
    let after = resident.iter().skip_while(|bytes| *bytes != peak);
    let least = after.min().expect("a line");
    assert!(peak_used.is_some_and(|peak| peak - used[0] >= 110 * MIB));
    assert!(peak - least >= 90 * MIB, "{text}");

    let record: Value =
        serde_json::from_slice(&std::fs::read(record).expect("the record is there")).expect("JSON");
    let number = |value: &Value| value.as_f64().expect("a number");
    assert_eq!(record["kernel"]["name"], "linux");
    assert!(
        record["kernel"]["version"]
            .as_str()
            .expect("text")
            .starts_with("6.1.")
    );
    assert_eq!(record["status"]["code"], 5);
    assert_eq!(record["memory"], 320 * MIB);
    assert!(number(&record["started_s"]) < number(&record["wall_s"]));
    assert!(number(&record["resident_at_start"]) > 0.0);
    assert!(number(&record["qemu_cpu_seconds"]["user"]) > 0.0);
    let command = record["qemu"]["command"].to_string();
    assert!(command.contains("free-page-reporting=on"), "{command}");
    assert!(record["summary"]["reported"].is_null());
}

#[test]
#[ignore = "long: make test-long"]
fn without_giving_back_memory_stays() {
    let script = "dd if=/dev/zero of=/tmp/x bs=1M count=120 2>/dev/null; sleep 1; rm /tmp/x; \
        sleep 6";
    let arguments = ["--give-back", "off", "--summary", "--", "sh", "-c", script];
    let Some(output) = run(&arguments) else {
        return;
    };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("0 % when the program ended"), "{message}");
}

#[test]
fn counted_instructions_are_time() {
    let scratch = Scratch::new("icount");
    let record = scratch.path("record");
    let arguments = [
        "--icount",
        "--record",
        &record,
        "--",
        "date",
        "-u",
        "+%Y-%m-%d",
    ];
    let Some(output) = run(&arguments) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2023-11-14\n");
    let record = std::fs::read_to_string(record).expect("the record is there");
    assert!(record.contains("max,-smap,-erms"), "{record}");
}

/// Shows that counted runs are identical by interrupts, task switches and random numbers, which
/// depend on every influence of the host.
#[test]
#[ignore = "long: make test-long"]
fn counted_runs_are_alike_to_the_last_interrupt() {
    let script = "for i in 1 2 3 4; do (dd if=/dev/zero bs=4k count=200 2>/dev/null | md5sum) & \
        done; wait; sleep 3; cat /proc/sys/kernel/random/uuid /proc/stat /proc/interrupts";
    let counted = |seed: &str| {
        let output = run(&["--icount", "--seed", seed, "--", "sh", "-c", script])?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(first) = counted("0") else { return };
    assert!(first.contains("ctxt "), "{first}");
    assert_eq!(counted("0"), Some(first.clone()));
    assert_ne!(counted("1"), Some(first));
}

/// Shows that Linux uses the time-stamp counter, because with a counter that it cannot check its
/// clock has steps of 4 ms.
#[test]
fn its_clock_is_the_time_stamp_counter_on_every_cpu() {
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let Some(output) = run(&["-c", "2", "--", "cat", file]) else {
        return;
    };
    let clock = String::from_utf8_lossy(&output.stdout);
    assert!(clock.starts_with("tsc"), "{clock}");
}

#[test]
#[ignore = "long: make test-long"]
fn another_board_and_more_cpus() {
    let arguments = ["--machine", "q35", "-c", "3", "--", "nproc"];
    let Some(output) = run(&arguments) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3\n", "{stderr}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
#[ignore = "long: make test-long"]
fn who_is_killed_for_want_of_memory_is_named() {
    let scratch = Scratch::new("victims");
    let record = scratch.path("record");
    // Programs may write to the log, but only the kernel's messages count.
    let fake = "Out of memory: Killed process 1 (fake) total-vm:4kB, anon-rss:4kB, file-rss:0kB, \
        shmem-rss:0kB, UID:0";
    let script =
        format!("echo '{fake}' > /dev/kmsg; tail /dev/zero; tail /dev/zero; echo went on; exit 4");
    let arguments = ["--summary", "--record", &record, "--", "sh", "-c", &script];
    let Some(output) = run(&arguments) else {
        return;
    };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(4), &b"went on\n"[..]),
        "{message}"
    );
    assert!(
        message.contains("out of memory: the guest killed 2 processes"),
        "{message}"
    );
    let record = std::fs::read(record).expect("the record is there");
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    let (oom, ended) = (&record["summary"]["oom"], &record["ended_guest_s"]);
    let last = oom["last"].as_array().expect("victims");
    assert_eq!((&oom["kills"], last.len()), (&2.into(), 2), "{oom}");
    for killed in last {
        assert_eq!(killed["name"], "tail");
        let resident = killed["resident_bytes"].as_u64().expect("bytes");
        assert!((100 * MIB..=320 * MIB).contains(&resident), "{oom}");
        assert!(
            killed["at_s"].as_f64() > Some(0.0) && killed["at_s"].as_f64() < ended.as_f64(),
            "{oom}"
        );
    }
}

//! Tests that a program in a guest has the same streams, arguments and status as on the host.

use crate::guest::{ebb, run, run_with_input};
use crate::running::{self, check, eventually};
use crate::scratch::Scratch;
use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// Returns bytes in which a lost, doubled or moved part is detected.
fn pattern(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.push(state.to_le_bytes()[1]);
    }
    bytes
}

#[test]
fn status_and_streams_come_through() {
    let output = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    check(&output, 7, "out\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
}

#[test]
fn death_by_signal_is_128_and_more() {
    check(&run(&["--", "sh", "-c", "kill -9 $$"]), 137, "");
    check(&run(&["--", "sh", "-c", "kill -SEGV $$"]), 139, "");
}

#[test]
fn arguments_environment_and_files() {
    let script = "#!/bin/sh\necho \"$# $1 $2\" \"$GREETING\" $(cat /data/f)\n";
    let scratch = Scratch::new("streams");
    let path = scratch.write("script.sh", script);
    let file = format!("{}:/data/f", scratch.write("f", "packed"));
    let output = run(&[
        "--file",
        &file,
        "--env",
        "GREETING=hi there",
        "--",
        &path,
        "a b",
        "*",
    ]);
    check(&output, 0, "2 a b * hi there packed\n");
}

#[test]
fn variables_keep_their_order() {
    let set = [
        "--env", "Z_=1", "--env", "A_=2", "--env", "M_=3", "--env", "Z_=4",
    ];
    let output = run(&[&set[..], &["--", "env"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let own = |line: &&str| line.as_bytes().get(1) == Some(&b'_');
    let lines: Vec<&str> = text.lines().filter(own).collect();
    assert_eq!(lines, ["Z_=4", "A_=2", "M_=3"], "{text}");
}

#[test]
fn stdin_ends_where_it_ends() {
    let input = pattern(3_000_000);
    let output = run_with_input(&["--", "cat"], input.clone());
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stdout == input,
        "{} bytes came back",
        output.stdout.len()
    );
    check(&run_with_input(&["--", "wc", "-c"], Vec::new()), 0, "0\n");
}

#[test]
fn slow_reader_loses_nothing() {
    let mut child = ebb(&["--", "sh", "-c", "seq 1 400000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    thread::sleep(Duration::from_secs(2));
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(text.lines().count(), 400_000);
    assert!(
        text.lines()
            .zip(1..)
            .all(|(line, number)| line == number.to_string())
    );
}

#[test]
fn closed_stdout_ends_the_writer() {
    running::closed_stdout_ends_the_writer(ebb);
}

#[test]
fn signals_reach_the_program() {
    running::signals_reach_the_program(ebb);
}

#[test]
fn order_is_kept_where_both_outputs_are_one() {
    let script = "for i in 1 2 3 4 5 6 7 8; do echo o$i; echo e$i >&2; done";
    let scratch = Scratch::new("order");
    let path = scratch.path("both");
    let file = std::fs::File::create(&path).expect("a writable place");
    let both = file.try_clone().expect("it can be shared");
    let mut child = ebb(&["--", "sh", "-c", script])
        .stdout(file)
        .stderr(both)
        .spawn()
        .expect("ebb starts");
    let status = eventually("the end", || {
        child.try_wait().expect("it can be waited for")
    });
    let text = std::fs::read_to_string(&path).expect("text");
    let expected: String = (1..=8).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!((status.code(), text), (Some(0), expected));
}

/// Shows that the example of docs/files.md works, except for the unpacking.
#[test]
fn files_come_out_as_an_archive_also_of_a_job_that_failed() {
    let scratch = Scratch::new("out");
    let job =
        "#!/usr/bin/env sh\nmkdir -p /results/a && echo told > /results/a/b\necho said\nexit 3\n";
    let file = format!("{}:/job", scratch.write("job", job));
    let run = run(&[
        "--file",
        &file,
        "--",
        "sh",
        "-c",
        "chmod +x /job; /job >&2; status=$?; tar -c /results; exit $status",
    ]);
    assert_eq!(run.status.code(), Some(3));
    assert_eq!(
        String::from_utf8_lossy(&run.stderr).lines().next(),
        Some("said")
    );
    let archive = scratch.folder().join("results.tar");
    std::fs::write(&archive, &run.stdout).expect("a writable place");
    let tar = std::process::Command::new("tar")
        .args(["-xO", "results/a/b", "-f"])
        .arg(&archive)
        .output()
        .expect("tar starts");
    assert_eq!(tar.stdout, b"told\n");
}

//! Tests that a program on stock Linux has the same streams, arguments and status as on Ebb.

use crate::guest::{available, ebb, run, run_with_input};
use crate::running::{self, check, eventually, qemu_of, signal};
use crate::scratch::Scratch;

#[test]
#[ignore = "long: make test-long"]
fn everything_that_is_packed_arrives() {
    let scratch = Scratch::new("packed");
    let script = scratch.path("script.sh");
    let text = "#!/bin/sh\necho \"$# $1 $2\" \"$GREETING\" $(cat /data/f)\nuname -s\n\
        cat /proc/sys/vm/min_free_kbytes\necho err >&2\nls -d /.ebb 2>/dev/null\nexit 7\n";
    std::fs::write(&script, text).expect("a writable place");
    std::fs::write(scratch.path("f"), "packed").expect("a writable place");
    let file = format!("{}:/data/f", scratch.path("f"));
    let arguments = [
        "--file",
        &file,
        "--env",
        "GREETING=hi there",
        "--sysctl",
        "vm.min_free_kbytes=7777",
        "--",
        &script,
        "a b",
        "*",
    ];
    let Some(output) = run(&arguments) else {
        return;
    };
    check(&output, 7, "2 a b * hi there packed\nLinux\n7777\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
}

#[test]
fn variables_keep_their_order() {
    let set = [
        "--env", "Z_=1", "--env", "A_=2", "--env", "M_=3", "--env", "Z_=4",
    ];
    let Some(output) = run(&[&set[..], &["--", "env"]].concat()) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let own = |line: &&str| line.as_bytes().get(1) == Some(&b'_');
    let lines: Vec<&str> = text.lines().filter(own).collect();
    assert_eq!(lines, ["Z_=4", "A_=2", "M_=3"], "{text}");
}

#[test]
fn bytes_are_not_changed() {
    // All byte values, including those that a terminal interprets, and more than any buffer holds.
    let input: Vec<u8> = (0..2_000_000u32)
        .map(|index| (index ^ (index >> 8)).to_le_bytes()[0])
        .collect();
    let Some(output) = run_with_input(&["--", "cat"], input.clone()) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(output.stdout == input, "{} bytes", output.stdout.len());
}

#[test]
fn death_by_signal_is_128_and_more() {
    let Some(output) = run(&["--", "sh", "-c", "kill -SEGV $$"]) else {
        return;
    };
    check(&output, 139, "");
}

#[test]
fn signals_reach_the_program() {
    if available() {
        running::signals_reach_the_program(ebb);
    }
}

#[test]
#[ignore = "long: make test-long"]
fn closed_stdout_ends_the_writer() {
    if available() {
        running::closed_stdout_ends_the_writer(ebb);
    }
}

#[test]
#[ignore = "long: make test-long"]
fn order_is_kept_and_children_left_behind_hold_nothing_up() {
    if !available() {
        return;
    }
    let script = "sleep 1000 & for i in 1 2 3 4; do echo o$i; echo e$i >&2; done";
    let scratch = Scratch::new("order");
    let file = std::fs::File::create(scratch.path("both")).expect("a writable place");
    let both = file.try_clone().expect("it can be shared");
    let status = ebb(&["--", "sh", "-c", script])
        .stdout(file)
        .stderr(both)
        .status()
        .expect("ebb starts");
    let text = std::fs::read_to_string(scratch.path("both")).expect("text");
    let expected: String = (1..=4).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!((status.code(), text), (Some(0), expected));
}

#[test]
fn a_guest_that_boots_can_be_ended() {
    if !available() {
        return;
    }
    let mut child = ebb(&["--", "sleep", "1000"]).spawn().expect("ebb starts");
    let qemu = eventually("QEMU", || qemu_of(&child));
    signal(child.id(), "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(!std::path::Path::new(&format!("/proc/{qemu}")).exists());
}

#[test]
fn timeout_ends_it() {
    let Some(output) = run(&["--timeout", "2", "--", "sleep", "1000"]) else {
        return;
    };
    check(&output, 124, "");
}

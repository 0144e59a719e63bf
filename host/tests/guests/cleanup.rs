//! Tests that QEMU ends whenever ebb ends, and that ebb reports any end of QEMU.

use crate::guest::{ebb, run};
use crate::running::{eventually, is_alive, qemu_of, signal};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

/// Starts a guest and waits until its program runs. Returns ebb and the process number of QEMU.
fn running(script: &str) -> (Child, u32) {
    let script = format!("{script}; echo ready; while :; do sleep 1; done");
    let mut child = ebb(&["--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let qemu = qemu_of(&child).expect("ebb has a child");
    (child, qemu)
}

fn gone(qemu: u32) {
    eventually("the end of QEMU", || (!is_alive(qemu)).then_some(()));
}

#[test]
fn killed_ebb_leaves_no_qemu() {
    let (mut child, qemu) = running(":");
    child.kill().expect("it is alive");
    child.wait().expect("it ends");
    gone(qemu);
}

#[test]
fn third_interrupt_ends_a_deaf_program() {
    let (mut child, qemu) = running("trap '' INT");
    let status = eventually("the end", || {
        signal(child.id(), "INT");
        // The kernel merges signals that arrive before ebb sees the first, so more than three may
        // be needed.
        std::thread::sleep(std::time::Duration::from_millis(100));
        child.try_wait().expect("it can be waited for")
    });
    assert_eq!(status.code(), Some(130));
    gone(qemu);
}

#[test]
fn terminated_program_has_its_status() {
    let (mut child, qemu) = running(":");
    signal(child.id(), "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    gone(qemu);
}

#[test]
fn killed_qemu_is_told() {
    let (mut child, qemu) = running(":");
    signal(qemu, "KILL");
    assert_eq!(child.wait().expect("it ends").code(), Some(125));
    let mut message = String::new();
    child
        .stderr
        .take()
        .expect("it is piped")
        .read_to_string(&mut message)
        .expect("text");
    assert!(message.contains("QEMU was killed by signal 9"), "{message}");
}

#[test]
fn time_runs_out() {
    let output = run(&["--timeout", "2", "--", "sleep", "100"]);
    assert_eq!(output.status.code(), Some(124));
    assert!(String::from_utf8_lossy(&output.stderr).contains("after 2 s"));
}

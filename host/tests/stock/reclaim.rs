//! Tests of a stock guest that is asked for memory through its balloon.

use crate::guest::{available, ebb};
use crate::running::eventually;
use crate::scratch::Scratch;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn memory_comes_by_the_balloon_and_the_guest_keeps_its_size() {
    if !available() {
        return;
    }
    let scratch = Scratch::new("stock-qmp");
    let socket = scratch.path("qmp");
    let monitor = format!("--qemu-arg=unix:{socket},server=on,wait=off");
    let script = "grep MemTotal /proc/meminfo; read line; grep MemTotal /proc/meminfo";
    let options = ["--unconfined", "--qemu-arg=-qmp", &monitor];
    let mut command = ebb(&[&options[..], &["--", "sh", "-c", script]].concat());
    let mut guest = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut stdout = BufReader::new(guest.stdout.take().expect("it is piped"));
    let (mut before, mut after) = (String::new(), String::new());
    stdout.read_line(&mut before).expect("the guest answers");
    let mut reclaim = Command::new(env!("CARGO_BIN_EXE_ebb"));
    reclaim.args(["reclaim", "--qmp", &socket, "--target", "60M", "--json"]);
    // A balloon that does not move for 5 s is given up. On a busy host, it may stand that long.
    let output = eventually("reclaiming all of it", || {
        let output = reclaim.output().expect("ebb starts");
        (output.status.code() != Some(1)).then_some(output)
    });
    // The end of its input lets the guest continue.
    drop(guest.stdin.take());
    stdout.read_line(&mut after).expect("the guest answers");
    let status = guest.wait().expect("a child");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(told["ballooned_bytes"], 60 << 20, "{told}");
    assert!(before.starts_with("MemTotal"), "{before}");
    assert_eq!(before, after);
    assert!(status.success(), "{status}");
}

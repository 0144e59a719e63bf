//! Tests of signals on stock Linux, as on Ebb's kernel.

use crate::guest::{available, ebb};
use crate::running::signal;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

#[test]
#[ignore = "long: make test-long"]
fn a_program_that_is_deaf_to_the_request_to_end_is_ended() {
    if !available() {
        return;
    }
    let script = "trap '' TERM; echo ready; while :; do sleep 0.2; done";
    let mut child = ebb(&["--grace", "1", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    signal(child.id(), "TERM");
    let status = child.wait().expect("it ends").code();
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("it is piped");
    stderr.read_to_string(&mut said).expect("text");
    assert_eq!(status, Some(143), "{said}");
    assert!(said.contains("1 s after SIGTERM"), "{said}");
}

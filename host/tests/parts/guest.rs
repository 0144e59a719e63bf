//! Helpers for tests with a running `ebb`, for both kernels.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// More time than any guest of the tests needs on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the command with `input` on its stdin and returns its output.
pub(crate) fn with_input(mut ebb: Command, input: Vec<u8>) -> Output {
    let mut child = ebb
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program may end before it has read all input.
    let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("ebb can be waited for");
    feeder.join().expect("the feeder does not panic");
    output
}

/// Returns the process number of the QEMU that runs the guest of `ebb`. Returns `None` if there is
/// none yet. Ignores processes that only probe QEMU.
pub(crate) fn qemu_of(ebb: &Child) -> Option<u32> {
    let children = format!("/proc/{0}/task/{0}/children", ebb.id());
    let children = std::fs::read_to_string(children).ok()?;
    let mut children = children.split_whitespace();
    let qemu = children.find(|child| {
        std::fs::read_to_string(format!("/proc/{child}/comm"))
            .is_ok_and(|name| name.starts_with("qemu"))
    })?;
    qemu.parse().ok()
}

/// Returns whether a process exists and is no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Waits until `condition` returns a value and returns it. Panics with `what` after [`TIMEOUT`].
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal by name.
pub(crate) fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .status();
    assert!(status.expect("kill runs").success());
}

/// Asserts the exit status and the output of a program.
pub(crate) fn check(output: &Output, status: i32, stdout: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        stdout,
        "stderr: {stderr}"
    );
    assert_eq!(output.status.code(), Some(status), "stderr: {stderr}");
}

/// Tests that a signal to `ebb` reaches the program, and that the program's answer and status come
/// back.
pub(crate) fn signals_reach_the_program(ebb: fn(&[&str]) -> Command) {
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = ebb(&["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    signal(child.id(), "INT");
    assert_eq!(lines.next().expect("a line").expect("text"), "caught");
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
}

/// Tests that a program whose output is closed ends as on the host.
pub(crate) fn closed_stdout_ends_the_writer(ebb: fn(&[&str]) -> Command) {
    let mut child = ebb(&["--", "yes"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut reader = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    assert_eq!(line, "y\n");
    drop(reader);
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 13));
}

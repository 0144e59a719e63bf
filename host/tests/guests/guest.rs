//! Runs `ebb` on real guests, under TCG, with a bound on everything.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any guest here takes on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// `ebb run` with a small guest that ends after [`PATIENCE`] at the latest.
pub(crate) fn ebb(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    let seconds = PATIENCE.as_secs().to_string();
    command
        .args([
            "run",
            "--accel",
            "tcg",
            "-m",
            "256M",
            "-c",
            "2",
            "--timeout",
            &seconds,
        ])
        .args(arguments)
        .env_remove("EBB_KERNEL_IMAGE")
        .stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    ebb(arguments).output().expect("ebb starts")
}

/// Runs it with `input` on its stdin.
pub(crate) fn run_with_input(arguments: &[&str], input: Vec<u8>) -> Output {
    let mut child = ebb(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program may end before it has read everything.
    let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("ebb can be waited for");
    feeder.join().expect("the feeder does not panic");
    output
}

/// The QEMU that belongs to a running ebb.
pub(crate) fn qemu_of(ebb: &Child) -> Option<u32> {
    let children = format!("/proc/{0}/task/{0}/children", ebb.id());
    let children = std::fs::read_to_string(children).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Whether a process is there and not merely waiting to be reaped.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Waits until `condition` holds; panics with `what` if it does not within [`PATIENCE`].
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal by number.
pub(crate) fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .status();
    assert!(status.expect("kill runs").success());
}

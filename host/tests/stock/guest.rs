//! Runs `ebb` with stock guests under TCG, with limits for time and memory.

use crate::running::{TIMEOUT, with_input};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Returns a command for `ebb run --kernel linux` with a small guest, which ends after [`TIMEOUT`]
/// at the latest.
pub(crate) fn ebb(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    let seconds = TIMEOUT.as_secs().to_string();
    command
        .args(["run", "--kernel", "linux", "--accel", "tcg", "-m", "320M"])
        .args(["-c", "1", "--timeout", &seconds])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

/// Returns whether Debian's kernel is available or can be fetched. Checks this once and prints a
/// message once if it is not.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let output = ebb(&["--print-qemu", "--", "true"])
            .output()
            .expect("ebb starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return true;
        }
        assert!(
            stderr.contains("cannot fetch Debian's kernel"),
            "only a kernel that cannot be fetched is an excuse: {stderr}"
        );
        eprintln!("SKIPPED, there is no stock kernel: {stderr}");
        false
    })
}

/// Runs the guest to its end and returns the output. Returns `None` if there is no kernel.
pub(crate) fn run(arguments: &[&str]) -> Option<Output> {
    available().then(|| ebb(arguments).output().expect("ebb starts"))
}

/// Runs the guest with `input` on its stdin and returns the output. Returns `None` if there is no
/// kernel.
pub(crate) fn run_with_input(arguments: &[&str], input: Vec<u8>) -> Option<Output> {
    available().then(|| with_input(ebb(arguments), input))
}

//! Runs `ebb` with real guests under TCG, with limits for time and memory.

use crate::running::{TIMEOUT, with_input};
use std::process::{Command, Output, Stdio};

/// Returns a command for `ebb run` with a small guest, which sees no file of the host and ends
/// after [`TIMEOUT`] at the latest.
pub(crate) fn ebb(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    let seconds = TIMEOUT.as_secs().to_string();
    command
        .args([
            "run",
            "--accel",
            "tcg",
            "-m",
            "256M",
            "-c",
            "2",
            "--root",
            "none",
            "--timeout",
            &seconds,
        ])
        .args(arguments)
        .env_remove("EBB_KERNEL_IMAGE")
        .stdin(Stdio::null());
    command
}

/// Runs the guest to its end and returns the output.
pub(crate) fn run(arguments: &[&str]) -> Output {
    ebb(arguments).output().expect("ebb starts")
}

/// Runs the guest with `input` on its stdin and returns the output.
pub(crate) fn run_with_input(arguments: &[&str], input: Vec<u8>) -> Output {
    with_input(ebb(arguments), input)
}

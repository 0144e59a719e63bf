//! Runs `ebb` on real guests, under TCG, with a bound on everything.

use crate::running::{PATIENCE, with_input};
use std::process::{Command, Output, Stdio};

/// `ebb run` with a small guest that sees nothing of the host and ends after [`PATIENCE`] at the latest.
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

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    ebb(arguments).output().expect("ebb starts")
}

/// Runs it with `input` on its stdin.
pub(crate) fn run_with_input(arguments: &[&str], input: Vec<u8>) -> Output {
    with_input(ebb(arguments), input)
}

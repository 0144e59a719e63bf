//! Makes the tables of docs/measured/xen.md from the output of the Xen laboratory's machines:
//!
//! ```text
//! cargo run --release -p ebb-blk --example xen-report -- LOG…
//! ```
//!
//! The tables also have the figures published for the original patch (the "seed"). Exits with 1 if
//! something failed or a table lacks a figure.

mod records;
mod statistics;
mod tables;

use records::Records;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut records = Records::default();
    let logs: Vec<_> = std::env::args_os().skip(1).collect();
    if logs.is_empty() {
        eprintln!("xen-report: which logs?");
        return ExitCode::from(2);
    }
    for path in logs {
        match std::fs::read(&path) {
            // The console's output may hold any bytes.
            Ok(bytes) => records.read(&String::from_utf8_lossy(&bytes)),
            Err(error) => {
                eprintln!("xen-report: cannot read {}: {error}", path.display());
                return ExitCode::from(2);
            }
        }
    }
    let (text, lacking) = tables::report(&records);
    print!("{text}");
    for failure in records.failures.iter().chain(&lacking) {
        eprintln!("xen-report: {failure}");
    }
    if records.failures.is_empty() && lacking.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

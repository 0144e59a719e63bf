//! `ebb`: runs ordinary Linux programs in small VMs.
//!
//! `ebb run -- PROGRAM` packs a program into an initramfs, boots the guest kernel that this binary
//! holds in QEMU, streams the program's standard streams, and reports how much memory the guest
//! used beside how much of the host's it held.

mod accel;
mod blk;
mod busybox;
mod chart;
mod cli;
mod compare;
mod console;
mod control;
mod delivery;
mod failure;
mod files;
mod guest;
mod header;
mod image;
mod initramfs;
mod kernel;
mod linux;
mod metrics;
mod orphan;
mod program;
mod qemu;
mod qmp;
mod ram;
mod record;
mod registry;
mod run;
mod sample;
mod session;
mod signals;
mod size;
mod stage;
mod status_line;
mod stream;
mod summary;
mod symbols;
mod terminal;
mod timeline;
mod top;
mod vm;
mod watch;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli::Cli { command } = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout and is no error. 2 would look like the program's own status.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                failure::STATUS_FAILED
            } else {
                0
            });
        }
    };
    let result = match command {
        cli::Command::Run(options) => run::run(&options),
        cli::Command::Compare(options) => compare::compare(&options),
        cli::Command::Top(options) => top::run(&options),
        cli::Command::Metrics(options) => metrics::run(&options),
        cli::Command::Blk(options) => blk::run(&options),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.status())
        }
    }
}

//! The command `ebb`, without the programs that its guests run. It is a crate of its own so that it
//! is compiled while those programs are built.
//!
//! `ebb run -- PROGRAM` packs a program into an initramfs and boots it in QEMU with the guest
//! kernel that the binary holds. It carries the program's standard streams. It reports how much
//! memory the guest used, and how much memory the host held for it.
//!
//! # Units
//!
//! A unit uses only units below it (`layers/tests/host.rs`).
//!
//! | unit | what |
//! |---|---|
//! | `hints`, `cli` | the command line, and what to do about its errors |
//! | `pages` | the command `ebb pages`: manual pages, completions, pages of the book |
//! | `run`, `compare`, `top`, `metrics`, `set`, `ask`, `workloads` | the other commands |
//! | `blk` | the command `ebb blk`, and the disks of a run |
//! | `registry` | how commands find a run and query it |
//! | `reclaim` | takes free memory of a guest |
//! | `stdout`, `failure` | output; errors of the units below, with status, message and help |
//! | `guest` | what a kernel needs, what a guest reports; `ebb` and `linux` implement both |
//! | `qemu`, `streams`, `archive` | QEMU and the guest's RAM; ports; the first file system |
//! | `confine` | restricts QEMU, `ebb`, and the readers of programs and images |
//! | `system` | what the host has: files, memory, folders |
//! | `text`, `machine` | output for people, the user's terminal; a guest's options as values |
//! | `compressed`, `embedded` | decoders of gzip, zstd and xz; the programs in the binary |

// From the bottom up: a module uses only modules above it in this list.
mod compressed;
mod embedded;
mod machine;
mod system;
mod text;

mod confine;

mod archive;
mod qemu;
mod streams;

mod guest;

mod failure;
mod reclaim;
mod registry;
mod stdout;

mod ask;
mod blk;
mod compare;
mod metrics;
mod run;
mod set;
mod top;
mod workloads;

mod pages;

mod cli;
mod hints;

pub use embedded::Embedded;

use clap::{CommandFactory, Parser};
use std::process::ExitCode;

/// Runs the command that the process's arguments name. `embedded` has the programs for guests.
/// Prints help, errors of usage and failures itself. Returns the exit status of the process: that
/// of the command, 0 after help, 125 for errors of usage, and 124 to 127 for failures of ebb.
pub fn main(embedded: Embedded) -> ExitCode {
    embedded::set(embedded);
    system::heed_file_size_limit();
    system::heed_children();
    let cli::Cli { command } = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let error = hints::add(error);
            // Help goes to stdout and is no error. A status of 2 would look like the program's own.
            return ExitCode::from(match hints::print(&error) {
                Ok(()) if !error.use_stderr() => 0,
                Ok(()) => failure::STATUS_FAILED,
                Err(failure) => {
                    failure.print();
                    failure.status()
                }
            });
        }
    };
    let result = match command {
        cli::Command::Run(options) => run::run(&options),
        cli::Command::Compare(options) => compare::compare(&options),
        cli::Command::Workloads(options) => workloads::run(&options),
        cli::Command::Top(options) => top::run(&options),
        cli::Command::Set(options) => set::run(&options),
        cli::Command::Reclaim(options) => ask::run(&options),
        cli::Command::Pause(options) => ask::pause(&options),
        cli::Command::Resume(options) => ask::resume(&options),
        cli::Command::Metrics(options) => metrics::run(&options),
        cli::Command::Blk(options) => blk::run(&options),
        cli::Command::Pages(options) => pages::write(cli::Cli::command(), &options),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.status())
        }
    }
}

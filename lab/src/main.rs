//! Prints the figures of docs/measurements.md again: Ebb and a stock Linux guest, side by side,
//! in the same QEMU, in one run.

mod boots;
mod cpio;
mod fault;
mod give_back;
mod guest;
mod ram;
mod report;
mod start;
mod stock;
mod watch;

use clap::{Parser, ValueEnum};
use guest::{Guests, Kind, Reporting};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Why a figure could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The host's system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    /// The guest did something else than the experiment expects.
    #[error("{0}")]
    Guest(String),
    /// The stock kernel could not be had.
    #[error("{0}")]
    Stock(String),
    /// A guest did not end in time.
    #[error("{name} did not end within {limit:?}; its last lines:\n  {tail}")]
    TimedOut {
        name: String,
        limit: Duration,
        tail: String,
    },
}

impl Failure {
    pub(crate) fn io(what: String, source: std::io::Error) -> Self {
        Self::Io { what, source }
    }
}

/// Which figures are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// How long freed memory takes to come back to the host.
    Return,
    /// Time and resident memory until the first user instruction.
    Start,
    /// Instructions of a page fault.
    Fault,
    /// Many boots in a row.
    Boots,
    /// All of them.
    All,
}

/// Measures Ebb beside a stock Linux guest.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Options {
    /// Which figure.
    figure: Figure,
    /// Only this guest.
    #[arg(long)]
    guest: Option<Kind>,
    /// The ebb command.
    #[arg(long, default_value = "target/release/ebb")]
    ebb: PathBuf,
    /// The static ebb-workloads program.
    #[arg(
        long,
        default_value = "target/workloads/x86_64-unknown-linux-gnu/release/ebb-workloads"
    )]
    workloads: PathBuf,
    /// A stock kernel …/boot/vmlinuz-RELEASE with its modules in …/lib/modules/RELEASE; without
    /// it, Debian's package is fetched.
    #[arg(long)]
    linux: Option<PathBuf>,
    /// Where fetched packages are unpacked and kept.
    #[arg(long, default_value = "target/lab")]
    cache: PathBuf,
    /// Boots of the last figure.
    #[arg(long, default_value_t = 100)]
    boots: u32,
    /// Runs of each figure but the boots.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Writes every figure and curve as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Writes the tables as Markdown.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("lab: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all boots ended as they should.
fn run(options: &Options) -> Result<bool, Failure> {
    let kinds: Vec<Kind> = match options.guest {
        Some(kind) => vec![kind],
        None => vec![Kind::Ebb, Kind::Linux],
    };
    let wants = |figure| options.figure == figure || options.figure == Figure::All;
    let stock = if kinds.contains(&Kind::Linux) && options.figure != Figure::Boots {
        Some(stock::Stock::find(
            &options.cache,
            options.linux.as_deref(),
        )?)
    } else {
        None
    };
    for (path, advice) in [
        (&options.workloads, "make workloads"),
        (&options.ebb, "make build"),
    ] {
        let needed = *path != options.ebb || kinds.contains(&Kind::Ebb);
        if needed && !path.is_file() {
            let path = path.display();
            return Err(Failure::Guest(format!(
                "{path} is not there: run `{advice}` first"
            )));
        }
    }
    let guests = Guests {
        ebb: options.ebb.clone(),
        workloads: options.workloads.clone(),
        stock,
    };
    let mut report = Report::new(&guests);
    let progress = |text: String| eprintln!("lab: {text}");
    for round in 1..=options.rounds {
        // Guests take turns, so that what else the machine does hits both alike.
        for &kind in &kinds {
            let name = kind.name();
            if wants(Figure::Return) {
                progress(format!(
                    "return, {name}, round {round} of {}",
                    options.rounds
                ));
                report.returned.push(give_back::measure(&guests, kind)?);
            }
            if wants(Figure::Start) {
                for memory_mib in start::MEMORY_MIB {
                    progress(format!("start, {name}, {memory_mib} MiB, round {round}"));
                    report
                        .started
                        .push(start::measure(&guests, kind, memory_mib)?);
                }
            }
            if wants(Figure::Fault) {
                for reporting in [Reporting::On, Reporting::Off] {
                    progress(format!(
                        "fault, {name}, reporting {reporting:?}, round {round}"
                    ));
                    report
                        .faults
                        .push(fault::measure(&guests, kind, reporting)?);
                }
            }
        }
    }
    if wants(Figure::Boots) && kinds.contains(&Kind::Ebb) {
        progress(format!("{} boots", options.boots));
        report.boots = Some(boots::measure(&guests, options.boots)?);
    }
    print!("{}", report.markdown());
    if let Some(path) = &options.json {
        write(path, &report.json()?)?;
    }
    if let Some(path) = &options.markdown {
        write(path, &report.markdown())?;
    }
    Ok(report.boots.is_none_or(|boots| boots.failures.is_empty()))
}

fn write(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| Failure::io(format!("write {}", path.display()), e))
}

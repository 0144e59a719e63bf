//! `ebb compare elasticity`: the experiments of the HyperAlloc paper with an unmodified QEMU.
//!
//! Each column is a kernel with one way to take memory from its guest. The host's side takes the
//! memory and watches the guest's RAM file; the guest's side is `ebb-workloads elastic`.

mod builds;
mod column;
mod guest;
mod memory;
mod memory_control;
mod paper;
mod resident_files;
mod setup;
mod sums;
mod windows;

use super::agreement::Other;
use super::elastic::{Kind, ROUNDS};
use super::experiment::Experiment;
use super::files::Files;
use super::interrupt::Interrupt;
use super::options::CompareOptions;
use super::own::{self, COLUMNS_MAX, OwnReport};
use super::schema::{Outcome, Run};
use super::scratch::{ComparisonLock, Scratch};
use super::variant;
use crate::failure::Failure;
use crate::text::{Size, Terminal};
use column::Column;
use setup::Setup;
use std::ffi::OsString;

/// The space that a run takes in the report in bytes, for reserving space.
const RUN_BYTES: u64 = 64 << 10;
/// The prefix of the names of these experiments.
const PREFIX: &str = "elasticity/";

/// Returns whether the user chose experiments about elasticity: all of `chosen`, and at least one.
/// Returns `false` if `chosen` has no such experiment.
///
/// # Errors
/// [`Failure::Usage`] if other experiments are chosen, too, or `--icount` or `--give-back` is
/// given.
pub(super) fn is_meant(
    chosen: &[&'static Experiment],
    options: &CompareOptions,
) -> Result<bool, Failure> {
    let ours = chosen.iter().filter(|one| one.name.starts_with(PREFIX));
    let count = ours.count();
    if count == 0 {
        return Ok(false);
    }
    let refuse = |why: &str| Err(Failure::Usage(why.to_owned()));
    if let Some(other) = chosen.iter().find(|one| !one.name.starts_with(PREFIX)) {
        return Err(Failure::Usage(format!(
            "elasticity has columns of its own, so `{}` is a comparison for itself",
            other.name
        )));
    }
    if options.icount {
        return refuse("--icount does not go with elasticity: the host's time is what it measures");
    }
    if !options.give_back.is_empty() {
        return refuse(
            "--give-back does not go with elasticity, which compares all ways; another one is a \
             variant, as in --variant 'hinting: --give-back hinting'",
        );
    }
    Ok(true)
}

/// The arguments of [`compare`] that its caller has determined already.
#[derive(Debug)]
pub(super) struct Inputs {
    /// The experiments that the user chose.
    pub(super) chosen: Vec<&'static Experiment>,
    /// The value of `--kernel` for the stock guest.
    pub(super) linux: Option<OsString>,
    /// The name of the accelerator.
    pub(super) accel: &'static str,
    /// The comparison that `--against` names.
    pub(super) other: Option<Other<OwnReport>>,
}

/// Runs the experiments of `inputs`, prints the table and writes the files. Installs handlers for
/// signals and prints the progress to stderr.
///
/// Returns the exit status: 0, 1 if a run failed or ratios differ from those of `--against`, or 128
/// plus the signal that ended it early. Fails if the options are not valid, a guest's memory is too
/// small, or a file or child process fails.
pub(super) fn compare(options: &CompareOptions, inputs: &Inputs) -> Result<u8, Failure> {
    let kinds: Vec<(Kind, Size)> = inputs
        .chosen
        .iter()
        .filter_map(|one| {
            let memory = options
                .memory
                .unwrap_or(Size::mebibytes(*one.memory_mib.first()?));
            Some((Kind::of(one.name)?, memory))
        })
        .collect();
    for (kind, memory) in &kinds {
        kind.check(*memory).map_err(Failure::Usage)?;
    }
    let columns =
        column::all(inputs.linux.as_deref(), &options.variants, &kinds).map_err(Failure::Usage)?;
    let mut variants: Vec<_> = columns.iter().map(|c| c.variant.clone()).collect();
    variants.extend(paper::columns().map_err(Failure::Usage)?);
    variant::apart(&variants).map_err(Failure::Usage)?;
    if variants.len() > COLUMNS_MAX {
        return Err(Failure::Usage(format!(
            "{} columns; at most {COLUMNS_MAX} fit beside each other",
            variants.len()
        )));
    }
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let turn = ComparisonLock::take()?;
    let scratch = Scratch::new(options.workloads.as_deref())?;
    let interrupt = Interrupt::catch()?;
    let count = kinds.len() * columns.len() * rounds as usize;
    let bytes = u64::try_from(count).unwrap_or(u64::MAX);
    let files = Files::reserve(options, bytes.saturating_mul(RUN_BYTES))?;
    let created = super::report::now();
    let terminal = Terminal::new();
    if turn.disturbed {
        terminal.message("ebb: another comparison is under way: times disturb one another");
    }
    let setup = Setup {
        scratch: &scratch,
        interrupt: &interrupt,
        accel: inputs.accel,
        qemu: &options.qemu,
        cpus: options.cpus.unwrap_or(1),
        timeout: options.timeout,
    };
    let mut runs = Vec::new();
    let complete = all(&setup, &terminal, &kinds, &columns, rounds, &mut runs)?;
    sums::add_shares(&mut runs, |column| columns[column].none_of());
    paper::add(&kinds, columns.len(), &mut runs);
    let report = OwnReport::new(complete, created, &variants, runs);
    let status = own::finish(&report, inputs.other.as_ref(), files)?;
    Ok(interrupt.signal().map_or(status, |signal| 128 + signal))
}

/// Runs every experiment in every column, round by round, and appends the runs with their columns'
/// indices. Returns `false` if a signal ended it early.
fn all(
    setup: &Setup<'_>,
    terminal: &Terminal,
    kinds: &[(Kind, Size)],
    columns: &[Column],
    rounds: u32,
    runs: &mut Vec<(usize, Run)>,
) -> Result<bool, Failure> {
    for round in 1..=rounds {
        for &(kind, memory) in kinds {
            for place in 0..columns.len() {
                // Later runs find a warmer machine, so the order is reversed every other round.
                let index = match round % 2 {
                    0 => columns.len() - 1 - place,
                    _ => place,
                };
                let column = &columns[index];
                match column.cannot(kind) {
                    Some(_) if column.is_ours => continue,
                    Some(why) => {
                        if round == 1 {
                            terminal.message(&format!(
                                "ebb: {} cannot be done on {}: {why}",
                                kind.name(),
                                column.variant.name
                            ));
                            runs.push((index, setup.unsupported(kind, memory, column, why)));
                        }
                        continue;
                    }
                    None => {}
                }
                terminal.message(&format!(
                    "ebb: {} on {}, round {round} of {rounds}",
                    kind.name(),
                    column.variant.name
                ));
                let run = one(setup, kind, memory, column, round)?;
                if setup.interrupt.signal().is_some() {
                    return Ok(false);
                }
                if let (Outcome::Failed, Some(error)) = (run.outcome, &run.error) {
                    terminal.message(&format!("ebb: {}: {error}", column.variant.name));
                }
                runs.push((index, run));
            }
        }
    }
    Ok(true)
}

/// Runs one experiment once in `column`.
fn one(
    setup: &Setup<'_>,
    kind: Kind,
    memory: Size,
    column: &Column,
    round: u32,
) -> Result<Run, Failure> {
    match kind {
        Kind::Memory => memory::run(setup, memory, column, round),
        Kind::Stream | Kind::Ftq => windows::run(setup, kind, memory, column, round),
        Kind::Build | Kind::Builds => builds::run(setup, kind, memory, column, round),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::experiments;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        options: CompareOptions,
    }

    fn meant(words: &[&str]) -> Result<bool, String> {
        let words = ["compare"].iter().chain(words);
        let options = Alone::try_parse_from(words).expect("options").options;
        let chosen = experiments::select(&options.experiments).expect("known");
        is_meant(&chosen, &options).map_err(|failure| failure.to_string())
    }

    #[test]
    fn elasticity_runs_alone_and_without_options_of_others() {
        assert_eq!(meant(&["elasticity"]), Ok(true));
        assert_eq!(meant(&["elasticity/ftq"]), Ok(true));
        assert_eq!(meant(&["idle"]), Ok(false));
        for (words, why) in [
            (&["elasticity/ftq", "idle"][..], "`idle`"),
            (&["elasticity", "--icount"], "--icount"),
            (&["elasticity", "--give-back", "off"], "--variant"),
        ] {
            let error = meant(words).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}

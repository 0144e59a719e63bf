//! `ebb compare`: runs the same experiments in guests of both kernels and compares the figures.
//!
//! # One comparison
//!
//! This folder knows guests only through `ebb run`. `plan` decides which guest runs when, and adds
//! rounds while ratios have not settled. `runner` starts `ebb run --timeline … --record … --
//! ebb-workloads --json …` and reads the events that the program prints. The sample of the timeline
//! that is the last when an event arrives connects the guest's phases to the host's curve
//! (`moments`). `figures` computes the figures of one run, `statistics` the rows of all. `reports`
//! leaves out counted figures of a guest that reported no memory while they were measured.
//!
//! Guests that take turns are up at the same time: each waits for a line on its stdin (`--turns`).
//! They are restricted to the same CPUs of the host (`cpus`). Guests whose instructions are counted
//! run at the same time, too. Their figures do not depend on the host, because they see their own
//! clock, a seed and an empty stdin.
//!
//! A report (`schema`) has all that a table, a page (`html`), Markdown or a plot (`svg`) shows. So
//! `--from` makes them again from a saved report. `own` has comparisons of the user's own programs
//! and of variants, with a plan, rows and a report of their own. `files`, `saved` and `csv` serve
//! both kinds.

mod absent;
mod agreement;
mod balloon;
mod calls;
mod child;
mod circumstances;
mod column;
mod conclusion;
mod costs;
mod cpus;
mod csv;
mod elastic;
mod elasticity;
mod experiment;
mod experiments;
mod faults;
mod figure;
mod figures;
mod files;
mod findings;
mod give_back;
mod give_back_mode;
mod guest;
mod histogram;
mod html;
mod interrupt;
mod markdown;
mod meter;
mod moments;
mod options;
mod output;
mod own;
mod parallel;
mod plan;
mod plots;
mod program;
mod programs;
mod progress;
mod ratio;
mod record;
mod report;
mod reports;
mod requests;
mod runner;
mod saved;
mod scale;
mod schema;
mod scratch;
mod shape;
mod statistics;
mod svg;
mod table;
mod variant;
mod wording;

pub(crate) use options::CompareOptions;
#[cfg(test)]
pub(crate) use {own::OwnReport, schema::Report as KernelsReport, schema::What};

use crate::failure::Failure;
use crate::guest::{Extras, Stock};
use crate::machine::AccelChoice;
use crate::stdout;
use crate::text::{Styled, Terminal};
use agreement::{Agreement, Other};
use conclusion::conclude;
use files::Files;
use interrupt::Interrupt;
use options::LinuxChoice;
use plan::{Clock, Plan, Step};
use progress::{Progress, RoughDuration};
use report::CollectedRuns;
use runner::Runner;
use rustix::termios;
use saved::Saved;
use schema::{Guest, Outcome, Report, Run};
use scratch::{ComparisonLock, Scratch};
use std::ffi::OsString;
use std::time::Instant;

/// The space that a sample takes in the report in bytes, for reserving space.
const SAMPLE_BYTES: u64 = 160;
/// The space that a run with its turns takes in the report in bytes, without samples.
const RUN_BYTES: u64 = 24 << 10;
/// The number of samples per second.
const SAMPLES_A_SECOND: u64 = 20;
/// The number of failures after which a guest that never ended well is not tried again.
const GIVE_UP: u32 = 3;
/// The maximum width of the table in columns.
const COLUMNS_MAX: usize = 110;
/// The width of the table in columns if stdout is not a terminal.
const COLUMNS_DEFAULT: usize = 80;

/// Runs `ebb compare`: measures, prints the table and writes the files. With `--list` only prints
/// the experiments, and with `--from` makes the report from files without measuring.
///
/// Returns the exit status: 0, 1 if a run failed or ratios differ from those of `--against`, or 128
/// plus the signal that ended it early. Fails if the options are not valid, a file cannot be read
/// or written, or no guest can be run.
pub(crate) fn compare(options: &CompareOptions) -> Result<u8, Failure> {
    if options.list {
        return stdout::print(&listing()).map(|()| 0);
    }
    // Read first, so that an unusable file is reported before minutes are spent.
    let other = match options.against.as_slice() {
        [] => None,
        paths => Some(Other {
            report: saved::read(paths)?,
            name: paths
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(" and "),
            alone: !options.from.is_empty(),
        }),
    };
    if !options.from.is_empty() {
        let report = saved::read(&options.from)?;
        let files = Files::reserve(options, 0)?;
        return match report {
            Saved::Kernels(report) => {
                let other = other.map(Other::of_kernels).transpose()?;
                finish(&report, other.as_ref(), files)
            }
            Saved::Columns(report) => {
                let other = other.map(Other::of_columns).transpose()?;
                own::finish(&report, other.as_ref(), files)
            }
        };
    }
    check(options)?;
    let chosen = experiments::select(&options.experiments).map_err(Failure::Usage)?;
    if elasticity::is_meant(&chosen, options)? {
        return elasticity::compare(
            options,
            &elasticity::Inputs {
                chosen,
                linux: linux(options)?,
                accel: accel_name(options.accel),
                other: other.map(Other::of_columns).transpose()?,
            },
        );
    }
    if !options.program.is_empty() || !options.variants.is_empty() {
        return own::compare(
            options,
            &own::Inputs {
                experiments: chosen,
                linux: linux(options)?,
                accel: accel_name(options.accel),
                other: other.map(Other::of_columns).transpose()?,
            },
        );
    }
    let other = other.map(Other::of_kernels).transpose()?;
    let guests: &[Guest] = match options.linux {
        LinuxChoice::None => &[Guest::Ebb],
        _ => &[Guest::Ebb, Guest::Linux],
    };
    let mut plan = Plan::new(&chosen, guests, options);
    if plan.steps.is_empty() {
        return Err(nothing_to_run(options));
    }
    let expected = Clock::new().expect(&plan, &plan.steps);
    let runs = plan.runs_of(&plan.steps);
    let steps = u64::try_from(runs).unwrap_or(u64::MAX);
    let files = Files::reserve(
        options,
        // Guests that take turns are sampled all the time, even while they wait.
        steps * RUN_BYTES
            + expected.as_secs() * SAMPLES_A_SECOND * SAMPLE_BYTES * guests.len() as u64,
    )?;
    let turn = ComparisonLock::take()?;
    let scratch = Scratch::new(options.workloads.as_deref())?;
    let interrupt = Interrupt::catch()?;
    let terminal = Terminal::new();
    let runner = Runner {
        scratch: &scratch,
        qemu: &options.qemu,
        accel: accel_name(options.accel),
        linux: linux(options)?,
        interrupt: &interrupt,
    };
    terminal.message(&format!(
        "ebb: {} runs of {}; about {}",
        runs,
        chosen.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
        RoughDuration(expected)
    ));
    if turn.disturbed {
        terminal.message("ebb: another comparison is under way: times disturb one another");
    }
    let mut collected = CollectedRuns::begin(turn.disturbed);
    let all = run_all(&mut plan, &runner, &terminal, &mut collected.runs)?;
    let report = collected.report(all);
    let status = finish(&report, other.as_ref(), files)?;
    Ok(interrupt.signal().map_or(status, |signal| 128 + signal))
}

/// Checks options that depend on each other.
fn check(options: &CompareOptions) -> Result<(), Failure> {
    for (index, mode) in options.give_back.iter().enumerate() {
        if options.give_back[..index].contains(mode) {
            return Err(Failure::Usage(format!(
                "--give-back names {} twice",
                mode.name()
            )));
        }
    }
    let columns = !options.program.is_empty() || !options.variants.is_empty();
    if columns && !options.give_back.is_empty() {
        return Err(Failure::Usage(
            "--give-back names ways for experiments; here each is a variant, as in \
             --variant 'off: --give-back off'"
                .into(),
        ));
    }
    match options.cpus {
        Some(cpus) if options.icount && cpus > 1 => Err(Failure::Usage(format!(
            "-c {cpus} does not go with --icount, which counts the instructions of one CPU"
        ))),
        _ if options.icount && options.accel == AccelChoice::Kvm => Err(Failure::Usage(
            "--icount needs TCG: KVM cannot count instructions as time".into(),
        )),
        _ => Ok(()),
    }
}

/// Returns the failure for options with which no experiment can run on any guest.
fn nothing_to_run(options: &CompareOptions) -> Failure {
    let modes: Vec<_> = options.give_back.iter().map(|mode| mode.name()).collect();
    Failure::Usage(format!(
        "nothing to run: no guest gives memory back by {} (Linux alone knows balloon, Ebb alone \
         hinting)",
        modes.join(", ")
    ))
}

/// Returns the value of `--kernel` for the stock guest, or `None` if there is no Linux guest. Fails
/// if the kernel is not found.
fn linux(options: &CompareOptions) -> Result<Option<OsString>, Failure> {
    let image = match &options.linux {
        LinuxChoice::None => return Ok(None),
        LinuxChoice::Auto => None,
        LinuxChoice::Image(path) => Some(path.as_path()),
    };
    // All runs use this file, even if another `ebb` fetches a newer one into the cache.
    let stock = Stock::find(image, Extras::default())?;
    let path = std::path::absolute(&stock.image).unwrap_or(stock.image);
    let mut value = OsString::from("linux:");
    value.push(path);
    Ok(Some(value))
}

fn accel_name(accel: AccelChoice) -> &'static str {
    match accel {
        AccelChoice::Auto => "auto",
        AccelChoice::Kvm => "kvm",
        AccelChoice::Tcg => "tcg",
    }
}

/// Runs all steps of the plan, and more rounds of experiments whose ratios have not settled.
/// Appends the runs to `runs`. Returns whether the plan was completed. Fails if a child process
/// cannot be run.
fn run_all(
    plan: &mut Plan,
    runner: &Runner<'_>,
    terminal: &Terminal,
    runs: &mut Vec<Run>,
) -> Result<bool, Failure> {
    let mut clock = Clock::new();
    let mut progress = Progress::new(terminal);
    let mut next = 0;
    loop {
        if next == plan.steps.len() {
            let more = plan.more(runs);
            if more.is_empty() {
                break;
            }
            progress.say(&format!(
                "ebb: ratios of {} are not settled yet: {} more of rounds, about {}",
                experiments_of(plan, &more),
                boots(more.len()),
                RoughDuration(clock.expect(plan, &more))
            ));
            plan.steps.extend(more);
        }
        let mut step = plan.steps[next].clone();
        step.guests.retain(|guest| !hopeless(runs, *guest));
        next += 1;
        if step.guests.is_empty() {
            continue;
        }
        progress.begin(plan, &clock, next - 1);
        let since = Instant::now();
        let case = &plan.cases[step.case];
        let done = runner.run(case, &step, &mut || {
            progress.tick(plan, &clock, next - 1, since);
        })?;
        clock.learn(plan, &step, since.elapsed());
        let interrupted = runner.interrupt.signal().is_some();
        for run in done {
            if let (Outcome::Failed, Some(error), false) = (run.outcome, &run.error, interrupted) {
                let guest = run.guest.name();
                progress.say(&format!(
                    "ebb: {} ({guest}): {error}",
                    progress::describe(plan, &step)
                ));
            }
            let guest = run.guest;
            let before = hopeless(runs, guest);
            runs.push(run);
            if hopeless(runs, guest) && !before && !interrupted {
                progress.say(&format!(
                    "ebb: {} has failed {GIVE_UP} times and never ended well: it is not tried again",
                    guest.name()
                ));
            }
        }
        if interrupted {
            progress.end();
            return Ok(false);
        }
    }
    progress.end();
    Ok(![Guest::Ebb, Guest::Linux]
        .iter()
        .any(|guest| hopeless(runs, *guest)))
}

fn boots(count: usize) -> String {
    match count {
        1 => "one boot".to_owned(),
        count => format!("{count} boots"),
    }
}

/// Returns the names of the experiments of `steps`.
fn experiments_of(plan: &Plan, steps: &[Step]) -> String {
    let mut names: Vec<&str> = steps
        .iter()
        .map(|step| plan.cases[step.case].experiment.name)
        .collect();
    names.dedup();
    names.join(", ")
}

/// Returns whether a guest has failed too often to be tried again, since each attempt takes
/// minutes.
fn hopeless(runs: &[Run], guest: Guest) -> bool {
    let of_guest = || runs.iter().filter(|run| run.guest == guest);
    let failed = of_guest().filter(|run| run.events.is_empty()).count();
    u32::try_from(failed).unwrap_or(u32::MAX) >= GIVE_UP
        && of_guest().all(|run| run.outcome == Outcome::Failed)
}

/// Prints the table, writes the files, and returns the exit status. Fails if printing or writing
/// fails.
fn finish(report: &Report, other: Option<&Other<Report>>, files: Files) -> Result<u8, Failure> {
    let on_terminal = termios::isatty(rustix::stdio::stdout());
    let columns = match termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if on_terminal && size.ws_col > 0 => usize::from(size.ws_col),
        _ => COLUMNS_DEFAULT,
    };
    let look = table::Look {
        columns: columns.min(COLUMNS_MAX),
        colour: on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let agreement = other.map(|other| Agreement::of(report, &other.report, other.name.clone()));
    let failed = report.runs.iter().any(|run| run.outcome == Outcome::Failed);
    let alone = other.is_some_and(|other| other.alone);
    let table = if alone {
        Styled::default()
    } else {
        table::text(report, look)
    };
    conclude(report, table, agreement.as_ref(), failed, files)
}

/// Returns the text of `--list`.
fn listing() -> String {
    let mut text = String::new();
    for experiment in experiments::all() {
        let mark = if experiment.usual { '*' } else { ' ' };
        text.push_str(&format!(
            "{mark} {:<24} {}\n",
            experiment.name, experiment.summary
        ));
    }
    text.push_str("\n* runs where no experiment is named; `page-fault` means all its variants, `give-back` one table of all ways;\n\
         `elasticity` runs for itself\n");
    text
}

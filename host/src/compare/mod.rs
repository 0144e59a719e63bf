//! `ebb compare`: the same experiments in guests of both kernels, side by side.

mod experiments;
mod figures;
mod findings;
mod html;
mod interrupt;
mod markdown;
mod options;
mod output;
mod plan;
mod plots;
mod progress;
mod record;
mod report;
mod runner;
mod schema;
mod scratch;
mod statistics;
mod svg;
mod table;
mod wording;

pub(crate) use options::CompareOptions;

use crate::cli::AccelChoice;
use crate::failure::Failure;
use crate::linux::Stock;
use crate::terminal::Terminal;
use experiments::EXPERIMENTS;
use interrupt::Interrupt;
use options::LinuxChoice;
use output::Output;
use plan::{Clock, Plan};
use progress::{About, Progress};
use report::Gathered;
use runner::Runner;
use rustix::termios;
use schema::{Guest, Outcome, Report, Run};
use scratch::{Scratch, Turn};
use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Instant;

/// A run failed, or a guest did.
const STATUS_SOME_FAILED: u8 = 1;
/// Bytes that a sample and a run take in the report, for keeping space.
const SAMPLE_BYTES: u64 = 160;
const RUN_BYTES: u64 = 6 << 10;
const SAMPLES_A_SECOND: u64 = 20;
/// A page holds thinned curves.
const HTML_BYTES: u64 = 1 << 20;
const MARKDOWN_BYTES: u64 = 1 << 16;
/// A guest that has failed so often in a row, and never ended well, is not tried again.
const GIVE_UP: u32 = 3;
const COLUMNS_MAX: usize = 110;
const COLUMNS_DEFAULT: usize = 80;

/// Compares, and returns the status of ebb.
pub(crate) fn compare(options: &CompareOptions) -> Result<u8, Failure> {
    if options.list {
        return print(&listing()).map(|()| 0);
    }
    if !options.from.is_empty() {
        let report = report::read(&options.from)?;
        let files = Files::reserve(options, 0)?;
        return finish(&report, files);
    }
    check(options)?;
    let chosen = experiments::select(&options.experiments).map_err(|name| {
        let known: Vec<_> = EXPERIMENTS.iter().map(|known| known.name).collect();
        Failure::Usage(format!(
            "no experiment is called `{name}`; known: {}",
            known.join(", ")
        ))
    })?;
    let guests: &[Guest] = match options.linux {
        LinuxChoice::None => &[Guest::Ebb],
        _ => &[Guest::Ebb, Guest::Linux],
    };
    let plan = Plan::new(&chosen, guests, options);
    let expected = Clock::default().expect(&plan, &plan.steps);
    let steps = u64::try_from(plan.steps.len()).unwrap_or(u64::MAX);
    let files = Files::reserve(
        options,
        steps * RUN_BYTES + expected.as_secs() * SAMPLES_A_SECOND * SAMPLE_BYTES,
    )?;
    let turn = Turn::take()?;
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
        plan.steps.len(),
        chosen.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
        About(expected)
    ));
    if turn.disturbed {
        terminal.message("ebb: another comparison is under way: times disturb one another");
    }
    let mut gathered = Gathered::begin(turn.disturbed);
    let all = run_all(&plan, &runner, &terminal, &mut gathered.runs)?;
    let report = gathered.report(all);
    let status = finish(&report, files)?;
    Ok(interrupt.signal().map_or(status, |signal| 128 + signal))
}

fn check(options: &CompareOptions) -> Result<(), Failure> {
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

/// The value of `--kernel` for the stock guest, found before anything runs.
fn linux(options: &CompareOptions) -> Result<Option<OsString>, Failure> {
    let image = match &options.linux {
        LinuxChoice::None => return Ok(None),
        LinuxChoice::Auto => None,
        LinuxChoice::Image(path) => Some(path.as_path()),
    };
    // One kernel for all runs, also where another run brings a newer one into the cache.
    let stock = Stock::find(image, false)?;
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

/// Runs the plan; says whether all of it ran.
fn run_all(
    plan: &Plan,
    runner: &Runner<'_>,
    terminal: &Terminal,
    runs: &mut Vec<Run>,
) -> Result<bool, Failure> {
    let mut clock = Clock::default();
    let mut progress = Progress::new(terminal);
    for (index, step) in plan.steps.iter().enumerate() {
        if hopeless(runs, step.guest) {
            continue;
        }
        progress.begin(plan, &clock, index);
        let since = Instant::now();
        let case = &plan.cases[step.case];
        let run = runner.run(case, step.guest, step.round, &mut || {
            progress.tick(plan, &clock, index, since);
        })?;
        clock.learn(step, since.elapsed());
        if runner.interrupt.signal().is_some() {
            runs.push(run);
            progress.end();
            return Ok(false);
        }
        if let (Outcome::Failed, Some(error)) = (run.outcome, &run.error) {
            progress.say(&format!("ebb: {}: {error}", progress::describe(plan, step)));
        }
        runs.push(run);
        if hopeless(runs, step.guest) {
            progress.say(&format!(
                "ebb: {} has failed {GIVE_UP} times and never ended well: it is not tried again",
                step.guest.name()
            ));
        }
    }
    progress.end();
    Ok(![Guest::Ebb, Guest::Linux]
        .iter()
        .any(|guest| hopeless(runs, *guest)))
}

/// Whether a guest cannot be expected ever to run: minutes would be lost on each try.
fn hopeless(runs: &[Run], guest: Guest) -> bool {
    let of_guest = || runs.iter().filter(|run| run.guest == guest);
    let failed = of_guest().filter(|run| run.events.is_empty()).count();
    u32::try_from(failed).unwrap_or(u32::MAX) >= GIVE_UP
        && of_guest().all(|run| run.outcome == Outcome::Failed)
}

/// The files that the user wants.
struct Files {
    json: Option<Output>,
    html: Option<Output>,
    markdown: Option<(std::path::PathBuf, Output)>,
}

impl Files {
    fn reserve(options: &CompareOptions, json_bytes: u64) -> Result<Self, Failure> {
        let reserve = |path: &Option<std::path::PathBuf>, bytes| {
            path.as_deref()
                .map(|path| Output::reserve(path, bytes))
                .transpose()
        };
        Ok(Self {
            json: reserve(&options.json, json_bytes)?,
            html: reserve(&options.html, HTML_BYTES)?,
            markdown: reserve(&options.markdown, MARKDOWN_BYTES)?
                .and_then(|output| Some((options.markdown.clone()?, output))),
        })
    }
}

/// Prints the table, writes the files, and returns the status that the runs deserve.
fn finish(report: &Report, files: Files) -> Result<u8, Failure> {
    let stdout = rustix::stdio::stdout();
    let on_terminal = termios::isatty(stdout);
    let columns = match termios::tcgetwinsize(stdout) {
        Ok(size) if on_terminal && size.ws_col > 0 => usize::from(size.ws_col),
        _ => COLUMNS_DEFAULT,
    };
    let look = table::Look {
        columns: columns.min(COLUMNS_MAX),
        colour: on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    // The files matter more than a table that nobody reads: `| head` must not lose them.
    let printed = print(&table::text(report, look));
    if let Some(output) = files.json {
        let bytes = report.to_json().map_err(|source| Failure::Setup {
            what: "the JSON report",
            source: source.into(),
        })?;
        output.write(&bytes)?;
    }
    if let Some(output) = files.html {
        output.write(html::page(report).as_bytes())?;
    }
    if let Some((path, output)) = files.markdown {
        markdown::write(report, &path, output)?;
    }
    printed?;
    let failed = report.runs.iter().any(|run| run.outcome == Outcome::Failed);
    Ok(if failed { STATUS_SOME_FAILED } else { 0 })
}

fn listing() -> String {
    let mut text = String::new();
    for experiment in EXPERIMENTS {
        let mark = if experiment.usual { '*' } else { ' ' };
        text.push_str(&format!(
            "{mark} {:<20} {}\n",
            experiment.name, experiment.summary
        ));
    }
    text.push_str("\n* runs where no experiment is named; `page-fault` means all its variants\n");
    text
}

fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|source| Failure::Output {
            stream: "stdout",
            source,
        })
}

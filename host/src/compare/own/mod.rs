//! Compares the user's own program, or experiments, in several configurations of guests. Each
//! configuration is a column, with ratios to the first one.

mod agreement;
mod guest;
mod html;
mod markdown;
mod measured;
mod plots;
mod report;
mod rows;
mod subject;
mod table;
mod wording;
mod written;

pub(crate) use report::{COLUMNS_MAX, OwnReport};

use super::agreement::Other;
use super::conclusion::conclude;
use super::experiment::Experiment;
use super::files::Files;
use super::interrupt::Interrupt;
use super::options::{CompareOptions, LinuxChoice};
use super::progress::RoughDuration;
use super::schema::{Outcome, Run};
use super::scratch::{ComparisonLock, Scratch};
use super::variant::{self, Variant};
use crate::failure::Failure;
use crate::text::{Styled, Terminal, milliseconds, printable};
use guest::Guests;
use std::collections::HashMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};
use subject::Subject;

/// The default number of rounds.
const ROUNDS: u32 = 3;
/// The interval at which the progress is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(400);
/// The space that a run takes in the report in bytes, for reserving space.
const RUN_BYTES: u64 = 1 << 20;

/// The arguments of [`compare`] that its caller has determined already.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// The experiments to run if the user did not name a program.
    pub(crate) experiments: Vec<&'static Experiment>,
    /// The value of `--kernel` for the stock guest.
    pub(crate) linux: Option<OsString>,
    /// The name of the accelerator.
    pub(crate) accel: &'static str,
    /// The comparison that `--against` names.
    pub(crate) other: Option<Other<OwnReport>>,
}

/// Runs the user's program or the experiments in all columns, prints the table and writes the
/// files. Checks all columns before the first run. Installs handlers for signals and prints the
/// progress to stderr.
///
/// Returns the exit status: 0, 1 if a run failed or ratios differ from those of `--against`, or 128
/// plus the signal that ended it early. Fails if the options of a column are not valid, or a file
/// or child process fails.
pub(crate) fn compare(options: &CompareOptions, inputs: &Inputs) -> Result<u8, Failure> {
    let columns = columns(options, inputs)?;
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let turn = ComparisonLock::take()?;
    let scratch = Scratch::new(options.workloads.as_deref())?;
    let interrupt = Interrupt::catch()?;
    let subjects: Vec<Subject> = if options.program.is_empty() {
        let of = |experiment: &&'static Experiment| {
            Subject::of_experiment(experiment, options, &scratch)
        };
        inputs.experiments.iter().flat_map(of).collect()
    } else {
        vec![Subject::own(options)]
    };
    let guests = Guests {
        scratch: &scratch,
        interrupt: &interrupt,
        common: vec![
            ("accel", inputs.accel.into()),
            ("qemu", options.qemu.clone().into()),
            ("timeout", milliseconds(options.timeout).into()),
        ],
    };
    for subject in &subjects {
        for column in &columns {
            guests.try_out(subject, column)?;
        }
    }
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let count = subjects.len() * columns.len() * rounds as usize;
    let bytes = u64::try_from(count).unwrap_or(u64::MAX);
    let files = Files::reserve(options, bytes.saturating_mul(RUN_BYTES))?;
    let created = super::report::now();
    let terminal = Terminal::new();
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    terminal.message(&format!(
        "ebb: {count} run{}, {rounds} round{} of {}",
        plural(count),
        plural(rounds as usize),
        names.join(", ")
    ));
    if turn.disturbed {
        terminal.message("ebb: another comparison is under way: times disturb one another");
    }
    let mut comparison = RunningComparison {
        guests: &guests,
        terminal: &terminal,
        subjects: &subjects,
        columns: &columns,
        rounds,
        took: HashMap::new(),
        done: 0,
        count,
        runs: Vec::new(),
    };
    let complete = comparison.all()?;
    let report = OwnReport::new(complete, created, &columns, comparison.runs);
    let status = finish(&report, inputs.other.as_ref(), files)?;
    Ok(interrupt.signal().map_or(status, |signal| 128 + signal))
}

/// Returns the columns: Ebb, Linux, and the user's variants. Fails if two have the same name or
/// there are too many.
fn columns(options: &CompareOptions, inputs: &Inputs) -> Result<Vec<Variant>, Failure> {
    let usage = |why: String| Failure::Usage(why);
    let mut columns = vec![Variant::new("Ebb", &[]).map_err(usage)?];
    if let (Some(linux), false) = (&inputs.linux, options.linux == LinuxChoice::None) {
        let value = linux.to_string_lossy();
        columns.push(Variant::new("Linux", &["--kernel", &value]).map_err(usage)?);
    }
    columns.extend(options.variants.iter().cloned());
    variant::apart(&columns).map_err(usage)?;
    if columns.len() > COLUMNS_MAX {
        return Err(Failure::Usage(format!(
            "{} columns; at most {COLUMNS_MAX} stand beside each other",
            columns.len()
        )));
    }
    Ok(columns)
}

/// A comparison that is running.
struct RunningComparison<'a> {
    guests: &'a Guests<'a>,
    terminal: &'a Terminal,
    subjects: &'a [Subject],
    columns: &'a [Variant],
    rounds: u32,
    /// The time that the last run of a subject in a column took, by their indices.
    took: HashMap<(usize, usize), Duration>,
    /// The number of runs that are done or skipped.
    done: usize,
    /// The number of planned runs.
    count: usize,
    /// The finished runs, each with the index of its column.
    runs: Vec<(usize, Run)>,
}

impl RunningComparison<'_> {
    /// Runs everything, round by round. Returns `false` if runs are missing, because of a signal or
    /// a program that could not run.
    fn all(&mut self) -> Result<bool, Failure> {
        let mut hopeless = vec![false; self.subjects.len() * self.columns.len()];
        let mut complete = true;
        for round in 1..=self.rounds {
            for subject in 0..self.subjects.len() {
                for place in 0..self.columns.len() {
                    // Later runs find a warmer machine, so the order is reversed every other round.
                    let column = if round % 2 == 0 {
                        self.columns.len() - 1 - place
                    } else {
                        place
                    };
                    let index = subject * self.columns.len() + column;
                    if hopeless[index] {
                        complete = false;
                        self.done += 1;
                        continue;
                    }
                    let ran = self.one(subject, column, round)?;
                    if self.guests.interrupt.signal().is_some() {
                        self.terminal.clear();
                        return Ok(false);
                    }
                    hopeless[index] = !ran;
                }
            }
        }
        self.terminal.clear();
        Ok(complete)
    }

    /// Runs one guest. Returns whether its program ran to its end.
    fn one(&mut self, subject: usize, column: usize, round: u32) -> Result<bool, Failure> {
        let name = &self.columns[column].name;
        let number = self.done + 1;
        let left = self.left(round);
        let what = format!(
            "{number} of {}: {} on {name}, round {round} of {}",
            self.count, self.subjects[subject].name, self.rounds
        );
        let what: String = what.chars().filter(|letter| !letter.is_control()).collect();
        if !self.terminal.interactive() {
            let left = left.map_or(String::new(), |left| {
                format!("; {} left", RoughDuration(left))
            });
            self.terminal.message(&format!("ebb: {what}{left}"));
        }
        let since = Instant::now();
        let mut drawn: Option<Instant> = None;
        let terminal = self.terminal;
        let mut tick = || {
            if drawn.is_some_and(|drawn| drawn.elapsed() < DRAW_EVERY) {
                return;
            }
            drawn = Some(Instant::now());
            let left = left.map_or(String::new(), |left| {
                format!(
                    "  {} left",
                    RoughDuration(left.saturating_sub(since.elapsed()))
                )
            });
            let room = terminal.columns().saturating_sub(1);
            let line: String = format!("{what}{left}").chars().take(room).collect();
            terminal.draw(&line);
        };
        let (subjects, columns) = (self.subjects, self.columns);
        let run = self
            .guests
            .run(&subjects[subject], &columns[column], round, &mut tick)?;
        self.took.insert((subject, column), since.elapsed());
        self.done += 1;
        let ended = |run: &Run| {
            let record = run.record.as_ref();
            record.is_some_and(|record| record.get("status").is_some_and(|s| !s.is_null()))
        };
        let ran = ended(&run);
        if let (Outcome::Failed, Some(error)) = (run.outcome, &run.error) {
            let again = if ran {
                ""
            } else {
                "\n    It is not tried again."
            };
            self.terminal
                .message(&format!("ebb: {name}, round {round}: {error}{again}"));
        }
        self.runs.push((column, run));
        Ok(ran)
    }

    /// Returns the remaining time, or `None` until each run of a round has been timed.
    fn left(&self, round: u32) -> Option<Duration> {
        let of_round = self.subjects.len() * self.columns.len();
        if self.took.len() < of_round || of_round == 0 {
            return None;
        }
        let whole: Duration = self.took.values().sum();
        let more = self.rounds.saturating_sub(round);
        // The rest of this round is estimated by the mean.
        let of_this = of_round * round as usize - self.done;
        let share = u32::try_from(of_this).ok()?;
        Some(whole * more + whole / u32::try_from(of_round).ok()? * share)
    }
}

/// Prints the table of `report` and its agreement with `other`, and writes `files`. Omits the table
/// if `other` says so.
///
/// Returns the exit status: 0, or 1 if a run failed or the ratios do not agree. Fails if printing
/// or writing fails, or if `other` has another first column.
pub(crate) fn finish(
    report: &OwnReport,
    other: Option<&Other<OwnReport>>,
    files: Files,
) -> Result<u8, Failure> {
    let agreement = other
        .map(|other| agreement::of(report, &other.report, other.name.clone()))
        .transpose()?;
    let mut text = Styled::default();
    if !other.is_some_and(|other| other.alone) {
        let names: Vec<String> = report.names().into_iter().map(str::to_owned).collect();
        let on_terminal = rustix::termios::isatty(rustix::stdio::stdout());
        let colour =
            on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        text = table::text(&report.table, &report.runs, &names, colour);
        if names.len() > 1 {
            text.push(&format!(
                "\n× is a figure divided by that of {}.",
                printable(&names[0])
            ));
        }
        if !report.complete {
            text.push("\nThis comparison was cut short: runs are missing.");
        }
        text.push("\n");
    }
    conclude(report, text, agreement.as_ref(), report.has_failed(), files)
}

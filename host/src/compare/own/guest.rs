//! Runs one guest of one column, from its start to its end.

use super::super::child::{Message, Terminator, listen, read_timeline, spawn};
use super::super::give_back_mode::GiveBackMode;
use super::super::guest::Guest;
use super::super::interrupt::Interrupt;
use super::super::schema::{Event, Outcome, Run, What};
use super::super::scratch::Scratch;
use super::super::variant::Variant;
use super::subject::Subject;
use crate::failure::Failure;
use crate::text::printable;
use serde_json::Value;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// The interval at which the interrupt flag is checked and the progress is drawn.
const TICK: Duration = Duration::from_millis(100);
/// The number of lines of each output that are kept for an error message.
const LAST_LINES: usize = 8;
/// The maximum number of events of a program that are kept. More are counted and reported.
const EVENTS_MAX: usize = 10_000;
/// The exit status with which `ebb-workloads` ends if the guest lacks something.
const STATUS_UNSUPPORTED: i32 = 3;

/// The settings that all guests of a comparison of columns share.
#[derive(Debug)]
pub(crate) struct Guests<'a> {
    pub(crate) scratch: &'a Scratch,
    pub(crate) interrupt: &'a Interrupt,
    /// Options of `ebb run` by their long names, for columns that do not set them.
    pub(crate) common: Vec<(&'static str, OsString)>,
}

/// The output of a program so far.
#[derive(Default)]
struct Output {
    /// The events.
    events: Vec<Event>,
    /// The number of events that were not kept.
    events_lost: usize,
    /// The first line that has the form of an event but is not valid.
    no_event: Option<String>,
    /// The last other lines of stdout.
    said: VecDeque<String>,
    /// The last lines of stderr.
    errors: VecDeque<String>,
}

impl Guests<'_> {
    /// Checks by `ebb run --print-qemu` that `column`'s options, its kernel and the program of
    /// `subject` are valid. Starts no guest, and waits for that process.
    ///
    /// # Errors
    /// [`Failure::Usage`] with the column's name and the message of `ebb run`.
    pub(crate) fn try_out(&self, subject: &Subject, column: &Variant) -> Result<(), Failure> {
        let mut words = subject.words(column, &self.common);
        words.extend(["--print-qemu".into(), "--".into()]);
        words.extend(subject.program.iter().cloned());
        let answer = Command::new(executable()?).args(&words).output();
        let answer = answer.map_err(Failure::setup("a child process"))?;
        if answer.status.success() {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&answer.stderr);
        let told: Vec<String> = told.lines().map(printable).collect();
        let told = told.join("\n");
        let told = told
            .trim()
            .trim_start_matches("ebb: ")
            .trim_start_matches("error: ");
        Err(Failure::Usage(format!("{}: {told}", column.name)))
    }

    /// Runs `subject` once in a guest of `column`, as round `round`, which counts from 1. Waits for
    /// the end, and calls `tick` at least ten times a second. Ends the guest if a signal arrives.
    ///
    /// # Errors
    /// If no child process can be run. A guest that fails is not an error but a run with the
    /// outcome `Failed`.
    pub(crate) fn run(
        &self,
        subject: &Subject,
        column: &Variant,
        round: u32,
        tick: &mut dyn FnMut(),
    ) -> Result<Run, Failure> {
        let timeline = self.scratch.file("own-timeline.jsonl");
        let record = self.scratch.file("own-record.json");
        for path in [&timeline, &record] {
            let _ = std::fs::remove_file(path);
        }
        let mut words = subject.words(column, &self.common);
        if (subject.icount || column.gives("icount")) && !column.gives("seed") {
            words.extend(["--seed".into(), (round - 1).to_string().into()]);
        }
        words.extend(["--timeline".into(), (&timeline).into()]);
        words.extend(["--record".into(), (&record).into(), "--".into()]);
        words.extend(subject.program.iter().cloned());
        let mut child =
            spawn(&executable()?, &words, false).map_err(Failure::setup("a child process"))?;
        let messages = listen(&mut child, &timeline, None);
        let mut output = Output::default();
        let mut terminator = Terminator::default();
        loop {
            match messages.recv_timeout(TICK) {
                Ok(message) => output.take_message(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            tick();
            if self.interrupt.signal().is_some() {
                terminator.terminate(&child);
            }
        }
        let status = child
            .wait()
            .map_err(Failure::setup("waiting for a child process"))?;
        let record: Option<Value> = std::fs::read(&record)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let (outcome, error) = match self.interrupt.signal() {
            Some(signal) => (
                Outcome::Failed,
                Some(format!("cut short by signal {signal}")),
            ),
            None => output.judge(subject, record.as_ref(), status),
        };
        let number = |name: &str| record.as_ref()?.get(name)?.as_u64();
        let give_back = record
            .as_ref()
            .and_then(|record| GiveBackMode::from_name(record.get("give_back")?.as_str()?));
        let icount = record
            .as_ref()
            .and_then(|record| record.get("icount")?.as_bool());
        Ok(Run {
            experiment: subject.name.clone(),
            arguments: subject
                .program
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            guest: if column.is_linux() {
                Guest::Linux
            } else {
                Guest::Ebb
            },
            give_back: give_back.unwrap_or(GiveBackMode::OFF),
            icount: icount.unwrap_or(subject.icount),
            cpus: number("cpus")
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
            memory_bytes: number("memory").unwrap_or(0),
            round,
            command: std::iter::once("ebb".to_owned())
                .chain(words.iter().map(|word| word.to_string_lossy().into_owned()))
                .collect(),
            events: output.events,
            turns: Vec::new(),
            host_cpus: Vec::new(),
            timeline: read_timeline(&timeline),
            expenses: Vec::new(),
            record,
            outcome,
            error,
        })
    }
}

/// Returns the path of this `ebb`.
fn executable() -> Result<std::path::PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::setup("the path of ebb itself"))
}

impl Output {
    /// Records a line of output.
    fn take_message(&mut self, message: Message) {
        match message {
            Message::Out(line) => {
                match serde_json::from_str::<Value>(&line.text) {
                    // An event has this field. All other JSON is the program's own output.
                    Ok(Value::Object(fields)) if fields.contains_key("event") => {
                        match serde_json::from_str::<What>(&line.text) {
                            Ok(_) if self.events.len() == EVENTS_MAX => self.events_lost += 1,
                            Ok(what) => self.events.push(Event {
                                host_s: line.timeline_s,
                                what,
                            }),
                            Err(error) if self.no_event.is_none() => {
                                self.no_event = Some(format!("{error}: {}", shown(&line.text)));
                            }
                            Err(_) => {}
                        }
                    }
                    _ => keep(&mut self.said, &line.text),
                }
            }
            Message::Err(line) => keep(&mut self.errors, &line),
        }
    }

    /// Returns the outcome of the run and the error if there is one.
    fn judge(
        &self,
        subject: &Subject,
        record: Option<&Value>,
        status: ExitStatus,
    ) -> (Outcome, Option<String>) {
        let program_ended = record
            .is_some_and(|record| record.get("status").is_some_and(|status| !status.is_null()));
        if subject.is_experiment && status.code() == Some(STATUS_UNSUPPORTED) {
            let what = self.events.iter().find_map(|event| match &event.what {
                What::Unsupported { what } => Some(what.clone()),
                _ => None,
            });
            return (Outcome::Unsupported, what);
        }
        if !status.success() {
            return (Outcome::Failed, Some(self.why(program_ended, status)));
        }
        if let Some(why) = &self.no_event {
            let error = format!("it printed an event that cannot be read: {why}");
            return (Outcome::Failed, Some(error));
        }
        if self.events_lost > 0 {
            let error = format!(
                "it printed {} events; {EVENTS_MAX} of a run are read",
                EVENTS_MAX + self.events_lost
            );
            return (Outcome::Failed, Some(error));
        }
        if subject.is_experiment && self.events.is_empty() {
            return (Outcome::Failed, Some("the program said nothing".into()));
        }
        (Outcome::Ok, None)
    }

    /// Returns why a run failed, with the last lines of output.
    fn why(&self, program_ended: bool, status: ExitStatus) -> String {
        let mut text = match (status.code(), status.signal()) {
            (Some(code), _) if program_ended && code > 128 => format!(
                "the program ended with status {code}, as if by signal {}",
                code - 128
            ),
            (Some(code), _) if program_ended => {
                format!("the program ended with status {code}")
            }
            (Some(code), _) => format!("no program ran to its end; status {code} of ebb run"),
            (None, signal) => format!("ebb run ended by signal {}", signal.unwrap_or(0)),
        };
        // If there is nothing on stderr, the last lines of stdout say most.
        let lines = if self.errors.is_empty() {
            &self.said
        } else {
            &self.errors
        };
        if lines.is_empty() {
            text.push_str(", and said nothing");
        }
        for line in lines {
            text.push_str("\n    ");
            text.push_str(line);
        }
        text
    }
}

/// Appends a line, and drops the oldest if there are enough.
fn keep(lines: &mut VecDeque<String>, line: &str) {
    if lines.len() == LAST_LINES {
        lines.pop_front();
    }
    lines.push_back(shown(line));
}

/// Returns the beginning of a line without control characters.
fn shown(line: &str) -> String {
    let line: String = line.chars().take(200).collect();
    printable(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::child::Line;

    fn output(lines: &[&str]) -> Output {
        let mut output = Output::default();
        for line in lines {
            output.take_message(Message::Out(Line {
                text: (*line).to_owned(),
                timeline_s: None,
            }));
        }
        output
    }

    #[test]
    fn only_what_says_so_is_an_event() {
        let result =
            r#"{"event":"result","metric":"rate","value":2,"unit":"1/s","better":"higher"}"#;
        let fine = output(&["hello", "{\"a\":1}", "{", result]);
        assert_eq!((fine.events.len(), fine.said.len()), (1, 3));
        assert!(fine.no_event.is_none());
        let bad = output(&[r#"{"event":"result","metric":"rate","value":"2","unit":""}"#]);
        assert!(bad.no_event.is_some_and(|why| why.contains("rate")));
        let unknown = output(&[r#"{"event":"party"}"#]);
        assert!(unknown.no_event.is_some_and(|why| why.contains("party")));
    }

    #[test]
    fn what_a_hostile_program_prints_is_bounded() {
        let phase = r#"{"event":"phase","name":"x","at_s":1}"#;
        let many = output(&vec![phase; EVENTS_MAX + 5]);
        assert_eq!((many.events.len(), many.events_lost), (EVENTS_MAX, 5));
        let long = "\u{1b}[2J".to_owned() + &"x".repeat(100_000);
        let said = output(&vec![long.as_str(); 50]).said;
        assert_eq!(said.len(), LAST_LINES);
        assert!(
            said.iter()
                .all(|line| line.len() <= 200 && !line.contains('\u{1b}'))
        );
    }
}

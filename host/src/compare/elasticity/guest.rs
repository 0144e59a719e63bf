//! One guest whose program works in turns, from its start to its end.

use super::super::child::{Message, Terminator, listen, spawn};
use super::super::interrupt::Interrupt;
use super::super::schema::{Event, Outcome, What};
use crate::failure::Failure;
use crate::text::printable;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The interval at which the interrupt flag is checked.
const TICK: Duration = Duration::from_millis(50);
/// The maximum number of events of a program that are kept.
const EVENTS_MAX: usize = 10_000;
/// The maximum number of lines of stderr that are kept.
const ERROR_LINES: usize = 16;
/// The exit status with which `ebb-workloads` ends if the guest lacks something.
const STATUS_UNSUPPORTED: i32 = 3;

/// What a guest did during a wait for its next phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum WaitResult {
    /// A phase of its experiment begins.
    Phase(String),
    /// No phase began in time.
    Nothing,
    /// Its outputs are closed.
    Ended,
}

/// The end of a guest's run: the outcome, and the error text if it did not end well.
pub(super) type End = (Outcome, Option<String>);

/// The reason why the host's side of an experiment stopped early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The guest ended; its own error says why.
    Ended,
    /// The host's action failed, for this reason.
    Control(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Control(why)
    }
}

impl From<&str> for Stop {
    fn from(why: &str) -> Self {
        Self::Control(why.to_owned())
    }
}

impl Stop {
    /// Returns the end of a run whose host side stopped for this reason, while the guest ended with
    /// `end`. A signal that ended the guest goes before a failed action of the host. If the guest
    /// ended early without an error, returns a failure that says so.
    pub(super) fn over(self, end: End) -> End {
        match (self, end) {
            // A signal ends everything. The host's action fails only as a result.
            (_, end @ (Outcome::Failed, Some(_)))
                if end.1.as_ref().is_some_and(|why| why.starts_with(CUT)) =>
            {
                end
            }
            (Self::Control(why), _) => (Outcome::Failed, Some(why)),
            (Self::Ended, (Outcome::Ok, _)) => (
                Outcome::Failed,
                Some("it ended before it was through".to_owned()),
            ),
            (Self::Ended, end) => end,
        }
    }
}

/// The beginning of the error of a run that a signal ended.
const CUT: &str = "cut short by signal";

/// A running guest: the process of its `ebb run`, and the events that its program has printed.
pub(super) struct Guest<'a> {
    interrupt: &'a Interrupt,
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Message>,
    events: Vec<Event>,
    errors: VecDeque<String>,
    terminator: Terminator,
    ended: bool,
}

impl<'a> Guest<'a> {
    /// Starts a guest with the arguments `words` of `ebb run`, whose program waits for turns on
    /// stdin. Fails if the process cannot be started. After a signal to this process, as
    /// `interrupt` reports it, the guest is terminated during the next wait.
    pub(super) fn start(interrupt: &'a Interrupt, words: Vec<OsString>) -> Result<Self, Failure> {
        let executable =
            std::env::current_exe().map_err(Failure::setup("the path of ebb itself"))?;
        let mut child =
            spawn(&executable, &words, true).map_err(Failure::setup("a child process"))?;
        let messages = listen(&mut child, Path::new(""), None);
        Ok(Self {
            interrupt,
            stdin: child.stdin.take(),
            child,
            messages,
            events: Vec::new(),
            errors: VecDeque::new(),
            terminator: Terminator::default(),
            ended: false,
        })
    }

    /// Returns the process number of the guest's `ebb run`.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the guest's stdin, which is the next turn of its program. Does nothing if
    /// the guest has ended or was dismissed.
    pub(super) fn go(&mut self) {
        // The write fails only if the guest has ended, which is noticed elsewhere.
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(b"\n");
        }
    }

    /// Closes the guest's stdin. Its program gets no more turns and ends.
    pub(super) fn dismiss(&mut self) {
        self.stdin = None;
    }

    /// Waits until the guest's program begins a phase or the guest ends, but at most for `timeout`.
    /// Returns what happened. Stores the events and the last lines of stderr that arrive until
    /// then. If this process was interrupted, sends `ebb run` signals to end.
    pub(super) fn wait_for_phase(&mut self, timeout: Duration) -> WaitResult {
        let deadline = Instant::now() + timeout;
        loop {
            if self.interrupt.signal().is_some() {
                self.terminator.terminate(&self.child);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left.min(TICK)) {
                Ok(Message::Err(line)) => {
                    if self.errors.len() == ERROR_LINES {
                        self.errors.pop_front();
                    }
                    self.errors.push_back(printable(&line));
                }
                Ok(Message::Out(line)) => {
                    let Ok(what) = serde_json::from_str::<What>(&line.text) else {
                        continue;
                    };
                    let phase = match &what {
                        What::Phase { name, .. } => Some(name.clone()),
                        _ => None,
                    };
                    if self.events.len() < EVENTS_MAX {
                        self.events.push(Event { host_s: None, what });
                    }
                    if let Some(name) = phase {
                        return WaitResult::Phase(name);
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return WaitResult::Nothing;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    return WaitResult::Ended;
                }
            }
        }
    }

    /// Waits, without a timeout, until the guest begins the phase `wanted`, and skips other phases.
    /// Returns `false` if the guest ends before.
    pub(super) fn until(&mut self, wanted: &str) -> bool {
        loop {
            match self.wait_for_phase(TICK) {
                WaitResult::Phase(name) if name == wanted => return true,
                WaitResult::Ended => return false,
                WaitResult::Phase(_) | WaitResult::Nothing => {}
            }
        }
    }

    /// Closes the guest's stdin and waits, without a timeout, until the guest ends. Returns how it
    /// ended and the first 10,000 events. Fails if the process cannot be waited for.
    pub(super) fn finish(mut self) -> Result<(End, Vec<Event>), Failure> {
        self.dismiss();
        while !self.ended {
            self.wait_for_phase(TICK);
        }
        let status = self
            .child
            .wait()
            .map_err(Failure::setup("waiting for a child process"))?;
        let unsupported = self.events.iter().find_map(|event| match &event.what {
            What::Unsupported { what } => Some(printable(what)),
            _ => None,
        });
        let end = match (self.interrupt.signal(), status.code()) {
            (Some(signal), _) => (Outcome::Failed, Some(format!("{CUT} {signal}"))),
            (None, Some(0)) => (Outcome::Ok, None),
            (None, Some(STATUS_UNSUPPORTED)) => (Outcome::Unsupported, unsupported),
            (None, _) => {
                let told: Vec<String> = self.errors.into_iter().collect();
                let told = told.join("\n    ");
                (
                    Outcome::Failed,
                    Some(format!("it ended with {status}: {told}")),
                )
            }
        };
        Ok((end, self.events))
    }
}

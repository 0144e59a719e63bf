//! One guest that works in turns, from its start to its end.

use super::super::child::{Insistence, Message, listen, spawn};
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

/// How often the signal is looked at.
const TICK: Duration = Duration::from_millis(50);
/// A program that says more has gone mad.
const EVENTS_MAX: usize = 10_000;
const ERROR_LINES: usize = 16;
/// `ebb-workloads` ends so where the guest lacks something.
const STATUS_UNSUPPORTED: i32 = 3;

/// What a guest was found to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// A part of its experiment begins.
    Phase(String),
    /// It is silent.
    Nothing,
    /// Its outputs are closed.
    Ended,
}

/// How a guest ended: the outcome, and the error if there was one.
pub(super) type End = (Outcome, Option<String>);

/// Why the host's side of an experiment stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The guest ended; it says why by itself.
    Ended,
    /// The host's hand failed.
    Hand(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Hand(why)
    }
}

impl From<&str> for Stop {
    fn from(why: &str) -> Self {
        Self::Hand(why.to_owned())
    }
}

impl Stop {
    /// What comes of a run that stopped so, where the guest ended as `end` says.
    pub(super) fn over(self, end: End) -> End {
        match (self, end) {
            // A signal cuts everything short, and the hand only notices.
            (_, end @ (Outcome::Failed, Some(_)))
                if end.1.as_ref().is_some_and(|why| why.starts_with(CUT)) =>
            {
                end
            }
            (Self::Hand(why), _) => (Outcome::Failed, Some(why)),
            (Self::Ended, (Outcome::Ok, _)) => (
                Outcome::Failed,
                Some("it ended before it was through".to_owned()),
            ),
            (Self::Ended, end) => end,
        }
    }
}

/// How the error of a run begins that a signal ended.
const CUT: &str = "cut short by signal";

/// A guest that was started.
pub(super) struct Guest<'a> {
    interrupt: &'a Interrupt,
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Message>,
    events: Vec<Event>,
    errors: VecDeque<String>,
    insistence: Insistence,
    ended: bool,
}

impl<'a> Guest<'a> {
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
            insistence: Insistence::default(),
            ended: false,
        })
    }

    /// The process number of its `ebb run`.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it go on.
    pub(super) fn go(&mut self) {
        // A guest that does not read any more has ended, which shows by itself.
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(b"\n");
        }
    }

    /// Gives it no more turns: it ends when its program is through.
    pub(super) fn dismiss(&mut self) {
        self.stdin = None;
    }

    /// Listens until it says something, for `patience` at most.
    pub(super) fn hear(&mut self, patience: Duration) -> Heard {
        let deadline = Instant::now() + patience;
        loop {
            if self.interrupt.signal().is_some() {
                self.insistence.insist(&self.child);
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
                        return Heard::Phase(name);
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Heard::Nothing;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    return Heard::Ended;
                }
            }
        }
    }

    /// Waits for the phase `wanted`. Returns `false` if the guest ends before.
    pub(super) fn until(&mut self, wanted: &str) -> bool {
        loop {
            match self.hear(TICK) {
                Heard::Phase(name) if name == wanted => return true,
                Heard::Ended => return false,
                Heard::Phase(_) | Heard::Nothing => {}
            }
        }
    }

    /// Waits for its end. Returns how it ended and what it said.
    pub(super) fn finish(mut self) -> Result<(End, Vec<Event>), Failure> {
        self.dismiss();
        while !self.ended {
            self.hear(TICK);
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

//! The thread that takes a guest's free memory as it becomes free, in the mode `shared`.
//!
//! It sleeps in a read of the control port. The guest calls ([`ebb_wire::port::DOORBELL`]) when it enters the mode, and when a
//! block becomes free while this thread has said that it sleeps. Then it takes what is free at a pace ([`Pace`]) that
//! heeds what comes back, until a pass over the memory finds nothing. It says that it sleeps, and looks once more: of a free
//! and of that word at the same time one sees the other.

use super::engine::{FreeMemory, Reclaimed, Session};
use super::error::ReclaimError;
use super::pace::Pace;
use crate::text::Terminal;
use ebb_mm::StepEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory is left alone for so long when the guest has failed to get some that was out.
const LEFT_ALONE: Duration = Duration::from_millis(200);
/// And for so long when something is wrong with what it says.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// And another attempt is made after so long when somebody else had the memory.
const AFTER_BUSY: Duration = Duration::from_millis(200);
/// Calls that are read at once. What they say does not matter.
const CALLS: usize = 4096;

/// Serves a guest until its control port ends. Failures are shown on the terminal, the first of them.
pub(crate) fn serve(memory: &FreeMemory, mut port: UnixStream, shown: Option<Arc<Terminal>>) {
    let mut shown = shown;
    let mut calls = [0; CALLS];
    let mut worker = Worker {
        memory,
        pace: Pace::default(),
        last: Instant::now(),
    };
    loop {
        match port.read(&mut calls) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        while let Err(error) = worker.work(&port) {
            if let Some(terminal) = shown.take() {
                terminal.message(&format!("ebb: give-back shared: {error}"));
            }
            // While another has the memory the guest does not learn that nobody works, and does not call again.
            let again = matches!(error, ReclaimError::Busy | ReclaimError::Lease(_));
            let ended = wait(&port, if again { AFTER_BUSY } else { AFTER_FAILURE });
            if ended || !again {
                break;
            }
        }
    }
}

/// Waits for so long, or until the other end of the port is gone: whether it is.
fn wait(port: &UnixStream, time: Duration) -> bool {
    let mut polled = [PollFd::new(port, PollFlags::empty())];
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) => return false,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

/// What is known from one call to the next.
struct Worker<'a> {
    memory: &'a FreeMemory,
    pace: Pace,
    /// When something was taken.
    last: Instant,
}

impl Worker<'_> {
    /// Takes what is free until there is nothing left, the mode is another, or the port ends.
    fn work(&mut self, port: &UnixStream) -> Result<(), ReclaimError> {
        let mut asleep = false;
        let mut pause = self.pause();
        while self.memory.is_wanted() && !wait(port, pause) {
            // Others may take memory between two passes.
            match self.memory.with(|session| pass(session, asleep))? {
                Pass::Missed => {
                    asleep = false;
                    pause = LEFT_ALONE;
                }
                Pass::Found(taken) => {
                    asleep = false;
                    self.pace.took(taken.bytes, taken.time, self.resident());
                    self.last = Instant::now();
                    pause = self.pause();
                }
                Pass::Nothing if asleep => return Ok(()),
                Pass::Nothing => {
                    asleep = true;
                    pause = Duration::ZERO;
                }
            }
        }
        Ok(())
    }

    fn pause(&self) -> Duration {
        self.pace.pause(self.resident(), self.last.elapsed())
    }

    fn resident(&self) -> u64 {
        // What cannot be said is taken for no growth.
        self.memory.resident_bytes().unwrap_or(0)
    }
}

/// What came of a pass.
enum Pass {
    Found(Reclaimed),
    Nothing,
    Missed,
}

/// Looks at all memory once. `asleep`: another look has found nothing, so the guest calls from here on.
fn pass(session: &mut Session<'_>, asleep: bool) -> Result<Pass, ReclaimError> {
    if asleep {
        session.attached.sleep();
    }
    loop {
        let (frames, end) = session.step(u64::MAX);
        if asleep && frames != 0 {
            session.attached.wake();
        }
        match end {
            StepEnd::More if !session.is_over() => {}
            StepEnd::More => return Ok(Pass::Found(session.taken)),
            StepEnd::Done if session.taken.bytes != 0 => return Ok(Pass::Found(session.taken)),
            StepEnd::Done => return Ok(Pass::Nothing),
            StepEnd::Missed => return Ok(Pass::Missed),
            StepEnd::Failed(error) => {
                // It is called for the next block that becomes free.
                session.attached.sleep();
                return Err(error);
            }
        }
    }
}

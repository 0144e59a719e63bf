//! The thread that takes a guest's free memory as it becomes free, in the mode `shared`.
//!
//! It sleeps in a read of the control port. The guest calls ([`ebb_wire::port::DOORBELL`]) when it enters the mode, and when a
//! block becomes free while this thread has said that it sleeps. Then it takes what is free at a pace ([`Pace`]) that
//! heeds what comes back, until a pass over the memory finds nothing and leaves nothing alone. It says that it sleeps, and looks once more: of a free
//! and of that word at the same time one sees the other.

use super::engine::{FreeMemory, Reclaimed, Session};
use super::error::ReclaimError;
use super::pace::Pace;
use crate::text::Terminal;
use ebb_mm::{FRAME_SIZE, PAGEBLOCK_FRAMES, StepEnd};
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
const BLOCK: u64 = PAGEBLOCK_FRAMES * FRAME_SIZE as u64;
/// Calls that are read at once. What they say does not matter.
const CALLS: usize = 4096;

/// Serves a guest until its control port ends. Failures are shown on the terminal, the first of them.
pub(crate) fn serve(memory: &FreeMemory, mut port: UnixStream, shown: Option<Arc<Terminal>>) {
    let mut shown = shown;
    let mut calls = [0; CALLS];
    let mut worker = Worker {
        memory,
        pace: memory.pace(),
        began: Instant::now(),
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
    /// When the pace's time began.
    began: Instant,
}

impl Worker<'_> {
    /// Takes what is free until there is nothing left, the mode is another, or the port ends.
    fn work(&mut self, port: &UnixStream) -> Result<(), ReclaimError> {
        let mut asleep = false;
        let mut pause = self.pace.first();
        while self.memory.is_wanted() && !wait(port, pause) {
            self.pace.begin(self.began.elapsed());
            let pace = &mut self.pace;
            // Others may take memory between two passes.
            match self.memory.with(|session| pass(session, pace, asleep))? {
                Pass::Missed => {
                    asleep = false;
                    pause = LEFT_ALONE;
                }
                Pass::Found(taken) => {
                    asleep = false;
                    self.pace.worked(taken.bytes / BLOCK, taken.time);
                    pause = self.pace.wait().unwrap_or(self.pace.first());
                }
                Pass::Left => {
                    asleep = false;
                    pause = self.pace.first();
                }
                Pass::Nothing if asleep => return Ok(()),
                Pass::Nothing => {
                    let left_alone = self.pace.wait();
                    asleep = left_alone.is_none();
                    pause = left_alone.unwrap_or(Duration::ZERO);
                }
            }
        }
        Ok(())
    }
}

/// What came of a pass.
enum Pass {
    Found(Reclaimed),
    Nothing,
    /// As the guest was asked to call, a block was free that is left alone for now.
    Left,
    Missed,
}

/// Looks at all memory once, and takes what is due. `asleep`: another look has found nothing, so the guest calls from here on.
fn pass(session: &mut Session<'_>, pace: &mut Pace, asleep: bool) -> Result<Pass, ReclaimError> {
    if asleep {
        session.attached.sleep();
    }
    loop {
        let mut took = Vec::new();
        let wanted = &mut |frame| pace.is_due(frame);
        let (frames, end) = session.step_where(u64::MAX, wanted, |frame| took.push(frame));
        took.into_iter().for_each(|frame| pace.took(frame));
        if asleep && (frames != 0 || pace.wait().is_some()) {
            session.attached.wake();
        }
        match end {
            StepEnd::More if !session.is_over() => {}
            StepEnd::More => return Ok(Pass::Found(session.taken)),
            StepEnd::Done if session.taken.bytes != 0 => return Ok(Pass::Found(session.taken)),
            // A block that became free meanwhile, and is too young.
            StepEnd::Done if asleep && pace.wait().is_some() => return Ok(Pass::Left),
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

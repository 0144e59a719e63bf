//! The thread that takes a guest's free memory as it becomes free, in the mode `shared`.
//!
//! It sleeps in a read of the control port. The guest calls ([`ebb_wire::port::DOORBELL`]) when it enters the mode, and when a
//! block becomes free while this thread has said that it sleeps. Then it works until a pass over the memory finds
//! nothing, says that it sleeps, and looks once more: of a free and of that word at the same time one sees the other.

use super::engine::{FreeMemory, Session};
use super::error::ReclaimError;
use crate::text::Terminal;
use ebb_mm::StepEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// From the call to the first look: what is taken again at once stays.
const DELAY: Duration = Duration::from_millis(10);
/// Between two passes: a guest that frees all the time does not keep a CPU of the host busy with looking.
const PASS_PAUSE: Duration = Duration::from_millis(1);
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
    loop {
        match port.read(&mut calls) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        thread::sleep(DELAY);
        while let Err(error) = work(memory) {
            // Somebody else had the memory, and the guest was not told that nobody works: it does not call again.
            let again = matches!(error, ReclaimError::Busy | ReclaimError::Lease(_));
            if let Some(terminal) = shown.take() {
                terminal.message(&format!("ebb: give-back shared: {error}"));
            }
            if again && !has_ended(&port) {
                thread::sleep(AFTER_BUSY);
                continue;
            }
            thread::sleep(AFTER_FAILURE);
            break;
        }
    }
}

/// Whether the other end of the port is gone.
fn has_ended(port: &UnixStream) -> bool {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(port, PollFlags::empty())];
    // An error ends it as well.
    poll(&mut polled, Some(&timeout)).is_err()
        || polled[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Takes what is free until there is nothing left, or the mode is another.
fn work(memory: &FreeMemory) -> Result<(), ReclaimError> {
    let mut asleep = false;
    while memory.is_wanted() {
        // Others may take memory between two passes.
        match memory.with(|session| pass(session, asleep))? {
            Pass::Missed => {
                asleep = false;
                thread::sleep(LEFT_ALONE);
            }
            Pass::Found => {
                asleep = false;
                thread::sleep(PASS_PAUSE);
            }
            Pass::Nothing if asleep => return Ok(()),
            Pass::Nothing => asleep = true,
        }
    }
    Ok(())
}

/// What came of a pass.
enum Pass {
    Found,
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
            StepEnd::More => return Ok(Pass::Found),
            StepEnd::Done if session.taken.bytes != 0 => return Ok(Pass::Found),
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

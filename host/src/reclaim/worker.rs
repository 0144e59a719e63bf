//! The thread that takes a guest's memory as it becomes free, in the mode `shared`.
//!
//! The thread sleeps in a read of the control port. The guest rings
//! ([`ebb_wire::port::WAKE_BYTES`]) when it enters the mode, and when a block becomes free while
//! the thread is marked as asleep. The thread then takes free blocks after a delay
//! ([`ReclaimDelay`]) that depends on how often they are used again. When a pass over the memory
//! finds no block, the thread marks itself as asleep and makes one more pass. If the guest frees a
//! block at the same time, either the pass sees the block or the guest sees the mark.

use super::delay::ReclaimDelay;
use super::engine::{FreeMemory, Reclaimed, Session};
use super::error::ReclaimError;
use crate::text::Terminal;
use ebb_mm::{FRAME_SIZE, PAGEBLOCK_FRAMES, StepEnd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause after the guest has failed to allocate memory that was isolated for the host.
const LEFT_ALONE: Duration = Duration::from_millis(200);
/// The pause after an error in the guest's metadata.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// The pause after another process had the lock.
const AFTER_BUSY: Duration = Duration::from_millis(200);
const BLOCK: u64 = PAGEBLOCK_FRAMES * FRAME_SIZE as u64;
/// The number of rings that are read at once. Their content is ignored.
const CALLS: usize = 4096;

/// Takes the free memory of a guest as it becomes free, while the guest is in the mode `shared`.
/// Runs in the calling thread until the control port `port` closes or cannot be read. Shows only
/// the first failure on `shown`, and tries again after each.
pub(crate) fn serve(memory: &FreeMemory, mut port: UnixStream, shown: Option<Arc<Terminal>>) {
    let mut shown = shown;
    let mut calls = [0; CALLS];
    let mut worker = Worker {
        memory,
        delay: memory.delay(),
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
            // While another process has the lock, the guest is not marked, so it will not ring
            // again. This thread must retry.
            let again = matches!(error, ReclaimError::Busy | ReclaimError::Lock(_));
            let ended = wait(&port, if again { AFTER_BUSY } else { AFTER_FAILURE });
            if ended || !again {
                break;
            }
        }
    }
}

/// Waits for `time`. Returns `true` at once if the other end of the port closes, and `false` after
/// the time.
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

/// The state of the thread between two rings.
struct Worker<'a> {
    memory: &'a FreeMemory,
    delay: ReclaimDelay,
    /// The start of the delay's time.
    began: Instant,
}

impl Worker<'_> {
    /// Makes passes over the memory until no block is left, the mode changes, or the port closes.
    /// Fails as [`FreeMemory::with`], or if a block cannot be dropped.
    fn work(&mut self, port: &UnixStream) -> Result<(), ReclaimError> {
        let mut asleep = false;
        let mut pause = self.delay.first();
        while self.memory.is_wanted() && !wait(port, pause) {
            self.delay.begin(self.began.elapsed());
            let delay = &mut self.delay;
            // The lock is released between two passes, so others may take memory.
            match self.memory.with(|session| pass(session, delay, asleep))? {
                Pass::Missed => {
                    asleep = false;
                    pause = LEFT_ALONE;
                }
                Pass::Found(taken) => {
                    asleep = false;
                    self.delay.worked(taken.bytes / BLOCK, taken.time);
                    pause = self.delay.wait().unwrap_or(self.delay.first());
                }
                Pass::Left => {
                    asleep = false;
                    pause = self.delay.first();
                }
                Pass::Nothing if asleep => return Ok(()),
                Pass::Nothing => {
                    let left_alone = self.delay.wait();
                    asleep = left_alone.is_none();
                    pause = left_alone.unwrap_or(Duration::ZERO);
                }
            }
        }
        Ok(())
    }
}

/// The result of a pass over the memory.
enum Pass {
    /// It took blocks.
    Found(Reclaimed),
    /// It found no block to take.
    Nothing,
    /// It took no block, but found a free one that is too young. The guest has been asked to ring.
    Left,
    /// The guest has failed to allocate memory that was isolated.
    Missed,
}

/// Examines all memory once and takes the blocks that `delay` allows. With `asleep`, the previous
/// pass found no block, and the guest rings from now on. Returns how the pass ended. Fails if a
/// block cannot be dropped.
fn pass(
    session: &mut Session<'_>,
    delay: &mut ReclaimDelay,
    asleep: bool,
) -> Result<Pass, ReclaimError> {
    if asleep {
        session.attached.sleep();
    }
    loop {
        let mut took = Vec::new();
        let wanted = &mut |frame| delay.may_take(frame);
        let (frames, end) = session.step_where(u64::MAX, wanted, |frame| took.push(frame));
        took.into_iter().for_each(|frame| delay.note_taken(frame));
        if asleep && (frames != 0 || delay.wait().is_some()) {
            session.attached.wake();
        }
        match end {
            StepEnd::More if !session.is_over() => {}
            StepEnd::More => return Ok(Pass::Found(session.taken)),
            StepEnd::Done if session.taken.bytes != 0 => return Ok(Pass::Found(session.taken)),
            // A block that became free during the pass and is too young.
            StepEnd::Done if asleep && delay.wait().is_some() => return Ok(Pass::Left),
            StepEnd::Done => return Ok(Pass::Nothing),
            StepEnd::Missed => return Ok(Pass::Missed),
            StepEnd::Failed(error) => {
                // The guest rings when the next block becomes free.
                session.attached.sleep();
                return Err(error);
            }
        }
    }
}

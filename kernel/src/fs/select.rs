//! Waiting for several files: the common part of `poll` and `select`.

use super::epoll::EpollFile;
use super::file::OpenFile;
use super::poll::{Notifier, PollMask};
use super::timerfd::Due;
use super::timerfd::TimerFile;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::sync::WaitSet;

/// A file, what is asked of it, and what was found.
#[derive(Debug)]
pub struct Interest {
    file: Option<Arc<OpenFile>>,
    wanted: PollMask,
    state: PollMask,
    found: PollMask,
}

impl Interest {
    /// Asks `file` for `wanted`; errors and hang-ups are told as well.
    pub fn new(file: Arc<OpenFile>, wanted: PollMask) -> Self {
        Self {
            file: Some(file),
            wanted,
            state: PollMask::empty(),
            found: PollMask::empty(),
        }
    }

    /// Asks nothing, finds nothing.
    pub const fn nothing() -> Self {
        Self::settled(PollMask::empty())
    }

    /// Has found `found` without asking.
    pub const fn settled(found: PollMask) -> Self {
        Self {
            file: None,
            wanted: PollMask::empty(),
            state: found,
            found,
        }
    }

    /// What was found of what was asked for.
    pub fn found(&self) -> PollMask {
        self.found
    }

    /// All that the file was ready for.
    pub fn state(&self) -> PollMask {
        self.state
    }

    fn look(&mut self) -> bool {
        if let Some(file) = &self.file {
            self.state = file.file().poll();
            self.found = self.state & (self.wanted | PollMask::ALWAYS | PollMask::NVAL);
        }
        !self.found.is_empty()
    }

    fn timer(&self) -> Option<Nanos> {
        let file = self.file.as_ref()?.file();
        if let Some(set) = file.downcast::<EpollFile>() {
            return set.next_timer();
        }
        match file.downcast::<TimerFile>()?.due_at() {
            Due::At(at) => Some(at),
            Due::Now(_) | Due::Never => None,
        }
    }
}

fn look_at_all(interests: &mut [Interest]) -> usize {
    // Every one is looked at: their states are told, not only their number.
    interests
        .iter_mut()
        .fold(0, |ready, interest| ready + usize::from(interest.look()))
}

/// Waits until one of the files is ready, at most until `deadline`; gives how many are.
///
/// # Errors
/// `ERESTARTNOHAND` when a signal came first.
pub fn wait(interests: &mut [Interest], deadline: Option<Nanos>) -> Result<usize, Errno> {
    let mut ready = look_at_all(interests);
    if ready > 0 || deadline.is_some_and(|deadline| deadline <= clock::now()) {
        return Ok(ready);
    }
    let mut notifiers: Vec<Arc<Notifier>> = Vec::new();
    for interest in interests.iter() {
        if let Some(notifier) = interest
            .file
            .as_ref()
            .and_then(|file| file.file().notifier())
        {
            notifiers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            notifiers.push(notifier);
        }
    }
    let mut set = WaitSet::new();
    for notifier in &notifiers {
        set.add(notifier.queue())?;
    }
    loop {
        // Timers tell nobody when they go off.
        let timer = interests.iter().filter_map(Interest::timer).min();
        let until = match (deadline, timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let waited = set.wait(until, || {
            ready = look_at_all(interests);
            // A change of a timer that makes nothing ready: look at the timers anew.
            ready > 0 || interests.iter().filter_map(Interest::timer).min() != timer
        });
        waited.map_err(|_| Errno::ERESTARTNOHAND)?;
        // Some files tell of an event once: what was found is not looked at again.
        if ready == 0 {
            ready = look_at_all(interests);
        }
        let over = deadline.is_some_and(|deadline| deadline <= clock::now());
        if ready > 0 || over {
            return Ok(ready);
        }
    }
}

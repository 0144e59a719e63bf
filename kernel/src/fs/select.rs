//! Waits for several files: the common part of `poll` and `select`.

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

/// One file of a poll: the file, the events that are wanted, and the events that were found.
#[derive(Debug)]
pub struct Interest {
    file: Option<Arc<OpenFile>>,
    wanted: PollMask,
    state: PollMask,
    found: PollMask,
}

impl Interest {
    /// Returns the entry for `file`, polled for the events `wanted`. `ERR`, `HUP` and `NVAL` are
    /// reported even if they are not in `wanted`.
    pub fn new(file: Arc<OpenFile>, wanted: PollMask) -> Self {
        Self {
            file: Some(file),
            wanted,
            state: PollMask::empty(),
            found: PollMask::empty(),
        }
    }

    /// Returns an entry without a file, in which no event is ever found.
    pub const fn nothing() -> Self {
        Self::settled(PollMask::empty())
    }

    /// Returns an entry without a file, in which the events `found` are found at once.
    pub const fn settled(found: PollMask) -> Self {
        Self {
            file: None,
            wanted: PollMask::empty(),
            state: found,
            found,
        }
    }

    /// Returns the events that the last look at the file has found: the wanted ones, `ERR`, `HUP`
    /// and `NVAL`.
    pub fn found(&self) -> PollMask {
        self.found
    }

    /// Returns all events for which the file was ready at the last look, wanted or not.
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
    // All files are looked at, because their states are reported and not only their number.
    interests
        .iter_mut()
        .fold(0, |ready, interest| ready + usize::from(interest.look()))
}

/// Waits until one of the files is ready or `deadline` has passed. Returns the number of ready
/// files.
///
/// # Errors
/// Fails with `ERESTARTNOHAND` if a signal came first, and with `ENOMEM`.
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
        // Timers notify no waiter when they expire.
        let timer = interests.iter().filter_map(Interest::timer).min();
        let until = match (deadline, timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let waited = set.wait(until, || {
            ready = look_at_all(interests);
            // If a timer was set but no file is ready, the timers are looked at again.
            ready > 0 || interests.iter().filter_map(Interest::timer).min() != timer
        });
        waited.map_err(|_| Errno::ERESTARTNOHAND)?;
        // Some files report an event only once, so a file that was found ready is not looked at
        // again.
        if ready == 0 {
            ready = look_at_all(interests);
        }
        let over = deadline.is_some_and(|deadline| deadline <= clock::now());
        if ready > 0 || over {
            return Ok(ready);
        }
    }
}

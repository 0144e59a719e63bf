//! Pending signals.

use super::{Detail, Queued, SigInfo, SigSet, Signal, info};
use alloc::collections::VecDeque;
use logic::errno::Errno;

/// The most signals that one queue keeps with their details, even if the process's limit is higher.
/// A process has a queue, and so has each of its threads.
const MAX_QUEUED: usize = 1 << 15;

/// An empty queue keeps memory for this number of signals, so that a signal now and then allocates
/// nothing.
const KEPT: usize = 4;

/// The pending signals of a task or of a whole process.
#[derive(Debug, Default)]
pub struct Pending {
    set: SigSet,
    /// The details of the signals, oldest first, with what counts each of them. A signal of the set
    /// may lack an entry.
    queue: VecDeque<(SigInfo, Option<Queued>)>,
}

impl Pending {
    /// Returns a state without pending signals.
    pub const fn new() -> Self {
        Self {
            set: SigSet::EMPTY,
            queue: VecDeque::new(),
        }
    }

    /// Returns the set of the pending signals.
    pub fn set(&self) -> SigSet {
        self.set
    }

    /// Adds the signal `info`, which counts for the user `uid`, to the pending ones. The details of
    /// a signal find no room if `limit` signals of the user are queued, or too many in this queue.
    /// As on Linux this does not concern signals below 32 from the kernel or `kill`, and those of
    /// timers count with the timer. A signal below 32 that is pending already is not added again.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if the details of a realtime signal find no room, unless `kill` sent the
    /// signal. Other signals are then added without their details.
    pub(crate) fn add(&mut self, info: SigInfo, uid: u32, limit: u64) -> Result<(), Errno> {
        let signal = info.signal;
        if !signal.is_realtime() && self.set.contains(signal) {
            return Ok(());
        }
        let room = if !signal.is_realtime() && info.code >= 0 {
            Queued::count(uid, u64::MAX).map(Some)
        } else if self.queue.len() >= MAX_QUEUED {
            None
        } else if matches!(info.detail, Detail::Timer { .. }) {
            Some(None)
        } else {
            Queued::count(uid, limit).map(Some)
        };
        if let Some(room) = room
            && self.queue.try_reserve(1).is_ok()
        {
            self.queue.push_back((info, room));
        } else if signal.is_realtime() && info.code != info::SI_USER {
            return Err(Errno::EAGAIN);
        }
        self.set.insert(signal);
        Ok(())
    }

    /// Adds `signals` to the pending ones without their details.
    pub(crate) fn add_bare(&mut self, signals: SigSet) {
        self.set = self.set.union(signals);
    }

    /// Removes the signal of `wanted` that is delivered first and returns it. Returns `None` if no
    /// signal of `wanted` is pending.
    pub fn take(&mut self, wanted: SigSet) -> Option<SigInfo> {
        let signal = self.set.intersection(wanted).first()?;
        let mut found = None;
        let place = self
            .queue
            .iter()
            .position(|(info, _)| info.signal == signal);
        if let Some(at) = place {
            found = self.queue.remove(at).map(|(info, _)| info);
        }
        if !self.queue.iter().any(|(info, _)| info.signal == signal) {
            self.set.remove(signal);
        }
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            // Frees the memory that a burst of signals has taken.
            self.queue = VecDeque::new();
        }
        Some(found.unwrap_or(SigInfo::user(signal, info::SI_USER, 0, 0)))
    }

    /// Returns the details of the pending signal at the index `place`, oldest first. Returns `None`
    /// if `place` is behind the last one.
    pub fn entry(&self, place: usize) -> Option<SigInfo> {
        self.queue.get(place).map(|(info, _)| *info)
    }

    /// Removes all pending signals of `unwanted`.
    pub fn discard(&mut self, unwanted: SigSet) {
        if self.set.intersection(unwanted).is_empty() {
            return;
        }
        self.set = self.set.without(unwanted);
        self.queue
            .retain(|(info, _)| !unwanted.contains(info.signal));
    }

    /// Removes the pending signals of POSIX timers. Others with the same numbers stay.
    pub(crate) fn discard_of_timers(&mut self) {
        let (mut removed, mut kept) = (SigSet::EMPTY, SigSet::EMPTY);
        self.queue.retain(|(info, _)| {
            let is_timers = info.code == info::SI_TIMER;
            let numbers = if is_timers { &mut removed } else { &mut kept };
            numbers.insert(info.signal);
            !is_timers
        });
        self.set = self.set.without(removed.without(kept));
    }

    /// Has `room` count the pending signal with details for which `same` returns `true`, until it
    /// is taken or removed. Drops `room` if there is no such signal.
    pub(crate) fn count_as(&mut self, room: Queued, same: impl Fn(&SigInfo) -> bool) {
        if let Some((_, place)) = self.queue.iter_mut().find(|(info, _)| same(info)) {
            *place = Some(room);
        }
    }

    /// Returns whether `signal` is pending with details for which `same` returns `true`. Timers use
    /// this, because their signals are queued only once.
    pub fn has(&self, signal: Signal, same: impl Fn(&SigInfo) -> bool) -> bool {
        let mut entries = self.queue.iter();
        self.set.contains(signal) && entries.any(|(info, _)| info.signal == signal && same(info))
    }
}

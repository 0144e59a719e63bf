//! Pending signals.

use super::{SigInfo, SigSet, Signal, info};
use alloc::collections::VecDeque;
use logic::errno::Errno;

/// The pending signals of a task or of a whole process.
#[derive(Debug, Default)]
pub struct Pending {
    set: SigSet,
    /// The details of the signals, oldest first. A signal of the set may lack an entry.
    queue: VecDeque<SigInfo>,
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

    /// Adds the signal `info` to the pending ones. At most `limit` details of signals are kept. A
    /// signal below 32 that is pending already is not added again.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if the details of a realtime signal find no room, unless `kill` sent the
    /// signal. Other signals are then added without their details.
    pub fn add(&mut self, info: SigInfo, limit: usize) -> Result<(), Errno> {
        let signal = info.signal;
        if !signal.is_realtime() && self.set.contains(signal) {
            return Ok(());
        }
        if self.queue.len() < limit && self.queue.try_reserve(1).is_ok() {
            self.queue.push_back(info);
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
        if let Some(at) = self.queue.iter().position(|entry| entry.signal == signal) {
            found = self.queue.remove(at);
        }
        if !self.queue.iter().any(|entry| entry.signal == signal) {
            self.set.remove(signal);
        }
        if self.queue.is_empty() {
            // Frees the memory that a burst of signals has taken.
            self.queue = VecDeque::new();
        }
        Some(found.unwrap_or(SigInfo::user(signal, info::SI_USER, 0, 0)))
    }

    /// Returns the details of the pending signal at the index `place`, oldest first. Returns `None`
    /// if `place` is behind the last one.
    pub fn entry(&self, place: usize) -> Option<SigInfo> {
        self.queue.get(place).copied()
    }

    /// Removes all pending signals of `unwanted`.
    pub fn discard(&mut self, unwanted: SigSet) {
        if self.set.intersection(unwanted).is_empty() {
            return;
        }
        self.set = self.set.without(unwanted);
        self.queue.retain(|entry| !unwanted.contains(entry.signal));
    }

    /// Returns whether `signal` is pending with details for which `same` returns `true`. Timers use
    /// this, because their signals are queued only once.
    pub fn has(&self, signal: Signal, same: impl Fn(&SigInfo) -> bool) -> bool {
        let is_it = |entry: &SigInfo| entry.signal == signal && same(entry);
        self.set.contains(signal) && self.queue.iter().any(is_it)
    }
}

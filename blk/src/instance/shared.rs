//! Data shared by an instance's thread and its handle.

use crate::engine::Counters;
use crate::knobs::Knobs;
use crate::pool::Counts;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The figures of an instance, as published after each batch of requests.
#[derive(Copy, Clone, Debug, Default)]
pub struct Figures {
    /// Numbers of requests and bytes.
    pub counters: Counters,
    /// The numbers of the pool's pages in each state.
    pub pool: Counts,
    /// Whether a front-end is connected.
    pub connected: bool,
    /// Number of a Xen front-end's grants that stay mapped.
    pub persistent_grants: u32,
}

/// Data shared by an instance's thread and its [`Handle`](super::Handle).
#[derive(Debug)]
pub(crate) struct Shared {
    knobs: Arc<Knobs>,
    stop: AtomicBool,
    figures: Mutex<Figures>,
}

impl Shared {
    /// Makes the shared data of an instance with the settings `knobs`.
    pub(super) fn new(knobs: Arc<Knobs>) -> Self {
        Self {
            knobs,
            stop: AtomicBool::new(false),
            figures: Mutex::default(),
        }
    }

    /// Returns the settings of the instance.
    pub(crate) fn knobs(&self) -> &Arc<Knobs> {
        &self.knobs
    }

    /// Returns whether a thread has asked the instance to stop.
    pub(crate) fn stopping(&self) -> bool {
        // Acquire: pairs with the Release in `stop`.
        self.stop.load(Ordering::Acquire)
    }

    /// Marks the instance as asked to stop, for ever. Does not wake its thread.
    pub(super) fn stop(&self) {
        // Release: pairs with the Acquire in `stopping`.
        self.stop.store(true, Ordering::Release);
    }

    /// Stores `figures` as the instance's current ones, for other threads.
    pub(crate) fn publish(&self, figures: Figures) {
        *self.figures() = figures;
    }

    /// Returns the figures that were published last, or zeros before the first time.
    pub(super) fn read(&self) -> Figures {
        *self.figures()
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        // Storing plain numbers cannot panic halfway.
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What an instance's thread and other threads share.

use crate::engine::Counters;
use crate::knobs::Knobs;
use crate::pool::Counts;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The figures of an instance.
#[derive(Copy, Clone, Debug, Default)]
pub struct Figures {
    /// Requests and bytes.
    pub counters: Counters,
    /// Its pool.
    pub pool: Counts,
    /// Whether a front-end is connected.
    pub connected: bool,
    /// Grants of a Xen front-end that stay mapped.
    pub persistent_grants: u32,
}

/// What an instance's thread and its [`Handle`](super::Handle) share.
#[derive(Debug)]
pub(crate) struct Shared {
    knobs: Arc<Knobs>,
    stop: AtomicBool,
    figures: Mutex<Figures>,
}

impl Shared {
    /// With these knobs.
    pub(super) fn new(knobs: Arc<Knobs>) -> Self {
        Self {
            knobs,
            stop: AtomicBool::new(false),
            figures: Mutex::default(),
        }
    }

    /// The knobs.
    pub(crate) fn knobs(&self) -> &Arc<Knobs> {
        &self.knobs
    }

    /// Whether the instance is to end.
    pub(crate) fn stopping(&self) -> bool {
        // Acquire: pairs with the Release in `stop`.
        self.stop.load(Ordering::Acquire)
    }

    /// Asks it to end.
    pub(super) fn stop(&self) {
        // Release: pairs with the Acquire in `stopping`.
        self.stop.store(true, Ordering::Release);
    }

    /// Tells others how the instance stands.
    pub(crate) fn publish(&self, figures: Figures) {
        *self.figures() = figures;
    }

    /// How it stood when that was last told.
    pub(super) fn read(&self) -> Figures {
        *self.figures()
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        // A copy of numbers is never half done.
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

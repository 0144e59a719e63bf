//! The errors of packets that wait until a program receives them.

use super::segment::Segment;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::socket::report::Report;
use machine::sync::SpinLock;

/// The most errors that wait; further ones are told by the next call alone, as on Linux where the
/// buffer is full.
pub(super) const MOST: usize = 64;

/// An error that waits.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) report: Report,
    /// The message that it is about.
    pub(super) segment: Arc<Segment>,
}

/// The errors that wait, the oldest first.
#[derive(Debug)]
pub(super) struct Problems {
    pub(super) any: AtomicBool,
    pub(super) list: SpinLock<VecDeque<Problem>>,
}

impl Problems {
    pub(super) const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            list: SpinLock::new(VecDeque::new()),
        }
    }

    /// Whether any waits.
    pub(super) fn any(&self) -> bool {
        // Acquire: pairs with the Release of who adds one.
        self.any.load(Ordering::Acquire)
    }
}

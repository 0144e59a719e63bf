//! Errors of packets, queued until a program receives them.

use super::segment::Segment;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::socket::report::Report;
use machine::sync::SpinLock;

/// The most queued errors of a socket. A further error is reported by the next call alone, as on
/// Linux when the buffer is full.
pub(super) const MOST: usize = 64;

/// A queued error of a packet, with the message that caused it.
#[derive(Debug)]
pub(super) struct Problem {
    /// The report that the program receives with the error.
    pub(super) report: Report,
    /// The message that caused the error.
    pub(super) segment: Arc<Segment>,
}

/// The queue of errors that the program has not received yet (`MSG_ERRQUEUE`).
#[derive(Debug)]
pub(super) struct Problems {
    /// Whether `list` is not empty. Read without the lock.
    pub(super) any: AtomicBool,
    /// The errors, the oldest first.
    pub(super) list: SpinLock<VecDeque<Problem>>,
}

impl Problems {
    /// Returns an empty queue.
    pub(super) const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            list: SpinLock::new(VecDeque::new()),
        }
    }

    /// Returns whether an error is queued.
    pub(super) fn any(&self) -> bool {
        // Acquire: pairs with the Release in `Socket::add_problem`.
        self.any.load(Ordering::Acquire)
    }
}

//! Counts the pages that pools take from the system. Stalls show that memory is already short;
//! growth of the pools is a reason to look before that.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of pages that all pools together take from the system between two reads of
/// `MemAvailable`: 1 MiB.
pub const LOOK_PAGES: u64 = 256;

/// A counter of the pages that pools take from the system. Its descriptor becomes readable each
/// time the count passes a multiple of [`LOOK_PAGES`]. Clones share the counter.
#[derive(Clone, Debug)]
pub struct Growth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fetched: AtomicU64,
    due: OwnedFd,
}

impl Growth {
    /// Makes a counter at zero, whose descriptor is not readable.
    ///
    /// # Errors
    /// Fails if no event counter can be made (`eventfd`).
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            fetched: AtomicU64::new(0),
            due: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })))
    }

    /// Adds `pages` that a pool took from the system. Makes the descriptor readable if the count
    /// passes a multiple of [`LOOK_PAGES`]. Does not block.
    pub fn add(&self, pages: u64) {
        // Relaxed: the count orders no other memory access.
        let before = self.0.fetched.fetch_add(pages, Ordering::Relaxed);
        if before / LOOK_PAGES != before.wrapping_add(pages) / LOOK_PAGES {
            // The write does not block. If the event counter is full, the descriptor is readable
            // already.
            let _ = rustix::io::write(&self.0.due, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable until the count passes the next multiple of [`LOOK_PAGES`].
    /// Call this before reading the available memory, so that later growth is not missed.
    pub fn seen(&self) {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.0.due, &mut counter);
    }
}

impl AsFd for Growth {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.due.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn due(growth: &Growth) -> bool {
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(growth, PollFlags::IN)], Some(&none)).expect("it polls") == 1
    }

    #[test]
    fn a_look_is_due_after_each_mebibyte() {
        let growth = Growth::new().unwrap();
        for _ in 0..3 {
            growth.add(LOOK_PAGES - 1);
            assert!(!due(&growth));
            growth.add(1);
            assert!(due(&growth));
            growth.seen();
            assert!(!due(&growth));
        }
        growth.add(100 * LOOK_PAGES);
        assert!(due(&growth), "many at once");
    }
}

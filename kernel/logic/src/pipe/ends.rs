//! The ends of a pipe: how many read it, how many write it, and whether who opens a FIFO has met
//! its peer. Pure logic.
//!
//! SeqCst throughout: a waiter's registration and its look at the counters must not be reordered
//! with a changer's store and its look at the waiters. The queue's lock orders them as well; this
//! spares the argument.

#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicUsize, Ordering};

/// The ends of one direction.
#[derive(Debug, Default)]
struct Side {
    /// Open now.
    open: AtomicUsize,
    /// Opened ever: who waits for a peer waits for a change, as the peer may come and go meanwhile.
    opens: AtomicUsize,
}

impl Side {
    fn come(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.opens.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether that was the last one.
    fn leave(&self) -> bool {
        self.open.fetch_sub(1, Ordering::SeqCst) == 1
    }

    fn any(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    fn opens(&self) -> usize {
        self.opens.load(Ordering::SeqCst)
    }
}

/// The ends of a pipe.
#[derive(Debug, Default)]
pub struct Ends {
    readers: Side,
    writers: Side,
}

/// What an opener saw of its peers before it became an end itself.
#[derive(Debug)]
pub struct Look {
    reads: bool,
    peer: bool,
    opens: usize,
}

impl Ends {
    /// An end more.
    pub fn come(&self, reads: bool, writes: bool) {
        if reads {
            self.readers.come();
        }
        if writes {
            self.writers.come();
        }
    }

    /// An end less; says whether it was the last reader, and whether the last writer.
    pub fn leave(&self, reads: bool, writes: bool) -> (bool, bool) {
        (
            reads && self.readers.leave(),
            writes && self.writers.leave(),
        )
    }

    /// Whether anybody reads.
    pub fn has_readers(&self) -> bool {
        self.readers.any()
    }

    /// Whether anybody writes.
    pub fn has_writers(&self) -> bool {
        self.writers.any()
    }

    /// Whether anybody has ever written: until then a FIFO is not at its end.
    pub fn had_writers(&self) -> bool {
        self.writers.opens() > 0
    }

    /// The first half of opening a FIFO for reading, or else for writing; [`Self::come`] follows,
    /// and then the wait for [`Self::met`].
    pub fn look(&self, reads: bool) -> Look {
        let peers = self.peers(reads);
        // The count first: who comes between the two is seen by both, nobody by neither.
        let opens = peers.opens();
        Look {
            reads,
            peer: peers.any(),
            opens,
        }
    }

    /// Whether a peer was there at the look or has come since. A peer that waited for us may write,
    /// read and leave before we look again: so that one counts which was there before we came.
    pub fn met(&self, look: &Look) -> bool {
        look.peer || self.peers(look.reads).opens() != look.opens
    }

    fn peers(&self, reads: bool) -> &Side {
        if reads { &self.writers } else { &self.readers }
    }
}

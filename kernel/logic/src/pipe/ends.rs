//! The ends of a pipe: the numbers of readers and writers, and whether an opener of a FIFO has met
//! its peer. Pure logic.
//!
//! SeqCst throughout. A waiter's registration and its read of the counters must not be reordered
//! with a changer's store and its read of the waiters. The queue's lock orders them as well, but
//! SeqCst needs no such argument.

#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicUsize, Ordering};

/// The ends of one direction.
#[derive(Debug, Default)]
struct Side {
    /// Number of ends open now.
    open: AtomicUsize,
    /// Number of ends ever opened. An opener waits for this count to change, as a peer may come and
    /// go before the opener looks again.
    opens: AtomicUsize,
}

impl Side {
    fn come(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.opens.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the end was the last one.
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

/// The numbers of readers and writers of a pipe.
#[derive(Debug, Default)]
pub struct Ends {
    readers: Side,
    writers: Side,
}

/// The state of the peers before the opener of a FIFO added its own end, for [`Ends::met`].
#[derive(Debug)]
pub struct Look {
    reads: bool,
    peer: bool,
    opens: usize,
}

impl Ends {
    /// Adds an open end to the pipe: a reader if `reads`, and a writer if `writes`.
    pub fn come(&self, reads: bool, writes: bool) {
        if reads {
            self.readers.come();
        }
        if writes {
            self.writers.come();
        }
    }

    /// Removes an end that [`Self::come`] has added with the same `reads` and `writes`. Returns two
    /// values: whether the end was the last reader, and whether it was the last writer.
    pub fn leave(&self, reads: bool, writes: bool) -> (bool, bool) {
        (
            reads && self.readers.leave(),
            writes && self.writers.leave(),
        )
    }

    /// Returns whether the pipe has a reader now.
    pub fn has_readers(&self) -> bool {
        self.readers.any()
    }

    /// Returns whether the pipe has a writer now.
    pub fn has_writers(&self) -> bool {
        self.writers.any()
    }

    /// Returns the present state of the peers of a caller that opens a FIFO. The peers are the
    /// writers if `reads`, else the readers. The caller then calls [`Self::come`] and waits until
    /// [`Self::met`] returns `true`.
    pub fn look(&self, reads: bool) -> Look {
        let peers = self.peers(reads);
        // The count is read first: a peer that comes between the two reads is seen twice, none is
        // missed.
        let opens = peers.opens();
        Look {
            reads,
            peer: peers.any(),
            opens,
        }
    }

    /// Returns whether a peer was open when [`Self::look`] returned `look`, or has been opened
    /// since. Then the opening of the FIFO is complete. The peer may have closed its end again,
    /// because it may write, read and close before the opener calls this.
    pub fn met(&self, look: &Look) -> bool {
        look.peer || self.peers(look.reads).opens() != look.opens
    }

    fn peers(&self, reads: bool) -> &Side {
        if reads { &self.writers } else { &self.readers }
    }
}

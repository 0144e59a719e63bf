//! Data that a socket holds back: bytes of TCP, or an incomplete message of UDP.

use super::account::Charge;
use super::inbox::{Inbox, Refusal};
use super::queue::Bounds;
use super::segment::Segment;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::socket::address::Endpoint;
use logic::socket::packet::Head;
use machine::arch::clock::Nanos;
use machine::sync::Mutex;

/// Data that a socket holds back.
#[derive(Debug)]
pub(super) struct Held {
    /// Data may be held back.
    any: AtomicBool,
    pub(super) pieces: Mutex<Pieces>,
}

/// An incomplete message of UDP.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) head: Head,
    pub(super) source: Endpoint,
    /// The message goes to the address that the socket is connected to.
    pub(super) connected: bool,
    pub(super) bytes: Vec<u8>,
    /// Charges the memory of the longest message, to which this one may grow.
    pub(super) charge: Charge,
}

/// The data that a socket holds back.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Bytes of TCP that are held back, the oldest first.
    pub(super) segments: VecDeque<Arc<Segment>>,
    /// The number of bytes in `segments`.
    pub(super) bytes: usize,
    /// When the first of `segments` was held back.
    pub(super) since: Option<Nanos>,
    /// Whether the thread `kuncorkd` has the socket in its list.
    pub(super) known: bool,
    /// An incomplete message of UDP that is held back.
    pub(super) message: Option<Box<Message>>,
}

impl Held {
    /// Returns a state in which no data is held back.
    pub(super) const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            pieces: Mutex::new(Pieces {
                segments: VecDeque::new(),
                bytes: 0,
                since: None,
                known: false,
                message: None,
            }),
        }
    }

    /// Returns whether data may be held back.
    #[inline]
    pub(super) fn any(&self) -> bool {
        // Acquire: pairs with the Release in `note`, so bytes that another thread pushed are in the
        // inbox.
        self.any.load(Ordering::Acquire)
    }

    /// Records whether `pieces` has data, for [`Self::any`]. The caller holds the lock of `pieces`.
    pub(super) fn note(&self, pieces: &Pieces) {
        let any = !pieces.segments.is_empty() || pieces.message.is_some();
        self.any.store(any, Ordering::Release);
    }
}

impl Pieces {
    /// Sends all held bytes of TCP to the inbox `peer`. `from` is the number of the sender's own
    /// inbox. Returns the reason if this ended early. After [`Refusal::Memory`] the rest stays
    /// held; after any other reason it is lost.
    pub(super) fn push(&mut self, peer: &Inbox, from: u64) -> Result<(), Refusal> {
        let mut result = Ok(());
        while let Some(segment) = self.segments.pop_front() {
            let length = segment.payload.len();
            match peer.push(segment, from, Bounds::default()) {
                Ok(()) => self.bytes -= length,
                Err((Refusal::Memory, segment)) => {
                    // The queue has room: the segment was just taken out.
                    self.segments.push_front(segment);
                    return Err(Refusal::Memory);
                }
                Err((refusal, segment)) => {
                    drop(segment);
                    self.segments.clear();
                    result = Err(refusal);
                    break;
                }
            }
        }
        self.bytes = 0;
        self.since = None;
        result
    }
}

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

/// The sent data that a socket holds back, with a flag that says whether there may be any.
#[derive(Debug)]
pub(super) struct Held {
    /// Whether `pieces` may have data. Read without the lock.
    any: AtomicBool,
    /// The data.
    pub(super) pieces: Mutex<Pieces>,
}

/// A UDP message that the program has not completed yet (`MSG_MORE`, `UDP_CORK`).
#[derive(Debug)]
pub(super) struct Message {
    /// The header fields of the message.
    pub(super) head: Head,
    /// The address and port from which the message is sent.
    pub(super) source: Endpoint,
    /// Whether the message goes to the address that the socket is connected to.
    pub(super) connected: bool,
    /// The bytes of the message so far.
    pub(super) bytes: Vec<u8>,
    /// The charge for the memory of a message of the largest size, so that this one can grow.
    pub(super) charge: Charge,
}

/// The sent data that a socket holds back, under the lock of [`Held`].
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Bytes of TCP that are held back, the oldest first.
    pub(super) segments: VecDeque<Arc<Segment>>,
    /// The number of bytes in all of `segments`.
    pub(super) bytes: usize,
    /// The time at which the first of `segments` was held back. `None` if there is none.
    pub(super) since: Option<Nanos>,
    /// Whether the thread `kuncorkd` has the socket in its list.
    pub(super) known: bool,
    /// The UDP message that is held back, if any.
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
    /// inbox.
    ///
    /// # Errors
    /// Fails with the reason if `peer` refuses a segment. After [`Refusal::Memory`] the bytes not
    /// yet sent stay held. After any other reason they are lost.
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

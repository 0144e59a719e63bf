//! What a socket holds back: bytes of TCP, or a message of UDP that is not complete.

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

/// What a socket holds back.
#[derive(Debug)]
pub(super) struct Held {
    /// Something may be held back.
    any: AtomicBool,
    pub(super) pieces: Mutex<Pieces>,
}

/// A message of UDP that is not complete.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) head: Head,
    pub(super) source: Endpoint,
    /// It goes where the socket is connected to.
    pub(super) connected: bool,
    pub(super) bytes: Vec<u8>,
    /// Keeps the memory of the longest message, which this one may become.
    pub(super) charge: Charge,
}

/// What is held back.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Bytes of TCP.
    pub(super) segments: VecDeque<Arc<Segment>>,
    pub(super) bytes: usize,
    /// Since when the first of them is.
    pub(super) since: Option<Nanos>,
    /// The thread knows of this socket.
    pub(super) known: bool,
    /// A message of UDP.
    pub(super) message: Option<Box<Message>>,
}

impl Held {
    /// Nothing.
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

    /// Whether something may be held back.
    #[inline]
    pub(super) fn any(&self) -> bool {
        // Acquire: pairs with the Release in `note`; what another thread pushed is in the inbox.
        self.any.load(Ordering::Acquire)
    }

    /// Notes whether something is held back, with the pieces locked.
    pub(super) fn note(&self, pieces: &Pieces) {
        let any = !pieces.segments.is_empty() || pieces.message.is_some();
        self.any.store(any, Ordering::Release);
    }
}

impl Pieces {
    /// Sends all bytes of TCP to `peer`, from the owner of the inbox `from`. Returns why this ended
    /// early; the rest stays held if memory was short, and is lost otherwise.
    pub(super) fn push(&mut self, peer: &Inbox, from: u64) -> Result<(), Refusal> {
        let mut result = Ok(());
        while let Some(segment) = self.segments.pop_front() {
            let length = segment.payload.len();
            match peer.push(segment, from, Bounds::default()) {
                Ok(()) => self.bytes -= length,
                Err((Refusal::Memory, segment)) => {
                    // There is room: it was just taken out.
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

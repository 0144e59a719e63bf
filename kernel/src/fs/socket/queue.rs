//! The segments of an inbox, how much of them was received, and the urgent byte of a stream.

use super::segment::Segment;
use crate::fs::poll::Notifier;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::Errno;

/// The urgent byte of a stream.
#[derive(Copy, Clone, Debug)]
pub(super) struct Urgent {
    /// Its place in the stream.
    pub(super) at: u64,
    /// It, until it is received by itself (`MSG_OOB`).
    pub(super) byte: Option<u8>,
}

/// How far the urgent byte of a stream is.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mark {
    /// Bytes in front of it: no call receives more than these. `usize::MAX`: there is none.
    pub(super) before: usize,
    /// It is not received with others.
    pub(super) apart: bool,
}

/// What an inbox holds and knows.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) segments: VecDeque<Arc<Segment>>,
    /// Bytes of a stream that were received or passed over.
    pub(super) gone: u64,
    /// The last one, until it is passed.
    pub(super) urgent: Option<Urgent>,
    /// Next bytes that are passed over: they were urgent and next when another urgent one came.
    pub(super) skipped: usize,
    /// `SO_OOBINLINE`: it is received with the others.
    pub(super) urgent_inline: bool,
    /// Bytes of the first that were received already.
    pub(super) head: usize,
    /// Bytes that were not.
    pub(super) bytes: usize,
    /// Memory of all segments.
    pub(super) memory: usize,
    /// Nobody will send any more: the peer has stopped writing, or is gone, or the owner has shut it.
    pub(super) ended: bool,
    /// The peer will not.
    pub(super) peer_ended: bool,
    /// It said so by itself, over TCP, before any error: that is what a receiver finds, then.
    pub(super) finished: bool,
    /// The owner has stopped writing.
    pub(super) owner_ended: bool,
    /// The owner has shut it.
    pub(super) shut: bool,
    /// The owner is gone.
    pub(super) closed: bool,
    /// The connection was reset.
    pub(super) reset: bool,
    pub(super) error: Option<Errno>,
    /// The inbox of the only one that may send messages: the owner is connected to it.
    pub(super) only_from: Option<u64>,
    /// Receivers that wait for more than a first segment.
    pub(super) behind: usize,
    /// Who found it full and wants to know when it is not.
    pub(super) waiting: Vec<Arc<Notifier>>,
}

/// What an inbox takes.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Bounds {
    /// Not more messages than this and one.
    pub(super) messages: Option<usize>,
    /// Not more memory than this.
    pub(super) memory: Option<usize>,
}

impl Queue {
    /// Passes bytes of the first segment; with the last of them it goes, to be dropped without a
    /// lock.
    pub(super) fn advance(&mut self, count: usize) -> Option<Arc<Segment>> {
        self.bytes -= count;
        self.head += count;
        self.gone += count as u64;
        if self.urgent.is_some_and(|urgent| urgent.at < self.gone) {
            self.urgent = None;
        }
        self.skipped = self.skipped.saturating_sub(count);
        if self.head < self.segments.front()?.payload.len() {
            return None;
        }
        self.head = 0;
        let gone = self.segments.pop_front()?;
        self.memory -= gone.charge.bytes();
        Some(gone)
    }

    /// A byte at this place of the stream is the urgent one from now on. One that was next stays apart, and
    /// others become as the rest.
    pub(super) fn set_urgent(&mut self, at: u64, byte: u8) {
        if self.is_at_urgent() && !self.urgent_inline {
            self.skipped += 1;
        }
        let byte = Some(byte);
        self.urgent = Some(Urgent { at, byte });
    }

    /// How far the urgent byte is behind `peeked` ones.
    pub(super) fn mark(&self, peeked: usize) -> Mark {
        if peeked < self.skipped {
            return Mark {
                before: 0,
                apart: true,
            };
        }
        let next = self.gone + peeked as u64;
        let before = self.urgent.and_then(|urgent| urgent.at.checked_sub(next));
        Mark {
            before: before.map_or(usize::MAX, |before| {
                usize::try_from(before).unwrap_or(usize::MAX)
            }),
            apart: !self.urgent_inline,
        }
    }

    pub(super) fn is_at_urgent(&self) -> bool {
        self.urgent.is_some_and(|urgent| urgent.at == self.next())
    }

    /// The place of the next byte that is not passed over.
    pub(super) fn next(&self) -> u64 {
        self.gone + self.skipped as u64
    }

    /// How many of the next bytes are not received with others.
    pub(super) fn apart(&self) -> usize {
        self.skipped + usize::from(self.is_at_urgent() && !self.urgent_inline)
    }

    /// There is nothing but bytes that are not received with others.
    pub(super) fn has_only_urgent(&self) -> bool {
        let apart = self.apart();
        apart > 0 && apart == self.bytes
    }

    pub(super) fn is_full(&self, bounds: Bounds) -> bool {
        bounds
            .messages
            .is_some_and(|most| self.segments.len() > most)
            || bounds.memory.is_some_and(|most| self.memory > most)
    }
}

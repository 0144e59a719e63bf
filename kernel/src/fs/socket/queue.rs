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
    /// The position of the byte in the stream, counted from 0.
    pub(super) at: u64,
    /// The value of the byte. `None` once it was received alone (`MSG_OOB`).
    pub(super) byte: Option<u8>,
}

/// The distance to the urgent byte of a stream.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mark {
    /// The number of bytes before the urgent byte, which is the most that one call receives.
    /// `usize::MAX` if there is no urgent byte.
    pub(super) before: usize,
    /// Whether the urgent byte is received alone (`MSG_OOB`), not with the other bytes.
    pub(super) apart: bool,
}

/// The contents and the state of an inbox. The receiver is the socket that the inbox belongs to.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The data to receive, oldest first.
    pub(super) segments: VecDeque<Arc<Segment>>,
    /// The number of bytes of the stream that were received or skipped.
    pub(super) gone: u64,
    /// The latest urgent byte. `None` if there was none, or once the reader has passed it.
    pub(super) urgent: Option<Urgent>,
    /// The number of bytes that the next calls skip, at the front of the queue. Each was the urgent
    /// byte, and the next to receive, when a later byte became the urgent one.
    pub(super) skipped: usize,
    /// `SO_OOBINLINE`: the urgent byte is received with the others.
    pub(super) urgent_inline: bool,
    /// The number of bytes of the first segment that were received already.
    pub(super) head: usize,
    /// The number of bytes in all segments that were not received yet.
    pub(super) bytes: usize,
    /// The memory that is charged for all segments, in bytes.
    pub(super) memory: usize,
    /// No more data comes: the peer has stopped writing or is gone, or the receiver has shut the
    /// inbox.
    pub(super) ended: bool,
    /// The peer has stopped writing or is gone.
    pub(super) peer_ended: bool,
    /// The peer ended a stream of TCP in order, before any error. A receiver then finds the end,
    /// not an error.
    pub(super) finished: bool,
    /// The receiver itself has stopped writing.
    pub(super) owner_ended: bool,
    /// The receiver has shut the inbox for senders.
    pub(super) shut: bool,
    /// The receiver is gone.
    pub(super) closed: bool,
    /// The connection was reset.
    pub(super) reset: bool,
    /// The pending error, which the receiver's next call returns. `None` if there is none.
    pub(super) error: Option<Errno>,
    /// The number of the inbox of the only socket that may send data here, because it is connected
    /// to the receiver. `None` admits all senders.
    pub(super) only_from: Option<u64>,
    /// The number of receivers that wait for a further segment behind segments that they have
    /// peeked at.
    pub(super) behind: usize,
    /// Notifiers of senders that found the inbox full and wait for room.
    pub(super) waiting: Vec<Arc<Notifier>>,
}

/// The limits of an inbox.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Bounds {
    /// The largest number of messages with which the inbox still takes another one. `None` for no
    /// limit.
    pub(super) messages: Option<usize>,
    /// The largest number of charged bytes with which the inbox still takes another message. `None`
    /// for no limit.
    pub(super) memory: Option<usize>,
}

impl Queue {
    /// Removes `count` bytes from the first segment. Returns the segment if no bytes of it are
    /// left, else `None`. The caller drops the segment without a lock.
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

    /// Makes `byte`, at the position `at` of the stream, the urgent byte. If the old urgent byte
    /// was the next to receive and `SO_OOBINLINE` is not set, it will be skipped. Otherwise it
    /// becomes a normal byte.
    pub(super) fn set_urgent(&mut self, at: u64, byte: u8) {
        if self.is_at_urgent() && !self.urgent_inline {
            self.skipped += 1;
        }
        let byte = Some(byte);
        self.urgent = Some(Urgent { at, byte });
    }

    /// Returns the distance to the urgent byte for a receiver that has already peeked at `peeked`
    /// bytes.
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

    /// Returns whether the next byte to receive is the urgent one.
    pub(super) fn is_at_urgent(&self) -> bool {
        self.urgent.is_some_and(|urgent| urgent.at == self.next())
    }

    /// Returns the position in the stream of the next byte to receive. Bytes that are skipped lie
    /// before it.
    pub(super) fn next(&self) -> u64 {
        self.gone + self.skipped as u64
    }

    /// Returns the number of next bytes that a call skips: those in `skipped`, and an urgent byte
    /// that is received alone.
    pub(super) fn apart(&self) -> usize {
        self.skipped + usize::from(self.is_at_urgent() && !self.urgent_inline)
    }

    /// Returns whether the queue has bytes, but none that can be received with others.
    pub(super) fn has_only_urgent(&self) -> bool {
        let apart = self.apart();
        apart > 0 && apart == self.bytes
    }

    /// Returns whether the queue has more messages or uses more memory than `bounds` allow.
    pub(super) fn is_full(&self, bounds: Bounds) -> bool {
        bounds
            .messages
            .is_some_and(|most| self.segments.len() > most)
            || bounds.memory.is_some_and(|most| self.memory > most)
    }
}

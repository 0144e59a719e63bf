//! A POSIX message queue: messages by priority, and the callers that wait to send or receive.
//!
//! Waiting callers are ordered by nice value, then by arrival. A message goes straight to a waiting
//! receiver, and a waiting sender gets a place as soon as there is one. Nothing here blocks: the
//! caller keeps the queue under a lock and puts waiting tasks to sleep.

use crate::message_queue::{Message, Party};
use alloc::collections::BTreeMap;
use core::cmp::Reverse;

/// A queue of messages with contents of type `B`. The type of a message is its priority. `P`
/// represents a caller that waits.
#[derive(Debug)]
pub struct PriorityQueue<B, P> {
    /// The highest priority first, then in the order of arrival.
    messages: BTreeMap<(Reverse<i64>, u64), Message<B>>,
    bytes: usize,
    most_messages: usize,
    receivers: BTreeMap<Place, P>,
    senders: BTreeMap<Place, (P, Message<B>)>,
    next: u64,
}

/// The place of a waiting caller: its nice value, then its ticket.
pub type Place = (i32, u64);

/// The effect of sending a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The message went to a waiting receiver.
    Received,
    /// The message is in the queue, which was empty before.
    First,
    /// The message is in the queue, which already had messages.
    Kept,
}

impl<B, P: Party<B>> PriorityQueue<B, P> {
    /// Returns an empty queue for at most `most_messages` messages.
    pub const fn new(most_messages: usize) -> Self {
        Self {
            messages: BTreeMap::new(),
            bytes: 0,
            most_messages,
            receivers: BTreeMap::new(),
            senders: BTreeMap::new(),
            next: 0,
        }
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns whether there is no room for another message.
    pub fn is_full(&self) -> bool {
        self.len() >= self.most_messages
    }

    /// Returns the number of bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn keep(&mut self, message: Message<B>) {
        let at = self.ticket();
        self.bytes += message.bytes;
        self.messages.insert((Reverse(message.kind), at), message);
    }

    /// Sends `message` to the first waiting receiver, or adds it to the queue if no receiver waits.
    /// Returns what happened to it.
    ///
    /// # Errors
    /// `message` itself, if the queue is full and the sender has to wait.
    pub fn send(&mut self, message: Message<B>) -> Result<Sent, Message<B>> {
        if self.is_full() {
            return Err(message);
        }
        if let Some((_, receiver)) = self.receivers.pop_first() {
            receiver.received(Ok(message));
            return Ok(Sent::Received);
        }
        let first = self.is_empty();
        self.keep(message);
        Ok(if first { Sent::First } else { Sent::Kept })
    }

    /// Removes and returns the oldest message of the highest priority. Returns `None` if there is
    /// no message. If senders wait, the message of the first one is added to the queue in its
    /// place.
    pub fn receive(&mut self) -> Option<Message<B>> {
        let (_, message) = self.messages.pop_first()?;
        self.bytes -= message.bytes;
        if let Some((_, (sender, waiting))) = self.senders.pop_first() {
            self.keep(waiting);
            sender.sent(Ok(()));
        }
        Some(message)
    }

    /// Adds a receiver that waits for a message. `nice` is its nice value, and `party` receives the
    /// result. Returns its place for [`Self::cancel_receive`].
    pub fn wait_to_receive(&mut self, nice: i32, party: P) -> Place {
        let place = (nice, self.ticket());
        self.receivers.insert(place, party);
        place
    }

    /// Adds a sender that waits until there is room for `message`. `nice` is its nice value, and
    /// `party` receives the result. Returns its place for [`Self::cancel_send`].
    pub fn wait_to_send(&mut self, nice: i32, message: Message<B>, party: P) -> Place {
        let place = (nice, self.ticket());
        self.senders.insert(place, (party, message));
        place
    }

    /// Removes the waiting receiver at `place` and returns its party. Returns `None` if it no
    /// longer waits.
    pub fn cancel_receive(&mut self, place: Place) -> Option<P> {
        self.receivers.remove(&place)
    }

    /// Removes the waiting sender at `place`, and returns its party and its message. The caller
    /// must drop the message without the lock. Returns `None` if the sender no longer waits.
    pub fn cancel_send(&mut self, place: Place) -> Option<(P, Message<B>)> {
        self.senders.remove(&place)
    }
}

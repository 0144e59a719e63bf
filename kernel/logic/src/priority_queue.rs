//! A POSIX message queue: messages by priority, and who waits to send and to receive.
//!
//! Who waits goes by nice value, then by who came first. A message goes straight to a receiver that
//! waits, and a sender that waits gets a place as soon as there is one. Nothing here blocks: who calls
//! keeps the queue under a lock and puts callers to sleep.

use crate::message_queue::{Message, Party};
use alloc::collections::BTreeMap;
use core::cmp::Reverse;

/// A queue of messages with bodies `B`, whose type is their priority; `P` stands for a caller that
/// waits.
#[derive(Debug)]
pub struct PriorityQueue<B, P> {
    /// The highest priority first, then by who came first.
    messages: BTreeMap<(Reverse<i64>, u64), Message<B>>,
    bytes: usize,
    most_messages: usize,
    receivers: BTreeMap<Place, P>,
    senders: BTreeMap<Place, (P, Message<B>)>,
    next: u64,
}

/// The place of a caller that waits: its nice value, then when it came.
pub type Place = (i32, u64);

/// Where a message went that was sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// To a receiver that waited.
    Received,
    /// Into the queue, which had none.
    First,
    /// Into the queue.
    Kept,
}

impl<B, P: Party<B>> PriorityQueue<B, P> {
    /// An empty queue for so many messages.
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

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether there is room for no more.
    pub fn is_full(&self) -> bool {
        self.len() >= self.most_messages
    }

    /// Bytes of all messages.
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

    /// Sends a message.
    ///
    /// # Errors
    /// The message, if it has to wait.
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

    /// Receives the first message of the highest priority, if there is one. A sender that waits gets
    /// the place.
    pub fn receive(&mut self) -> Option<Message<B>> {
        let (_, message) = self.messages.pop_first()?;
        self.bytes -= message.bytes;
        if let Some((_, (sender, waiting))) = self.senders.pop_first() {
            self.keep(waiting);
            sender.sent(Ok(()));
        }
        Some(message)
    }

    /// Enters a receiver that waits; gives its place.
    pub fn wait_to_receive(&mut self, nice: i32, party: P) -> Place {
        let place = (nice, self.ticket());
        self.receivers.insert(place, party);
        place
    }

    /// Enters a sender that waits with its message; gives its place.
    pub fn wait_to_send(&mut self, nice: i32, message: Message<B>, party: P) -> Place {
        let place = (nice, self.ticket());
        self.senders.insert(place, (party, message));
        place
    }

    /// Takes a receiver out; `None` if it waits no more.
    pub fn cancel_receive(&mut self, place: Place) -> Option<P> {
        self.receivers.remove(&place)
    }

    /// Takes a sender out, and its message, to be dropped without the lock; `None` if it waits no more.
    pub fn cancel_send(&mut self, place: Place) -> Option<(P, Message<B>)> {
        self.senders.remove(&place)
    }
}

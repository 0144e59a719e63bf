//! A System V message queue: messages by order and type, and the callers that wait to send or
//! receive.
//!
//! A message goes straight to a receiver that waits for it. Nothing here blocks: the caller keeps
//! the queue under a lock and puts waiting tasks to sleep.

use crate::errno::Errno;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

/// A message with contents of type `B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<B> {
    /// The message's type, 1 or more.
    pub kind: i64,
    /// The size of the message in bytes, which counts towards the limit of the queue.
    pub bytes: usize,
    /// The contents.
    pub body: B,
}

/// The messages that a receiver accepts. The receiver takes the first of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All messages.
    Any,
    /// Messages of this type.
    Only(i64),
    /// Messages of every other type.
    Not(i64),
    /// Messages of the lowest type, if it is at most this.
    Lowest(i64),
}

impl Wanted {
    /// Returns the messages that `msgrcv(2)` with the type `kind` accepts. `except` says whether
    /// `MSG_EXCEPT` is set.
    pub fn new(kind: i64, except: bool) -> Self {
        match kind {
            0 => Self::Any,
            // The lowest number cannot be negated.
            ..0 => Self::Lowest(kind.checked_neg().unwrap_or(i64::MAX)),
            _ if except => Self::Not(kind),
            _ => Self::Only(kind),
        }
    }

    fn takes(self, kind: i64) -> bool {
        match self {
            Self::Any => true,
            Self::Only(only) => kind == only,
            Self::Not(not) => kind != not,
            Self::Lowest(most) => kind <= most,
        }
    }
}

/// How a receiver takes a message.
#[derive(Copy, Clone, Debug)]
pub struct Taking {
    /// The messages that the receiver accepts.
    pub wanted: Wanted,
    /// The size of the receiver's buffer in bytes.
    pub room: usize,
    /// `MSG_NOERROR`: a message larger than the buffer is truncated.
    pub truncates: bool,
}

impl Taking {
    /// Checks whether the receiver takes a message of `bytes` bytes.
    ///
    /// # Errors
    /// `E2BIG` if the message is larger than the buffer and must not be truncated.
    pub fn check(&self, bytes: usize) -> Result<(), Errno> {
        if bytes > self.room && !self.truncates {
            return Err(Errno::E2BIG);
        }
        Ok(())
    }
}

/// The process that last sent or received a message, and when.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The process ID, or 0 if there was none yet.
    pub pid: u32,
    /// Seconds since 1970, or 0 if there was no call yet.
    pub seconds: i64,
}

/// A caller that waits to send or to receive. When its wait ends, one of its methods is called,
/// with the lock of the queue held.
pub trait Party<B> {
    /// Ends the wait of a receiver with `result`: its message, or the error that ends the wait.
    fn received(self, result: Result<Message<B>, Errno>);
    /// Ends the wait of a sender with `result`: its message was sent, or the error that ends the
    /// wait.
    fn sent(self, result: Result<(), Errno>);
}

#[derive(Debug)]
struct Receiver<P> {
    taking: Taking,
    pid: u32,
    party: P,
}

#[derive(Debug)]
struct Sender<B, P> {
    message: Message<B>,
    pid: u32,
    party: P,
}

/// A queue of messages with bodies `B`. `P` represents a caller that waits.
#[derive(Debug)]
pub struct Queue<B, P> {
    /// In the order of their arrival.
    messages: BTreeMap<u64, Message<B>>,
    by_kind: BTreeSet<(i64, u64)>,
    bytes: usize,
    most_bytes: usize,
    receivers: BTreeMap<u64, Receiver<P>>,
    senders: BTreeMap<u64, Sender<B, P>>,
    next: u64,
    /// The last sender and its time.
    pub sent: Mark,
    /// The last receiver and its time.
    pub received: Mark,
}

impl<B, P: Party<B>> Queue<B, P> {
    /// Returns an empty queue for at most `most_bytes` bytes and at most `most_bytes` messages.
    pub const fn new(most_bytes: usize) -> Self {
        Self {
            messages: BTreeMap::new(),
            by_kind: BTreeSet::new(),
            bytes: 0,
            most_bytes,
            receivers: BTreeMap::new(),
            senders: BTreeMap::new(),
            next: 0,
            sent: Mark { pid: 0, seconds: 0 },
            received: Mark { pid: 0, seconds: 0 },
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

    /// Returns the number of bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the limit for the number of bytes, and for the number of messages.
    pub fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    fn fits(&self, bytes: usize) -> bool {
        let sum = self.bytes.checked_add(bytes);
        sum.is_some_and(|sum| sum <= self.most_bytes) && self.len() < self.most_bytes
    }

    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Sends `message` to the first receiver that waits for it, or adds it to the queue. A receiver
    /// whose buffer is too small gets `E2BIG`, and the next one is tried. `by` has the sender and
    /// the time.
    ///
    /// # Errors
    /// `message` itself, if it does not fit the queue now and the sender has to wait.
    pub fn send(&mut self, message: Message<B>, by: Mark) -> Result<(), Message<B>> {
        if !self.fits(message.bytes) {
            return Err(message);
        }
        self.put(message, by);
        Ok(())
    }

    /// Hands `message` to the first receiver that waits for it and has room, or adds it to the
    /// queue if there is none. Receivers without room get `E2BIG`. `by` has the sender and the
    /// time.
    fn put(&mut self, message: Message<B>, by: Mark) {
        self.sent = by;
        // Each iteration removes a receiver, so the loop ends.
        loop {
            let mut waiting = self.receivers.iter();
            let fits = waiting.find(|(_, r)| r.taking.wanted.takes(message.kind));
            let Some((&ticket, _)) = fits else { break };
            let Some(receiver) = self.receivers.remove(&ticket) else {
                break;
            };
            if let Err(error) = receiver.taking.check(message.bytes) {
                receiver.party.received(Err(error));
                continue;
            }
            self.received = Mark {
                pid: receiver.pid,
                ..by
            };
            receiver.party.received(Ok(message));
            return;
        }
        let at = self.ticket();
        self.bytes += message.bytes;
        self.by_kind.insert((message.kind, at));
        self.messages.insert(at, message);
    }

    fn find(&self, wanted: Wanted) -> Option<u64> {
        let lowest = |from, to| {
            let mut range = self.by_kind.range((from, u64::MIN)..=(to, u64::MAX));
            range.next().map(|&(_, at)| at)
        };
        match wanted {
            Wanted::Any => self.messages.keys().next().copied(),
            Wanted::Only(kind) => lowest(kind, kind),
            Wanted::Lowest(most) => lowest(i64::MIN, most),
            Wanted::Not(_) => {
                let mut all = self.messages.iter();
                let found = all.find(|(_, message)| wanted.takes(message.kind));
                found.map(|(&at, _)| at)
            }
        }
    }

    /// Removes the first message that `taking` accepts and returns it, or returns `None` if there
    /// is none. `by` has the receiver and the time. Messages of waiting senders that fit now are
    /// sent.
    ///
    /// # Errors
    /// `E2BIG` if the message is too large for the receiver; it stays.
    pub fn receive(&mut self, taking: Taking, by: Mark) -> Result<Option<Message<B>>, Errno> {
        let Some(at) = self.find(taking.wanted) else {
            return Ok(None);
        };
        taking.check(self.messages.get(&at).map_or(0, |message| message.bytes))?;
        let message = self.messages.remove(&at);
        if let Some(message) = &message {
            self.by_kind.remove(&(message.kind, at));
            self.bytes -= message.bytes;
            self.received = by;
            self.admit(by.seconds);
        }
        Ok(message)
    }

    /// Returns the message that `n` other messages precede in the order of arrival. Returns `None`
    /// if there are no more than `n` messages.
    pub fn peek(&self, n: usize) -> Option<&Message<B>> {
        self.messages.values().nth(n)
    }

    /// Sends the messages of waiting senders that fit now, in the order in which the senders began
    /// to wait. `seconds` is the present time.
    fn admit(&mut self, seconds: i64) {
        let mut passed = Bound::Unbounded;
        // Each iteration sends one message and never goes back to an earlier one, so the loop ends.
        while self.fits(0) {
            let mut behind = self.senders.range((passed, Bound::Unbounded));
            let next = behind.find(|(_, sender)| self.fits(sender.message.bytes));
            let Some((&ticket, _)) = next else { return };
            passed = Bound::Excluded(ticket);
            if let Some(sender) = self.senders.remove(&ticket) {
                let pid = sender.pid;
                self.put(sender.message, Mark { pid, seconds });
                sender.party.sent(Ok(()));
            }
        }
    }

    /// Sets the limit of bytes and of messages to `bytes` (`IPC_SET`) at the time `seconds`.
    /// Messages of waiting senders that fit now are sent. Messages above the limit stay.
    pub fn set_most_bytes(&mut self, bytes: usize, seconds: i64) {
        self.most_bytes = bytes;
        self.admit(seconds);
    }

    /// Adds a receiver that waits for a message as `taking` says. `pid` is its process ID, and
    /// `party` receives the result. Returns its ticket for [`Self::cancel_receive`].
    pub fn wait_to_receive(&mut self, taking: Taking, pid: u32, party: P) -> u64 {
        let ticket = self.ticket();
        let receiver = Receiver { taking, pid, party };
        self.receivers.insert(ticket, receiver);
        ticket
    }

    /// Adds a sender that waits until `message` fits. `pid` is its process ID, and `party` receives
    /// the result. Returns its ticket for [`Self::cancel_send`].
    pub fn wait_to_send(&mut self, message: Message<B>, pid: u32, party: P) -> u64 {
        let ticket = self.ticket();
        let sender = Sender {
            message,
            pid,
            party,
        };
        self.senders.insert(ticket, sender);
        ticket
    }

    /// Removes the waiting receiver with this `ticket`, and returns its party without calling a
    /// method of it. Returns `None` if the receiver no longer waits.
    pub fn cancel_receive(&mut self, ticket: u64) -> Option<P> {
        self.receivers.remove(&ticket).map(|gone| gone.party)
    }

    /// Removes the waiting sender with this `ticket`, and returns its message and its party. The
    /// caller must drop the message without the lock. Returns `None` if the sender no longer waits.
    pub fn cancel_send(&mut self, ticket: u64) -> Option<(Message<B>, P)> {
        let gone = self.senders.remove(&ticket)?;
        Some((gone.message, gone.party))
    }

    /// Ends all waits with `EIDRM`, because the queue is removed.
    pub fn close(&mut self) {
        while let Some((_, gone)) = self.receivers.pop_first() {
            gone.party.received(Err(Errno::EIDRM));
        }
        while let Some((_, gone)) = self.senders.pop_first() {
            gone.party.sent(Err(Errno::EIDRM));
        }
    }
}

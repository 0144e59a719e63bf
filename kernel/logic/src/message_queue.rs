//! A System V message queue: messages by their order and their type, and who waits to send and to
//! receive.
//!
//! A message goes straight to a receiver that waits for it. Nothing here blocks: who calls keeps the
//! queue under a lock and puts callers to sleep.

use crate::errno::Errno;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<B> {
    /// Its type, 1 or more.
    pub kind: i64,
    /// Bytes that it counts for.
    pub bytes: usize,
    /// What it says.
    pub body: B,
}

/// Which message a receiver takes: the first of those.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any.
    Any,
    /// Of this type.
    Only(i64),
    /// Of another type.
    Not(i64),
    /// Of the lowest type, if that is no more than this.
    Lowest(i64),
}

impl Wanted {
    /// What the type given to `msgrcv` means, with or without `MSG_EXCEPT`.
    pub fn new(kind: i64, except: bool) -> Self {
        match kind {
            0 => Self::Any,
            // The lowest number has no opposite.
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
    /// Which.
    pub wanted: Wanted,
    /// Bytes that it has room for.
    pub room: usize,
    /// `MSG_NOERROR`: a larger one is cut.
    pub truncates: bool,
}

impl Taking {
    /// Whether it takes a message of so many bytes.
    ///
    /// # Errors
    /// `E2BIG`: it has no room, and must not cut it.
    pub fn check(&self, bytes: usize) -> Result<(), Errno> {
        if bytes > self.room && !self.truncates {
            return Err(Errno::E2BIG);
        }
        Ok(())
    }
}

/// Who sends or receives, and when: what the queue tells of it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The process; 0: nobody yet.
    pub pid: u32,
    /// Seconds since 1970; 0: never.
    pub seconds: i64,
}

/// A caller that waits. It is told once, under whatever lock the queue is.
pub trait Party<B> {
    /// Its message has come, or it waits in vain.
    fn received(self, result: Result<Message<B>, Errno>);
    /// Its message is on its way, or it waited in vain.
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

/// A queue of messages with bodies `B`; `P` stands for a caller that waits.
#[derive(Debug)]
pub struct Queue<B, P> {
    /// In the order in which they came.
    messages: BTreeMap<u64, Message<B>>,
    by_kind: BTreeSet<(i64, u64)>,
    bytes: usize,
    most_bytes: usize,
    receivers: BTreeMap<u64, Receiver<P>>,
    senders: BTreeMap<u64, Sender<B, P>>,
    next: u64,
    /// The last sender.
    pub sent: Mark,
    /// The last receiver.
    pub received: Mark,
}

impl<B, P: Party<B>> Queue<B, P> {
    /// An empty queue for so many bytes, and so many messages.
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

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Their bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes, and how many messages, it is for.
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

    /// Sends a message.
    ///
    /// # Errors
    /// The message, if it has to wait.
    pub fn send(&mut self, message: Message<B>, by: Mark) -> Result<(), Message<B>> {
        if !self.fits(message.bytes) {
            return Err(message);
        }
        self.put(message, by);
        Ok(())
    }

    /// Hands a message to the first receiver that waits for it, or keeps it.
    fn put(&mut self, message: Message<B>, by: Mark) {
        self.sent = by;
        // Each turn takes a receiver away.
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

    /// Receives a message; `None` if there is none to take. Senders that wait may go on.
    ///
    /// # Errors
    /// `E2BIG`: it is too large, and stays.
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

    /// The message with `n` others before it.
    pub fn peek(&self, n: usize) -> Option<&Message<B>> {
        self.messages.values().nth(n)
    }

    /// Sends what waits and fits now.
    fn admit(&mut self, seconds: i64) {
        let mut passed = Bound::Unbounded;
        // Each turn sends a message or passes one.
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

    /// `IPC_SET`: makes it for so many bytes. Senders that wait may go on; what is too much stays.
    pub fn set_most_bytes(&mut self, bytes: usize, seconds: i64) {
        self.most_bytes = bytes;
        self.admit(seconds);
    }

    /// Enters a receiver that waits; gives its ticket.
    pub fn wait_to_receive(&mut self, taking: Taking, pid: u32, party: P) -> u64 {
        let ticket = self.ticket();
        let receiver = Receiver { taking, pid, party };
        self.receivers.insert(ticket, receiver);
        ticket
    }

    /// Enters a sender that waits with its message; gives its ticket.
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

    /// Takes a receiver out; `None` if it waits no more.
    pub fn cancel_receive(&mut self, ticket: u64) -> Option<P> {
        self.receivers.remove(&ticket).map(|gone| gone.party)
    }

    /// Takes a sender out, and its message, to be dropped without the lock; `None` if it waits no more.
    pub fn cancel_send(&mut self, ticket: u64) -> Option<(Message<B>, P)> {
        let gone = self.senders.remove(&ticket)?;
        Some((gone.message, gone.party))
    }

    /// The queue is removed: all that wait end with `EIDRM`.
    pub fn close(&mut self) {
        while let Some((_, gone)) = self.receivers.pop_first() {
            gone.party.received(Err(Errno::EIDRM));
        }
        while let Some((_, gone)) = self.senders.pop_first() {
            gone.party.sent(Err(Errno::EIDRM));
        }
    }
}

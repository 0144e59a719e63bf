//! A queue of messages: one way of a pair of sockets that keeps message boundaries.

use super::io::{ByteSink, ByteSource};
use super::poll::{Notifier, PollMask};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::sync::SpinLock;

/// What a queue may hold before a sender waits (Linux's `net.core.wmem_default`).
const CAPACITY: usize = 212_992;
/// What each message is charged beside its bytes, so that empty ones are bounded as well.
const OVERHEAD: usize = 512;
/// The longest message; a longer one is `EMSGSIZE`, as on Linux.
const MAX_MESSAGE: usize = CAPACITY - 32;

/// What a receiver got.
#[derive(Copy, Clone, Debug)]
pub struct Received {
    /// Bytes that it took.
    pub count: usize,
    /// Bytes that the message had; what did not fit is lost.
    pub length: usize,
}

#[derive(Debug)]
struct State {
    messages: VecDeque<Box<[u8]>>,
    /// Bytes of all messages.
    bytes: usize,
    has_reader: bool,
    has_writer: bool,
}

impl State {
    fn charge(&self) -> usize {
        self.bytes + self.messages.len() * OVERHEAD
    }

    /// One message may go over the capacity: that is how a long one fits at all, and the bound is
    /// then the capacity and one message.
    fn has_room(&self) -> bool {
        self.charge() < CAPACITY
    }
}

/// A queue of messages with one reading and one writing end.
#[derive(Debug)]
pub struct MessageQueue {
    state: SpinLock<State>,
    notifier: Arc<Notifier>,
}

impl MessageQueue {
    fn receive(&self, to: &mut dyn ByteSink, nonblocking: bool) -> Result<Received, Errno> {
        let message = loop {
            let mut state = self.state.lock();
            if let Some(message) = state.messages.pop_front() {
                state.bytes -= message.len();
                break message;
            }
            let at_end = !state.has_writer;
            drop(state);
            if at_end {
                return Ok(Received {
                    count: 0,
                    length: 0,
                });
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.notifier.queue().wait(|| {
                let state = self.state.lock();
                !state.messages.is_empty() || !state.has_writer
            })?;
        };
        self.notifier.notify(PollMask::WRITABLE);
        let length = message.len();
        let wanted = length.min(to.room());
        let count = to.put(&message[..wanted])?;
        if count < wanted {
            return Err(Errno::EFAULT);
        }
        Ok(Received { count, length })
    }

    fn send(&self, from: &mut dyn ByteSource, nonblocking: bool) -> SysResult {
        let length = from.left();
        if length > MAX_MESSAGE {
            return Err(Errno::EMSGSIZE);
        }
        // Taken before the lock: user memory may fault.
        let mut message = Vec::new();
        message
            .try_reserve_exact(length)
            .map_err(|_| Errno::ENOBUFS)?;
        message.resize(length, 0);
        if from.take(&mut message)? < length {
            return Err(Errno::EFAULT);
        }
        let message = message.into_boxed_slice();
        loop {
            let mut state = self.state.lock();
            // Linux sends `SIGPIPE` for streams alone.
            if !state.has_reader {
                return Err(Errno::EPIPE);
            }
            if state.has_room() {
                state.messages.try_reserve(1).map_err(|_| Errno::ENOBUFS)?;
                state.messages.push_back(message);
                state.bytes += length;
                break;
            }
            drop(state);
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.notifier.queue().wait(|| {
                let state = self.state.lock();
                state.has_room() || !state.has_reader
            })?;
        }
        self.notifier.notify(PollMask::READABLE);
        Ok(length)
    }
}

/// An end of a queue; the queue ends when its writer goes, and takes nothing once its reader went.
#[derive(Debug)]
pub struct MessageEnd {
    queue: Arc<MessageQueue>,
    reads: bool,
}

/// A new queue's reading and writing end, which tells of its changes through `notifier`.
pub fn queue(notifier: &Arc<Notifier>) -> (MessageEnd, MessageEnd) {
    let queue = Arc::new(MessageQueue {
        state: SpinLock::new(State {
            messages: VecDeque::new(),
            bytes: 0,
            has_reader: true,
            has_writer: true,
        }),
        notifier: notifier.clone(),
    });
    let end = |reads| MessageEnd {
        queue: queue.clone(),
        reads,
    };
    (end(true), end(false))
}

impl MessageEnd {
    /// Takes one message; what does not fit of it is lost. A length of 0 may be the end.
    pub fn receive(&self, to: &mut dyn ByteSink, nonblocking: bool) -> Result<Received, Errno> {
        self.queue.receive(to, nonblocking)
    }

    /// Sends everything as one message.
    pub fn send(&self, from: &mut dyn ByteSource, nonblocking: bool) -> SysResult {
        self.queue.send(from, nonblocking)
    }

    /// Bytes that wait to be received (`FIONREAD`).
    pub fn waiting(&self) -> usize {
        self.queue.state.lock().bytes
    }

    /// What this end is ready for, in the terms of a pipe's end.
    pub fn poll(&self) -> PollMask {
        let state = self.queue.state.lock();
        let mut mask = PollMask::empty();
        if self.reads {
            mask.set(PollMask::READABLE, !state.messages.is_empty());
            mask.set(PollMask::HUP, !state.has_writer);
        } else {
            // Not before a good part is free, as on Linux: sender and receiver would take turns
            // message by message.
            mask.set(PollMask::WRITABLE, state.charge() <= CAPACITY / 4);
            mask.set(PollMask::ERR, !state.has_reader);
        }
        mask
    }
}

impl Drop for MessageEnd {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        let (lost, gone) = if self.reads {
            state.has_reader = false;
            state.bytes = 0;
            let lost = core::mem::take(&mut state.messages);
            (lost, PollMask::ERR | PollMask::WRITABLE)
        } else {
            state.has_writer = false;
            (VecDeque::new(), PollMask::HUP | PollMask::READABLE)
        };
        drop(state);
        // Freed outside the lock.
        drop(lost);
        self.queue.notifier.notify(gone);
    }
}

//! The inbox of a socket: a queue of segments to receive, and the state of the senders.

use super::address::Address;
use super::queue::{Bounds, Mark, Queue};
use super::rights::{self, Slot};
use super::segment::Segment;
use crate::fs::OpenFile;
use crate::fs::io::ByteSink;
use crate::fs::owner::Band;
use crate::fs::poll::{Notifier, PollMask};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use logic::errno::{Errno, SysResult};
use logic::socket::control::Credentials;
use logic::socket::packet::Head;
use logic::socket::report::Report;
use machine::arch::clock::Nanos;
use machine::sched;
use machine::sync::{Mutex, SpinGuard, SpinLock, WaitEnd};

/// How long a call waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The call does not wait.
    None,
    /// The call waits until this time, or without a limit if that is `None`.
    Until(Option<Nanos>),
}

impl Patience {
    /// Waits at `notifier` until `ready` returns `true`.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if no wait is allowed or the deadline has passed. Fails with the error
    /// of a signal; a call with a deadline is not restarted.
    pub(super) fn wait(
        self,
        notifier: &Notifier,
        ready: impl FnMut() -> bool + Send,
    ) -> Result<(), Errno> {
        match self {
            Self::None => Err(Errno::EAGAIN),
            Self::Until(None) => Ok(notifier.queue().wait(ready)?),
            Self::Until(Some(deadline)) => match notifier.queue().wait_deadline(ready, deadline) {
                Ok(WaitEnd::Ready) => Ok(()),
                Ok(WaitEnd::TimedOut) => Err(Errno::EAGAIN),
                Err(_) => Err(Errno::EINTR),
            },
        }
    }
}

/// The options of one receiving call.
#[derive(Copy, Clone, Debug)]
pub struct How {
    /// `MSG_PEEK`: the data stays in the inbox.
    pub peek: bool,
    /// Streams: the least number of bytes for which the call waits (`SO_RCVLOWAT`). 0 counts as 1.
    /// With `MSG_WAITALL` it is the size of the buffer.
    pub least: usize,
    /// Whether one call returns the bytes of only one sender, because the receiver has set
    /// `SO_PASSCRED`.
    pub by_sender: bool,
    /// How long to wait.
    pub patience: Patience,
}

/// The result of receiving.
#[derive(Debug, Default)]
pub struct Got {
    /// The number of bytes that were stored in the buffer.
    pub count: usize,
    /// The length of the whole message in bytes. Bytes that did not fit into the buffer are lost.
    pub length: usize,
    /// The sender's address, or `None` if nothing was received.
    pub source: Option<Address>,
    /// The sender's credentials. `None` if nothing was received.
    pub credentials: Option<Credentials>,
    /// The header fields of a received UDP or ICMP packet. `None` for other sockets.
    pub head: Option<Head>,
    /// The wall-clock time since 1970 at which the message was sent, if the receiver has requested
    /// it.
    pub stamp: Option<Nanos>,
    /// The error report, if the message comes from the error queue (`MSG_ERRQUEUE`).
    pub report: Option<Report>,
    /// The open files that were sent with the message (`SCM_RIGHTS`).
    pub files: Vec<Arc<OpenFile>>,
}

/// The reason why an inbox refuses a segment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The receiving socket is gone.
    Closed,
    /// The receiving socket has shut the inbox for senders (`SHUT_RD`).
    Shut,
    /// The inbox has reached its limit ([`Bounds`]).
    Full,
    /// The receiving socket is connected to another socket than the sender.
    Stranger,
    /// Memory for an entry of the queue is short.
    Memory,
}

/// The state of an inbox at one moment.
#[derive(Copy, Clone, Debug)]
pub(super) struct Look {
    /// There are bytes or messages to receive. An urgent byte that is received alone does not
    /// count.
    pub(super) readable: bool,
    /// An urgent byte can be received.
    pub(super) urgent: bool,
    /// No data will follow the data in the inbox.
    pub(super) ended: bool,
    /// The peer has stopped writing or is gone.
    pub(super) peer_ended: bool,
    /// The socket of the inbox has shut it for senders, so the inbox refuses data.
    pub(super) shut: bool,
    /// The connection was reset.
    pub(super) reset: bool,
    /// An error is pending, which the next call on the socket of the inbox returns.
    pub(super) error: bool,
}

/// The inbox of a socket: the data that was sent to the socket and is not received yet. In the
/// comments of its methods, the socket is the one that the inbox belongs to.
#[derive(Debug)]
pub(super) struct Inbox {
    id: u64,
    state: SpinLock<Queue>,
    /// Held by a receiver while it copies, so that the first segment stays first.
    receiving: Mutex<()>,
    /// The number of receivers that wait for bytes of a stream. While it is not 0, arriving bytes
    /// send no signal (`O_ASYNC`).
    awaiting: AtomicUsize,
    /// The properties that the socket wants of segments: bits [`WITH_CREDENTIALS`] and
    /// [`WITH_STAMP`].
    asked: AtomicU8,
    /// The number of messages that were dropped because the inbox was full.
    drops: AtomicU32,
    /// The socket's notifier.
    notifier: Arc<Notifier>,
}

/// A receiver asks for the sender's credentials (`SO_PASSCRED`), or may do so once it is accepted.
pub(super) const WITH_CREDENTIALS: u8 = 1;
/// A receiver asks for the time of sending (`SO_TIMESTAMP` and its like).
pub(super) const WITH_STAMP: u8 = 2;

/// The ID that no inbox has.
const NO_INBOX: u64 = 0;

/// If this number of notifiers wait for room, the inbox drops those of sockets that are gone.
const MANY_WAITING: usize = 64;
/// A receiver of a stream lets other tasks run after this number of segments.
const BREATH: usize = 32;
/// An empty inbox keeps memory for this number of segments at most.
const MANY_SEGMENTS: usize = 64;

impl Inbox {
    /// Returns an empty inbox with a new number. `notifier` is the notifier of the socket that owns
    /// the inbox; it is notified of arriving data, errors and the end.
    pub(super) fn new(notifier: Arc<Notifier>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            // Relaxed: only the number itself matters.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state: SpinLock::new(Queue::default()),
            receiving: Mutex::new(()),
            awaiting: AtomicUsize::new(0),
            asked: AtomicU8::new(0),
            drops: AtomicU32::new(0),
            notifier,
        })
    }

    /// Returns the number that identifies the inbox. No other inbox ever has the same number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns a snapshot of the inbox's state.
    pub(super) fn look(&self) -> Look {
        let state = self.state.lock();
        Look {
            readable: !state.segments.is_empty() && !state.has_only_urgent(),
            urgent: state.urgent.is_some_and(|urgent| urgent.byte.is_some()),
            ended: state.ended,
            peer_ended: state.peer_ended,
            shut: state.shut,
            reset: state.reset,
            error: state.error.is_some(),
        }
    }

    /// Returns whether the connection was reset.
    #[inline]
    pub(super) fn is_reset(&self) -> bool {
        self.state.lock().reset
    }

    /// Returns whether the inbox takes no more data, because the socket is gone or has shut it.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.closed || state.shut
    }

    /// Returns the number of bytes that can be received, and the length in bytes of the first
    /// segment (0 if there is none). In a stream, only bytes before an urgent byte count, unless
    /// `SO_OOBINLINE` is set.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.state.lock();
        let first = state
            .segments
            .front()
            .map_or(0, |first| first.payload.len());
        let all = state.bytes - state.skipped;
        match state.urgent {
            // The bytes in front of the urgent one.
            Some(urgent) if !state.urgent_inline => {
                let before = urgent.at.saturating_sub(state.next());
                (usize::try_from(before).unwrap_or(all), first)
            }
            _ => (all, first),
        }
    }

    /// Returns the memory that is charged for data to be received, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.state.lock().memory
    }

    /// Sets or clears `SO_OOBINLINE`. Wakes the tasks that wait at the socket, because the urgent
    /// byte may be readable now.
    pub(super) fn set_urgent_inline(&self, on: bool) {
        self.state.lock().urgent_inline = on;
        self.notifier.notify(PollMask::READABLE);
    }

    /// Returns whether `SO_OOBINLINE` is set.
    pub(super) fn is_urgent_inline(&self) -> bool {
        self.state.lock().urgent_inline
    }

    /// Returns whether the next byte is the urgent one (`SIOCATMARK`).
    pub(super) fn is_at_urgent(&self) -> bool {
        self.state.lock().is_at_urgent()
    }

    /// Returns the urgent byte of a stream, and marks it as received if `take`. Returns `None` if
    /// there is no urgent byte, if it was received, or if `SO_OOBINLINE` is set.
    pub(super) fn urgent_byte(&self, take: bool) -> Option<u8> {
        let mut state = self.state.lock();
        if state.urgent_inline {
            return None;
        }
        let urgent = state.urgent.as_mut()?;
        let byte = if take {
            urgent.byte.take()
        } else {
            urgent.byte
        };
        let passes = state.skipped > 0;
        drop(state);
        if passes {
            self.drop_skipped();
        }
        byte
    }

    /// Drops bytes that are skipped, unless a receiver is active and skips them itself. So a sender
    /// of nothing but urgent bytes is not charged for them for ever.
    fn drop_skipped(&self) {
        let Some(guard) = self.receiving.try_lock() else {
            return;
        };
        loop {
            let mut state = self.state.lock();
            if state.skipped == 0 || state.closed {
                break;
            }
            let gone = state.advance(1);
            drop(state);
            drop(gone);
        }
        drop(guard);
    }

    /// Makes the inbox refuse data from all senders except the socket whose inbox has the number
    /// `id`. If `id` is `None`, all senders are admitted.
    pub(super) fn receive_only_from(&self, id: Option<u64>) {
        self.state.lock().only_from = id;
    }

    /// Returns whether the socket is connected to the one whose inbox has the number `id`.
    pub(super) fn receives_only_from(&self, id: u64) -> bool {
        self.state.lock().only_from == Some(id)
    }

    /// Returns whether the inbox admits data from the socket whose inbox has the number `id`.
    pub(super) fn admits(&self, id: u64) -> bool {
        self.state.lock().only_from.is_none_or(|only| only == id)
    }

    /// Appends `segment`, which was sent by the socket whose inbox has the number `from`. Wakes the
    /// tasks that wait for data here, and sends the signals for it. `bounds` are the limits of this
    /// inbox.
    ///
    /// # Errors
    /// Fails with the reason of the refusal, and returns `segment`, which the caller drops without
    /// a lock.
    pub(super) fn push(
        &self,
        segment: Arc<Segment>,
        from: u64,
        bounds: Bounds,
    ) -> Result<(), (Refusal, Arc<Segment>)> {
        let mut state = self.state.lock();
        let refusal = if state.closed {
            Some(Refusal::Closed)
        } else if state.only_from.is_some_and(|only| only != from) {
            Some(Refusal::Stranger)
        } else if state.shut {
            Some(Refusal::Shut)
        } else if state.is_full(bounds) {
            Some(Refusal::Full)
        } else if state.segments.try_reserve(1).is_err() {
            Some(Refusal::Memory)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            drop(state);
            return Err((refusal, segment));
        }
        // A waiting receiver joined the queue before it looked. It saw the inbox empty or without
        // readable bytes, or is counted in `behind`. One that waits for urgent bytes may have seen
        // any others.
        let waited_for = state.segments.is_empty()
            || state.behind > 0
            || state.has_only_urgent()
            || segment.urgent.is_some();
        state.memory += segment.charge.bytes();
        let mut mask = PollMask::READABLE;
        if let Some(byte) = segment.urgent {
            mask |= PollMask::PRI;
            let at = state.gone + state.bytes as u64;
            state.set_urgent(at, byte);
        }
        state.bytes += segment.payload.len();
        state.segments.push_back(segment);
        let passes = state.skipped > 0;
        drop(state);
        if passes {
            self.drop_skipped();
        }
        if waited_for {
            self.notifier.notify(mask);
        } else {
            // An edge-triggered watcher gets an event for every segment.
            self.notifier.notify_watchers(mask);
        }
        if mask.contains(PollMask::PRI) {
            self.notifier.owners().tell_urgent();
        }
        self.signal_arrival(Band::In);
        Ok(())
    }

    /// Returns whether the socket wants the property `what` of segments ([`WITH_CREDENTIALS`] or
    /// [`WITH_STAMP`]).
    #[inline]
    pub(super) fn asks(&self, what: u8) -> bool {
        // Relaxed: an option orders nothing.
        self.asked.load(Ordering::Relaxed) & what != 0
    }

    /// Sets whether the socket wants the property `what` of segments ([`WITH_CREDENTIALS`] or
    /// [`WITH_STAMP`]).
    pub(super) fn ask(&self, what: u8, on: bool) {
        if on {
            self.asked.fetch_or(what, Ordering::Relaxed);
        } else {
            self.asked.fetch_and(!what, Ordering::Relaxed);
        }
    }

    /// Counts a message that was dropped because the inbox was full.
    pub(super) fn count_drop(&self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of messages that were dropped because the inbox was full.
    pub(super) fn drops(&self) -> u32 {
        self.drops.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that have arrived in the stream since it began, read by the
    /// program or not.
    pub(super) fn received(&self) -> u64 {
        let state = self.state.lock();
        state.gone + state.bytes as u64
    }

    /// Makes the last byte that arrived in the inbox the urgent byte, unless it was received
    /// already. Wakes the tasks that wait at the socket, and sends SIGURG, in any case. The sender
    /// calls this if its own urgent byte found no room.
    pub(super) fn mark_last_urgent(&self) {
        let last = self.state.lock().segments.back().cloned();
        // A byte that was received already stays a normal one.
        if let Some(last) = last
            && let Some(byte) = last.payload.last_byte()
        {
            let mut state = self.state.lock();
            let is_last = |one: &Arc<Segment>| Arc::ptr_eq(one, &last);
            if state.segments.back().is_some_and(is_last) {
                let at = state.gone + state.bytes as u64 - 1;
                state.set_urgent(at, byte);
            }
            drop(state);
            self.drop_skipped();
        }
        self.notifier.notify(PollMask::PRI);
        self.notifier.owners().tell_urgent();
    }

    /// Returns whether a sender of messages must wait, because the inbox is full by `bounds`. If
    /// so, `sender`, the notifier of the sending socket, is notified when there is room. Returns
    /// `false` if the inbox is closed or shut, because a send then fails at once.
    pub(super) fn is_full_for(&self, sender: &Arc<Notifier>, bounds: Bounds) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.shut || !state.is_full(bounds) {
            return false;
        }
        let waiting = &mut state.waiting;
        if !waiting.iter().any(|one| Arc::ptr_eq(one, sender)) {
            if waiting.len() >= MANY_WAITING {
                waiting.retain(|one| Arc::strong_count(one) > 1);
            }
            if waiting.try_reserve(1).is_ok() {
                waiting.push(sender.clone());
            }
        }
        true
    }

    /// Sends the signal for data that came, unless a receiver waits for it.
    #[inline]
    fn signal_arrival(&self, band: Band) {
        // SeqCst: a receiver counts itself in `awaiting` before it looks.
        if self.awaiting.load(Ordering::SeqCst) == 0 {
            self.notifier.signal(band);
        }
    }

    /// Records that the socket has stopped writing, so that the end of the peer is a hang-up.
    pub(super) fn note_owner_ended(&self) {
        self.state.lock().owner_ended = true;
    }

    /// Records that the peer of a TCP connection has stopped writing, and wakes the tasks that wait
    /// at the socket. Returns `false` and does nothing if that was recorded before.
    pub(super) fn end_stream(&self) -> bool {
        let both = {
            let state = self.state.lock();
            if state.peer_ended {
                return false;
            }
            state.owner_ended
        };
        self.end_by(None, if both { Band::HangUp } else { Band::In }, true);
        // As on Linux, the end also sends the signal for data.
        self.signal_arrival(Band::In);
        true
    }

    /// Records that the peer has stopped writing or is gone, and wakes the tasks that wait at the
    /// socket. If `error` is given, the next call on the socket fails with it, unless an earlier
    /// error is pending. The signal (`O_ASYNC`) reports the event `band`.
    pub(super) fn end(&self, error: Option<Errno>, band: Band) {
        self.end_by(error, band, false);
    }

    /// Does the work of [`Self::end`]. `finished` says that TCP ended in order.
    fn end_by(&self, error: Option<Errno>, band: Band, finished: bool) {
        let mut state = self.state.lock();
        state.finished |= finished && !state.peer_ended;
        state.ended = true;
        state.peer_ended = true;
        if let Some(error) = error {
            state.error.get_or_insert(error);
        }
        drop(state);
        self.notifier.notify(
            PollMask::READABLE
                | PollMask::HUP
                | PollMask::ERR
                | PollMask::RDHUP
                | PollMask::WRITABLE,
        );
        if band == Band::Error {
            self.notifier.signal(band);
        } else {
            self.signal_arrival(band);
        }
    }

    /// Ends the connection in both directions. The next call on the socket fails with `error`,
    /// unless an earlier error is pending. The signal (`O_ASYNC`) reports the event `band`.
    pub(super) fn reset(&self, error: Errno, band: Band) {
        self.state.lock().reset = true;
        self.end(Some(error), band);
    }

    /// Makes the next call on the socket fail with `error`. Wakes no task: the caller does so
    /// later.
    pub(super) fn put_error(&self, error: Errno) {
        self.state.lock().error = Some(error);
    }

    /// Makes the next call on the socket fail with `error`. Wakes the tasks that wait at the
    /// socket, and sends the signal for an error.
    pub(super) fn set_error(&self, error: Errno) {
        self.put_error(error);
        self.notifier
            .notify(PollMask::ERR | PollMask::READABLE | PollMask::WRITABLE);
        self.notifier.signal(Band::Error);
    }

    /// Returns the pending error and clears it (`SO_ERROR`). Returns `None` if no error is pending.
    pub(super) fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    /// Makes calls that receive return the end of the stream after the data that is in the inbox.
    /// If `refuse`, the inbox also refuses further data. Wakes the tasks that wait at the socket,
    /// and senders that wait for room.
    pub(super) fn shut(&self, refuse: bool) {
        let mut state = self.state.lock();
        state.ended = true;
        state.shut |= refuse;
        drop(state);
        self.tell_of_change();
    }

    /// Wakes the tasks that wait at the socket, because its state has changed, and the senders that
    /// wait for room.
    pub(super) fn tell_of_change(&self) {
        let waiting = core::mem::take(&mut self.state.lock().waiting);
        self.notifier
            .notify(PollMask::READABLE | PollMask::WRITABLE | PollMask::HUP | PollMask::RDHUP);
        for one in waiting {
            one.notify(PollMask::WRITABLE);
        }
    }

    /// Closes the inbox because its socket is dropped, and drops the data in it. Returns whether
    /// there was any data.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state.lock();
        state.closed = true;
        let lost = core::mem::take(&mut state.segments);
        state.bytes = 0;
        state.head = 0;
        state.memory = 0;
        let waiting = core::mem::take(&mut state.waiting);
        drop(state);
        let any = !lost.is_empty();
        drop(lost);
        for one in waiting {
            one.notify(PollMask::WRITABLE);
        }
        any
    }

    /// Empties the inbox, so that its socket can be connected again. The next call on the socket
    /// fails with `error`, if given. The inbox refuses all data until [`Self::readmit`], because
    /// the old peer may not know of the end yet. Returns the segments that were not received, which
    /// the caller drops without a lock.
    #[must_use]
    pub(super) fn renew(&self, error: Option<Errno>) -> Vec<Arc<Segment>> {
        let mut state = self.state.lock();
        let urgent_inline = state.urgent_inline;
        let old = core::mem::take(&mut *state);
        state.urgent_inline = urgent_inline;
        state.error = error;
        state.only_from = Some(NO_INBOX);
        drop(state);
        for one in old.waiting {
            one.notify(PollMask::WRITABLE);
        }
        old.segments.into()
    }

    /// Ends the refusal of data that [`Self::renew`] began: admits data from the socket whose inbox
    /// has the number `id`, and from no other. Does nothing if the refusal has ended already.
    pub(super) fn readmit(&self, id: u64) {
        let mut state = self.state.lock();
        if state.only_from == Some(NO_INBOX) {
            state.only_from = Some(id);
        }
    }

    /// Calls `look` with the descriptor slot of each segment in the inbox. The caller holds the
    /// lock of [`rights::FLIGHTS`].
    pub(super) fn for_each_slot(&self, mut look: impl FnMut(&Slot)) {
        for segment in &self.state.lock().segments {
            look(&segment.rights);
        }
    }

    /// Returns the segment behind the first `passed` segments, how many of its bytes have been
    /// received, and the distance to the next urgent byte after `peeked` bytes. Returns `None` if
    /// there is no such segment.
    fn nth(&self, passed: usize, peeked: usize) -> Option<(Arc<Segment>, usize, Mark)> {
        let state = self.state.lock();
        let segment = state.segments.get(passed)?.clone();
        let head = if passed == 0 { state.head } else { 0 };
        Some((segment, head, state.mark(peeked)))
    }

    /// Skips the next byte if it is received apart from the others. If that was the last byte of
    /// its segment, returns the segment, which the caller drops without a lock.
    #[must_use]
    fn pass_over(&self) -> Option<Arc<Segment>> {
        let mut state = self.state.lock();
        if state.apart() == 0 {
            return None;
        }
        state.advance(1)
    }

    /// Takes `count` bytes of the first segment, or the whole segment if `all`. If that uses the
    /// segment up, returns the segment, which the caller drops without a lock.
    #[must_use]
    fn consume(&self, count: usize, all: bool) -> Option<Arc<Segment>> {
        let mut state = self.state.lock();
        // A concurrent close may have emptied the queue.
        let length = state.segments.front()?.payload.len();
        let count = if all { length - state.head } else { count };
        let gone = state.advance(count)?;
        // The memory of a long queue is freed with its last segment.
        let many = state.segments.is_empty() && state.segments.capacity() > MANY_SEGMENTS;
        if many || !state.waiting.is_empty() {
            Self::finish_consuming(state, many);
        }
        Some(gone)
    }

    /// Wakes senders that wait for room. If `many`, also frees the memory of the queue, which was
    /// long and is empty.
    #[cold]
    fn finish_consuming(mut state: SpinGuard<'_, Queue>, many: bool) {
        let waiting = core::mem::take(&mut state.waiting);
        let memory = many.then(|| core::mem::take(&mut state.segments));
        drop(state);
        drop(memory);
        for one in waiting {
            one.notify(PollMask::WRITABLE);
        }
    }

    /// Returns what a receiver finds behind `passed` segments: an error, the end (`Ok(true)`), or
    /// nothing yet (`Ok(false)`). A segment may have come since the receiver looked.
    fn without_segment(&self, passed: usize) -> Result<bool, Errno> {
        let mut state = self.state.lock();
        if state.segments.len() > passed {
            return Ok(false);
        }
        // As on Linux, an error behind the end stays until a call asks for it.
        if !state.finished
            && let Some(error) = state.error.take()
        {
            return Err(error);
        }
        Ok(state.ended)
    }

    /// Returns how many bytes of the stream were received or skipped.
    fn gone(&self) -> u64 {
        self.state.lock().gone
    }

    /// Waits for a segment behind `passed` others, which begin at the place `begin` of the stream.
    /// Also ends when those others are no longer the first segments, when the stream has ended, and
    /// when there is an error to report. Fails as `Patience::wait` does.
    fn wait(&self, patience: Patience, passed: usize, begin: u64) -> Result<(), Errno> {
        let behind = usize::from(passed > 0);
        if behind > 0 {
            self.state.lock().behind += behind;
        }
        let result = patience.wait(&self.notifier, || {
            let state = self.state.lock();
            let others = passed > 0 && state.gone != begin;
            state.segments.len() > passed || others || state.ended || state.error.is_some()
        });
        if behind > 0 {
            self.state.lock().behind -= behind;
        }
        result
    }

    /// Fills `to` with bytes of a stream if the first segment alone has enough, and has no
    /// descriptors and no urgent byte. Returns the number of bytes. Returns `None` and receives
    /// nothing in other cases, or if another receiver is active: the caller then uses
    /// [`Self::receive_stream`].
    ///
    /// # Errors
    /// Fails with `EFAULT` if `to` is at a bad address.
    #[inline]
    pub(super) fn receive_at_once(&self, to: &mut dyn ByteSink) -> Option<SysResult> {
        let guard = self.receiving.try_lock()?;
        let room = to.room();
        let state = self.state.lock();
        let first = state.segments.front()?;
        let head = state.head;
        let is_simple = first.is_plain()
            && state.urgent.is_none()
            && state.skipped == 0
            && first.payload.len() - head >= room;
        if !is_simple {
            return None;
        }
        let segment = first.clone();
        drop(state);
        let count = match segment.payload.put(head, to, room) {
            Ok(count) => count,
            Err(error) => return Some(Err(error)),
        };
        let gone = self.consume(count, false);
        drop(guard);
        drop(segment);
        drop(gone);
        Some(Ok(count))
    }

    /// Receives bytes of a stream into `to`, as `how` says. A count of 0 in the result means the
    /// end of the stream. A call ends behind a segment that has descriptors, and before an urgent
    /// byte.
    ///
    /// # Errors
    /// Fails with the pending error of the connection, with the error of a signal, with `EAGAIN`
    /// instead of waiting and at the end of the timeout, and with `EFAULT`. If bytes were received
    /// before, returns their number instead.
    pub(super) fn receive_stream(&self, to: &mut dyn ByteSink, how: How) -> Result<Got, Errno> {
        let mut got = Got::default();
        // The number of segments peeked at, of bytes in them, and of bytes peeked at in the next
        // one.
        let mut passed = 0;
        let mut peeked = 0;
        let mut within = 0;
        let mut looked = 0_usize;
        // Why the wait ended. Data that came at the last moment is received all the same, because
        // no signal was sent for it.
        let mut ended = None;
        let mut guard = self.receiving.lock();
        // The place in the stream at which the peeked data begins.
        let mut begin = self.gone();
        loop {
            if how.peek && self.gone() != begin {
                // Another thread has received that data.
                if got.count > 0 {
                    return Ok(got);
                }
                (passed, peeked, within, begin) = (0, 0, 0, self.gone());
            }
            let Some((segment, head, mark)) = self.nth(passed, peeked) else {
                if got.count >= how.least.max(1) {
                    return Ok(got);
                }
                match self.without_segment(passed) {
                    Ok(true) => return Ok(got),
                    Err(error) if got.count == 0 => return Err(error),
                    Err(error) => {
                        // Left for the next call.
                        self.put_error(error);
                        return Ok(got);
                    }
                    Ok(false) => {}
                }
                if matches!(how.patience, Patience::None) {
                    ended = Some(Errno::EAGAIN);
                }
                match ended {
                    Some(error) if got.count == 0 => return Err(error),
                    Some(_) => return Ok(got),
                    None => {}
                }
                drop(guard);
                self.awaiting.fetch_add(1, Ordering::SeqCst);
                ended = self.wait(how.patience, passed, begin).err();
                self.awaiting.fetch_sub(1, Ordering::SeqCst);
                guard = self.receiving.lock();
                continue;
            };
            let differs = got
                .credentials
                .is_some_and(|credentials| credentials != segment.credentials);
            if how.by_sender && differs {
                return Ok(got);
            }
            let head = head + within;
            if mark.before == 0 && got.count > 0 {
                return Ok(got);
            }
            if mark.before == 0 && mark.apart {
                // The byte is skipped.
                if !how.peek {
                    let gone = self.pass_over();
                    drop(segment);
                    drop(gone);
                } else {
                    peeked += 1;
                    within += 1;
                    if head + 1 == segment.payload.len() {
                        passed += 1;
                        within = 0;
                    }
                }
                continue;
            }
            let most = match mark.before {
                // The urgent byte is received with the bytes behind it.
                0 => usize::MAX,
                before => before,
            };
            let count = match segment.payload.put(head, to, most) {
                Ok(count) => count,
                Err(_) if got.count > 0 => return Ok(got),
                Err(error) => return Err(error),
            };
            got.count += count;
            got.length += count;
            got.source.get_or_insert_with(|| segment.source.clone());
            got.credentials.get_or_insert(segment.credentials);
            got.stamp = segment.stamp;
            let has_files = segment.has_rights && rights::any(&segment.rights);
            let whole = head + count == segment.payload.len();
            if how.peek {
                if has_files {
                    got.files = rights::peek(&segment.rights);
                }
                passed += 1;
                peeked += count;
                within = 0;
            } else {
                if has_files {
                    got.files = rights::take(&segment.rights);
                }
                let gone = self.consume(count, false);
                drop(segment);
                drop(gone);
            }
            if has_files || !whole || to.room() == 0 {
                return Ok(got);
            }
            looked += 1;
            if looked.is_multiple_of(BREATH) {
                drop(guard);
                sched::cond_resched();
                if sched::current().killed() {
                    return Ok(got);
                }
                guard = self.receiving.lock();
            }
        }
    }

    /// Receives one message into `to`, as `how` says. A result whose `source` is `None` means the
    /// end: no message will follow.
    ///
    /// # Errors
    /// Fails with the pending error of the socket, with the error of a signal, with `EAGAIN`
    /// instead of waiting and at the end of the timeout, and with `EFAULT`.
    pub(super) fn receive_message(&self, to: &mut dyn ByteSink, how: How) -> Result<Got, Errno> {
        loop {
            let guard = self.receiving.lock();
            if let Some(error) = self.take_error() {
                return Err(error);
            }
            if let Some((segment, _, _)) = self.nth(0, 0) {
                let any = segment.has_rights && rights::any(&segment.rights);
                let files = match (any, how.peek) {
                    (false, _) => Vec::new(),
                    (true, true) => rights::peek(&segment.rights),
                    (true, false) => rights::take(&segment.rights),
                };
                let gone = if how.peek {
                    None
                } else {
                    self.consume(0, true)
                };
                drop(guard);
                let length = segment.payload.len();
                let wanted = length.min(to.room());
                let count = segment.payload.put(0, to, wanted)?;
                if count < wanted {
                    return Err(Errno::EFAULT);
                }
                let source = Some(segment.source.clone());
                let credentials = Some(segment.credentials);
                let (head, stamp) = (segment.head, segment.stamp);
                drop(segment);
                drop(gone);
                return Ok(Got {
                    count,
                    length,
                    source,
                    credentials,
                    head,
                    stamp,
                    report: None,
                    files,
                });
            }
            drop(guard);
            if self.without_segment(0)? {
                return Ok(Got::default());
            }
            self.wait(how.patience, 0, 0)?;
        }
    }
}

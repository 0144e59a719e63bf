//! What a socket holds back: bytes of TCP that are short of a full packet (`TCP_CORK`, `MSG_MORE`),
//! and a message of UDP that is not complete (`UDP_CORK`, `MSG_MORE`).
//!
//! Bytes of TCP go when they fill a packet, when the socket sends without holding back, is uncorked,
//! shut or closed, when there is no room for more, and after [`LONGEST`]. A thread sees to the last.

use super::held::Pieces;
use super::inbox::{Inbox, Refusal};
use super::segment::Segment;
use super::state::{Phase, Socket};
use crate::fs::owner::Band;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sync::{SpinLock, WaitQueue};

/// How long bytes of TCP are held back: what Linux waits before it probes.
const LONGEST: Nanos = Nanos(200_000_000);
/// Bytes of a full packet of TCP over the loopback interface.
const FULL: usize = 32768;

/// The sockets that hold bytes back, each once, and until when; the earliest first.
static LATER: SpinLock<VecDeque<(Nanos, Weak<Socket>)>> = SpinLock::new(VecDeque::new());
/// Where the thread waits for them.
static RELEASER: WaitQueue = WaitQueue::new();

/// Starts the thread.
pub(super) fn start() {
    sched::spawn_kernel("kuncorkd", run);
}

fn run() {
    loop {
        RELEASER.wait_uninterruptible(|| !LATER.lock().is_empty());
        let Some((deadline, socket)) = LATER.lock().pop_front() else {
            continue;
        };
        sched::sleep_until(deadline);
        if let Some(socket) = socket.upgrade() {
            socket.release_in_time();
        }
        sched::cond_resched();
    }
}

/// Has the thread look at a socket at a time. Returns `false` if memory is short.
fn release_at(deadline: Nanos, socket: &Socket) -> bool {
    let entry = (deadline, socket.weak());
    let mut later = LATER.lock();
    if later.try_reserve(1).is_err() {
        drop(later);
        return false;
    }
    later.push_back(entry);
    drop(later);
    RELEASER.wake_one();
    true
}

impl Socket {
    /// Sets `TCP_CORK` or `UDP_CORK`; uncorked, it sends what it held back.
    pub fn set_cork(&self, on: bool) {
        self.settings().cork.set(on);
        if !on {
            self.release_held();
        }
    }

    /// Holds a segment of TCP back, until there are enough bytes for a full packet.
    ///
    /// # Errors
    /// `ENOBUFS`: no memory.
    pub(super) fn hold(&self, segment: Arc<Segment>) -> Result<(), Errno> {
        let mut pieces = self.held.pieces.lock();
        if pieces.segments.try_reserve(1).is_err() {
            drop(pieces);
            return Err(Errno::ENOBUFS);
        }
        pieces.bytes += segment.payload.len();
        // Few bytes join the few before them: what is held stays far below a thousand segments.
        let last = pieces.segments.back_mut().and_then(Arc::get_mut);
        let joined = last.is_some_and(|last| last.payload.append(&segment.payload));
        let joined = if joined {
            Some(segment)
        } else {
            pieces.segments.push_back(segment);
            None
        };
        pieces.since.get_or_insert_with(clock::now);
        self.held.note(&pieces);
        if pieces.bytes >= FULL {
            self.push_held(&mut pieces);
        }
        drop(pieces);
        // Without the lock: its memory is given back.
        drop(joined);
        Ok(())
    }

    /// Has the thread send in time what is held back.
    pub(super) fn release_later(&self) {
        let mut pieces = self.held.pieces.lock();
        let Some(since) = pieces.since else { return };
        if !pieces.known {
            pieces.known = release_at(since.saturating_add(LONGEST), self);
            if !pieces.known {
                self.push_held(&mut pieces);
            }
        }
    }

    /// Sends what is held back.
    pub fn release_held(&self) {
        if !self.held.any() {
            return;
        }
        if self.is_tcp() {
            let mut pieces = self.held.pieces.lock();
            self.push_held(&mut pieces);
        } else {
            // The one who completes a message is told of its errors; as on Linux this is none.
            let _ = self.send_held_message();
        }
    }

    /// Sends what has been held back for long enough.
    fn release_in_time(&self) {
        let mut pieces = self.held.pieces.lock();
        pieces.known = false;
        let Some(since) = pieces.since else { return };
        let deadline = since.saturating_add(LONGEST);
        if clock::now() < deadline {
            // What was held back then has gone, and this came later.
            pieces.known = release_at(deadline, self);
            if pieces.known {
                return;
            }
        }
        self.push_held(&mut pieces);
        if pieces.since.is_some() {
            // Memory is short.
            pieces.known = release_at(clock::now().saturating_add(LONGEST), self);
        }
    }

    /// Sends bytes of TCP that are held back to the other side, if there still is one.
    fn push_held(&self, pieces: &mut Pieces) {
        let peer = {
            let state = self.state.lock();
            match state.phase {
                Phase::Connected { .. } if !self.cannot_send(&state) => state.peer.clone(),
                _ => None,
            }
        };
        let pushed = match &peer {
            Some(peer) => pieces.push(peer, self.inbox.id()),
            None => {
                pieces.segments.clear();
                pieces.bytes = 0;
                pieces.since = None;
                Ok(())
            }
        };
        self.held.note(pieces);
        if pushed == Err(Refusal::Closed) {
            // As for what is sent at once: it is answered by a reset.
            self.inbox.reset(Errno::EPIPE, Band::Error);
        }
    }

    /// Sends what a socket of TCP holds back at its end.
    pub(super) fn release_at_end(&self, peer: &Inbox) {
        if !self.held.any() {
            return;
        }
        let pushed = self.held.pieces.lock().push(peer, self.inbox.id());
        if pushed == Err(Refusal::Memory) {
            peer.reset(Errno::ECONNRESET, Band::Error);
        }
    }
}

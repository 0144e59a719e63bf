//! Sending data that a socket holds back: bytes of TCP that do not fill a packet (`TCP_CORK`,
//! `MSG_MORE`), and an incomplete message of UDP (`UDP_CORK`, `MSG_MORE`).
//!
//! Bytes of TCP are sent on the first of these events:
//! - They fill a packet, or there is no room for more.
//! - The socket sends without holding back, or is uncorked, shut down or closed.
//! - The time [`LONGEST`] has passed. A thread sends them then.

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

/// How long bytes of TCP are held back: Linux's delay before it probes.
const LONGEST: Nanos = Nanos(200_000_000);
/// Bytes of a full packet of TCP over the loopback interface.
const FULL: usize = 32768;

/// The sockets that hold bytes back, with a deadline each, the earliest first. Each is listed once.
static LATER: SpinLock<VecDeque<(Nanos, Weak<Socket>)>> = SpinLock::new(VecDeque::new());
/// Where the thread waits for [`LATER`].
static RELEASER: WaitQueue = WaitQueue::new();

/// Starts the kernel thread that sends held data at its deadline.
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

/// Has the thread send the data of `socket` at `deadline`. Returns `false` if memory is short.
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
    /// Sets `TCP_CORK` or `UDP_CORK`. Turning it off sends the data that was held back.
    pub fn set_cork(&self, on: bool) {
        self.settings().cork.set(on);
        if !on {
            self.release_held();
        }
    }

    /// Holds `segment` of a TCP stream back until the data fills a packet.
    ///
    /// # Errors
    /// Fails with `ENOBUFS` if memory is short.
    pub(super) fn hold(&self, segment: Arc<Segment>) -> Result<(), Errno> {
        let mut pieces = self.held.pieces.lock();
        if pieces.segments.try_reserve(1).is_err() {
            drop(pieces);
            return Err(Errno::ENOBUFS);
        }
        pieces.bytes += segment.payload.len();
        // Few bytes join the few before them, so there are far fewer than a thousand segments.
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
        // Dropped without the lock, because this frees memory.
        drop(joined);
        Ok(())
    }

    /// Makes the kernel thread send the held data at most [`LONGEST`] after it was held back. Sends
    /// the data at once if memory is short. Does nothing if no data is held back.
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

    /// Sends the data that the socket holds back, if any. An error of the message is not reported.
    pub fn release_held(&self) {
        if !self.held.any() {
            return;
        }
        if self.is_tcp() {
            let mut pieces = self.held.pieces.lock();
            self.push_held(&mut pieces);
        } else {
            // As on Linux, this call reports no error of the message. The call that completes a
            // message does.
            let _ = self.send_held_message();
        }
    }

    /// Sends data that has been held back for [`LONGEST`].
    fn release_in_time(&self) {
        let mut pieces = self.held.pieces.lock();
        pieces.known = false;
        let Some(since) = pieces.since else { return };
        let deadline = since.saturating_add(LONGEST);
        if clock::now() < deadline {
            // The data of that time was sent, and this came later.
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

    /// Sends the held bytes of TCP to the other side. Drops them if there is no other side any
    /// more.
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
            // As for data that is sent at once, the answer is a reset.
            self.inbox.reset(Errno::EPIPE, Band::Error);
        }
    }

    /// Sends the held bytes of TCP to `peer` when the socket is dropped. If memory is short, resets
    /// the connection of `peer` instead.
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

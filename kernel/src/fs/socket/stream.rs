//! Sending on streams, of `AF_UNIX` or TCP.

use super::account::{self, NoRoom};
use super::address::Address;
use super::inbox::{Inbox, Patience, Refusal, WITH_CREDENTIALS, WITH_STAMP};
use super::payload::Payload;
use super::queue::Bounds;
use super::rights::Rights;
use super::segment::Segment;
use super::state::{Phase, Socket, caller};
use crate::fs::io::ByteSource;
use crate::fs::owner::Band;
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};
use logic::socket::control::Credentials;
use machine::sched;

/// The memory that a segment takes besides its bytes, its place in the queue included.
pub(super) const OVERHEAD: usize = 512;
/// The most bytes in one segment of a stream.
const LONGEST: usize = 32 << 10;

/// The options of one send call.
#[derive(Copy, Clone, Debug)]
pub(super) struct With {
    /// The credentials that the sender passes with the bytes (`SCM_CREDENTIALS`). `None` if it
    /// passes none.
    pub(super) credentials: Option<Credentials>,
    /// How long the call waits for room.
    pub(super) patience: Patience,
    /// Whether the last byte is urgent (`MSG_OOB`).
    pub(super) urgent: bool,
    /// Whether more data follows (`MSG_MORE`), so that TCP holds the bytes back.
    pub(super) more: bool,
}

impl Socket {
    /// Charges a segment of `length` bytes to this socket. Waits for room as `patience` allows.
    /// Returns the charge.
    ///
    /// # Errors
    /// Fails with `EPIPE` if the socket cannot send any more, and with `ENOBUFS` if memory is
    /// short. Fails with `EAGAIN` instead of waiting, and with the error of a signal.
    pub(super) fn charge(
        &self,
        length: usize,
        patience: Patience,
    ) -> Result<account::Charge, Errno> {
        let bytes = Payload::memory(length) + OVERHEAD;
        loop {
            match account::charge(Some(&self.account), bytes) {
                Ok(charge) => return Ok(charge),
                Err(NoRoom::Memory) => return Err(Errno::ENOBUFS),
                Err(NoRoom::Full) => {}
            }
            self.account.note_lack();
            if self.account.has_room() {
                // Room came before the lack was noted.
                continue;
            }
            patience.wait(&self.notifier, || {
                self.account.has_room() || self.cannot_send(&self.state.lock())
            })?;
            if self.cannot_send(&self.state.lock()) {
                return Err(Errno::EPIPE);
            }
        }
    }

    /// Sends all bytes of `from`, or those for which there is room without waiting. Descriptors are
    /// sent with the first bytes. Returns the number of bytes sent.
    ///
    /// # Errors
    /// Fails as `send(2)` does, and with `BROKEN_PIPE` where Linux sends SIGPIPE.
    pub(super) fn send_stream(
        &self,
        from: &mut dyn ByteSource,
        mut rights: Option<Rights>,
        with: With,
    ) -> SysResult {
        let holds = self.is_tcp() && self.may_hold(with.more);
        if holds && with.urgent {
            self.release_held();
        } else if holds {
            let more = with.more || self.settings().cork.get();
            let result = self.send_pieces(from, &mut rights, with, true);
            if more {
                self.release_later();
            } else {
                self.release_held();
            }
            return result;
        }
        self.send_pieces(from, &mut rights, with, false)
    }

    /// Returns whether new bytes must be held back, or held ones may have to be sent first. `more`
    /// says that more data follows (`MSG_MORE`).
    #[inline]
    fn may_hold(&self, more: bool) -> bool {
        more || self.held.any() || self.settings().cork.get()
    }

    fn send_pieces(
        &self,
        from: &mut dyn ByteSource,
        rights: &mut Option<Rights>,
        with: With,
        hold: bool,
    ) -> SysResult {
        let total = from.left();
        let mut done = 0;
        while done < total {
            match self.send_piece(from, total - done, rights, with, hold) {
                Ok(count) => {
                    done += count;
                    if done == total {
                        break;
                    }
                    sched::cond_resched();
                    if sched::current().killed() {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => {
                    if with.urgent
                        && let Ok((peer, _)) = self.receiver()
                    {
                        peer.mark_last_urgent();
                    }
                    return Ok(done);
                }
                // As on Linux, a pending error comes before the broken pipe.
                Err(Errno::EPIPE) if self.is_tcp() => {
                    return Err(match self.take_error() {
                        None | Some(Errno::EPIPE) => Errno::BROKEN_PIPE,
                        Some(error) => error,
                    });
                }
                Err(Errno::EPIPE) => return Err(Errno::BROKEN_PIPE),
                Err(error) => return Err(error),
            }
        }
        if total == 0 {
            self.receiver()?;
        }
        Ok(done)
    }

    /// Returns the inbox of the peer, and the source address of the bytes that this socket sends.
    /// Fails with `EAGAIN` while the socket is connecting, with `ENOTCONN` if it is not connected,
    /// and with `EPIPE` if it cannot send any more. TCP that was never connected fails with
    /// `EPIPE`, too.
    fn receiver(&self) -> Result<(Arc<Inbox>, Address), Errno> {
        let state = self.state.lock();
        let peer = match state.phase {
            Phase::Connected { .. } => state.peer.clone(),
            Phase::Connecting => return Err(Errno::EAGAIN),
            // TCP that was never connected fails with a broken pipe.
            _ if self.is_tcp() => return Err(Errno::EPIPE),
            _ => None,
        };
        let peer = peer.ok_or(Errno::ENOTCONN)?;
        if self.cannot_send(&state) {
            drop(state);
            return Err(Errno::EPIPE);
        }
        let source = if self.is_unix() {
            state.local.clone()
        } else {
            Address::unbound(self.family())
        };
        Ok((peer, source))
    }

    /// Returns the credentials that the receiver, the owner of the inbox `peer`, gets with a
    /// message. They are `said` if the sender passes some. Otherwise they are the calling process's
    /// if either side has set `SO_PASSCRED`, else [`Credentials::UNTOLD`].
    #[inline]
    pub(super) fn credentials_to(&self, peer: &Inbox, said: Option<Credentials>) -> Credentials {
        match said {
            Some(credentials) => credentials,
            None if peer.asks(WITH_CREDENTIALS) || self.settings().pass_credentials.get() => {
                caller()
            }
            None => Credentials::UNTOLD,
        }
    }

    fn send_piece(
        &self,
        from: &mut dyn ByteSource,
        left: usize,
        rights: &mut Option<Rights>,
        with: With,
        hold: bool,
    ) -> SysResult {
        let With {
            credentials,
            patience,
            ..
        } = with;
        let (peer, source) = self.receiver()?;
        // Two segments fit, so that one is received while the next one is sent.
        let longest = (self.account.limit() / 2).clamp(OVERHEAD, LONGEST + OVERHEAD) - OVERHEAD / 2;
        // An urgent byte is a segment of its own.
        let is_urgent = with.urgent && left == 1;
        let before_urgent = left - usize::from(with.urgent && left > 1);
        let count = before_urgent.min(longest.min(LONGEST));
        if hold && !self.account.has_room() {
            self.release_held();
        }
        let charge = self.charge(count, patience)?;
        let credentials = self.credentials_to(&peer, credentials);
        let mut segment = Segment::take(from, count, source, credentials, charge, rights.take())?;
        if is_urgent && let Some(own) = Arc::get_mut(&mut segment) {
            own.make_urgent();
        }
        if peer.asks(WITH_STAMP)
            && self.is_tcp()
            && let Some(own) = Arc::get_mut(&mut segment)
        {
            own.stamp(true);
        }
        if hold {
            return self.hold(segment).map(|()| count);
        }
        match peer.push(segment, self.inbox.id(), Bounds::default()) {
            Ok(()) => Ok(count),
            Err((Refusal::Memory | Refusal::Full, _)) => Err(Errno::ENOBUFS),
            Err((Refusal::Closed, segment)) if self.is_tcp() => {
                // As on Linux, the first bytes after the peer has gone are sent, and the answer is
                // a reset.
                drop(segment);
                self.inbox.reset(Errno::EPIPE, Band::Error);
                Ok(count)
            }
            Err((Refusal::Closed | Refusal::Shut | Refusal::Stranger, _)) => Err(Errno::EPIPE),
        }
    }
}

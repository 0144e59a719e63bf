//! What lies in an inbox: a message, or a piece of a stream.

use super::account::Charge;
use super::address::Address;
use super::payload::Payload;
use super::rights::{Rights, Slot};
use crate::fs::io::ByteSource;
use alloc::sync::Arc;
use logic::errno::Errno;
use logic::socket::control::Credentials;
use logic::socket::packet::Head;
use machine::arch::clock::{self, Nanos};
use machine::sync::SpinLock;

/// A message, or a piece of a stream.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) payload: Payload,
    /// The name of who sent it.
    pub(super) source: Address,
    pub(super) credentials: Credentials,
    pub(super) rights: Slot,
    /// It was sent with descriptors, whether or not they were received.
    pub(super) has_rights: bool,
    /// Of UDP.
    pub(super) head: Option<Head>,
    /// When it was sent, since 1970, if the receiver asks for that.
    pub(super) stamp: Option<Nanos>,
    /// Of TCP: its only byte, which is urgent.
    pub(super) urgent: Option<u8>,
    pub(super) charge: Charge,
}

impl Segment {
    pub(super) fn new(
        payload: Payload,
        source: Address,
        credentials: Credentials,
        charge: Charge,
    ) -> Self {
        Self {
            payload,
            source,
            credentials,
            rights: SpinLock::new(None),
            has_rights: false,
            head: None,
            stamp: None,
            urgent: None,
            charge,
        }
    }

    /// One of `AF_UNIX` or TCP with the next `length` bytes of `from` and descriptors. User memory
    /// may fault: no lock is held.
    ///
    /// # Errors
    /// Those of [`Payload::take`].
    pub(super) fn take(
        from: &mut dyn ByteSource,
        length: usize,
        source: Address,
        credentials: Credentials,
        charge: Charge,
        rights: Option<Rights>,
    ) -> Result<Arc<Self>, Errno> {
        let few = Payload::few(length);
        let is_few = few.is_some();
        let payload = match few {
            Some(few) => few,
            None => Payload::take(from, length)?,
        };
        let mut segment = Arc::new(Self {
            has_rights: rights.is_some(),
            rights: SpinLock::new(rights),
            ..Self::new(payload, source, credentials, charge)
        });
        if is_few && let Some(own) = Arc::get_mut(&mut segment) {
            // Where they stay, so that they are not moved once more.
            own.payload.fill_few(from)?;
        }
        Ok(segment)
    }

    /// Whether it is bytes of a stream and nothing else.
    pub(super) fn is_plain(&self) -> bool {
        !self.has_rights && self.urgent.is_none()
    }

    /// A message of UDP.
    pub(super) fn with_head(self, head: Head) -> Self {
        Self {
            head: Some(head),
            ..self
        }
    }

    /// Stamps it with the time, if the receiver asks for that.
    pub(super) fn stamp(&mut self, asked: bool) {
        if asked {
            self.stamp = Some(clock::now().saturating_add(clock::realtime_offset()));
        }
    }

    /// Makes it a byte of TCP that is urgent; longer ones are not.
    pub(super) fn make_urgent(&mut self) {
        self.urgent = self.payload.only_byte();
    }
}

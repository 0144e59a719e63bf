//! Segments: the entries of an inbox.

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
    /// The sender's address.
    pub(super) source: Address,
    pub(super) credentials: Credentials,
    pub(super) rights: Slot,
    /// The segment was sent with descriptors, even if they have been received already.
    pub(super) has_rights: bool,
    /// The header fields of a UDP or ICMP packet.
    pub(super) head: Option<Head>,
    /// The time of sending since 1970, if the receiver asked for it.
    pub(super) stamp: Option<Nanos>,
    /// TCP: the only byte of the segment, if it is urgent.
    pub(super) urgent: Option<u8>,
    pub(super) charge: Charge,
}

impl Segment {
    /// Returns a segment with `payload` from the sender with the address `source`. It has no
    /// descriptors, no header fields and no time. `charge` counts its memory.
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

    /// Returns a segment of the next `length` bytes of `from`, with the descriptors in `rights`.
    /// Call this without a lock: user memory may fault.
    ///
    /// # Errors
    /// Fails with the errors of [`Payload::take`].
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
            // Filled in place, which saves copying the bytes once more.
            own.payload.fill_few(from)?;
        }
        Ok(segment)
    }

    /// Returns whether the segment is only bytes of a stream: no descriptors and no urgent byte.
    pub(super) fn is_plain(&self) -> bool {
        !self.has_rights && self.urgent.is_none()
    }

    /// Returns the segment with the header fields `head` of a packet.
    pub(super) fn with_head(self, head: Head) -> Self {
        Self {
            head: Some(head),
            ..self
        }
    }

    /// If `asked` is `true`, stores the present time as the time of sending.
    pub(super) fn stamp(&mut self, asked: bool) {
        if asked {
            self.stamp = Some(clock::now().saturating_add(clock::realtime_offset()));
        }
    }

    /// Makes the byte of a one-byte TCP segment urgent. A longer segment does not change.
    pub(super) fn make_urgent(&mut self) {
        self.urgent = self.payload.only_byte();
    }
}

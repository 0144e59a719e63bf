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

/// A message, or a piece of a stream, on its way to the receiver.
#[derive(Debug)]
pub(super) struct Segment {
    /// The bytes.
    pub(super) payload: Payload,
    /// The sender's address.
    pub(super) source: Address,
    /// The sender's credentials, if the sender or the receiver asked for them.
    pub(super) credentials: Credentials,
    /// The descriptors that were sent with the bytes, until they are received.
    pub(super) rights: Slot,
    /// Whether descriptors were sent with the bytes, received by now or not.
    pub(super) has_rights: bool,
    /// The header fields of a UDP or ICMP packet. `None` for other segments.
    pub(super) head: Option<Head>,
    /// The wall-clock time since 1970 at which the segment was sent, if the receiver had requested
    /// it.
    pub(super) stamp: Option<Nanos>,
    /// TCP: the byte of a segment of one urgent byte. `None` for other segments.
    pub(super) urgent: Option<u8>,
    /// The charge for the segment's memory to the sender's account.
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

    /// Stores the present wall-clock time as the time of sending, if `asked` is `true`.
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

//! What lies in an inbox: a message, or a piece of a stream.

use super::account::Charge;
use super::address::Address;
use super::payload::Payload;
use super::rights::{Rights, Slot};
use logic::socket::control::Credentials;
use logic::socket::packet::Head;
use machine::sync::SpinLock;

/// A message, or a piece of a stream.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) payload: Payload,
    /// The name of who sent it.
    pub(super) source: Address,
    pub(super) credentials: Credentials,
    pub(super) rights: Slot,
    /// Of UDP.
    pub(super) head: Option<Head>,
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
            head: None,
            urgent: None,
            charge,
        }
    }

    /// With descriptors.
    pub(super) fn with_rights(self, rights: Option<Rights>) -> Self {
        Self {
            rights: SpinLock::new(rights),
            ..self
        }
    }

    /// A message of UDP.
    pub(super) fn with_head(self, head: Head) -> Self {
        Self {
            head: Some(head),
            ..self
        }
    }

    /// A byte of TCP that is urgent; longer ones are not.
    pub(super) fn made_urgent(self) -> Self {
        Self {
            urgent: self.payload.only_byte(),
            ..self
        }
    }
}

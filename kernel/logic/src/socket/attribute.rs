//! Attributes in netlink messages (`struct rtattr`).

use alloc::vec::Vec;

/// Appends an attribute of the type `kind` with the contents `data` to `to`, padded to a multiple
/// of 4 bytes.
pub(super) fn attribute(to: &mut Vec<u8>, kind: u16, data: &[u8]) {
    // All attributes are short.
    let length = u16::try_from(4 + data.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(&kind.to_le_bytes());
    to.extend_from_slice(data);
    to.resize(to.len().next_multiple_of(4), 0);
}

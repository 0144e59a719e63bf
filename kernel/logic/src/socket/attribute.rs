//! Attributes behind the messages of netlink (`struct rtattr`).

use alloc::vec::Vec;

/// Adds an attribute, and what fills its last word.
pub(super) fn attribute(to: &mut Vec<u8>, kind: u16, data: &[u8]) {
    // All are short.
    let length = u16::try_from(4 + data.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(&kind.to_le_bytes());
    to.extend_from_slice(data);
    to.resize(to.len().next_multiple_of(4), 0);
}

//! Options of raw ICMP sockets: the types of packets that they do not receive.

use super::value::{Shown, Value};
use crate::fs::socket::{Family, Socket};
use logic::errno::Errno;
use machine::uaccess;

/// `SOL_RAW`.
pub(super) const SOL_RAW: u32 = 255;
/// `ICMP_FILTER`, of `SOL_RAW`, and `ICMPV6_FILTER`, of `IPPROTO_ICMPV6`.
const FILTER: u32 = 1;
/// `IPV6_CHECKSUM`, and the offset of the checksum in an ICMP packet.
const CHECKSUM: u32 = 7;
const CHECKSUM_PLACE: i32 = 2;
/// The sizes of the two filters in bytes.
const FILTER4: usize = 4;
const FILTER6: usize = 32;

/// Returns the size of the filter in bytes if `option` is one for a filter, else `None`.
fn filter_length(socket: &Socket, level: u32, option: u32) -> Option<usize> {
    match (socket.family(), level == SOL_RAW, option) {
        (Family::Inet, true, FILTER) => Some(FILTER4),
        (Family::Inet6, false, FILTER) => Some(FILTER6),
        _ => None,
    }
}

/// Sets an option of a raw socket: the filter of packet types, or the place of the checksum, which
/// cannot be moved. A filter that is too long is cut. A shorter one replaces only the first bytes
/// of the present filter.
///
/// # Errors
/// Fails with `ENOPROTOOPT` for other options and with `EFAULT`. Fails with `EINVAL` for a checksum
/// at another place than that of ICMP, or if its value has less than four bytes.
pub(super) fn set(socket: &Socket, level: u32, option: u32, value: &Value) -> Result<(), Errno> {
    if level == SOL_RAW && option == CHECKSUM && socket.family() == Family::Inet6 {
        // The kernel always writes the checksum of an ICMP packet, at this place.
        return match value.number()? {
            CHECKSUM_PLACE => Ok(()),
            _ => Err(Errno::EINVAL),
        };
    }
    let length = filter_length(socket, level, option).ok_or(Errno::ENOPROTOOPT)?;
    let mut bytes = [0; FILTER6];
    let blocked = &socket.settings().blocked;
    for (word, place) in bytes.chunks_exact_mut(4).zip(blocked) {
        word.copy_from_slice(&place.get().to_le_bytes());
    }
    let count = value.length.min(length);
    uaccess::copy_in(&mut bytes[..count], value.address)?;
    for (word, place) in bytes.chunks_exact(4).zip(blocked) {
        place.set(word.first_chunk().copied().map_or(0, u32::from_le_bytes));
    }
    Ok(())
}

/// Returns the value of an option of a raw socket: the filter of packet types.
///
/// # Errors
/// Fails with `ENOPROTOOPT` for another option.
pub(super) fn get(socket: &Socket, level: u32, option: u32) -> Result<Shown, Errno> {
    let length = filter_length(socket, level, option).ok_or(Errno::ENOPROTOOPT)?;
    let words = socket.settings().blocked.iter().take(length / 4);
    let bytes = words.flat_map(|word| word.get().to_le_bytes());
    Ok(Shown::Bytes(bytes.collect()))
}

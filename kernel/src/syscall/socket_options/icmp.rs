//! Options of raw ICMP sockets: the types of packets that they do not receive.

use super::value::{Shown, Value};
use crate::fs::socket::{Family, Socket};
use crate::vm::uaccess;
use logic::errno::Errno;

/// `SOL_RAW`.
pub(super) const SOL_RAW: u32 = 255;
/// `ICMP_FILTER`, of `SOL_RAW`, and `ICMPV6_FILTER`, of `IPPROTO_ICMPV6`.
const FILTER: u32 = 1;
/// `IPV6_CHECKSUM`, and where a packet of ICMP has it.
const CHECKSUM: u32 = 7;
const CHECKSUM_PLACE: i32 = 2;
/// Bytes of each filter.
const FILTER4: usize = 4;
const FILTER6: usize = 32;

/// The bytes of a filter, if this is the option for one.
fn filter_length(socket: &Socket, level: u32, option: u32) -> Option<usize> {
    match (socket.family(), level == SOL_RAW, option) {
        (Family::Inet, true, FILTER) => Some(FILTER4),
        (Family::Inet6, false, FILTER) => Some(FILTER6),
        _ => None,
    }
}

/// Sets an option of a raw socket. A filter that is longer than Linux's is cut. A shorter filter
/// changes the first types only.
///
/// # Errors
/// Fails with `ENOPROTOOPT` for another option, with `EINVAL`, and with `EFAULT`.
pub(super) fn set(socket: &Socket, level: u32, option: u32, value: &Value) -> Result<(), Errno> {
    if level == SOL_RAW && option == CHECKSUM && socket.family() == Family::Inet6 {
        // The kernel sums packets of ICMP anyway, there and nowhere else.
        return match value.number()? {
            CHECKSUM_PLACE => Ok(()),
            _ => Err(Errno::EINVAL),
        };
    }
    let length = filter_length(socket, level, option).ok_or(Errno::ENOPROTOOPT)?;
    let mut bytes = [0; FILTER6];
    let count = value.length.min(length);
    uaccess::copy_in(&mut bytes[..count], value.address)?;
    let words = bytes[..count].chunks_exact(4);
    for (word, place) in words.zip(&socket.settings().blocked) {
        place.set(word.first_chunk().copied().map_or(0, u32::from_le_bytes));
    }
    Ok(())
}

/// Returns the value of an option of a raw socket.
///
/// # Errors
/// Fails with `ENOPROTOOPT` for another option.
pub(super) fn get(socket: &Socket, level: u32, option: u32) -> Result<Shown, Errno> {
    let length = filter_length(socket, level, option).ok_or(Errno::ENOPROTOOPT)?;
    let words = socket.settings().blocked.iter().take(length / 4);
    let bytes = words.flat_map(|word| word.get().to_le_bytes());
    Ok(Shown::Bytes(bytes.collect()))
}

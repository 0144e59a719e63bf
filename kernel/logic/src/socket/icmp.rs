//! Packets of ICMP (RFC 792, RFC 4443): echo requests, and their replies.

use super::address::Ip;
use alloc::vec::Vec;

/// Size of an ICMP header in bytes. It consists of type, code, checksum, identifier and sequence
/// number.
pub const HEADER: usize = 8;
/// Size of an IPv4 header without options, in bytes.
pub const HEADER4: usize = 20;
/// The protocol number of ICMP in IPv4 packets.
pub const PROTOCOL4: u8 = 1;
/// The protocol number of ICMPv6 in IPv6 packets.
pub const PROTOCOL6: u8 = 58;

/// Types of an echo request and its reply, for IPv4 and IPv6.
const ECHO4: [u8; 2] = [8, 0];
const ECHO6: [u8; 2] = [128, 129];

/// Returns the ones' complement sum of the 16-bit words in `bytes`, added to `from`. An odd last
/// byte counts as a word whose low byte is 0.
fn sum(bytes: &[u8], from: u32) -> u32 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high, ..] => u32::from(high) << 8,
        [] => 0,
    });
    // The sum is folded at each step, so it never exceeds two words.
    words.fold(from, |sum, word| fold(sum + word))
}

fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

/// Returns the checksum of `packet`, an ICMP packet or an IPv4 header, whose checksum field must be
/// 0. For a packet of IPv6, `v6` has the source and the destination address, which the checksum
/// includes.
fn checksum(packet: &[u8], v6: Option<[Ip; 2]>) -> [u8; 2] {
    let mut all = sum(packet, 0);
    if let Some([from, to]) = v6 {
        all = sum(&to.0, sum(&from.0, all));
        let length = u32::try_from(packet.len()).unwrap_or(0);
        all = sum(&length.to_be_bytes(), all);
        all = fold(all + u32::from(PROTOCOL6));
    }
    let folded = u16::try_from(fold(all)).unwrap_or(u16::MAX);
    (!folded).to_be_bytes()
}

/// Stores the checksum of `packet`, an ICMP packet from `from` to `to`, in its header. `packet`
/// must have at least [`HEADER`] bytes.
pub fn seal(packet: &mut [u8], from: Ip, to: Ip) {
    let v6 = from.to_v4().is_none().then_some([from, to]);
    packet[2..4].fill(0);
    let checksum = checksum(packet, v6);
    packet[2..4].copy_from_slice(&checksum);
}

/// Returns whether `packet` is an echo request of IPv6 if `v6`, else of IPv4.
pub fn is_request(packet: &[u8], v6: bool) -> bool {
    let [request, _] = if v6 { ECHO6 } else { ECHO4 };
    packet.len() >= HEADER && packet[..2] == [request, 0]
}

/// Returns the identifier of `packet`, or `None` if it is no echo reply of IPv6 if `v6`, else of
/// IPv4.
pub fn identifier_of_reply(packet: &[u8], v6: bool) -> Option<u16> {
    let [_, reply] = if v6 { ECHO6 } else { ECHO4 };
    let identifier = packet.get(4..HEADER)?.first_chunk()?;
    (packet[0] == reply).then(|| u16::from_be_bytes(*identifier))
}

/// Sets the identifier in the header of `packet` to `identifier`. `packet` must have at least
/// [`HEADER`] bytes.
pub fn set_identifier(packet: &mut [u8], identifier: u16) {
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
}

/// Turns `packet`, an echo request from `from` to `to`, into its reply.
pub fn make_reply(packet: &mut [u8], from: Ip, to: Ip) {
    let [_, reply] = if from.to_v4().is_none() { ECHO6 } else { ECHO4 };
    packet[0] = reply;
    seal(packet, to, from);
}

/// Returns the IPv4 header of a packet from `from` to `to` with `length` bytes of ICMP. `service`
/// is its class of service (TOS), and `hops` its TTL.
pub fn header4(from: Ip, to: Ip, service: u8, hops: u8, length: usize) -> Vec<u8> {
    let whole = u16::try_from(HEADER4 + length).unwrap_or(u16::MAX);
    let mut bytes = alloc::vec![0x45, service];
    bytes.extend_from_slice(&whole.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, hops, PROTOCOL4, 0, 0]);
    for ip in [from, to] {
        bytes.extend_from_slice(&ip.to_v4().unwrap_or_default());
    }
    let checksum = checksum(&bytes, None);
    bytes[10..12].copy_from_slice(&checksum);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_becomes_its_reply() {
        let mut packet = [8, 0, 0, 0, 0, 0, 0, 1, b'a', b'b', b'c'];
        assert!(is_request(&packet, false) && !is_request(&packet, true));
        assert_eq!(identifier_of_reply(&packet, false), None);
        set_identifier(&mut packet, 0x1234);
        seal(&mut packet, Ip::LOCAL4, Ip::LOCAL4);
        // The sum over a packet with its checksum is all ones.
        assert_eq!(fold(sum(&packet, 0)), 0xffff);
        make_reply(&mut packet, Ip::LOCAL4, Ip::LOCAL4);
        assert_eq!(identifier_of_reply(&packet, false), Some(0x1234));
        assert_eq!(fold(sum(&packet, 0)), 0xffff);
        assert_eq!(identifier_of_reply(&packet[..7], false), None);
    }

    #[test]
    fn version_6_sums_addresses_too() {
        let mut packet = [128, 0, 0, 0, 0, 7, 0, 1];
        seal(&mut packet, Ip::LOCAL6, Ip::LOCAL6);
        // 0x8000 + 7 + 1, two addresses that end with 1, eight bytes, the protocol: 0x804c.
        assert_eq!(packet[2..4], (!0x804c_u16).to_be_bytes());
        make_reply(&mut packet, Ip::LOCAL6, Ip::LOCAL6);
        assert_eq!(identifier_of_reply(&packet, true), Some(7));
    }

    #[test]
    fn a_head_counts_itself() {
        let head = header4(Ip::LOCAL4, Ip::LOCAL4, 0, 64, 64);
        assert_eq!(head.len(), HEADER4);
        assert_eq!(head[2..4], [0, 84]);
        assert_eq!(fold(sum(&head, 0)), 0xffff);
    }
}

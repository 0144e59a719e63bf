//! Metadata of a UDP message: its destination, its hops and its class of service. Senders choose
//! and receivers learn them by control messages (ip(7), RFC 3542).

use super::address::{Endpoint, Ip};
use super::control::{self, Message, Writer};
use crate::errno::Errno;
use alloc::vec::Vec;
use bitflags::bitflags;

/// The number of the loopback interface, the only one.
pub const LOOPBACK: u32 = 1;

const SOL_IP: u32 = 0;
const SOL_UDP: u32 = 17;
const SOL_IPV6: u32 = 41;

/// The mark, both as an option and as a control message of `SOL_SOCKET`.
const SO_MARK: u32 = 36;

// Control messages of SOL_IP.
const IP_TOS: u32 = 1;
const IP_TTL: u32 = 2;
const IP_PKTINFO: u32 = 8;
const IP_ORIGDSTADDR: u32 = 20;
// Control messages of SOL_IPV6; the first two are those of RFC 2292.
const IPV6_2292PKTINFO: u32 = 2;
const IPV6_2292HOPLIMIT: u32 = 8;
const IPV6_PKTINFO: u32 = 50;
const IPV6_HOPLIMIT: u32 = 52;
const IPV6_TCLASS: u32 = 67;
const IPV6_DONTFRAG: u32 = 62;
const IPV6_ORIGDSTADDR: u32 = 74;

/// Bytes of `struct in_pktinfo`: an interface, the address that answers come from, the destination
/// of the packet.
const INFO4_LENGTH: usize = 12;
/// Bytes of `struct in6_pktinfo`: an address and an interface.
const INFO6_LENGTH: usize = 20;

bitflags! {
    /// The control messages that a receiver gets, named after the options that request them.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
    pub struct Told: u32 {
        /// `IP_PKTINFO`: the destination and the interface of an IPv4 packet.
        const INFO4 = 1;
        /// `IP_RECVTTL`: the hops left of an IPv4 packet.
        const HOPS4 = 1 << 1;
        /// `IP_RECVTOS`: the class of service of an IPv4 packet.
        const SERVICE4 = 1 << 2;
        /// `IP_RECVORIGDSTADDR`: the destination and the port of an IPv4 packet.
        const DESTINATION4 = 1 << 3;
        /// `IPV6_RECVPKTINFO`: the destination and the interface of an IPv6 packet.
        const INFO6 = 1 << 4;
        /// `IPV6_RECVHOPLIMIT`: the hops left of an IPv6 packet.
        const HOPS6 = 1 << 5;
        /// `IPV6_RECVTCLASS`: the class of service of an IPv6 packet.
        const SERVICE6 = 1 << 6;
        /// `IPV6_RECVORIGDSTADDR`: the destination and the port of an IPv6 packet.
        const DESTINATION6 = 1 << 7;
        /// `IPV6_2292PKTINFO`: `INFO6` in the form of RFC 2292.
        const OLD_INFO6 = 1 << 8;
        /// `IPV6_2292HOPLIMIT`: `HOPS6` in the form of RFC 2292.
        const OLD_HOPS6 = 1 << 9;
        /// `IP_RECVERR`: errors of IPv4 packets, which are queued for the receiver.
        const ERRORS4 = 1 << 10;
        /// `IPV6_RECVERR`: errors of IPv6 packets, which are queued for the receiver.
        const ERRORS6 = 1 << 11;
    }
}

impl Told {
    /// Returns the control message that `option` of `SOL_IP` requests, or `None` if it requests
    /// none.
    pub fn of_ip(option: u32) -> Option<Self> {
        Some(match option {
            8 => Self::INFO4,
            11 => Self::ERRORS4,
            12 => Self::HOPS4,
            13 => Self::SERVICE4,
            20 => Self::DESTINATION4,
            _ => return None,
        })
    }

    /// Returns the control message that `option` of `SOL_IPV6` requests, or `None` if it requests
    /// none.
    pub fn of_ip6(option: u32) -> Option<Self> {
        Some(match option {
            2 => Self::OLD_INFO6,
            8 => Self::OLD_HOPS6,
            25 => Self::ERRORS6,
            49 => Self::INFO6,
            51 => Self::HOPS6,
            66 => Self::SERVICE6,
            74 => Self::DESTINATION6,
            _ => return None,
        })
    }
}

/// The metadata of a UDP message for its receiver.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The destination.
    pub to: Endpoint,
    /// The number of hops left (`TTL`, hop limit).
    pub hops: u8,
    /// The class of service (`TOS`, traffic class).
    pub service: u8,
    /// Whether the receiver had requested the interface when the message arrived. As on Linux, an
    /// IPv4 packet reports its interface only then.
    pub interface_known: bool,
    /// The mark (`SO_MARK`).
    pub mark: u32,
}

impl Head {
    /// Adds the control messages in `told` to `writer`, in Linux's order. Messages that do not
    /// apply to the packet's IP version are left out.
    pub fn tell(&self, told: Told, writer: &mut Writer) {
        let interface = if self.interface_known { LOOPBACK } else { 0 };
        let number = |byte: u8| u32::from(byte).to_le_bytes();
        if let Some(four) = self.to.ip.to_v4() {
            if told.contains(Told::INFO6) {
                writer.add(SOL_IPV6, IPV6_PKTINFO, &self.info6(interface));
            }
            if told.contains(Told::INFO4) {
                let answers_from = if self.interface_known { four } else { [0; 4] };
                let info = [interface.to_le_bytes(), answers_from, four].concat();
                writer.add(SOL_IP, IP_PKTINFO, &info);
            }
            if told.contains(Told::HOPS4) {
                writer.add(SOL_IP, IP_TTL, &number(self.hops));
            }
            if told.contains(Told::SERVICE4) {
                writer.add(SOL_IP, IP_TOS, &[self.service]);
            }
            if told.contains(Told::DESTINATION4) {
                writer.add(SOL_IP, IP_ORIGDSTADDR, &self.to.to_bytes(false));
            }
            return;
        }
        let info = self.info6(LOOPBACK);
        let messages: [(Told, u32, &[u8]); 6] = [
            (Told::INFO6, IPV6_PKTINFO, &info),
            (Told::HOPS6, IPV6_HOPLIMIT, &number(self.hops)),
            (Told::SERVICE6, IPV6_TCLASS, &number(self.service)),
            (Told::OLD_INFO6, IPV6_2292PKTINFO, &info),
            (Told::OLD_HOPS6, IPV6_2292HOPLIMIT, &number(self.hops)),
            (
                Told::DESTINATION6,
                IPV6_ORIGDSTADDR,
                &self.to.to_bytes(true),
            ),
        ];
        for (asked, kind, data) in messages {
            if told.contains(asked) {
                writer.add(SOL_IPV6, kind, data);
            }
        }
    }

    fn info6(&self, interface: u32) -> Vec<u8> {
        [&self.to.ip.0[..], &interface.to_le_bytes()].concat()
    }
}

/// The version of a packet, and for IPv4 whether an IPv6 socket sends it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    Four {
        /// Whether an IPv6 socket sends the packet.
        mapped: bool,
    },
    /// IPv6.
    Six,
}

/// The settings that a sender chooses for one message. Settings without a value come from the
/// socket.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The source address.
    pub source: Option<Ip>,
    /// The interface that sends the message; 0 is any.
    pub interface: u32,
    /// The number of hops.
    pub hops: Option<u8>,
    /// The class of service.
    pub service: Option<u8>,
    /// The mark, which needs a capability.
    pub mark: Option<u32>,
}

/// Parses `data` as a number of four bytes. Fails with `EINVAL` if it has another length.
fn number(data: &[u8]) -> Result<i32, Errno> {
    let bytes = data.try_into().map_err(|_| Errno::EINVAL)?;
    Ok(i32::from_le_bytes(bytes))
}

/// Parses `data`, a number of four bytes, as the value of a byte. Returns `None` for -1, which
/// means the default. Fails with `EINVAL` if the number is not -1 to 255, or if `data` has another
/// length.
fn byte_or_default(data: &[u8]) -> Result<Option<u8>, Errno> {
    match number(data)? {
        -1 => Ok(None),
        value => u8::try_from(value).map(Some).map_err(|_| Errno::EINVAL),
    }
}

impl Choice {
    /// Parses `bytes`, the control messages of a sender, for a packet of this `version`. Messages
    /// of other levels are ignored, as on Linux.
    ///
    /// # Errors
    /// `EINVAL` if a message is malformed, unknown or out of bounds. If the source is no address of
    /// this machine, `ENETUNREACH` for IPv4 and `EINVAL` for IPv6. `EINVAL` also for an IPv4
    /// multicast address or 255.255.255.255. `ENODEV` if the interface does not exist.
    pub fn parse(bytes: &[u8], version: Version) -> Result<Self, Errno> {
        let mut choice = Self::default();
        for message in control::messages(bytes) {
            let message = message?;
            match (message.level, version) {
                (control::SOL_SOCKET, _) if message.kind == SO_MARK => {
                    choice.mark = Some(number(message.data)?.cast_unsigned());
                }
                (control::SOL_SOCKET, _) => message.check_of_socket()?,
                (SOL_UDP, _) => return Err(Errno::EINVAL),
                (SOL_IP, Version::Four { .. }) => choice.read4(&message)?,
                (SOL_IPV6, Version::Four { mapped: true }) if message.kind == IPV6_PKTINFO => {
                    choice.read_mapped_info(message.data)?;
                }
                (SOL_IPV6, Version::Six) => choice.read6(&message)?,
                _ => {}
            }
        }
        if version != Version::Six {
            choice.check4()?;
        }
        Ok(choice)
    }

    fn set_interface(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let interface = number(bytes)?.cast_unsigned();
        if interface != 0 {
            self.interface = interface;
        }
        Ok(())
    }

    fn read4(&mut self, message: &Message<'_>) -> Result<(), Errno> {
        let data = message.data;
        match message.kind {
            IP_PKTINFO if data.len() == INFO4_LENGTH => {
                self.set_interface(&data[..4])?;
                let four: [u8; 4] = data[4..8].try_into().map_err(|_| Errno::EINVAL)?;
                self.source = (four != [0; 4]).then_some(Ip::v4(four));
            }
            IP_TTL => match number(data)? {
                hops @ 1..=255 => self.hops = u8::try_from(hops).ok(),
                _ => return Err(Errno::EINVAL),
            },
            IP_TOS => {
                let service = match data {
                    [byte] => i32::from(*byte),
                    _ => number(data)?,
                };
                self.service = Some(u8::try_from(service).map_err(|_| Errno::EINVAL)?);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn read_mapped_info(&mut self, data: &[u8]) -> Result<(), Errno> {
        let (ip, rest) = data.split_first_chunk().ok_or(Errno::EINVAL)?;
        let interface = rest.get(..4).ok_or(Errno::EINVAL)?;
        let ip = Ip(*ip);
        if ip.to_v4().is_none() {
            return Err(Errno::EINVAL);
        }
        self.set_interface(interface)?;
        self.source = (ip != Ip::ANY4).then_some(ip);
        Ok(())
    }

    /// Checks whether an IPv4 packet with these settings can be sent. Fails with `EINVAL` for a
    /// multicast or broadcast address as its source, with `ENETUNREACH` for a source that is no
    /// address of this machine, and with `ENODEV` if the interface does not exist.
    fn check4(&self) -> Result<(), Errno> {
        match self.source.and_then(Ip::to_v4) {
            // Multicast and broadcast addresses.
            Some([224..=239, ..] | [255, 255, 255, 255]) => return Err(Errno::EINVAL),
            Some([first, ..]) if first != 127 => return Err(Errno::ENETUNREACH),
            _ => {}
        }
        self.check_interface()
    }

    fn check_interface(&self) -> Result<(), Errno> {
        match self.interface {
            0 | LOOPBACK => Ok(()),
            _ => Err(Errno::ENODEV),
        }
    }

    fn read6(&mut self, message: &Message<'_>) -> Result<(), Errno> {
        let data = message.data;
        match message.kind {
            IPV6_PKTINFO | IPV6_2292PKTINFO if data.len() >= INFO6_LENGTH => {
                let (ip, interface) = data.split_first_chunk().ok_or(Errno::EINVAL)?;
                let before = self.interface;
                self.set_interface(&interface[..4])?;
                if before != 0 && before != self.interface {
                    return Err(Errno::EINVAL);
                }
                self.check_interface()?;
                match Ip(*ip) {
                    Ip::ANY6 => {}
                    Ip::LOCAL6 => self.source = Some(Ip::LOCAL6),
                    _ => return Err(Errno::EINVAL),
                }
            }
            IPV6_HOPLIMIT | IPV6_2292HOPLIMIT => self.hops = byte_or_default(data)?,
            IPV6_TCLASS => self.service = byte_or_default(data)?,
            // No message exceeds the size that the interface carries at once.
            IPV6_DONTFRAG if matches!(number(data)?, 0 | 1) => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }
}

/// Returns the priority (`SO_PRIORITY`) that the class of service `service` gives an IPv4 socket.
pub fn priority(service: u8) -> u32 {
    match (service >> 1) & 0xf {
        4..=7 => 2,
        8..=11 => 6,
        12..=15 => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::prelude::v1::*;

    const FOUR: Version = Version::Four { mapped: false };
    const MAPPED: Version = Version::Four { mapped: true };

    fn message(level: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new(4096);
        writer.add(level, kind, data);
        writer.finish().0
    }

    fn info4(interface: u32, source: [u8; 4]) -> Vec<u8> {
        [interface.to_le_bytes(), source, [0; 4]].concat()
    }

    fn info6(source: Ip, interface: u32) -> Vec<u8> {
        [&source.0[..], &interface.to_le_bytes()].concat()
    }

    #[test]
    fn choices_of_version_4() {
        let parse = |kind, data: &[u8]| Choice::parse(&message(SOL_IP, kind, data), FOUR);
        let source = Ip::v4([127, 0, 0, 9]);
        assert_eq!(
            parse(IP_PKTINFO, &info4(1, [127, 0, 0, 9])).map(|choice| choice.source),
            Ok(Some(source))
        );
        assert_eq!(
            parse(IP_PKTINFO, &info4(0, [0; 4])).map(|choice| choice.source),
            Ok(None)
        );
        for (data, error) in [
            (info4(0, [10, 0, 0, 1]), Errno::ENETUNREACH),
            (info4(0, [224, 0, 0, 1]), Errno::EINVAL),
            (info4(99, [127, 0, 0, 1]), Errno::ENODEV),
            (info4(1, [127, 0, 0, 1])[..11].to_vec(), Errno::EINVAL),
        ] {
            assert_eq!(parse(IP_PKTINFO, &data), Err(error));
        }
        assert_eq!(
            parse(IP_TTL, &[7, 0, 0, 0]).map(|choice| choice.hops),
            Ok(Some(7))
        );
        for data in [&[0, 0, 0, 0][..], &[0, 1, 0, 0], &[7]] {
            assert_eq!(parse(IP_TTL, data), Err(Errno::EINVAL));
        }
        for data in [&[9][..], &[9, 0, 0, 0]] {
            assert_eq!(
                parse(IP_TOS, data).map(|choice| choice.service),
                Ok(Some(9))
            );
        }
        assert_eq!(parse(IP_TOS, &[0, 1, 0, 0]), Err(Errno::EINVAL));
        assert_eq!(parse(99, &[]), Err(Errno::EINVAL));
    }

    #[test]
    fn choices_of_version_6() {
        let parse = |kind, data: &[u8]| Choice::parse(&message(SOL_IPV6, kind, data), Version::Six);
        assert_eq!(
            parse(IPV6_HOPLIMIT, &[2, 0, 0, 0]).map(|choice| choice.hops),
            Ok(Some(2))
        );
        assert_eq!(
            parse(IPV6_TCLASS, &[255; 4]).map(|choice| choice.service),
            Ok(None)
        );
        for data in [&[254, 255, 255, 255][..], &[0, 1, 0, 0], &[0; 5], &[]] {
            assert_eq!(parse(IPV6_HOPLIMIT, data), Err(Errno::EINVAL));
            assert_eq!(parse(IPV6_TCLASS, data), Err(Errno::EINVAL));
        }
        assert_eq!(
            parse(IPV6_PKTINFO, &info6(Ip::LOCAL6, 1)).map(|choice| choice.source),
            Ok(Some(Ip::LOCAL6))
        );
        for (data, error) in [
            (info6(Ip::LOCAL6, 99), Errno::ENODEV),
            (info6(Ip::LOCAL4, 0), Errno::EINVAL),
            (info6(Ip::LOCAL6, 0)[..19].to_vec(), Errno::EINVAL),
        ] {
            assert_eq!(parse(IPV6_PKTINFO, &data), Err(error));
        }
    }

    #[test]
    fn choices_of_a_mapped_address() {
        let parse =
            |data: &[u8], version| Choice::parse(&message(SOL_IPV6, IPV6_PKTINFO, data), version);
        let local = info6(Ip::LOCAL4, 0);
        assert_eq!(
            parse(&local, MAPPED).map(|choice| choice.source),
            Ok(Some(Ip::LOCAL4))
        );
        assert_eq!(parse(&info6(Ip::LOCAL6, 0), MAPPED), Err(Errno::EINVAL));
        // Messages of the other version are ignored.
        assert_eq!(parse(&local, FOUR), Ok(Choice::default()));
        let four = message(SOL_IP, IP_TTL, &[]);
        assert_eq!(Choice::parse(&four, Version::Six), Ok(Choice::default()));
    }

    #[test]
    fn a_receiver_is_told_what_it_asked_for() {
        let head = |ip, interface_known| Head {
            to: Endpoint { ip, port: 0x102 },
            hops: 7,
            service: 9,
            interface_known,
            mark: 0,
        };
        let told = |head: Head, told| {
            let mut writer = Writer::new(4096);
            head.tell(told, &mut writer);
            writer.finish().0
        };
        assert_eq!(told(head(Ip::LOCAL4, true), Told::empty()), []);
        assert_eq!(
            told(head(Ip::LOCAL4, true), Told::INFO4 | Told::SERVICE4),
            [
                message(
                    SOL_IP,
                    IP_PKTINFO,
                    &[1, 0, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]
                ),
                message(SOL_IP, IP_TOS, &[9])
            ]
            .concat()
        );
        assert_eq!(
            told(head(Ip::LOCAL4, false), Told::INFO4 | Told::HOPS6),
            message(SOL_IP, IP_PKTINFO, &[0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1])
        );
        assert_eq!(
            told(head(Ip::LOCAL6, false), Told::all()),
            [
                message(SOL_IPV6, IPV6_PKTINFO, &info6(Ip::LOCAL6, 1)),
                message(SOL_IPV6, IPV6_HOPLIMIT, &[7, 0, 0, 0]),
                message(SOL_IPV6, IPV6_TCLASS, &[9, 0, 0, 0]),
                message(SOL_IPV6, IPV6_2292PKTINFO, &info6(Ip::LOCAL6, 1)),
                message(SOL_IPV6, IPV6_2292HOPLIMIT, &[7, 0, 0, 0]),
                message(
                    SOL_IPV6,
                    IPV6_ORIGDSTADDR,
                    &head(Ip::LOCAL6, true).to.to_bytes(true)
                ),
            ]
            .concat()
        );
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for version in [FOUR, MAPPED, Version::Six] {
                if let Ok(choice) = Choice::parse(&bytes, version) {
                    prop_assert!(choice.source.is_none_or(Ip::is_local));
                }
            }
        }
    }
}

//! Socket addresses in the format of programs (`struct sockaddr`).

use crate::errno::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// `AF_UNSPEC`: `connect` with this family dissolves the association.
pub const AF_UNSPEC: u16 = 0;
/// `AF_UNIX`.
pub const AF_UNIX: u16 = 1;
/// `AF_INET`.
pub const AF_INET: u16 = 2;
/// `AF_INET6`.
pub const AF_INET6: u16 = 10;

/// The most bytes of any address (`struct sockaddr_storage`). Calls with longer addresses fail with
/// `EINVAL`.
pub const MAX_LENGTH: usize = 128;
/// Bytes of `sun_path`.
const UNIX_ROOM: usize = 108;
/// Bytes of `struct sockaddr_in`.
const INET_LENGTH: usize = 16;
/// Bytes of `struct sockaddr_in6`, and the fewest bytes that an older program may pass.
const INET6_LENGTH: usize = 28;
const INET6_LEAST: usize = 24;

/// The name of an `AF_UNIX` socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnixName {
    /// No name.
    Nameless,
    /// A path, without the zero at its end.
    Path(Arc<[u8]>),
    /// An abstract name, which is in no directory, without the zero in front.
    Abstract(Arc<[u8]>),
}

impl UnixName {
    /// Parses `bytes`, an address that a program passed.
    ///
    /// # Errors
    /// `EINVAL` if it is no `AF_UNIX` address.
    pub fn parse(bytes: &[u8]) -> Result<Self, Errno> {
        let (family, name) = split_family(bytes)?;
        if family != AF_UNIX || name.len() > UNIX_ROOM {
            return Err(Errno::EINVAL);
        }
        Ok(match name {
            [] => Self::Nameless,
            [0, rest @ ..] => Self::Abstract(rest.into()),
            _ => {
                let end = name.iter().position(|byte| *byte == 0);
                Self::Path(name[..end.unwrap_or(name.len())].into())
            }
        })
    }

    /// Returns the address as a `struct sockaddr_un`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = AF_UNIX.to_le_bytes().to_vec();
        match self {
            Self::Nameless => {}
            Self::Path(path) => {
                bytes.extend_from_slice(path);
                bytes.push(0);
            }
            Self::Abstract(name) => {
                bytes.push(0);
                bytes.extend_from_slice(name);
            }
        }
        bytes
    }
}

/// An IPv6 address. IPv4 addresses are mapped into it (`::ffff:a.b.c.d`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ip(pub [u8; 16]);

/// Position of the bytes of a mapped IPv4 address.
const MAPPED: Range<usize> = 12..16;

impl Ip {
    /// `::`, which means every address in `bind`.
    pub const ANY6: Self = Self([0; 16]);
    /// `0.0.0.0`, which means every IPv4 address in `bind`.
    pub const ANY4: Self = Self::v4([0; 4]);
    /// `127.0.0.1`.
    pub const LOCAL4: Self = Self::v4([127, 0, 0, 1]);
    /// `::1`.
    pub const LOCAL6: Self = Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// Returns the IPv4 address `bytes`, mapped into IPv6.
    pub const fn v4(bytes: [u8; 4]) -> Self {
        let [a, b, c, d] = bytes;
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// Returns the address as an integer, the first byte highest. Comparing integers takes fewer
    /// instructions than comparing bytes.
    const fn bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    const fn is_v4(self) -> bool {
        self.bits() >> 32 == 0xffff
    }

    /// Returns the bytes of a mapped IPv4 address, or `None` if the address is not one.
    pub const fn to_v4(self) -> Option<[u8; 4]> {
        let [.., a, b, c, d] = self.0;
        if self.is_v4() {
            Some([a, b, c, d])
        } else {
            None
        }
    }

    /// Returns whether the address is `::` or `0.0.0.0`, which mean every address.
    pub const fn is_any(self) -> bool {
        self.bits() == 0 || self.bits() == 0xffff << 32
    }

    /// Returns whether the address is a multicast group: `224.0.0.0/4` or `ff00::/8`.
    pub const fn is_group(self) -> bool {
        let [first, .., of_four, _, _, _] = self.0;
        first == 0xff || (self.is_v4() && of_four >> 4 == 0xe)
    }

    /// Returns whether the address is the broadcast address of the loopback interface:
    /// `127.255.255.255`.
    pub const fn is_broadcast(self) -> bool {
        self.bits() == 0xffff_7fff_ffff
    }

    /// Returns whether the address belongs to this machine: `127.0.0.0/8` or `::1`.
    pub const fn is_local(self) -> bool {
        let [.., of_four, _, _, _] = self.0;
        self.bits() == 1 || (self.is_v4() && of_four == 127)
    }
}

/// An address and a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub ip: Ip,
    /// The port, or 0 for none.
    pub port: u16,
}

impl Endpoint {
    /// Parses `bytes`, an address that a program passed to a socket: IPv6 if `v6`, else IPv4.
    ///
    /// # Errors
    /// `EINVAL` if the address is too short. `EAFNOSUPPORT` if its family is another one.
    pub fn parse(bytes: &[u8], v6: bool) -> Result<Self, Errno> {
        let (family, rest) = split_family(bytes)?;
        let least = if v6 { INET6_LEAST } else { INET_LENGTH };
        if bytes.len() < least {
            return Err(Errno::EINVAL);
        }
        let expected = if v6 { AF_INET6 } else { AF_INET };
        if family != expected {
            return Err(Errno::EAFNOSUPPORT);
        }
        let port = rest.first_chunk().copied().map_or(0, u16::from_be_bytes);
        let ip = if v6 {
            Ip(chunk(&bytes[8..])?)
        } else {
            Ip::v4(chunk(&bytes[4..])?)
        };
        Ok(Self { ip, port })
    }

    /// Returns the address and the port in the format of programs: `struct sockaddr_in6` if `v6`,
    /// else `struct sockaddr_in`.
    pub fn to_bytes(self, v6: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        if v6 {
            bytes.resize(INET6_LENGTH, 0);
            bytes[..2].copy_from_slice(&AF_INET6.to_le_bytes());
            bytes[8..24].copy_from_slice(&self.ip.0);
        } else {
            bytes.resize(INET_LENGTH, 0);
            bytes[..2].copy_from_slice(&AF_INET.to_le_bytes());
            bytes[4..8].copy_from_slice(&self.ip.0[MAPPED]);
        }
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }
}

fn chunk<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Errno> {
    bytes.first_chunk().copied().ok_or(Errno::EINVAL)
}

/// Splits `bytes`, an address that a program passed, into its family and the rest.
///
/// # Errors
/// `EINVAL` if the address has no family or is longer than [`MAX_LENGTH`].
pub fn split_family(bytes: &[u8]) -> Result<(u16, &[u8]), Errno> {
    if bytes.len() > MAX_LENGTH {
        return Err(Errno::EINVAL);
    }
    let (family, rest) = bytes.split_first_chunk().ok_or(Errno::EINVAL)?;
    Ok((u16::from_le_bytes(*family), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn unix_names() {
        let name = |bytes: &[u8]| UnixName::parse(bytes);
        assert_eq!(name(&[1, 0]), Ok(UnixName::Nameless));
        assert_eq!(
            name(b"\x01\0/a/b\0junk"),
            Ok(UnixName::Path((*b"/a/b").into()))
        );
        assert_eq!(name(b"\x01\0/a"), Ok(UnixName::Path((*b"/a").into())));
        assert_eq!(
            name(b"\x01\0\0a\0b"),
            Ok(UnixName::Abstract((*b"a\0b").into()))
        );
        for wrong in [&b""[..], &[1], &[2, 0, 1], &[1; 111], &[1; 200]] {
            assert_eq!(name(wrong), Err(Errno::EINVAL));
        }
        for bytes in [&b"\x01\0"[..], b"\x01\0/tmp/x\0", b"\x01\0\0x\0\0"] {
            assert_eq!(name(bytes).unwrap().to_bytes(), bytes);
        }
        let longest = [&[1, 0][..], &[b'x'; 108]].concat();
        assert_eq!(name(&longest).unwrap().to_bytes().len(), 111);
    }

    #[test]
    fn endpoints() {
        let four = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let end = Endpoint::parse(&four, false).unwrap();
        assert_eq!((end.ip, end.port), (Ip::LOCAL4, 8080));
        assert_eq!(end.to_bytes(false), four);
        assert_eq!(Endpoint::parse(&four[..15], false), Err(Errno::EINVAL));
        assert_eq!(Endpoint::parse(&four, true), Err(Errno::EINVAL));
        let mut six = [0; 28];
        six[0] = 10;
        six[3] = 80;
        six[23] = 1;
        let end = Endpoint::parse(&six, true).unwrap();
        assert_eq!((end.ip, end.port), (Ip::LOCAL6, 80));
        assert_eq!(end.to_bytes(true), six);
        assert_eq!(Endpoint::parse(&six, false), Err(Errno::EAFNOSUPPORT));
        assert!(Ip::v4([127, 9, 9, 9]).is_local() && !Ip::v4([128, 0, 0, 1]).is_local());
        assert!(Ip::v4([239, 1, 1, 1]).is_group() && Ip::v4([224, 0, 0, 1]).is_group());
        assert!(!Ip::v4([240, 0, 0, 1]).is_group() && !Ip::LOCAL6.is_group());
        assert!(Ip::v4([127, 255, 255, 255]).is_broadcast() && !Ip::LOCAL4.is_broadcast());
        assert!(Ip::ANY4.is_any() && Ip::ANY6.is_any() && !Ip::LOCAL6.is_any());
    }
}

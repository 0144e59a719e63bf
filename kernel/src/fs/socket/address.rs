//! Addresses, families, types and protocols of sockets.

use alloc::vec::Vec;
use logic::socket::address::{AF_INET, AF_INET6, AF_UNIX, Endpoint, Ip, UnixName};
use logic::socket::netlink::{self, AF_NETLINK};

/// Address families.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_UNIX`.
    Unix,
    /// `AF_INET`.
    Inet,
    /// `AF_INET6`.
    Inet6,
    /// `AF_NETLINK`.
    Netlink,
}

impl Family {
    /// Returns Linux's number of the family (`AF_*`).
    pub fn number(self) -> u16 {
        match self {
            Self::Unix => AF_UNIX,
            Self::Inet => AF_INET,
            Self::Inet6 => AF_INET6,
            Self::Netlink => AF_NETLINK,
        }
    }
}

/// The type of a socket, with Linux's numbers (`SOCK_*`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum SocketKind {
    /// Bytes without boundaries.
    Stream = 1,
    /// Messages.
    Datagram = 2,
    /// Messages, as `Datagram`. For netlink and ICMP.
    Raw = 3,
    /// Messages over a connection that can end.
    SequencedPacket = 5,
}

impl SocketKind {
    /// Returns whether sockets of this type connect before they send.
    pub fn connects(self) -> bool {
        matches!(self, Self::Stream | Self::SequencedPacket)
    }
}

/// The protocols of sockets. A socket of `AF_UNIX`, or a netlink socket about routes, has no
/// protocol.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP: a stream.
    Tcp,
    /// UDP: messages.
    Udp,
    /// UDP-Lite: messages whose checksum may cover a part of the bytes (RFC 3828).
    UdpLite,
    /// ICMP: error reports, and requests that the machine answers.
    Icmp,
    /// Netlink for questions about sockets (`NETLINK_SOCK_DIAG`).
    SockDiag,
}

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `AF_UNIX`.
    Unix(UnixName),
    /// `AF_INET` and `AF_INET6`.
    Inet(Endpoint),
    /// `AF_NETLINK`.
    Netlink {
        /// The port of the socket; the kernel's is 0.
        port: u32,
        /// The multicast groups that the socket subscribed to, as a mask.
        groups: u32,
    },
}

impl Address {
    /// The kernel's `AF_NETLINK` address.
    pub(super) const KERNEL: Self = Self::Netlink { port: 0, groups: 0 };

    /// Returns the address of an unbound socket of `family`.
    pub(super) fn unbound(family: Family) -> Self {
        match family {
            Family::Unix => Self::Unix(UnixName::Nameless),
            Family::Inet => Self::Inet(Endpoint {
                ip: Ip::ANY4,
                port: 0,
            }),
            Family::Inet6 => Self::Inet(Endpoint {
                ip: Ip::ANY6,
                port: 0,
            }),
            Family::Netlink => Self::KERNEL,
        }
    }

    /// Returns the address as programs read it from a socket of `family`.
    pub fn to_bytes(&self, family: Family) -> Vec<u8> {
        match self {
            Self::Unix(name) => name.to_bytes(),
            Self::Inet(endpoint) => endpoint.to_bytes(family == Family::Inet6),
            Self::Netlink { port, groups } => netlink::address_bytes(*port, *groups),
        }
    }

    /// Returns the IP address and port. Returns `None` for an address of another family.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        match self {
            Self::Inet(endpoint) => Some(*endpoint),
            Self::Unix(_) | Self::Netlink { .. } => None,
        }
    }
}

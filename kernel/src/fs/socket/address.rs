//! What sockets are called, and of which families and kinds they are.

use alloc::vec::Vec;
use logic::socket::address::{AF_INET, AF_INET6, AF_UNIX, Endpoint, Ip, UnixName};
use logic::socket::netlink::{self, AF_NETLINK};

/// Families.
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
    /// Linux's number.
    pub fn number(self) -> u16 {
        match self {
            Self::Unix => AF_UNIX,
            Self::Inet => AF_INET,
            Self::Inet6 => AF_INET6,
            Self::Netlink => AF_NETLINK,
        }
    }
}

/// What a socket carries, with Linux's numbers (`SOCK_*`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum SocketKind {
    /// Bytes without boundaries.
    Stream = 1,
    /// Messages.
    Datagram = 2,
    /// Messages, as `Datagram`; of netlink and ICMP.
    Raw = 3,
    /// Messages, with an end.
    SequencedPacket = 5,
}

impl SocketKind {
    /// Whether two sockets are connected before anything is sent.
    pub fn connects(self) -> bool {
        matches!(self, Self::Stream | Self::SequencedPacket)
    }
}

/// Protocols: those that have ports, and netlink's second one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// A stream.
    Tcp,
    /// Messages.
    Udp,
    /// Messages of which a part may be unchecked (RFC 3828).
    UdpLite,
    /// Errors, and requests that the machine answers.
    Icmp,
    /// Of netlink: questions about sockets.
    SockDiag,
}

/// The name of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of `AF_UNIX`.
    Unix(UnixName),
    /// Of `AF_INET` and `AF_INET6`.
    Inet(Endpoint),
    /// Of `AF_NETLINK`.
    Netlink {
        /// Whose it is; the kernel's is 0.
        port: u32,
        /// What it wants to hear of.
        groups: u32,
    },
}

impl Address {
    /// The kernel's, of `AF_NETLINK`.
    pub(super) const KERNEL: Self = Self::Netlink { port: 0, groups: 0 };

    /// That of a socket that was not bound.
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

    /// As programs read it from a socket of this family.
    pub fn to_bytes(&self, family: Family) -> Vec<u8> {
        match self {
            Self::Unix(name) => name.to_bytes(),
            Self::Inet(endpoint) => endpoint.to_bytes(family == Family::Inet6),
            Self::Netlink { port, groups } => netlink::address_bytes(*port, *groups),
        }
    }

    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        match self {
            Self::Inet(endpoint) => Some(*endpoint),
            Self::Unix(_) | Self::Netlink { .. } => None,
        }
    }
}

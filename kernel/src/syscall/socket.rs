//! Sockets: creates, names and connects them.

use super::Args;
use super::pipe::install_pair;
use crate::fs::socket::{Caller, Family, PING_GROUPS, Protocol, Socket, SocketKind};
use crate::fs::{OpenFile, OpenFlags};
use crate::process::{self, caller};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::socket::address::{AF_INET, AF_INET6, AF_UNIX, MAX_LENGTH};
use logic::socket::netlink::AF_NETLINK;
use machine::uaccess;

const SOCK_TYPE: u32 = 0xf;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_RAW: u32 = 3;
const SOCK_SEQPACKET: u32 = 5;
const SOCK_MAX: u32 = 11;
/// `IPPROTO_TCP`.
pub(super) const TCP: u32 = 6;
/// `IPPROTO_UDP`.
pub(super) const UDP: u32 = 17;
/// `IPPROTO_UDPLITE`.
pub(super) const UDP_LITE: u32 = 136;
/// `IPPROTO_ICMP`.
const ICMP: u32 = 1;
/// `IPPROTO_ICMPV6`.
pub(super) const ICMP6: u32 = 58;
/// `NETLINK_SOCK_DIAG`.
const SOCK_DIAG: u32 = 4;

/// Splits argument `kind` into the type and the flags of a new socket. Fails with `EINVAL` for
/// unknown flags.
fn kind_and_flags(kind: u32) -> Result<(u32, OpenFlags), Errno> {
    let flags = OpenFlags::from_bits(kind & !SOCK_TYPE).ok_or(Errno::EINVAL)?;
    if !(OpenFlags::NONBLOCK | OpenFlags::CLOSE_ON_EXEC).contains(flags) {
        return Err(Errno::EINVAL);
    }
    Ok((kind & SOCK_TYPE, flags))
}

/// Returns a new socket. Checks family, type and protocol in Linux's order. Fails as `socket(2)`
/// does.
fn new_socket(family: u32, kind: u32, protocol: u32) -> Result<Arc<Socket>, Errno> {
    if kind >= SOCK_MAX {
        return Err(Errno::EINVAL);
    }
    let family = match u16::try_from(family) {
        Ok(AF_UNIX) => Family::Unix,
        Ok(AF_INET) => Family::Inet,
        Ok(AF_INET6) => Family::Inet6,
        Ok(AF_NETLINK) => return netlink_socket(kind, protocol),
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    if family == Family::Unix {
        return Ok(Socket::new(family, unix_kind(kind, protocol)?));
    }
    match (kind, protocol) {
        (SOCK_STREAM, 0 | TCP) => Ok(Socket::new(family, SocketKind::Stream)),
        (SOCK_DGRAM, 0 | UDP) => Ok(Socket::new(family, SocketKind::Datagram)),
        (SOCK_DGRAM, UDP_LITE) => Ok(Socket::with_protocol(
            family,
            SocketKind::Datagram,
            Some(Protocol::UdpLite),
        )),
        (SOCK_DGRAM, ICMP) if family == Family::Inet => ping_socket(family),
        (SOCK_DGRAM, ICMP6) if family == Family::Inet6 => ping_socket(family),
        (SOCK_STREAM | SOCK_DGRAM, 0..=255) => Err(Errno::EPROTONOSUPPORT),
        (SOCK_STREAM | SOCK_DGRAM | SOCK_RAW, 256..) => Err(Errno::EINVAL),
        (SOCK_RAW, 0) => Err(Errno::EPROTONOSUPPORT),
        // As on Linux, a program without the capability cannot find out which protocols exist.
        (SOCK_RAW, _) => {
            caller::need(Capabilities::NET_RAW)?;
            let wanted = if family == Family::Inet6 { ICMP6 } else { ICMP };
            if protocol != wanted {
                return Err(Errno::EPROTONOSUPPORT);
            }
            let socket = Socket::with_protocol(family, SocketKind::Raw, Some(Protocol::Icmp));
            socket.receive_raw()?;
            Ok(socket)
        }
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// Returns a new socket that sends echo requests. Fails with `EACCES` if the caller is in no group
/// of `net.ipv4.ping_group_range`.
fn ping_socket(family: Family) -> Result<Arc<Socket>, Errno> {
    let [first, last] = &PING_GROUPS;
    let groups = first.load(Ordering::Relaxed)..=last.load(Ordering::Relaxed);
    let who = process::current().credentials();
    let own = who.groups.effective;
    let mut all = who.supplementary.iter().chain([&own]);
    if !all.any(|group| groups.contains(group)) {
        return Err(Errno::EACCES);
    }
    let kind = SocketKind::Datagram;
    Ok(Socket::with_protocol(family, kind, Some(Protocol::Icmp)))
}

fn unix_kind(kind: u32, protocol: u32) -> Result<SocketKind, Errno> {
    if protocol > 1 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match kind {
        SOCK_STREAM => Ok(SocketKind::Stream),
        // Linux makes a raw socket of this family a datagram one.
        SOCK_DGRAM | SOCK_RAW => Ok(SocketKind::Datagram),
        SOCK_SEQPACKET => Ok(SocketKind::SequencedPacket),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

fn netlink_socket(kind: u32, protocol: u32) -> Result<Arc<Socket>, Errno> {
    const NETLINK_ROUTE: u32 = 0;
    let kind = match kind {
        SOCK_DGRAM => SocketKind::Datagram,
        SOCK_RAW => SocketKind::Raw,
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    let protocol = match protocol {
        NETLINK_ROUTE => None,
        SOCK_DIAG => Some(Protocol::SockDiag),
        _ => return Err(Errno::EPROTONOSUPPORT),
    };
    Ok(Socket::with_protocol(Family::Netlink, kind, protocol))
}

/// Returns Linux's number of `protocol` for a socket of `family`.
pub(super) fn protocol_number(protocol: Protocol, family: Family) -> u32 {
    match protocol {
        Protocol::Icmp if family == Family::Inet6 => ICMP6,
        Protocol::Tcp => TCP,
        Protocol::Udp => UDP,
        Protocol::UdpLite => UDP_LITE,
        Protocol::Icmp => ICMP,
        Protocol::SockDiag => SOCK_DIAG,
    }
}

/// `socket(2)`.
pub fn socket(a: &Args) -> SysResult {
    let (kind, flags) = kind_and_flags(a.uint(1))?;
    let socket = new_socket(a.uint(0), kind, a.uint(2))?.to_file(flags, caller::file_owner());
    caller::install(socket, flags.contains(OpenFlags::CLOSE_ON_EXEC))
}

/// `socketpair(2)`. Only sockets of `AF_UNIX` can be paired.
pub fn socketpair(a: &Args) -> SysResult {
    let (kind, flags) = kind_and_flags(a.uint(1))?;
    let socket = new_socket(a.uint(0), kind, a.uint(2))?;
    if socket.family() != Family::Unix {
        return Err(Errno::EOPNOTSUPP);
    }
    let (first, second) = Socket::pair(socket.kind(), flags, caller::file_owner());
    install_pair(
        [first, second],
        flags.contains(OpenFlags::CLOSE_ON_EXEC),
        a.addr(3),
    )
}

/// Calls `call` with the socket behind the descriptor `fd` and its open file.
///
/// # Errors
/// Fails with `EBADF` if `fd` is not open, with `ENOTSOCK` if it is no socket, and with the error
/// of `call`.
pub(super) fn with_socket<R>(
    fd: i32,
    call: impl FnOnce(&Socket, &OpenFile) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let file = caller::file(fd)?;
    let result = match file.file().downcast::<Socket>() {
        Some(socket) => call(socket, &file),
        None => Err(Errno::ENOTSOCK),
    };
    release(file);
    result
}

/// Drops a call's reference to a file. It is the last one if the descriptor was closed during the
/// call.
fn release(file: Arc<OpenFile>) {
    if Arc::strong_count(&file) == 1 {
        file.close();
    }
}

/// Reads a socket address of `length` bytes at `address`.
///
/// # Errors
/// Fails with `EINVAL` if no address has this length, and with `EFAULT`.
pub(super) fn read_address(address: u64, length: i32) -> Result<Vec<u8>, Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    if length > MAX_LENGTH {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; length];
    uaccess::copy_in(&mut bytes, address)?;
    Ok(bytes)
}

/// Writes as much of the socket address `bytes` to `address` as the room in the word at `length`
/// allows, and writes the whole size to that word.
///
/// # Errors
/// Fails with `EINVAL` if the room is negative, and with `EFAULT`.
pub(super) fn write_address(bytes: &[u8], address: u64, length: u64) -> Result<(), Errno> {
    let mut room = [0; 4];
    uaccess::copy_in(&mut room, length)?;
    let room = usize::try_from(i32::from_le_bytes(room)).map_err(|_| Errno::EINVAL)?;
    if !bytes.is_empty() {
        uaccess::copy_out(address, &bytes[..room.min(bytes.len())])?;
    }
    // No address is longer than MAX_LENGTH.
    let whole = u32::try_from(bytes.len()).unwrap_or(0);
    uaccess::copy_out(length, &whole.to_le_bytes())
}

/// `bind(2)`.
pub fn bind(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, _| {
        let address = read_address(a.addr(1), a.int(2))?;
        let caller = Caller {
            context: &caller::context(),
            who: &process::current().credentials(),
        };
        socket.bind(&address, caller)?;
        Ok(0)
    })
}

/// `connect(2)`.
pub fn connect(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, file| {
        let address = read_address(a.addr(1), a.int(2))?;
        let caller = Caller {
            context: &caller::context(),
            who: &process::current().credentials(),
        };
        socket.connect(&address, caller, file.flags().nonblocking())?;
        Ok(0)
    })
}

/// `listen(2)`.
pub fn listen(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, _| {
        socket.listen(a.int(1))?;
        Ok(0)
    })
}

fn accept_with(a: &Args, flags: u32) -> SysResult {
    let flags = OpenFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    if !(OpenFlags::NONBLOCK | OpenFlags::CLOSE_ON_EXEC).contains(flags) {
        return Err(Errno::EINVAL);
    }
    with_socket(a.int(0), |socket, file| {
        let files = caller::files();
        // Checked first, since a connection without a descriptor would be lost.
        files.check_room(caller::descriptor_limit())?;
        let accepted = socket.accept(file.flags().nonblocking())?;
        let family = accepted.family();
        let remote = accepted.remote();
        if a.addr(1) != 0 {
            // A peer that went already has the name that it had.
            let bytes = remote.map_or_else(Vec::new, |remote| remote.to_bytes(family));
            write_address(&bytes, a.addr(1), a.addr(2))?;
        }
        caller::install(
            accepted.to_file(flags, caller::file_owner()),
            flags.contains(OpenFlags::CLOSE_ON_EXEC),
        )
    })
}

/// `accept(2)`.
pub fn accept(a: &Args) -> SysResult {
    accept_with(a, 0)
}

/// `accept4(2)`.
pub fn accept4(a: &Args) -> SysResult {
    accept_with(a, a.uint(3))
}

/// `shutdown(2)`.
pub fn shutdown(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, _| {
        let (reading, writing) = match a.uint(1) {
            0 => (true, false),
            1 => (false, true),
            2 => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        socket.shutdown(reading, writing)?;
        Ok(0)
    })
}

/// `getsockname(2)`.
pub fn getsockname(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, _| {
        let bytes = socket.local().to_bytes(socket.family());
        write_address(&bytes, a.addr(1), a.addr(2))?;
        Ok(0)
    })
}

/// `getpeername(2)`.
pub fn getpeername(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, _| {
        let remote = socket.peer_name().ok_or(Errno::ENOTCONN)?;
        write_address(&remote.to_bytes(socket.family()), a.addr(1), a.addr(2))?;
        Ok(0)
    })
}

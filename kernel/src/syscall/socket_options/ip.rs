//! Options of `IPPROTO_IP`.

use super::value::{Shown, Value, set_kept};
use crate::fs::socket::{DEFAULT_HOPS, Protocol, Socket, SocketKind};
use linux_raw_sys::net as raw;
use logic::errno::Errno;
use logic::socket::address::{Endpoint, Ip};
use logic::socket::options::{Kept, SOL_IP};
use logic::socket::packet::{self, LOOPBACK, Told};
use machine::uaccess;

/// `IP_PMTUDISC_WANT` and `IPV6_PMTUDISC_WANT`: the default.
pub(super) const DISCOVERY: u32 = 1;
/// `IP_PMTUDISC_OMIT` and `IPV6_PMTUDISC_OMIT`, the highest values.
pub(super) const LAST_DISCOVERY: i32 = 5;
/// The bits of a class of service that TCP uses for congestion.
const CONGESTION: u32 = 3;
/// The longest packet of version 4 to the loopback interface.
const LONGEST_PACKET: u32 = 65535;
/// Bytes of `struct group_req`: an interface, and an address from the eighth byte on.
const GROUP_REQUEST: usize = 136;
const GROUP_ADDRESS: usize = 8;

/// Reads a value that may be a number of four bytes or, if it is shorter, one byte. An empty value
/// is 0. Fails with `EFAULT` for a bad address.
fn byte_or_number(value: &Value) -> Result<i32, Errno> {
    if value.length >= 4 {
        return value.number();
    }
    if value.length == 0 {
        return Ok(0);
    }
    let mut byte = [0];
    uaccess::copy_in(&mut byte, value.address)?;
    Ok(byte[0].into())
}

/// Returns the class of service that a socket gets if a program sets `wanted` in place of `old`. A
/// TCP socket keeps the bits for congestion.
pub(super) fn service_of(socket: &Socket, old: u32, wanted: u32) -> u32 {
    if socket.protocol() == Some(Protocol::Tcp) {
        wanted & !CONGESTION | old & CONGESTION
    } else {
        wanted
    }
}

/// Sets an option of `IPPROTO_IP`.
///
/// # Errors
/// Fails as `setsockopt(2)` does.
pub(super) fn set(socket: &Socket, option: u32, value: &Value) -> Result<(), Errno> {
    let settings = socket.settings();
    if let Some(told) = Told::of_ip(option) {
        socket.tell(told, byte_or_number(value)? != 0);
        return Ok(());
    }
    if let Some(kept) = Kept::find(SOL_IP, option) {
        let stream = socket.kind() == SocketKind::Stream;
        if stream && matches!(option, raw::IP_MULTICAST_TTL | raw::IP_RECVFRAGSIZE) {
            return Err(Errno::EINVAL);
        }
        return set_kept(settings, kept, byte_or_number(value)?);
    }
    match option {
        raw::IP_TOS => {
            let old = settings.service.get();
            let wanted = byte_or_number(value)?.cast_unsigned() & 0xff;
            let service = service_of(socket, old, wanted);
            if service != old {
                settings.service.set(service);
                let byte = u8::try_from(service).unwrap_or(0);
                settings.priority.set(packet::priority(byte));
            }
        }
        raw::IP_TTL if value.length == 0 => return Err(Errno::EINVAL),
        raw::IP_TTL => match byte_or_number(value)? {
            -1 => settings.hops.set(0),
            hops @ 1..=255 => settings.hops.set(hops.cast_unsigned()),
            _ => return Err(Errno::EINVAL),
        },
        raw::IP_MTU_DISCOVER => match byte_or_number(value)? {
            way @ 0..=LAST_DISCOVERY => settings.discovery.set(way.cast_unsigned() + 1),
            _ => return Err(Errno::EINVAL),
        },
        // Only an empty list of options is accepted.
        raw::IP_OPTIONS if value.length == 0 => {}
        raw::IP_MULTICAST_IF if socket.kind() == SocketKind::Stream => return Err(Errno::EINVAL),
        raw::IP_MULTICAST_IF => {
            let (address, interface) = interface(value, 0)?;
            settings.group_interface4.set(interface.unwrap_or(0));
            settings.group_source4.set(u32::from_le_bytes(address));
        }
        raw::IP_UNICAST_IF => match u32::from_be(value.unsigned()?) {
            index @ (0 | LOOPBACK) => settings.unicast_interface4.set(index),
            _ => return Err(Errno::EADDRNOTAVAIL),
        },
        raw::IP_ADD_MEMBERSHIP | raw::IP_DROP_MEMBERSHIP => {
            if socket.kind() == SocketKind::Stream {
                return Err(Errno::EPROTO);
            }
            let join = option == raw::IP_ADD_MEMBERSHIP;
            let interface = match interface(value, 4) {
                Ok((_, interface)) => interface,
                // The socket is in no group at this interface.
                Err(Errno::ENODEV) if !join => return Err(Errno::EADDRNOTAVAIL),
                Err(error) => return Err(error),
            };
            let mut group = [0; 4];
            uaccess::copy_in(&mut group, value.address)?;
            join_or_leave(socket, Ip::v4(group), interface, join)?;
        }
        raw::MCAST_JOIN_GROUP | raw::MCAST_LEAVE_GROUP => {
            group_request(socket, value, option == raw::MCAST_JOIN_GROUP, false)?;
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// Reads an interface from `value`: by its address behind `front` bytes, or by the number behind
/// the address. Returns the address, and the interface if the value names one.
///
/// # Errors
/// Fails with `EINVAL` if the value is too short. Fails with `EADDRNOTAVAIL`, or in a membership
/// with `ENODEV`, if there is no such interface.
fn interface(value: &Value, front: usize) -> Result<([u8; 4], Option<u32>), Errno> {
    const WHOLE: usize = 12;
    let length = value.length.min(WHOLE);
    if length < front + 4 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; WHOLE];
    uaccess::copy_in(&mut bytes[..length], value.address)?;
    // The value is an address, a group and an address, or these two and a number.
    let at = if length >= 8 { 4 } else { front };
    let part = |at: usize| bytes[at..].first_chunk().copied().unwrap_or([0; 4]);
    let number = if length == WHOLE {
        u32::from_le_bytes(part(8))
    } else {
        0
    };
    let address = part(at);
    match (number, address) {
        (LOOPBACK, _) => Ok((address, Some(LOOPBACK))),
        (0, [0, 0, 0, 0]) => Ok((address, None)),
        (0, [127, ..]) => Ok((address, Some(LOOPBACK))),
        _ if front > 0 => Err(Errno::ENODEV),
        _ => Err(Errno::EADDRNOTAVAIL),
    }
}

/// Joins `group` at `interface`, or leaves it if `join` is `false`. The program must name the
/// interface, since no route leads to groups.
///
/// # Errors
/// Fails with `EINVAL` if `group` is no group, with `ENODEV` if `interface` is `None`, and as
/// [`Socket::join_group`] and [`Socket::leave_group`] do.
pub(super) fn join_or_leave(
    socket: &Socket,
    group: Ip,
    interface: Option<u32>,
    join: bool,
) -> Result<(), Errno> {
    if !group.is_group() {
        return Err(Errno::EINVAL);
    }
    if interface.is_none() {
        return Err(Errno::ENODEV);
    }
    if join {
        socket.join_group(group)
    } else {
        socket.leave_group(group)
    }
}

/// Joins the group of the `struct group_req` in `value`, or leaves it if `join` is `false`. `v6`
/// says which version of IP the option belongs to.
///
/// # Errors
/// Fails with `EPROTO` for a stream, with `EINVAL` if the value is too short, and with `ENODEV` if
/// there is no such interface. For an address of another family, fails with `EADDRNOTAVAIL` if
/// `v6`, else with `EINVAL`. Fails with `EFAULT`, and as [`join_or_leave`] does.
pub(super) fn group_request(
    socket: &Socket,
    value: &Value,
    join: bool,
    v6: bool,
) -> Result<(), Errno> {
    if socket.kind() == SocketKind::Stream {
        return Err(Errno::EPROTO);
    }
    if value.length < GROUP_REQUEST {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; GROUP_REQUEST];
    uaccess::copy_in(&mut bytes, value.address)?;
    let interface = match bytes.first_chunk().copied().map(u32::from_le_bytes) {
        Some(0) => None,
        Some(LOOPBACK) => Some(LOOPBACK),
        _ => return Err(Errno::ENODEV),
    };
    let wrong = if v6 {
        Errno::EADDRNOTAVAIL
    } else {
        Errno::EINVAL
    };
    let group = bytes
        .get(GROUP_ADDRESS..)
        .and_then(|bytes| Endpoint::parse(bytes, v6).ok())
        .ok_or(wrong)?;
    join_or_leave(socket, group.ip, interface, join)
}

/// Returns the value of an option of `IPPROTO_IP` for a program with a buffer of `room` bytes.
///
/// # Errors
/// Fails as `getsockopt(2)` does.
pub(super) fn get(socket: &Socket, option: u32, room: usize) -> Result<Shown, Errno> {
    let settings = socket.settings();
    let value = if let Some(told) = Told::of_ip(option) {
        settings.told.get().contains(told).into()
    } else if let Some(kept) = Kept::find(SOL_IP, option) {
        settings.kept.get(kept).cast_unsigned()
    } else {
        match option {
            raw::IP_TOS => settings.service.get(),
            raw::IP_TTL => match settings.hops.get() {
                0 => DEFAULT_HOPS.into(),
                set => set,
            },
            raw::IP_MTU_DISCOVER => settings.discovery.get().checked_sub(1).unwrap_or(DISCOVERY),
            raw::IP_OPTIONS => return Ok(Shown::Name(b"")),
            raw::IP_MTU if socket.remote().is_some() => LONGEST_PACKET,
            raw::IP_MTU => return Err(Errno::ENOTCONN),
            raw::IP_MULTICAST_IF => return Ok(Shown::Number(settings.group_source4.get())),
            // Of raw sockets.
            raw::IP_HDRINCL => 0,
            raw::IP_UNICAST_IF => settings.unicast_interface4.get().to_be(),
            _ => return Err(Errno::ENOPROTOOPT),
        }
    };
    Ok(match u8::try_from(value) {
        // A buffer that is too small for a number gets a byte.
        Ok(byte) if (1..4).contains(&room) => Shown::Byte([byte]),
        _ => Shown::Number(value),
    })
}

//! Options of `IPPROTO_IPV6`.

use super::ip::{DISCOVERY, LAST_DISCOVERY, group_request, join_or_leave, service_of};
use super::value::{Shown, Value, set_kept};
use crate::fs::socket::{DEFAULT_HOPS, Socket, SocketKind};
use crate::process::caller;
use linux_raw_sys::net as raw;
use logic::credentials::Capabilities;
use logic::errno::Errno;
use logic::socket::address::{AF_INET, Ip};
use logic::socket::netlink::MTU;
use logic::socket::options::{self, Kept, SOL_IPV6};
use logic::socket::packet::{LOOPBACK, Told};

/// `IPV6_ADDR_PREFERENCES`.
const ADDRESS_PREFERENCES: u32 = 72;

/// Preferences among source addresses, Linux's `IPV6_PREFER_SRC_*`. A socket stores those that
/// differ from the default.
mod preferences {
    use logic::errno::Errno;

    const TEMPORARY: u32 = 1;
    const PUBLIC: u32 = 2;
    const CARE_OF: u32 = 4;
    const GENERATED: u32 = 8;
    const EITHER: u32 = 0x100;
    const HOME: u32 = 0x400;
    const NOT_GENERATED: u32 = 0x800;

    /// Returns the preferences of a socket that has `before` and asks for `wanted`. As on Linux,
    /// other bits and those of generated addresses change nothing.
    ///
    /// # Errors
    /// Fails with `EINVAL` if two of the wanted preferences exclude each other.
    pub(super) fn change(before: u32, wanted: u32) -> Result<u32, Errno> {
        let lasting = match wanted & (TEMPORARY | PUBLIC | EITHER) {
            0 => before & (TEMPORARY | PUBLIC),
            one @ (TEMPORARY | PUBLIC) => one,
            EITHER => 0,
            _ => return Err(Errno::EINVAL),
        };
        let place = match wanted & (HOME | CARE_OF) {
            0 => before & CARE_OF,
            HOME => 0,
            CARE_OF => CARE_OF,
            _ => return Err(Errno::EINVAL),
        };
        if wanted & (GENERATED | NOT_GENERATED) == GENERATED | NOT_GENERATED {
            return Err(Errno::EINVAL);
        }
        Ok(lasting | place)
    }

    /// Returns the value of the option for a socket with the preferences `stored`.
    pub(super) fn shown(stored: u32) -> u32 {
        let lasting = match stored & (TEMPORARY | PUBLIC) {
            0 => EITHER,
            one => one,
        };
        lasting | if stored & CARE_OF != 0 { CARE_OF } else { HOME }
    }
}

/// Bytes of `struct ipv6_mreq`: a group, and an interface.
const MEMBERSHIP: usize = 20;
/// Bytes of `struct ip6_mtuinfo`: an address, and a number.
const PATH_MTU: usize = 32;

/// Sets one of the extension headers of each packet. Only its removal is accepted, which changes
/// nothing: on the loopback interface no program would see a header.
///
/// # Errors
/// Fails with `EPERM` if the caller lacks `CAP_NET_RAW`, except for `IPV6_RTHDR`. Fails with
/// `EINVAL` if `value` has a header.
fn set_header(option: u32, value: &Value) -> Result<(), Errno> {
    let fits = value.length.is_multiple_of(8) && value.length <= 8 * 255;
    if value.length != 0 && !fits {
        return Err(Errno::EINVAL);
    }
    if option != raw::IPV6_RTHDR {
        caller::need(Capabilities::NET_RAW)?;
    }
    if value.length == 0 {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Reads a number from 0 to 255. Returns `None` for -1, which stands for the default. Fails with
/// `EINVAL` for other numbers.
fn byte_or_default(value: &Value) -> Result<Option<u32>, Errno> {
    match value.number()? {
        -1 => Ok(None),
        number @ 0..=255 => Ok(Some(number.cast_unsigned())),
        _ => Err(Errno::EINVAL),
    }
}

/// Sets an option of `IPPROTO_IPV6`.
///
/// # Errors
/// Fails as `setsockopt(2)` does.
pub(super) fn set(socket: &Socket, option: u32, value: &Value) -> Result<(), Errno> {
    let settings = socket.settings();
    if let Some(told) = Told::of_ip6(option) {
        socket.tell(told, value.on()?);
        return Ok(());
    }
    if let Some(kept) = Kept::find(SOL_IPV6, option) {
        if option == raw::IPV6_MULTICAST_HOPS && socket.kind() == SocketKind::Stream {
            return Err(Errno::ENOPROTOOPT);
        }
        return set_kept(settings, kept, value.number()?);
    }
    match option {
        raw::IPV6_V6ONLY => {
            let on = value.on()?;
            if socket.is_bound() {
                return Err(Errno::EINVAL);
            }
            settings.v6_only.set(on);
        }
        raw::IPV6_UNICAST_HOPS => {
            let hops = byte_or_default(value)?;
            settings.hops6.set(hops.map_or(0, |hops| hops + 1));
        }
        raw::IPV6_TCLASS => {
            let wanted = byte_or_default(value)?.unwrap_or(0);
            let old = settings.service6.get();
            settings.service6.set(service_of(socket, old, wanted));
        }
        raw::IPV6_MTU_DISCOVER => match value.number()? {
            way @ 0..=LAST_DISCOVERY => settings.discovery6.set(way.cast_unsigned() + 1),
            _ => return Err(Errno::EINVAL),
        },
        raw::IPV6_DONTFRAG => settings.whole.set(value.on()?),
        raw::IPV6_ADDRFORM => {
            if value.unsigned()? != u32::from(AF_INET) {
                return Err(Errno::EINVAL);
            }
            socket.become_version_4()?;
        }
        raw::IPV6_HOPOPTS | raw::IPV6_RTHDRDSTOPTS | raw::IPV6_RTHDR | raw::IPV6_DSTOPTS => {
            set_header(option, value)?;
        }
        raw::IPV6_MULTICAST_IF if socket.kind() == SocketKind::Stream => {
            return Err(Errno::ENOPROTOOPT);
        }
        raw::IPV6_MULTICAST_IF => match value.unsigned()? {
            index @ (0 | LOOPBACK) => settings.group_interface6.set(index),
            _ => return Err(Errno::ENODEV),
        },
        raw::IPV6_UNICAST_IF => match u32::from_be(value.unsigned()?) {
            index @ (0 | LOOPBACK) => settings.unicast_interface6.set(index),
            _ => return Err(Errno::EADDRNOTAVAIL),
        },
        ADDRESS_PREFERENCES => {
            let before = settings.preferences.get();
            settings
                .preferences
                .set(preferences::change(before, value.unsigned()?)?);
        }
        raw::IPV6_ADD_MEMBERSHIP | raw::IPV6_DROP_MEMBERSHIP => {
            if socket.kind() == SocketKind::Stream {
                return Err(Errno::EPROTO);
            }
            if value.length < MEMBERSHIP {
                return Err(Errno::EINVAL);
            }
            let (group, interface) = membership(value)?;
            let interface = match interface {
                0 => None,
                LOOPBACK => Some(LOOPBACK),
                _ => return Err(Errno::ENODEV),
            };
            let join = option == raw::IPV6_ADD_MEMBERSHIP;
            join_or_leave(socket, group, interface, join)?;
        }
        raw::MCAST_JOIN_GROUP | raw::MCAST_LEAVE_GROUP => {
            group_request(socket, value, option == raw::MCAST_JOIN_GROUP, true)?;
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// Reads a group and the number of an interface from a `struct ipv6_mreq`.
///
/// # Errors
/// Fails with `EFAULT`.
fn membership(value: &Value) -> Result<(Ip, u32), Errno> {
    let whole = Value {
        length: MEMBERSHIP,
        ..*value
    };
    let (bytes, _) = whole.bytes::<MEMBERSHIP>()?;
    let group = bytes.first_chunk().copied().unwrap_or_default();
    let interface = bytes.last_chunk().copied().unwrap_or_default();
    Ok((Ip(group), u32::from_le_bytes(interface)))
}

/// Returns the value of an option of `IPPROTO_IPV6`.
///
/// # Errors
/// Fails as `getsockopt(2)` does.
pub(super) fn get(socket: &Socket, option: u32) -> Result<Shown, Errno> {
    let settings = socket.settings();
    if let Some(told) = Told::of_ip6(option) {
        return Ok(Shown::switch(settings.told.get().contains(told)));
    }
    match Kept::find(SOL_IPV6, option) {
        None | Some(Kept::Number(options::MTU6)) => {}
        Some(kept) => return Ok(Shown::signed(settings.kept.get(kept))),
    }
    let connected = socket.remote().is_some();
    Ok(Shown::Number(match option {
        raw::IPV6_V6ONLY => settings.v6_only.get().into(),
        raw::IPV6_UNICAST_HOPS => match settings.hops6.get() {
            0 => DEFAULT_HOPS.into(),
            set => set - 1,
        },
        raw::IPV6_TCLASS => settings.service6.get(),
        raw::IPV6_MTU_DISCOVER => settings
            .discovery6
            .get()
            .checked_sub(1)
            .unwrap_or(DISCOVERY),
        raw::IPV6_DONTFRAG => settings.whole.get().into(),
        raw::IPV6_ADDRFORM => socket.family().number().into(),
        raw::IPV6_MULTICAST_IF => settings.group_interface6.get(),
        raw::IPV6_UNICAST_IF => settings.unicast_interface6.get().to_be(),
        ADDRESS_PREFERENCES => preferences::shown(settings.preferences.get()),
        raw::IPV6_HOPOPTS | raw::IPV6_RTHDRDSTOPTS | raw::IPV6_RTHDR | raw::IPV6_DSTOPTS => {
            return Ok(Shown::Name(b""));
        }
        raw::IPV6_MTU if connected => MTU,
        raw::IPV6_PATHMTU if connected => {
            let mut bytes = alloc::vec![0; PATH_MTU - 4];
            bytes.extend_from_slice(&MTU.to_le_bytes());
            return Ok(Shown::Bytes(bytes));
        }
        raw::IPV6_MTU | raw::IPV6_PATHMTU => return Err(Errno::ENOTCONN),
        _ => return Err(Errno::ENOPROTOOPT),
    }))
}

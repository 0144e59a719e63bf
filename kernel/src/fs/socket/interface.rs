//! `ioctl` commands of sockets for the one interface, the loopback one (netdevice(7)).

use super::address::Family;
use super::state::caller_is_admin;
use logic::errno::{Errno, SysResult};
use logic::socket::address::AF_INET;
use logic::socket::netlink::{HARDWARE, IFF_LOOPBACK, IFF_UP_RUNNING, MTU, NAME, QUEUE_LENGTH};
use logic::socket::packet::LOOPBACK;
use machine::uaccess;

const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCGIFADDR: u32 = 0x8915;
const SIOCGIFDSTADDR: u32 = 0x8917;
const SIOCGIFBRDADDR: u32 = 0x8919;
const SIOCGIFNETMASK: u32 = 0x891b;
const SIOCGIFMETRIC: u32 = 0x891d;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCGIFMAP: u32 = 0x8970;

// Commands that would change the interface.
const SIOCSIFFLAGS: u32 = 0x8914;
const SIOCSIFADDR: u32 = 0x8916;
const SIOCSIFNETMASK: u32 = 0x891c;
const SIOCSIFMETRIC: u32 = 0x891e;
const SIOCSIFMTU: u32 = 0x8922;
const SIOCSIFTXQLEN: u32 = 0x8943;
/// Commands of older programs for routes.
const SIOCADDRT: u32 = 0x890b;
const SIOCDELRT: u32 = 0x890c;

/// The flags that programs can change. Only [`IFF_UP`] of them is set.
const CHANGEABLE: u16 = 0x1 | 0x10 | 0x80 | 0x100 | 0x200 | 0x1000 | 0x4000;
const IFF_UP: u16 = 0x1;

/// Bytes of `struct ifreq`: a name, then a value.
const REQUEST: usize = 40;
/// The size of the name at the start of `struct ifreq` in bytes.
const NAME_ROOM: usize = 16;

type Request = [u8; REQUEST];

fn with_value(value: &[u8]) -> Request {
    let mut request = [0; REQUEST];
    request[..NAME.len()].copy_from_slice(NAME);
    request[NAME_ROOM..][..value.len()].copy_from_slice(value);
    request
}

/// Returns the `struct sockaddr_in` of `ip`, up to the end of the address.
fn address(ip: [u8; 4]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&AF_INET.to_le_bytes());
    bytes[4..].copy_from_slice(&ip);
    bytes
}

/// Executes `command` on a socket of `family`. `argument` is the address of its data. Returns 0.
///
/// # Errors
/// Fails with `ENODEV` for another interface, with `ENOTTY` if the command is unknown, and with
/// `EFAULT`. A command that would change the interface fails with `EPERM` or `EOPNOTSUPP`.
pub(super) fn ioctl(family: Family, command: u32, argument: u64) -> SysResult {
    if command == SIOCGIFCONF {
        return list(argument);
    }
    // Sockets of other families do not report addresses of version 4.
    let four = family == Family::Inet;
    let answer = match command {
        SIOCGIFNAME | SIOCGIFINDEX => with_value(&LOOPBACK.to_le_bytes()),
        SIOCGIFMAP => with_value(&[]),
        SIOCSIFFLAGS | SIOCSIFMETRIC | SIOCSIFMTU | SIOCSIFTXQLEN => {
            return keep(command, argument);
        }
        SIOCSIFADDR | SIOCSIFNETMASK if four => return keep(command, argument),
        SIOCADDRT | SIOCDELRT if family != Family::Unix => {
            need_admin()?;
            // The only route is that to the interface, and it stays.
            return Err(Errno::EOPNOTSUPP);
        }
        SIOCGIFFLAGS => with_value(&(IFF_UP_RUNNING | IFF_LOOPBACK).to_le_bytes()),
        SIOCGIFMETRIC => with_value(&[]),
        SIOCGIFMTU => with_value(&MTU.to_le_bytes()),
        SIOCGIFTXQLEN => with_value(&QUEUE_LENGTH.to_le_bytes()),
        SIOCGIFHWADDR => with_value(&HARDWARE.to_le_bytes()),
        SIOCGIFADDR | SIOCGIFDSTADDR if four => with_value(&address([127, 0, 0, 1])),
        SIOCGIFBRDADDR if four => with_value(&address([0; 4])),
        SIOCGIFNETMASK if four => with_value(&address([255, 0, 0, 0])),
        _ => return Err(Errno::ENOTTY),
    };
    let mut asked: Request = [0; REQUEST];
    uaccess::copy_in(&mut asked, argument)?;
    let (name, value) = asked.split_at(NAME_ROOM);
    let is_meant = if command == SIOCGIFNAME {
        value.starts_with(&LOOPBACK.to_le_bytes())
    } else {
        name.split(|byte| *byte == 0).next() == Some(NAME)
    };
    if !is_meant {
        return Err(Errno::ENODEV);
    }
    uaccess::copy_out(argument, &answer)?;
    Ok(0)
}

/// Requires the capability to change networks.
///
/// # Errors
/// Fails with `EPERM`.
fn need_admin() -> Result<(), Errno> {
    match caller_is_admin() {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

/// Accepts a setting that the interface has already.
///
/// # Errors
/// Fails with `EOPNOTSUPP` if the setting is different, since it cannot change. Fails with `ENODEV`
/// for another interface, with `EPERM`, and with `EFAULT`.
fn keep(command: u32, argument: u64) -> SysResult {
    let mut asked: Request = [0; REQUEST];
    uaccess::copy_in(&mut asked, argument)?;
    need_admin()?;
    let (name, value) = asked.split_at(NAME_ROOM);
    if name.split(|byte| *byte == 0).next() != Some(NAME) {
        return Err(Errno::ENODEV);
    }
    let number = value.first_chunk().copied().map_or(0, u32::from_le_bytes);
    let flags = value.first_chunk().copied().map_or(0, u16::from_le_bytes);
    let is_same = match command {
        SIOCSIFFLAGS => flags & CHANGEABLE == IFF_UP,
        SIOCSIFADDR => {
            value.starts_with(&address([127, 0, 0, 1])[..2]) && value[4..8] == [127, 0, 0, 1]
        }
        SIOCSIFNETMASK => value[4..8] == [255, 0, 0, 0],
        SIOCSIFMETRIC => number == 0,
        SIOCSIFMTU => number == MTU,
        _ => number == QUEUE_LENGTH,
    };
    if is_same {
        Ok(0)
    } else {
        Err(Errno::EOPNOTSUPP)
    }
}

/// Lists the interfaces that have an address of version 4 (`SIOCGIFCONF`). `argument` is the
/// address of a `struct ifconf`: a length, and a pointer. Returns 0. Fails with `EFAULT` for a bad
/// address.
fn list(argument: u64) -> SysResult {
    let mut asked = [0; 16];
    uaccess::copy_in(&mut asked, argument)?;
    let (length, place) = asked.split_at(8);
    let number = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
    // The upper half of the first word is padding.
    let room = number(length) & u64::from(u32::MAX);
    let place = number(place);
    let mut filled = REQUEST;
    if place != 0 {
        if room < REQUEST as u64 {
            filled = 0;
        } else {
            uaccess::copy_out(place, &with_value(&address([127, 0, 0, 1])))?;
        }
    }
    // 40 at most.
    let filled = u32::try_from(filled).unwrap_or(0);
    uaccess::copy_out(argument, &filled.to_le_bytes())?;
    Ok(0)
}

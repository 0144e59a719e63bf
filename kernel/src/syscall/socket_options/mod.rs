//! `setsockopt` and `getsockopt`.

mod generic;
mod icmp;
mod ip;
mod ip6;
mod tcp;
mod value;

use super::Args;
use super::socket::{ICMP6, TCP, UDP, UDP_LITE, with_socket};
use crate::fs::socket::{Family, Protocol, Settings, Socket, SocketKind};
use logic::errno::{Errno, SysResult};
use logic::socket::options::{Kept, SOL_IP, SOL_IPV6, SOL_SOCKET, SOL_UDP};
use machine::uaccess;
use value::{Shown, Value, set_kept};

/// `UDP_CORK`.
const CORK: u32 = 1;
/// `UDP_ENCAP`. Only 0, which means no encapsulated protocol, is supported.
const ENCAPSULATION: u32 = 100;
/// `UDPLITE_SEND_CSCOV`.
const SEND_COVERAGE: u32 = 10;
/// `UDPLITE_RECV_CSCOV`.
const RECEIVE_COVERAGE: u32 = 11;

/// Sets the number of bytes of a message that a checksum covers (`UDPLITE_SEND_CSCOV`,
/// `UDPLITE_RECV_CSCOV`). 0 stands for all bytes; other values are limited to 8 to 65,535. Fails
/// with `ENOPROTOOPT` for another option, and if `value` cannot be read.
fn set_of_udp_lite(settings: &Settings, option: u32, value: &Value) -> Result<(), Errno> {
    const HEADER: i32 = 8;
    let coverage = match value.number()? {
        0 => 0,
        number => number.clamp(HEADER, u16::MAX.into()),
    };
    let coverage = coverage.cast_unsigned();
    match option {
        SEND_COVERAGE => settings.coverage.set(coverage),
        RECEIVE_COVERAGE => settings.least_coverage.set(coverage + 1),
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// Sets the option `option` of a UDP or UDP-Lite socket. Fails with `ENOPROTOOPT` for an unknown
/// option, if `value` cannot be read, and with the error of setting the value.
fn set_of_udp(socket: &Socket, option: u32, value: &Value) -> Result<(), Errno> {
    let number = value.number()?;
    match option {
        CORK => socket.set_cork(number != 0),
        ENCAPSULATION if number == 0 => {}
        SEND_COVERAGE | RECEIVE_COVERAGE if is_udp_lite(socket) => {
            set_of_udp_lite(socket.settings(), option, value)?;
        }
        _ => {
            let kept = Kept::find(SOL_UDP, option).ok_or(Errno::ENOPROTOOPT)?;
            set_kept(socket.settings(), kept, number)?;
        }
    }
    Ok(())
}

fn is_tcp(socket: &Socket) -> bool {
    socket.protocol() == Some(Protocol::Tcp)
}

fn is_raw(socket: &Socket) -> bool {
    socket.is_icmp() && socket.kind() == SocketKind::Raw
}

fn is_udp(socket: &Socket) -> bool {
    matches!(socket.protocol(), Some(Protocol::Udp | Protocol::UdpLite))
}

fn is_udp_lite(socket: &Socket) -> bool {
    socket.protocol() == Some(Protocol::UdpLite)
}

/// `setsockopt(2)`.
pub fn setsockopt(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, _| {
        let length = usize::try_from(a.int(4)).map_err(|_| Errno::EINVAL)?;
        let value = Value {
            address: a.addr(3),
            length,
        };
        let (level, option) = (a.uint(1), a.uint(2));
        match (level, socket.family()) {
            (SOL_SOCKET, _) => generic::set(socket, option, &value)?,
            (_, Family::Unix) => return Err(Errno::EOPNOTSUPP),
            (_, Family::Netlink) => return Err(Errno::ENOPROTOOPT),
            (TCP, _) if is_tcp(socket) => tcp::set(socket, option, &value)?,
            (UDP | UDP_LITE, _) if is_udp(socket) => set_of_udp(socket, option, &value)?,
            (icmp::SOL_RAW | ICMP6, _) if is_raw(socket) => {
                icmp::set(socket, level, option, &value)?;
            }
            (SOL_IP, _) => ip::set(socket, option, &value)?,
            (SOL_IPV6, Family::Inet6) => ip6::set(socket, option, &value)?,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(0)
    })
}

/// Returns the value of the option `option` of a UDP or UDP-Lite socket. Fails with `ENOPROTOOPT`
/// for an unknown option.
fn of_udp(socket: &Socket, option: u32) -> Result<Shown, Errno> {
    let settings = socket.settings();
    Ok(match option {
        CORK => Shown::switch(settings.cork.get()),
        ENCAPSULATION => Shown::Number(0),
        SEND_COVERAGE => Shown::Number(settings.coverage.get()),
        RECEIVE_COVERAGE => Shown::Number(settings.least_coverage.get().saturating_sub(1)),
        _ => {
            let kept = Kept::find(SOL_UDP, option).ok_or(Errno::ENOPROTOOPT)?;
            Shown::signed(settings.kept.get(kept))
        }
    })
}

/// `getsockopt(2)`.
pub fn getsockopt(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, _| {
        let (level, option) = (a.uint(1), a.uint(2));
        let mut room = [0; 4];
        uaccess::copy_in(&mut room, a.addr(4))?;
        let room = usize::try_from(i32::from_le_bytes(room)).map_err(|_| Errno::EINVAL)?;
        let shown = match (level, socket.family()) {
            (SOL_SOCKET, _) => generic::get(socket, option, room)?,
            (_, Family::Unix) => return Err(Errno::EOPNOTSUPP),
            (_, Family::Netlink) => return Err(Errno::ENOPROTOOPT),
            (TCP, _) if is_tcp(socket) => tcp::get(socket, option)?,
            (UDP | UDP_LITE, _) if is_udp(socket) => of_udp(socket, option)?,
            (icmp::SOL_RAW | ICMP6, _) if is_raw(socket) => icmp::get(socket, level, option)?,
            (SOL_IP, _) => ip::get(socket, option, room)?,
            (SOL_IPV6, Family::Inet6) => ip6::get(socket, option)?,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let number;
        let bytes: &[u8] = match &shown {
            Shown::Number(value) => {
                number = value.to_le_bytes();
                &number
            }
            Shown::Byte(bytes) => bytes,
            Shown::Word(bytes) => bytes,
            Shown::Name(bytes) => bytes,
            Shown::Time(bytes) => bytes,
            Shown::Bytes(bytes) => bytes,
        };
        let count = room.min(bytes.len());
        uaccess::copy_out(a.addr(3), &bytes[..count])?;
        // No value is long.
        let count = u32::try_from(count).unwrap_or(0);
        uaccess::copy_out(a.addr(4), &count.to_le_bytes())?;
        Ok(0)
    })
}

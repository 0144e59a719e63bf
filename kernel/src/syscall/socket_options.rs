//! `setsockopt` and `getsockopt`.

use super::Args;
use super::socket::{TCP, UDP, UDP_LITE, protocol_number, with_socket};
use crate::fs::socket::{DEFAULT_HOPS, Family, Protocol, Settings, Socket, Timeout};
use crate::process::caller;
use crate::vm::uaccess;
use core::sync::atomic::Ordering;
use linux_raw_sys::net as raw;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::socket::netlink::NAME;
use logic::socket::packet::{self, Told};

const SOL_SOCKET: u32 = raw::SOL_SOCKET;
const SOL_IP: u32 = 0;
const SOL_IPV6: u32 = 41;

// Of SOL_SOCKET.
const SO_DEBUG: u32 = 1;
const SO_REUSEADDR: u32 = 2;
const SO_TYPE: u32 = 3;
const SO_ERROR: u32 = 4;
const SO_DONTROUTE: u32 = 5;
const SO_BROADCAST: u32 = 6;
const SO_SNDBUF: u32 = 7;
const SO_RCVBUF: u32 = 8;
const SO_KEEPALIVE: u32 = 9;
const SO_OOBINLINE: u32 = 10;
const SO_PRIORITY: u32 = 12;
const SO_LINGER: u32 = 13;
const SO_REUSEPORT: u32 = 15;
const SO_PASSCRED: u32 = 16;
const SO_PEERCRED: u32 = 17;
const SO_RCVLOWAT: u32 = 18;
const SO_SNDLOWAT: u32 = 19;
const SO_RCVTIMEO: u32 = 20;
const SO_SNDTIMEO: u32 = 21;
const SO_ACCEPTCONN: u32 = 30;
const SO_BINDTODEVICE: u32 = 25;
const SO_SNDBUFFORCE: u32 = 32;
const SO_RCVBUFFORCE: u32 = 33;
const SO_PROTOCOL: u32 = 38;
const SO_DOMAIN: u32 = 39;
const SO_BINDTOIFINDEX: u32 = 62;

/// Room for the name of an interface.
const INTERFACE_ROOM: usize = 16;
/// Room for the name of a way to avoid congestion.
const CONGESTION_ROOM: usize = 16;
/// Linux's ways to avoid congestion, the default first; nothing congests here.
const CONGESTIONS: [&[u8; CONGESTION_ROOM]; 2] = [
    b"cubic\0\0\0\0\0\0\0\0\0\0\0",
    b"reno\0\0\0\0\0\0\0\0\0\0\0\0",
];

/// `IP_PMTUDISC_WANT` and `IPV6_PMTUDISC_WANT`: the default.
const DISCOVERY: u32 = 1;
/// `IP_PMTUDISC_OMIT` and `IPV6_PMTUDISC_OMIT`: the last of them.
const LAST_DISCOVERY: i32 = 5;
/// The bits of a class of service that a stream uses itself.
const CONGESTION: u32 = 3;
/// `UDPLITE_SEND_CSCOV`.
const SEND_COVERAGE: u32 = 10;
/// `UDPLITE_RECV_CSCOV`.
const RECEIVE_COVERAGE: u32 = 11;

/// The most that a program may ask for as a buffer (`net.core.wmem_max`); Linux doubles it, so that
/// it counts what segments take beside their bytes.
const MAX_BUFFER: u32 = 212_992;
const LEAST_SEND_BUFFER: u32 = 4608;
const LEAST_RECEIVE_BUFFER: u32 = 2304;

const SECOND: u64 = 1_000_000_000;
const MICROSECOND: u64 = 1000;

/// The value that a program passes.
struct Value {
    address: u64,
    length: usize,
}

impl Value {
    fn number(&self) -> Result<i32, Errno> {
        if self.length < 4 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 4];
        uaccess::copy_in(&mut bytes, self.address)?;
        Ok(i32::from_le_bytes(bytes))
    }

    fn unsigned(&self) -> Result<u32, Errno> {
        self.number().map(i32::cast_unsigned)
    }

    fn on(&self) -> Result<bool, Errno> {
        self.number().map(|number| number != 0)
    }

    /// A number of at least 1 and at most `most`.
    fn within(&self, most: i32) -> Result<u32, Errno> {
        let number = self.number()?;
        if number < 1 || number > most {
            return Err(Errno::EINVAL);
        }
        Ok(number.cast_unsigned())
    }

    /// A name, which ends with the value, with `room` less one, or with a 0.
    fn name(&self, room: &mut [u8]) -> Result<usize, Errno> {
        let most = self.length.min(room.len() - 1);
        uaccess::copy_in(&mut room[..most], self.address)?;
        let zero = room[..most].iter().position(|&byte| byte == 0);
        Ok(zero.unwrap_or(most))
    }

    /// Two numbers of the size of a word.
    fn words(&self) -> Result<[u64; 2], Errno> {
        if self.length < 16 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 16];
        uaccess::copy_in(&mut bytes, self.address)?;
        let value = u128::from_le_bytes(bytes);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "splits the value into its two halves"
        )]
        Ok([value as u64, (value >> 64) as u64])
    }
}

/// Sets a `struct timeval`.
fn set_timeout(timeout: &Timeout, value: &Value) -> Result<(), Errno> {
    let [seconds, micros] = value.words()?;
    if micros >= SECOND / MICROSECOND {
        return Err(Errno::EDOM);
    }
    let nanos = seconds
        .saturating_mul(SECOND)
        .saturating_add(micros * MICROSECOND);
    // As on Linux a negative time is none, here the shortest.
    timeout.set(if seconds.cast_signed() < 0 { 1 } else { nanos });
    Ok(())
}

fn timeout_bytes(timeout: &Timeout) -> [u8; 16] {
    let nanos = timeout.get();
    let micros = nanos % SECOND / MICROSECOND;
    let value = u128::from(nanos / SECOND) | u128::from(micros) << 64;
    value.to_le_bytes()
}

/// A buffer's size as it counts.
fn buffer(value: &Value, least: u32, force: bool) -> Result<usize, Errno> {
    let most = if force {
        i32::MAX.cast_unsigned() / 2
    } else {
        MAX_BUFFER
    };
    // A negative one is beyond the most, as on Linux.
    let wanted = value.unsigned()?.min(most);
    Ok((wanted * 2).max(least) as usize)
}

/// Ties a socket to an interface. As there is one, this changes nothing but what is shown.
fn bind_to(settings: &Settings, interface: u32) -> Result<(), Errno> {
    if settings.interface.get() != 0 {
        caller::need(Capabilities::NET_RAW)?;
    }
    settings.interface.set(interface);
    Ok(())
}

/// `SO_BINDTODEVICE`.
fn bind_to_name(settings: &Settings, value: &Value) -> Result<(), Errno> {
    let mut name = [0; INTERFACE_ROOM];
    match value.name(&mut name)? {
        0 => bind_to(settings, 0),
        length if name[..length] == *NAME => bind_to(settings, packet::LOOPBACK),
        _ => Err(Errno::ENODEV),
    }
}

/// `TCP_CONGESTION`.
fn set_congestion(settings: &Settings, value: &Value) -> Result<(), Errno> {
    if value.length == 0 {
        return Err(Errno::EINVAL);
    }
    let mut name = [0; CONGESTION_ROOM];
    let length = value.name(&mut name)?;
    name[length..].fill(0);
    let at = CONGESTIONS.iter().position(|known| **known == name);
    settings.reno.set(at.ok_or(Errno::ENOENT)? != 0);
    Ok(())
}

fn set_of_socket(socket: &Socket, option: u32, value: &Value) -> Result<(), Errno> {
    let settings = socket.settings();
    let unix = socket.family() == Family::Unix;
    if option == SO_BINDTODEVICE {
        return bind_to_name(settings, value);
    }
    // Every other option is a number at least.
    value.number()?;
    match option {
        SO_DEBUG => {}
        SO_REUSEADDR => socket.set_reuse_address(value.on()?),
        SO_REUSEPORT => settings.reuse_port.set(value.on()?),
        SO_DONTROUTE => settings.no_route.set(value.on()?),
        SO_BROADCAST => settings.broadcast.set(value.on()?),
        SO_KEEPALIVE => settings.keep_alive.set(value.on()?),
        SO_OOBINLINE => socket.set_urgent_inline(value.on()?),
        SO_PRIORITY => {
            let priority = value.unsigned()?;
            if priority > 6 {
                caller::need(Capabilities::NET_ADMIN)?;
            }
            settings.priority.set(priority);
        }
        SO_PASSCRED if !unix => return Err(Errno::EOPNOTSUPP),
        SO_PASSCRED => settings.pass_credentials.set(value.on()?),
        SO_SNDBUF | SO_SNDBUFFORCE => {
            let force = option == SO_SNDBUFFORCE;
            if force {
                caller::need(Capabilities::NET_ADMIN)?;
            }
            socket.set_send_buffer(buffer(value, LEAST_SEND_BUFFER, force)?);
        }
        SO_RCVBUF | SO_RCVBUFFORCE => {
            let force = option == SO_RCVBUFFORCE;
            if force {
                caller::need(Capabilities::NET_ADMIN)?;
            }
            let bytes = buffer(value, LEAST_RECEIVE_BUFFER, force)?;
            // Relaxed: an option orders nothing.
            settings.receive_buffer.store(bytes, Ordering::Relaxed);
        }
        SO_LINGER => {
            if value.length < 8 {
                return Err(Errno::EINVAL);
            }
            let mut bytes = [0; 8];
            uaccess::copy_in(&mut bytes, value.address)?;
            let word = u64::from_le_bytes(bytes);
            settings.linger.set(word & u64::from(u32::MAX) != 0);
            let seconds = u32::try_from(word >> 32).unwrap_or(0);
            settings.linger_seconds.set(seconds);
        }
        SO_RCVLOWAT => {
            let least = value.number()?;
            settings
                .receive_least
                .set(u32::try_from(least).unwrap_or(i32::MAX.cast_unsigned()));
        }
        SO_BINDTOIFINDEX => match value.unsigned()? {
            index @ (0 | packet::LOOPBACK) => bind_to(settings, index)?,
            index if index.cast_signed() < 0 => return Err(Errno::EINVAL),
            _ => return Err(Errno::ENODEV),
        },
        SO_RCVTIMEO => set_timeout(&settings.receive_timeout, value)?,
        SO_SNDTIMEO => set_timeout(&settings.send_timeout, value)?,
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// Options of TCP that are kept and shown: number, Linux's default, the most.
const KEPT: [(u32, u32, i32); 6] = [
    (raw::TCP_KEEPIDLE, 7200, 32767),
    (raw::TCP_KEEPINTVL, 75, 32767),
    (raw::TCP_KEEPCNT, 9, 127),
    (raw::TCP_SYNCNT, 6, 127),
    (raw::TCP_USER_TIMEOUT, 0, i32::MAX),
    (raw::TCP_LINGER2, 60, 120),
];

fn set_of_tcp(settings: &Settings, option: u32, value: &Value) -> Result<(), Errno> {
    match option {
        raw::TCP_NODELAY => settings.no_delay.set(value.on()?),
        raw::TCP_CORK => settings.cork.set(value.on()?),
        raw::TCP_QUICKACK => settings.slow_ack.set(!value.on()?),
        raw::TCP_CONGESTION => set_congestion(settings, value)?,
        _ => {
            let at = KEPT.iter().position(|kept| kept.0 == option);
            let at = at.ok_or(Errno::ENOPROTOOPT)?;
            let wanted = if KEPT[at].1 == 0 && value.number()? == 0 {
                0
            } else {
                value.within(KEPT[at].2)?
            };
            settings.tcp[at].set(wanted);
        }
    }
    Ok(())
}

/// A byte, as options of `IP` may be; nothing is 0.
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

/// A stream keeps those bits of its class of service that are its own.
fn service_of(socket: &Socket, old: u32, wanted: u32) -> u32 {
    if is_tcp(socket) {
        wanted & !CONGESTION | old & CONGESTION
    } else {
        wanted
    }
}

fn set_of_ip(socket: &Socket, option: u32, value: &Value) -> Result<(), Errno> {
    let settings = socket.settings();
    if let Some(told) = Told::of_ip(option) {
        settings.told.set(told, byte_or_number(value)? != 0);
        return Ok(());
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
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// A number from -1, which is the default, to 255.
fn byte_or_default(value: &Value) -> Result<Option<u32>, Errno> {
    match value.number()? {
        -1 => Ok(None),
        number @ 0..=255 => Ok(Some(number.cast_unsigned())),
        _ => Err(Errno::EINVAL),
    }
}

fn set_of_ip6(socket: &Socket, option: u32, value: &Value) -> Result<(), Errno> {
    let settings = socket.settings();
    if let Some(told) = Told::of_ip6(option) {
        settings.told.set(told, value.on()?);
        return Ok(());
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
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// Sets what of a message is checked: at least its head, or with 0 all.
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

fn is_tcp(socket: &Socket) -> bool {
    socket.protocol() == Some(Protocol::Tcp)
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
            (SOL_SOCKET, _) => set_of_socket(socket, option, &value)?,
            (_, Family::Unix) => return Err(Errno::EOPNOTSUPP),
            (_, Family::Netlink) => return Err(Errno::ENOPROTOOPT),
            (TCP, _) if is_tcp(socket) => set_of_tcp(socket.settings(), option, &value)?,
            (UDP | UDP_LITE, _) if is_udp_lite(socket) => {
                set_of_udp_lite(socket.settings(), option, &value)?;
            }
            (SOL_IP, _) => set_of_ip(socket, option, &value)?,
            (SOL_IPV6, Family::Inet6) => set_of_ip6(socket, option, &value)?,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(0)
    })
}

/// What an option is: a number, or other bytes.
enum Shown {
    Byte([u8; 1]),
    Number(u32),
    Word([u8; 8]),
    Name(&'static [u8]),
    Time([u8; 16]),
    Who([u8; 12]),
}

fn of_socket(socket: &Socket, option: u32, room: usize) -> Result<Shown, Errno> {
    let settings = socket.settings();
    let unix = socket.family() == Family::Unix;
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(i32::MAX.cast_unsigned());
    Ok(Shown::Number(match option {
        SO_TYPE => socket.kind() as u32,
        SO_DOMAIN => socket.family().number().into(),
        SO_PROTOCOL => socket.protocol().map_or(0, protocol_number),
        SO_ERROR => socket.take_error().map_or(0, number_of),
        SO_ACCEPTCONN => socket.is_listening().into(),
        SO_DEBUG => 0,
        SO_REUSEADDR => settings.reuse_address.get().into(),
        SO_REUSEPORT => settings.reuse_port.get().into(),
        SO_DONTROUTE => settings.no_route.get().into(),
        SO_BROADCAST => settings.broadcast.get().into(),
        SO_KEEPALIVE => settings.keep_alive.get().into(),
        SO_OOBINLINE => socket.is_urgent_inline().into(),
        SO_PRIORITY => settings.priority.get(),
        SO_PASSCRED if !unix => return Err(Errno::EOPNOTSUPP),
        SO_PASSCRED => settings.pass_credentials.get().into(),
        SO_SNDBUF => size(socket.send_buffer()),
        // Relaxed: an option orders nothing.
        SO_RCVBUF => size(settings.receive_buffer.load(Ordering::Relaxed)),
        SO_RCVLOWAT => settings.receive_least.get().max(1),
        SO_SNDLOWAT => 1,
        SO_LINGER => {
            let seconds = u64::from(settings.linger_seconds.get());
            let word = u64::from(settings.linger.get()) | seconds << 32;
            return Ok(Shown::Word(word.to_le_bytes()));
        }
        SO_RCVTIMEO => return Ok(Shown::Time(timeout_bytes(&settings.receive_timeout))),
        SO_SNDTIMEO => return Ok(Shown::Time(timeout_bytes(&settings.send_timeout))),
        SO_BINDTOIFINDEX => settings.interface.get(),
        SO_BINDTODEVICE if settings.interface.get() == 0 => return Ok(Shown::Name(b"")),
        SO_BINDTODEVICE if room < INTERFACE_ROOM => return Err(Errno::EINVAL),
        SO_BINDTODEVICE => return Ok(Shown::Name(b"lo\0")),
        SO_PEERCRED => return Ok(Shown::Who(socket.peer_credentials().to_bytes())),
        _ => return Err(Errno::ENOPROTOOPT),
    }))
}

fn number_of(error: Errno) -> u32 {
    // Errors are returned negated, in two's complement.
    u32::try_from(error.to_return().wrapping_neg()).unwrap_or(0)
}

fn of_tcp(settings: &Settings, option: u32) -> Result<u32, Errno> {
    Ok(match option {
        raw::TCP_NODELAY => settings.no_delay.get().into(),
        raw::TCP_CORK => settings.cork.get().into(),
        raw::TCP_QUICKACK => (!settings.slow_ack.get()).into(),
        _ => {
            let at = KEPT.iter().position(|kept| kept.0 == option);
            let at = at.ok_or(Errno::ENOPROTOOPT)?;
            match settings.tcp[at].get() {
                0 => KEPT[at].1,
                set => set,
            }
        }
    })
}

fn of_ip(settings: &Settings, option: u32) -> Result<u32, Errno> {
    if let Some(told) = Told::of_ip(option) {
        return Ok(settings.told.get().contains(told).into());
    }
    Ok(match option {
        raw::IP_TOS => settings.service.get(),
        raw::IP_TTL => match settings.hops.get() {
            0 => DEFAULT_HOPS.into(),
            set => set,
        },
        raw::IP_MTU_DISCOVER => settings.discovery.get().checked_sub(1).unwrap_or(DISCOVERY),
        _ => return Err(Errno::ENOPROTOOPT),
    })
}

fn of_ip6(settings: &Settings, option: u32) -> Result<u32, Errno> {
    if let Some(told) = Told::of_ip6(option) {
        return Ok(settings.told.get().contains(told).into());
    }
    Ok(match option {
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
        _ => return Err(Errno::ENOPROTOOPT),
    })
}

fn of_udp_lite(settings: &Settings, option: u32) -> Result<u32, Errno> {
    match option {
        SEND_COVERAGE => Ok(settings.coverage.get()),
        RECEIVE_COVERAGE => Ok(settings.least_coverage.get().saturating_sub(1)),
        _ => Err(Errno::ENOPROTOOPT),
    }
}

/// `getsockopt(2)`.
pub fn getsockopt(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, _| {
        let (level, option) = (a.uint(1), a.uint(2));
        let mut room = [0; 4];
        uaccess::copy_in(&mut room, a.addr(4))?;
        let room = usize::try_from(i32::from_le_bytes(room)).map_err(|_| Errno::EINVAL)?;
        let settings = socket.settings();
        let shown = match (level, socket.family()) {
            (SOL_SOCKET, _) => of_socket(socket, option, room)?,
            (_, Family::Unix) => return Err(Errno::EOPNOTSUPP),
            (_, Family::Netlink) => return Err(Errno::ENOPROTOOPT),
            (TCP, _) if is_tcp(socket) && option == raw::TCP_CONGESTION => {
                Shown::Name(CONGESTIONS[usize::from(settings.reno.get())])
            }
            (TCP, _) if is_tcp(socket) => Shown::Number(of_tcp(settings, option)?),
            (UDP | UDP_LITE, _) if !is_tcp(socket) => Shown::Number(of_udp_lite(settings, option)?),
            (SOL_IP, _) => match u8::try_from(of_ip(settings, option)?) {
                // A small room gets a byte.
                Ok(byte) if (1..4).contains(&room) => Shown::Byte([byte]),
                Ok(byte) => Shown::Number(byte.into()),
                Err(_) => return Err(Errno::ENOPROTOOPT),
            },
            (SOL_IPV6, Family::Inet6) => Shown::Number(of_ip6(settings, option)?),
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
            Shown::Who(bytes) => bytes,
        };
        let count = room.min(bytes.len());
        uaccess::copy_out(a.addr(3), &bytes[..count])?;
        // At most 16.
        let count = u32::try_from(count).unwrap_or(0);
        uaccess::copy_out(a.addr(4), &count.to_le_bytes())?;
        Ok(0)
    })
}

//! Options of `SOL_SOCKET`.

use super::value::{Shown, Value, need_admin_or_raw, set_kept};
use crate::fs::socket::{Family, Settings, Socket, Stamps, Timeout};
use crate::process::caller;
use crate::syscall::socket::protocol_number;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::credentials::Capabilities;
use logic::errno::Errno;
use logic::socket::netlink::NAME;
use logic::socket::options::{Kept, SOL_SOCKET};
use logic::socket::packet;
use machine::uaccess;

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
const SO_BSDCOMPAT: u32 = 14;
const SO_TIMESTAMP: u32 = 29;
const SO_TIMESTAMPNS: u32 = 35;
const SO_TIMESTAMPING: u32 = 37;
const SO_TIMESTAMP_NEW: u32 = 63;
const SO_TIMESTAMPNS_NEW: u32 = 64;
const SO_TIMESTAMPING_NEW: u32 = 65;
const SO_RCVTIMEO_NEW: u32 = 66;
const SO_SNDTIMEO_NEW: u32 = 67;
const SO_GET_FILTER: u32 = 26;
const SO_DETACH_FILTER: u32 = 27;
const SO_PEERNAME: u32 = 28;
const SO_LOCK_FILTER: u32 = 44;
const SO_MAX_PACING_RATE: u32 = 47;
const SO_BPF_EXTENSIONS: u32 = 48;
const SO_MEMINFO: u32 = 55;
const SO_INCOMING_NAPI_ID: u32 = 56;
const SO_COOKIE: u32 = 57;
/// The number of places at which Linux's packet filters find data that is in no packet.
const BPF_EXTENSIONS: u32 = 64;
const SO_NETNS_COOKIE: u32 = 71;

/// The largest size of a buffer that a program may request (`net.core.wmem_max`). As on Linux, it
/// is doubled, since segments take memory beside their bytes.
const MAX_BUFFER: u32 = 212_992;
const LEAST_SEND_BUFFER: u32 = 4608;
const LEAST_RECEIVE_BUFFER: u32 = 2304;

const SECOND: u64 = 1_000_000_000;
const MICROSECOND: u64 = 1000;

/// Sets `timeout` to the `struct timeval` in `value`. Fails with `EDOM` if it has a million
/// microseconds or more, with `EINVAL`, and with `EFAULT`.
fn set_timeout(timeout: &Timeout, value: &Value) -> Result<(), Errno> {
    let [seconds, micros] = value.words()?;
    if micros >= SECOND / MICROSECOND {
        return Err(Errno::EDOM);
    }
    let nanos = seconds
        .saturating_mul(SECOND)
        .saturating_add(micros * MICROSECOND);
    // As on Linux, a negative time does not wait. The shortest timeout, 1 ns, stands for it.
    timeout.set(if seconds.cast_signed() < 0 { 1 } else { nanos });
    Ok(())
}

fn timeout_bytes(timeout: &Timeout) -> [u8; 16] {
    let nanos = timeout.get();
    let micros = nanos % SECOND / MICROSECOND;
    let value = u128::from(nanos / SECOND) | u128::from(micros) << 64;
    value.to_le_bytes()
}

/// Returns the size in bytes that a buffer gets for the requested size in `value`: twice that, and
/// at least `least`. With `force` the limit of programs does not apply. Fails if `value` cannot be
/// read.
fn buffer(value: &Value, least: u32, force: bool) -> Result<usize, Errno> {
    let most = if force {
        i32::MAX.cast_unsigned() / 2
    } else {
        MAX_BUFFER
    };
    // A negative size is above the limit, as on Linux.
    let wanted = value.unsigned()?.min(most);
    Ok((wanted * 2).max(least) as usize)
}

/// Binds a socket to an interface. There is only one, so this changes the shown value alone. Fails
/// with `EPERM` if the socket is bound already and the caller lacks `CAP_NET_RAW`.
fn bind_to(settings: &Settings, interface: u32) -> Result<(), Errno> {
    if settings.interface.get() != 0 {
        caller::need(Capabilities::NET_RAW)?;
    }
    settings.interface.set(interface);
    Ok(())
}

/// `SO_BINDTODEVICE`: binds a socket to the interface with the name in `value`, or to none for an
/// empty name. Fails with `ENODEV` for an unknown name, and as [`bind_to`].
fn bind_to_name(settings: &Settings, value: &Value) -> Result<(), Errno> {
    let mut name = [0; INTERFACE_ROOM];
    match value.name(&mut name)? {
        0 => bind_to(settings, 0),
        length if name[..length] == *NAME => bind_to(settings, packet::LOOPBACK),
        _ => Err(Errno::ENODEV),
    }
}

/// Sets an option of `SOL_SOCKET`.
///
/// # Errors
/// Fails as `setsockopt(2)` does.
pub(super) fn set(socket: &Socket, option: u32, value: &Value) -> Result<(), Errno> {
    let settings = socket.settings();
    let unix = socket.family() == Family::Unix;
    if option == SO_BINDTODEVICE {
        return bind_to_name(settings, value);
    }
    // All other values have at least the size of a number.
    let number = value.number()?;
    match option {
        SO_DEBUG => {
            if number != 0 {
                caller::need(Capabilities::NET_ADMIN).map_err(|_| Errno::EACCES)?;
            }
            settings.debug.set(number != 0);
        }
        SO_REUSEADDR => socket.set_reuse_address(value.on()?),
        SO_REUSEPORT => settings.reuse_port.set(value.on()?),
        SO_DONTROUTE => settings.no_route.set(value.on()?),
        SO_BROADCAST => settings.broadcast.set(value.on()?),
        SO_KEEPALIVE => settings.keep_alive.set(value.on()?),
        SO_OOBINLINE => socket.set_urgent_inline(value.on()?),
        SO_PRIORITY => {
            let priority = value.unsigned()?;
            if priority > 6 {
                need_admin_or_raw()?;
            }
            settings.priority.set(priority);
        }
        SO_PASSCRED if !unix => return Err(Errno::EOPNOTSUPP),
        SO_PASSCRED => socket.set_pass_credentials(number != 0),
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
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => set_timeout(&settings.receive_timeout, value)?,
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => set_timeout(&settings.send_timeout, value)?,
        // Known and without effect, as on Linux.
        SO_BSDCOMPAT => {}
        SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW => {
            let stamps = (number != 0).then_some(match option {
                SO_TIMESTAMP => Stamps::Micros,
                SO_TIMESTAMPNS => Stamps::Nanos,
                SO_TIMESTAMP_NEW => Stamps::NewMicros,
                _ => Stamps::NewNanos,
            });
            socket.set_stamps(stamps);
        }
        SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
            socket.set_stamping(value.unsigned()?, option == SO_TIMESTAMPING_NEW)?;
        }
        // No filter can be attached.
        SO_DETACH_FILTER => return Err(Errno::ENOENT),
        SO_LOCK_FILTER => {
            let was = settings.lock_filter.get();
            if was && number == 0 {
                return Err(Errno::EPERM);
            }
            settings.lock_filter.set(number != 0);
        }
        SO_MAX_PACING_RATE => {
            let rate = match value.words_up_to(1)? {
                Some([rate, _]) => rate,
                None if number == -1 => u64::MAX,
                None => number.cast_unsigned().into(),
            };
            // Relaxed: an option orders nothing.
            settings.unpaced.store(!rate, Ordering::Relaxed);
        }
        _ => {
            let kept = Kept::find(SOL_SOCKET, option).ok_or(Errno::ENOPROTOOPT)?;
            set_kept(settings, kept, number)?;
        }
    }
    Ok(())
}

/// Returns the value of an option of `SOL_SOCKET` for a program with a buffer of `room` bytes.
///
/// # Errors
/// Fails as `getsockopt(2)` does.
pub(super) fn get(socket: &Socket, option: u32, room: usize) -> Result<Shown, Errno> {
    let settings = socket.settings();
    let unix = socket.family() == Family::Unix;
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(i32::MAX.cast_unsigned());
    Ok(Shown::Number(match option {
        SO_TYPE => socket.kind() as u32,
        SO_DOMAIN => socket.family().number().into(),
        SO_PROTOCOL => socket
            .protocol()
            .map_or(0, |protocol| protocol_number(protocol, socket.family())),
        SO_ERROR => socket.take_error().map_or(0, number_of),
        SO_ACCEPTCONN => socket.is_listening().into(),
        SO_DEBUG => settings.debug.get().into(),
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
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => {
            return Ok(Shown::Time(timeout_bytes(&settings.receive_timeout)));
        }
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => {
            return Ok(Shown::Time(timeout_bytes(&settings.send_timeout)));
        }
        SO_BINDTOIFINDEX => settings.interface.get(),
        SO_BINDTODEVICE if settings.interface.get() == 0 => return Ok(Shown::Name(b"")),
        SO_BINDTODEVICE if room < INTERFACE_ROOM => return Err(Errno::EINVAL),
        SO_BINDTODEVICE => return Ok(Shown::Name(b"lo\0")),
        SO_PEERCRED => {
            let bytes = socket.peer_credentials().to_bytes();
            return Ok(Shown::Bytes(bytes.to_vec()));
        }
        SO_BSDCOMPAT => 0,
        SO_TIMESTAMP => (settings.stamps() == Some(Stamps::Micros)).into(),
        SO_TIMESTAMPNS => (settings.stamps() == Some(Stamps::Nanos)).into(),
        SO_TIMESTAMP_NEW => (settings.stamps() == Some(Stamps::NewMicros)).into(),
        SO_TIMESTAMPNS_NEW => (settings.stamps() == Some(Stamps::NewNanos)).into(),
        SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
            // The flags, and no hardware clock.
            let flags = settings.stamping_of(option == SO_TIMESTAMPING_NEW);
            return Ok(Shown::Word(u64::from(flags).to_le_bytes()));
        }
        SO_GET_FILTER => return Ok(Shown::Name(b"")),
        SO_LOCK_FILTER => settings.lock_filter.get().into(),
        SO_PEERNAME => {
            let name = socket.peer_name().ok_or(Errno::ENOTCONN)?;
            let bytes = name.to_bytes(socket.family());
            if bytes.len() < room {
                return Err(Errno::EINVAL);
            }
            return Ok(Shown::Bytes(bytes));
        }
        SO_MAX_PACING_RATE => {
            // Relaxed: an option orders nothing.
            let rate = !settings.unpaced.load(Ordering::Relaxed);
            if room >= 8 {
                return Ok(Shown::Word(rate.to_le_bytes()));
            }
            u32::try_from(rate).unwrap_or(u32::MAX)
        }
        SO_BPF_EXTENSIONS => BPF_EXTENSIONS,
        SO_MEMINFO => return Ok(Shown::Bytes(memory(socket))),
        SO_INCOMING_NAPI_ID => 0,
        SO_COOKIE | SO_NETNS_COOKIE if room < 8 => return Err(Errno::EINVAL),
        SO_COOKIE => return Ok(Shown::Word(socket.number().to_le_bytes())),
        // The first network has this number, and there is one.
        SO_NETNS_COOKIE => return Ok(Shown::Word(1_u64.to_le_bytes())),
        _ => {
            let kept = Kept::find(SOL_SOCKET, option).ok_or(Errno::ENOPROTOOPT)?;
            return Ok(Shown::signed(settings.kept.get(kept)));
        }
    }))
}

/// Returns Linux's number of `error`, a positive number.
fn number_of(error: Errno) -> u32 {
    // Errors are returned negated, in two's complement.
    u32::try_from(error.to_return().wrapping_neg()).unwrap_or(0)
}

/// Returns the value of `SO_MEMINFO`: nine numbers of four bytes, in Linux's order. They are the
/// memory of data to be received and its limit, the memory of sent data that is not received and
/// its limit, four zeros, and the number of dropped messages.
fn memory(socket: &Socket) -> Vec<u8> {
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    // Relaxed: an option orders nothing.
    let bound = socket.settings().receive_buffer.load(Ordering::Relaxed);
    let numbers = [
        size(socket.memory()),
        size(bound),
        size(socket.unreceived()),
        size(socket.send_buffer()),
        0,
        0,
        0,
        0,
        socket.drops(),
    ];
    numbers.into_iter().flat_map(u32::to_le_bytes).collect()
}

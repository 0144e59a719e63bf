//! Options of `IPPROTO_TCP`.

use super::value::{Shown, Value, set_kept};
use crate::fs::socket::{KEEP_ALIVE, Settings, Socket};
use core::sync::atomic::Ordering;
use linux_raw_sys::net as raw;
use logic::errno::Errno;
use logic::socket::options::{self, Kept, NUMBERS, SOL_TCP};
use machine::arch::clock;

/// The size of a name of a congestion algorithm, with its NUL.
const CONGESTION_ROOM: usize = 16;
/// Linux's algorithms against congestion, the default first. They have no effect, since there is no
/// congestion.
const CONGESTIONS: [&[u8; CONGESTION_ROOM]; 2] = [
    b"cubic\0\0\0\0\0\0\0\0\0\0\0",
    b"reno\0\0\0\0\0\0\0\0\0\0\0\0",
];

/// The largest number of seconds of `TCP_LINGER2`.
const MOST_LINGER: i32 = 120;

/// Numbers of TCP that are stored for programs to read: option, Linux's default, largest value.
const TIMES: [(u32, u32, i32); 5] = [
    (raw::TCP_KEEPIDLE, 7200, 32767),
    (raw::TCP_KEEPINTVL, 75, 32767),
    (raw::TCP_KEEPCNT, 9, 127),
    (raw::TCP_SYNCNT, 6, 127),
    (raw::TCP_USER_TIMEOUT, 0, i32::MAX),
];
/// The index of `TCP_LINGER2` in the numbers of a socket, behind those of [`TIMES`].
const LINGER: usize = TIMES.len();
/// The default of `TCP_LINGER2` in seconds (`net.ipv4.tcp_fin_timeout`).
const DEFAULT_LINGER: u32 = 60;

/// The segment sizes of a socket that is not connected, and of a connection.
const FIRST_SEGMENT: i32 = 536;
const LOOPBACK_SEGMENT: i32 = 32768;
/// The smallest value of `TCP_WINDOW_CLAMP` other than 0.
const LEAST_CLAMP: u32 = 1152;

/// Sets `TCP_CONGESTION`: chooses the congestion control with the name in `value`. Fails with
/// `EINVAL` for an empty value, with `ENOENT` for an unknown name, and if `value` cannot be read.
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

/// Sets an option of `IPPROTO_TCP`.
///
/// # Errors
/// Fails as `setsockopt(2)` does.
pub(super) fn set(socket: &Socket, option: u32, value: &Value) -> Result<(), Errno> {
    let settings = socket.settings();
    match option {
        raw::TCP_CONGESTION => return set_congestion(settings, value),
        // As on a kernel without TLS, there are no upper-layer protocols.
        raw::TCP_ULP => return Err(Errno::ENOENT),
        _ => {}
    }
    let number = value.number()?;
    match option {
        raw::TCP_NODELAY => {
            settings.no_delay.set(number != 0);
            if number != 0 {
                socket.release_held();
            }
        }
        raw::TCP_CORK => socket.set_cork(number != 0),
        raw::TCP_QUICKACK => settings.slow_ack.set(number == 0),
        raw::TCP_LINGER2 => {
            let seconds = number.clamp(-1, MOST_LINGER);
            settings.tcp[LINGER].set(seconds.cast_unsigned());
        }
        // Known and without effect, as on Linux.
        raw::TCP_THIN_DUPACK if (0..=1).contains(&number) => {}
        raw::TCP_THIN_DUPACK => return Err(Errno::EINVAL),
        raw::TCP_TIMESTAMP => return Err(Errno::EPERM),
        raw::TCP_FASTOPEN | raw::TCP_FASTOPEN_CONNECT | raw::TCP_FASTOPEN_NO_COOKIE
            if socket.remote().is_some() =>
        {
            return Err(Errno::EINVAL);
        }
        raw::TCP_WINDOW_CLAMP if number == 0 && socket.remote().is_some() => {
            return Err(Errno::EINVAL);
        }
        raw::TCP_WINDOW_CLAMP if number != 0 => {
            let kept = Kept::find(SOL_TCP, option).ok_or(Errno::ENOPROTOOPT)?;
            let clamp = number.cast_unsigned().max(LEAST_CLAMP);
            set_kept(settings, kept, clamp.cast_signed())?;
        }
        _ => {
            if let Some(kept) = Kept::find(SOL_TCP, option) {
                return set_kept(settings, kept, number);
            }
            let at = TIMES.iter().position(|one| one.0 == option);
            let at = at.ok_or(Errno::ENOPROTOOPT)?;
            let wanted = if TIMES[at].1 == 0 && number == 0 {
                0
            } else {
                value.within(TIMES[at].2)?
            };
            settings.tcp[at].set(wanted);
        }
    }
    Ok(())
}

/// Returns the value of an option of `IPPROTO_TCP`.
///
/// # Errors
/// Fails as `getsockopt(2)` does.
pub(super) fn get(socket: &Socket, option: u32) -> Result<Shown, Errno> {
    let settings = socket.settings();
    Ok(match option {
        raw::TCP_CONGESTION => Shown::Name(CONGESTIONS[usize::from(settings.reno.get())]),
        // Neither congestion algorithm has details, and there are no upper-layer protocols.
        raw::TCP_CC_INFO | raw::TCP_ULP => Shown::Name(b""),
        raw::TCP_NODELAY => Shown::switch(settings.no_delay.get()),
        raw::TCP_CORK => Shown::switch(settings.cork.get()),
        raw::TCP_QUICKACK => Shown::switch(!settings.slow_ack.get()),
        raw::TCP_INFO => Shown::Bytes(socket.tcp_info()),
        raw::TCP_THIN_DUPACK => Shown::Number(0),
        raw::TCP_TIMESTAMP => {
            const MILLISECOND: u64 = 1_000_000;
            let now = clock::now().0 / MILLISECOND;
            Shown::Number(u32::try_from(now & u64::from(u32::MAX)).unwrap_or(0))
        }
        raw::TCP_LINGER2 => Shown::Number(match settings.tcp[LINGER].get() {
            0 => DEFAULT_LINGER,
            set => set,
        }),
        _ => match Kept::find(SOL_TCP, option) {
            Some(kept) => Shown::signed(kept_value(socket, kept)),
            None => {
                let at = TIMES.iter().position(|one| one.0 == option);
                let at = at.ok_or(Errno::ENOPROTOOPT)?;
                Shown::Number(match settings.tcp[at].get() {
                    0 => default_of(TIMES[at].0, TIMES[at].1),
                    set => set,
                })
            }
        },
    })
}

/// Returns the default of an option: the value of its knob, or `otherwise` if it has no knob.
fn default_of(option: u32, otherwise: u32) -> u32 {
    let knob = match option {
        raw::TCP_KEEPIDLE => &KEEP_ALIVE.idle,
        raw::TCP_KEEPINTVL => &KEEP_ALIVE.interval,
        raw::TCP_KEEPCNT => &KEEP_ALIVE.probes,
        _ => return otherwise,
    };
    u32::try_from(knob.load(Ordering::Relaxed)).unwrap_or(otherwise)
}

/// Returns the value of a stored option as programs read it.
fn kept_value(socket: &Socket, kept: Kept) -> i32 {
    let value = socket.settings().kept.get(kept);
    match kept {
        Kept::Number(options::DEFER_ACCEPT) => options::periods(value),
        Kept::Number(options::SEGMENT) => {
            debug_assert!(NUMBERS[options::SEGMENT].option == raw::TCP_MAXSEG);
            match (socket.remote().is_some(), value) {
                (true, 0) => LOOPBACK_SEGMENT,
                (true, set) => set.min(LOOPBACK_SEGMENT),
                (false, 0) => FIRST_SEGMENT,
                (false, set) => set,
            }
        }
        _ => value,
    }
}

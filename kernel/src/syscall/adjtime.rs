//! How the wall clock is steered: it is the host's, so programs may look, and nothing else.

use super::Args;
use crate::process::time::clocks::Clock;
use crate::vm::uaccess::UserPtr;
use logic::errno::{Errno, SysResult};
use machine::arch::clock;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct timex`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Timex {
    modes: u32,
    padding: u32,
    offset: i64,
    frequency: i64,
    most_error: i64,
    estimated_error: i64,
    status: u32,
    padding_2: u32,
    constant: i64,
    precision: i64,
    tolerance: i64,
    seconds: u64,
    microseconds: u64,
    tick: i64,
    /// Of a signal once a second, which there is not: frequency, jitter, interval and so on.
    pulse: [i64; 8],
    tai: i32,
    rest: [u32; 11],
}

const _: () = assert!(size_of::<Timex>() == 208);

/// With `SINGLE_SHOT`: as `adjtime(3)`.
const ADJUST: u32 = 0x8000;
const SINGLE_SHOT: u32 = 1;
/// Only to look at what is left of it.
const LOOK: u32 = 0x2000;

/// Errors are at their bound, in microseconds, where nobody steers the clock.
const MOST_ERROR: i64 = 16_000_000;
/// Bit of the status, and the result: nobody does.
const UNSYNCHRONISED: u32 = 0x40;
const TIME_ERROR: usize = 5;

fn adjust(address: u64) -> SysResult {
    let place = UserPtr::<Timex>::new(address);
    let mut timex = place.read()?;
    let modes = timex.modes;
    let looks = if modes & ADJUST != 0 {
        if modes & SINGLE_SHOT == 0 {
            return Err(Errno::EINVAL);
        }
        modes & LOOK != 0
    } else {
        modes == 0
    };
    if !looks {
        return Err(Errno::EPERM);
    }
    let now = clock::now().saturating_add(clock::realtime_offset()).0;
    timex.offset = 0;
    timex.frequency = 0;
    timex.most_error = MOST_ERROR;
    timex.estimated_error = MOST_ERROR;
    timex.status = UNSYNCHRONISED;
    timex.constant = 2;
    timex.precision = 1;
    // 500 parts in a million, with 16 bits behind the point.
    timex.tolerance = 500 << 16;
    timex.seconds = now / 1_000_000_000;
    timex.microseconds = now % 1_000_000_000 / 1000;
    timex.tick = 10_000;
    timex.pulse = [0; 8];
    timex.tai = 0;
    place.write(&timex)?;
    Ok(TIME_ERROR)
}

/// `adjtimex(2)`.
pub fn adjtimex(a: &Args) -> SysResult {
    adjust(a.addr(0))
}

/// `clock_adjtime(2)`.
pub fn clock_adjtime(a: &Args) -> SysResult {
    UserPtr::<Timex>::new(a.addr(1)).read()?;
    if a.int(0) == 0 {
        return adjust(a.addr(1));
    }
    // Only the wall clock can be steered.
    Clock::from_number(a.int(0))?;
    Err(Errno::EOPNOTSUPP)
}

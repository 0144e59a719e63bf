//! Calls that adjust the wall clock.

use super::Args;
use crate::process::time::clocks::Clock;
use crate::process::time::steering::{self, Timex};
use logic::errno::{Errno, SysResult};
use machine::uaccess::UserPtr;

fn adjust(address: u64) -> SysResult {
    let place = UserPtr::<Timex>::new(address);
    let mut timex = place.read()?;
    let result = steering::adjust(&mut timex)?;
    place.write(&timex)?;
    Ok(result)
}

/// `adjtimex(2)`.
pub fn adjtimex(a: &Args) -> SysResult {
    adjust(a.addr(0))
}

/// `clock_adjtime(2)`. Only the wall clock can be adjusted; other clocks give `EOPNOTSUPP`.
pub fn clock_adjtime(a: &Args) -> SysResult {
    UserPtr::<Timex>::new(a.addr(1)).read()?;
    if a.int(0) == 0 {
        return adjust(a.addr(1));
    }
    // Tells an unknown clock (`EINVAL`) from one that cannot be adjusted.
    Clock::from_number(a.int(0))?;
    Err(Errno::EOPNOTSUPP)
}

//! Stock Linux as a guest's kernel: where it comes from, what its guest is packed with, and how
//! its guest tells what becomes of the program.

mod bzimage;
mod cache;
mod clock;
mod guest;
mod init;
mod modules;
mod stock;

pub(crate) use bzimage::FormatError;
pub(crate) use cache::CacheError;
pub(crate) use clock::{Kilohertz, time_stamp_rate};
pub(crate) use guest::LinuxGuest;
pub(crate) use init::InitError;
pub(crate) use stock::{Stock, StockError};

use crate::kernel::Patience;
use crate::size::Size;
use ebb_wire::boot::INIT;
use std::time::Duration;

/// Debian's kernel needs more than half of this to unpack itself.
pub(crate) const MEMORY_MIN: Size = Size::mebibytes(96);

/// How long Linux may take to its first process. On a busy host it can lose interrupts of the
/// board's timers while it sets up its own, and hang; nothing is lost by another start then. The
/// work of the host's CPUs is counted too, so that a guest that gets little of them is not taken
/// for one that hangs.
pub(crate) fn patience(memory: Size, cpus: u32, icount: bool) -> Patience {
    // 512 GiB are the most that a guest has.
    let gibibytes = u32::try_from(memory.bytes() >> 30).unwrap_or(512);
    let share = Duration::from_secs(1) * cpus + Duration::from_millis(250) * gibibytes;
    // Counting takes several times the work, and knows no lost interrupts.
    let slowness = if icount { 4 } else { 1 };
    Patience {
        attempts: 3,
        work: (Duration::from_secs(20) + share) * slowness,
        wait: (Duration::from_secs(90) + share) * slowness,
    }
}

/// The command line of a stock kernel whose time-stamp counter runs at `clock`, where that is
/// known.
pub(crate) fn arguments(clock: Option<Kilohertz>, verbose: bool) -> String {
    // A triple fault is the restart that every board of QEMU has; ebb takes it for the end.
    let mut text = format!("console=ttyS0 reboot=t panic=-1 rdinit={INIT}");
    if let Some(Kilohertz(rate)) = clock {
        // Measured by the guest against an emulated PIT it comes out wrong, or not at all, when
        // the host is busy; and without it Linux hangs.
        text.push_str(&format!(" tsc_early_khz={rate}"));
        // QEMU's counter is one for all CPUs and keeps its rate. Linux cannot know that: with two
        // CPUs, or once it has lost ticks, it would count ticks of 4 ms for a clock, and the
        // scheduler with it.
        text.push_str(" tsc=reliable");
    }
    if !verbose {
        text.push_str(" quiet");
    }
    text
}

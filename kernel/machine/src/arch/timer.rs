//! This CPU's one-shot timer.

use super::clock::{self, Nanos};
use super::cpuset::MAX_CPUS;
use super::entries::ENTRIES;
use super::{apic, cpu_id};
use core::sync::atomic::{AtomicU64, Ordering};

/// The deadline of each CPU's timer; `u64::MAX` if it is stopped. Only its own CPU uses it, so
/// accesses are Relaxed.
static DEADLINES: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(u64::MAX) }; MAX_CPUS];

/// Sets this CPU's timer, so that [`Entries::timer`](super::Entries::timer) runs at `deadline` or
/// soon after. `None` stops the timer. A deadline in the past fires at once. Each call replaces the
/// previous deadline.
pub fn arm(deadline: Option<Nanos>) {
    let slot = &DEADLINES[cpu_id()];
    let new = deadline.map_or(u64::MAX, |d| d.0);
    if slot.load(Ordering::Relaxed) == new {
        // The hardware waits for it already.
        return;
    }
    slot.store(new, Ordering::Relaxed);
    if new == u64::MAX {
        apic::stop_timer();
    } else {
        apic::start_timer(Nanos(new));
    }
}

/// Handles the timer's interrupt. Sets the timer again if the deadline is still ahead.
pub(super) fn fired() {
    let slot = &DEADLINES[cpu_id()];
    let deadline = slot.load(Ordering::Relaxed);
    if deadline == u64::MAX {
        return;
    }
    if clock::now().0 < deadline {
        // The hardware's range was too short, or its rate differs a little.
        apic::start_timer(Nanos(deadline));
        return;
    }
    slot.store(u64::MAX, Ordering::Relaxed);
    (ENTRIES.timer)();
}

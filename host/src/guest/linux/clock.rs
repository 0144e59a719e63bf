//! The frequency of the time-stamp counter that a guest sees.

use crate::machine::Accel;
use std::time::{Duration, Instant};

/// A frequency in kHz.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kilohertz(pub(crate) u64);

/// How long the host's counter is measured. Each reading differs from the clock by at most a
/// microsecond, so the frequency is exact to one part in ten thousand.
const WATCH: Duration = Duration::from_millis(20);
/// The maximum time between reading the clock and reading the counter.
const APART_MAX: Duration = Duration::from_micros(1);
/// The maximum number of attempts at a reading, on a host that interrupts them.
const TRIES: u32 = 1000;

/// Returns the frequency of the guest's time-stamp counter. On TCG measures the host's counter,
/// which takes 20 ms, unless QEMU counts instructions (`icount`). Returns `None` on KVM, which
/// reports the frequency to the guest itself.
pub(crate) fn time_stamp_rate(accel: Accel, icount: bool) -> Option<Kilohertz> {
    match accel {
        // KVM tells its guests the frequency.
        Accel::Kvm => None,
        // The counter advances once per instruction, and an instruction takes one nanosecond.
        Accel::Tcg if icount => Some(Kilohertz(1_000_000)),
        // The guest sees the host's own counter.
        Accel::Tcg => Some(host_rate()),
    }
}

/// Measures the frequency of the host's time-stamp counter.
fn host_rate() -> Kilohertz {
    let (began, first) = reading();
    std::thread::sleep(WATCH);
    let (ended, last) = reading();
    let microseconds = (ended - began).as_micros().max(1);
    let ticks = u128::from(last.wrapping_sub(first));
    Kilohertz(u64::try_from(ticks * 1000 / microseconds).unwrap_or(u64::MAX))
}

/// Returns the clock and the counter at nearly the same moment.
fn reading() -> (Instant, u64) {
    let read = || {
        let before = Instant::now();
        // SAFETY: every x86-64 CPU has the instruction, and Linux lets user space execute it.
        let ticks = unsafe { std::arch::x86_64::_rdtsc() };
        (before, ticks, before.elapsed())
    };
    let mut best = read();
    for _ in 0..TRIES {
        if best.2 <= APART_MAX {
            break;
        }
        let next = read();
        if next.2 < best.2 {
            best = next;
        }
    }
    (best.0, best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_agree() {
        let (Kilohertz(one), Kilohertz(other)) = (host_rate(), host_rate());
        assert!(one > 100_000, "{one}");
        assert!(one.abs_diff(other) < one / 500, "{one} {other}");
        assert_eq!(time_stamp_rate(Accel::Kvm, false), None);
    }
}

//! Decides when to give up a kernel that does not boot.

use crate::guest::BootLimits;
use std::time::Duration;

/// A guest that takes less CPU time than this in [`HALTED`] has only halted CPUs.
const WORK_MIN: Duration = Duration::from_millis(100);
const HALTED: Duration = Duration::from_secs(20);
/// The maximum factor by which a host's load extends the limits. So a kernel that hangs is given up
/// on any host.
const SLOWDOWN_MAX: f64 = 16.0;

/// Counts the samples of a guest that has not booted, and its CPU time, against limits.
///
/// It counts samples instead of time. So time in which `ebb` itself was stopped or not scheduled
/// does not count against the guest. On a host with more threads than CPUs, a sample and the CPU
/// time since the sample before count for less: the guest gets a small share of a CPU, and spends
/// most of it on interrupts of its timers, which do not become fewer.
#[derive(Debug)]
pub(super) struct BootWatchdog {
    limits: BootLimits,
    /// Interval between two samples.
    tick: Duration,
    /// CPU time at the last sample.
    seen: Duration,
    /// CPU time and time of all samples, reduced by the host's load.
    work: Duration,
    wait: Duration,
    /// CPU time since the guest last had used [`WORK_MIN`].
    recent: Duration,
    /// Time of the samples since then, reduced by the host's load.
    idle: Duration,
}

impl BootWatchdog {
    /// Creates a watchdog for samples that are `tick` apart.
    pub(super) fn new(limits: BootLimits, tick: Duration) -> Self {
        Self {
            limits,
            tick,
            seen: Duration::ZERO,
            work: Duration::ZERO,
            wait: Duration::ZERO,
            recent: Duration::ZERO,
            idle: Duration::ZERO,
        }
    }

    /// Counts a sample of a guest that has taken `total` of CPU time since it was started, on a
    /// host on which work takes `slowdown` times longer than on an idle one (1 or more). Returns
    /// `true` if the guest should be given up.
    pub(super) fn has_expired(&mut self, total: Duration, slowdown: f64) -> bool {
        let slowdown = slowdown.clamp(1.0, SLOWDOWN_MAX);
        let used = total.saturating_sub(self.seen);
        self.seen = self.seen.max(total);
        let elapsed = self.tick.div_f64(slowdown);
        self.work += used.div_f64(slowdown);
        self.wait += elapsed;
        self.recent += used;
        self.idle += elapsed;
        if self.recent >= WORK_MIN {
            self.recent = Duration::ZERO;
            self.idle = Duration::ZERO;
        }
        self.wait > self.limits.wait || self.work > self.limits.work || self.idle > HALTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(50);

    /// Returns after how many seconds a guest is given up that uses `share` thousandths of a CPU of
    /// a host with this `slowdown`.
    fn seconds(share: u32, slowdown: f64) -> u64 {
        let limits = BootLimits {
            attempts: 1,
            work: Duration::from_secs(10),
            wait: Duration::from_secs(60),
        };
        let mut watchdog = BootWatchdog::new(limits, TICK);
        let samples = (1..100_000)
            .find(|sample| watchdog.has_expired(TICK * *sample * share / 1000, slowdown));
        (TICK * samples.expect("it ends")).as_secs()
    }

    #[test]
    fn a_kernel_that_does_not_begin_is_given_up() {
        // The kernel spins; it gets little of a CPU; it is halted.
        assert_eq!(seconds(1000, 1.0), 10);
        assert_eq!(seconds(100, 1.0), 60);
        assert_eq!(seconds(0, 1.0), 20);
    }

    #[test]
    fn a_loaded_host_extends_the_limits() {
        assert_eq!(seconds(1000, 5.0), 50);
        assert_eq!(seconds(100, 5.0), 300);
        assert_eq!(seconds(0, 5.0), 100);
        assert_eq!(seconds(0, 1e9), 320);
    }
}

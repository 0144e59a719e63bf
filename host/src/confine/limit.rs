//! Limits the CPU time and the wall-clock time of a reader for one answer. `ebb` measures from
//! outside, so a reader under an attacker's control cannot change the limit.

use rustix::process::Pid;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The largest size of `/proc/PID/stat` in bytes: 52 numbers and a name.
const STAT_MAX: usize = 2048;

/// The time that a reader process may use for one answer.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Limits {
    /// CPU time of the process.
    pub(crate) cpu: Duration,
    /// Wall-clock time. `None` if the answer also waits for a guest.
    pub(crate) clock: Option<Duration>,
}

/// Measures the times that a process has used since the last restart, and compares them with its
/// limits.
#[derive(Debug)]
pub(super) struct Limit {
    /// `/proc/PID/stat` of the process. The open file stays valid for this process only, even if
    /// its number is reused.
    stat: File,
    most: Limits,
    /// The CPU time that the process had used at the last restart, and the time of the restart.
    asked: Cell<(Duration, Instant)>,
}

impl Limit {
    /// Starts to measure the process `pid`, which must not have been reaped, with the limits
    /// `most`. The CPU time that it has used before counts, too.
    ///
    /// # Errors
    /// If `/proc` shows no such process.
    pub(super) fn new(pid: Pid, most: Limits) -> io::Result<Self> {
        let stat = File::open(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
        Ok(Self {
            stat,
            most,
            asked: Cell::new((Duration::ZERO, Instant::now())),
        })
    }

    /// Sets both measured times of the process to zero, for its next answer.
    ///
    /// # Errors
    /// If the process has ended. The old measurement then continues.
    pub(super) fn restart(&self) -> io::Result<()> {
        self.asked.set((self.used()?, Instant::now()));
        Ok(())
    }

    /// Checks the limits. Fails with `TimedOut` if the process has used more CPU time or wall-clock
    /// time since the last restart than its limits allow, and with another error if it has ended.
    pub(super) fn check(&self) -> io::Result<()> {
        let (used, asked) = self.asked.get();
        let over = |what: &str, most: Duration| {
            let text = format!("it took more than {} s{what} for an answer", most.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        };
        match self.most.clock {
            Some(most) if asked.elapsed() > most => return over("", most),
            _ => {}
        }
        if self.used()?.saturating_sub(used) > self.most.cpu {
            return over(" of CPU time", self.most.cpu);
        }
        Ok(())
    }

    /// Returns the CPU time that the process has used in total. Fails if the process has ended.
    fn used(&self) -> io::Result<Duration> {
        let mut bytes = [0; STAT_MAX];
        let len = self.stat.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..len]);
        // The name may contain any character. After it come the state, ten numbers, and the two
        // times.
        let times = text.rsplit_once(')').map(|(_, rest)| {
            let words = rest.split_ascii_whitespace().skip(11).take(2);
            words.map_while(|word| word.parse::<u64>().ok()).sum()
        });
        let ticks: u64 = times.ok_or(io::ErrorKind::InvalidData)?;
        let rate = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_millis(ticks.saturating_mul(1000) / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(cpu: Duration, clock: Option<Duration>) -> Limit {
        let limit = Limit::new(rustix::process::getpid(), Limits { cpu, clock }).unwrap();
        limit.restart().unwrap();
        limit
    }

    #[test]
    fn cpu_time_of_this_process_is_counted() {
        let limited = limit(Duration::from_millis(50), None);
        let most = limit(Duration::MAX, None);
        let mut number = 1_u64;
        let error = loop {
            for step in 0..1_000_000 {
                number = std::hint::black_box(number.wrapping_mul(31) + step);
            }
            most.check().unwrap();
            if let Err(error) = limited.check() {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("CPU time"), "{error}");
    }

    #[test]
    fn time_of_the_clock_is_counted() {
        let limited = limit(Duration::MAX, Some(Duration::from_millis(5)));
        std::thread::sleep(Duration::from_millis(10));
        let error = limited.check().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        limited.restart().unwrap();
        assert!(limit(Duration::MAX, Some(Duration::MAX)).check().is_ok());
    }
}

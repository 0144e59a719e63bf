//! Bounds what a reader takes for one answer: CPU time, and the time of a clock. `ebb` looks from
//! outside, so that a reader which was taken over cannot change it.

use rustix::process::Pid;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The most bytes of `/proc/PID/stat`: 52 numbers and a name.
const STAT_MAX: usize = 2048;

/// The most that a reader may take for one answer.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) cpu: Duration,
    /// `None` where the answer waits for a guest, too.
    pub(crate) clock: Option<Duration>,
}

/// What a process has taken since it was last asked.
#[derive(Debug)]
pub(super) struct Limit {
    /// `/proc/PID/stat` of the process. It stays that process's when the number is given again.
    stat: File,
    most: Limits,
    /// The CPU time that it had used when it was asked, and when that was.
    asked: Cell<(Duration, Instant)>,
}

impl Limit {
    /// Allows the process `pid` to take `most` for an answer.
    ///
    /// # Errors
    /// The host's, if it shows no such process.
    pub(super) fn new(pid: Pid, most: Limits) -> io::Result<Self> {
        let stat = File::open(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
        Ok(Self {
            stat,
            most,
            asked: Cell::new((Duration::ZERO, Instant::now())),
        })
    }

    /// Begins to count again.
    ///
    /// # Errors
    /// The host's, if the process has ended.
    pub(super) fn restart(&self) -> io::Result<()> {
        self.asked.set((self.used()?, Instant::now()));
        Ok(())
    }

    /// Fails with `TimedOut` if the process has taken more than it may, and with the host's error if the
    /// process has ended.
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

    /// Returns the CPU time that the process has used.
    fn used(&self) -> io::Result<Duration> {
        let mut bytes = [0; STAT_MAX];
        let len = self.stat.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..len]);
        // Behind the name, which may hold anything, stand the state and ten numbers, then the two times.
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

//! What a guest takes of the host while it runs: CPU time and wake-ups, of QEMU and of ebb.

use super::runner::last_time;
use super::schema::Expense;
use crate::qemu::cpu_time;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often somebody looks: seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(250);
/// More than a guest of a comparison lives for.
const LOOKS_MAX: usize = 100_000;

/// Looks at a guest from its start to its end.
#[derive(Debug)]
pub(crate) struct Meter {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Expense>>,
}

impl Meter {
    /// Begins to look at the `ebb run` with this process number, which writes `timeline`.
    pub(crate) fn start(ebb: u32, timeline: PathBuf) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let mut seen = Vec::new();
            while seen.len() < LOOKS_MAX
                && stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout)
            {
                let at = last_time(&timeline);
                seen.extend(at.and_then(|at_s| look(ebb, at_s)));
            }
            seen
        });
        Self { stop, thread }
    }

    /// Ends it, and returns what was seen.
    pub(crate) fn finish(self) -> Vec<Expense> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn look(ebb: u32, at_s: f64) -> Option<Expense> {
    let qemu = child_of(ebb)?;
    Some(Expense {
        at_s,
        qemu_cpu_s: cpu_time(qemu)?.sum().as_secs_f64(),
        ebb_cpu_s: cpu_time(ebb)?.sum().as_secs_f64(),
        qemu_wakeups: wakeups(qemu)?,
        ebb_wakeups: wakeups(ebb)?,
    })
}

/// The only child of `ebb run`.
pub(crate) fn child_of(ebb: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{ebb}/task/{ebb}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// How often the threads of a process, those that are there now, have waited for something.
fn wakeups(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    // One that has ended meanwhile has no status any more.
    let counts = threads.flatten().filter_map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse::<u64>().ok()
    });
    Some(counts.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_wakes_up() {
        let me = std::process::id();
        let before = wakeups(me).expect("of this process");
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(2));
        }
        assert!(wakeups(me).expect("of this process") >= before + 5);
        assert_eq!(wakeups(u32::MAX), None);
    }

    #[test]
    fn a_guest_that_writes_no_timeline_is_not_looked_at() {
        let meter = Meter::start(std::process::id(), PathBuf::from("/nonexistent"));
        thread::sleep(EVERY * 2);
        assert_eq!(meter.finish(), []);
    }
}

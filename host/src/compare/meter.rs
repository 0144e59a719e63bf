//! Samples the host's costs of a running guest: CPU time and wakeups of QEMU and `ebb`.

use super::schema::Expense;
use crate::qemu::cpu_time;
use crate::system::monotonic_seconds;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The interval between samples, long enough to cost nothing.
const EVERY: Duration = Duration::from_millis(250);
/// The maximum number of samples. No guest of a comparison runs that long.
const LOOKS_MAX: usize = 100_000;

/// The number of bytes at the end of a timeline that are read. Its last line is shorter, the
/// summary included.
const TIMELINE_TAIL: u64 = 8192;

/// A thread that samples a guest's costs on the host every 250 ms until [`Self::finish`].
#[derive(Debug)]
pub(crate) struct Meter {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Expense>>,
}

impl Meter {
    /// Starts a thread that samples the `ebb run` with process number `ebb` and its QEMU. The
    /// thread takes the time of each sample from the file `timeline`, which that process writes.
    pub(crate) fn start(ebb: u32, timeline: PathBuf) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let mut seen = Vec::new();
            while seen.len() < LOOKS_MAX
                && stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout)
            {
                let at = time_now(&timeline);
                seen.extend(at.and_then(|at_s| look(ebb, at_s)));
            }
            seen
        });
        Self { stop, thread }
    }

    /// Stops sampling, waits for the thread and returns the samples in order. A moment at which
    /// QEMU or the timeline was missing has no sample.
    pub(crate) fn finish(self) -> Vec<Expense> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Returns one sample, or `None` if a process has ended.
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

/// The two clocks of a line of a timeline.
#[derive(Deserialize)]
struct Clocks {
    t_ms: f64,
    monotonic_s: f64,
}

/// Returns the present time on the clock of the timeline at `path`, which may still be written, in
/// seconds since the start of the guest's CPUs. Returns `None` if the file cannot be read, or has
/// no whole and valid line yet.
pub(crate) fn time_now(path: &Path) -> Option<f64> {
    let now_s = monotonic_seconds();
    let Clocks { t_ms, monotonic_s } = last_clocks(path)?;
    Some(t_ms / 1e3 + (now_s - monotonic_s))
}

/// Returns the clocks in the last whole line of the timeline at `path`. Returns `None` if the file
/// cannot be read, or has no whole and valid line.
fn last_clocks(path: &Path) -> Option<Clocks> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TIMELINE_TAIL)))
        .ok()?;
    let mut tail = Vec::new();
    file.take(TIMELINE_TAIL).read_to_end(&mut tail).ok()?;
    let end = tail.iter().rposition(|byte| *byte == b'\n')?;
    let begin = tail[..end]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    serde_json::from_slice(&tail[begin..end]).ok()
}

/// Returns the process number of the first child of the `ebb run` with process number `ebb`. Its
/// only child is QEMU. Returns `None` if it has none or has ended.
pub(crate) fn child_of(ebb: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{ebb}/task/{ebb}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Returns the sum of the voluntary context switches of all present threads of a process. Returns
/// `None` if the process has ended.
fn wakeups(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    // A thread that has ended since has no status any more.
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
        let counts = |_| {
            let before = wakeups(me).expect("of this process");
            for _ in 0..5 {
                thread::sleep(Duration::from_millis(2));
            }
            wakeups(me).expect("of this process") >= before + 5
        };
        // The threads of other tests may end meanwhile, and their wake-ups are not counted then.
        assert!((0..10_000).any(counts));
        assert_eq!(wakeups(u32::MAX), None);
    }

    #[test]
    fn a_guest_that_writes_no_timeline_is_not_looked_at() {
        let meter = Meter::start(std::process::id(), PathBuf::from("/nonexistent"));
        thread::sleep(EVERY * 2);
        assert_eq!(meter.finish(), []);
    }

    #[test]
    fn the_time_is_that_of_the_last_whole_sample_and_what_passed_since() {
        let path = std::env::temp_dir().join(format!("ebb-tail-{}", std::process::id()));
        assert_eq!(time_now(&path), None);
        let then = monotonic_seconds() - 3.0;
        let whole = |t_ms: u32| format!("{{\"t_ms\":{t_ms},\"monotonic_s\":{then}}}\n");
        for (text, time) in [
            (String::new(), None),
            ("{\"t_ms\":1500".into(), None),
            ("{\"t_ms\":1500}\n".into(), None),
            (whole(1500), Some(4.5)),
            (format!("{}{}{{\"t_m", whole(1500), whole(1550)), Some(4.55)),
        ] {
            fs::write(&path, &text).unwrap();
            let now = time_now(&path);
            assert_eq!(now.is_some(), time.is_some(), "{text}");
            // The clock goes on while the test runs.
            let passed = now.unwrap_or(0.0) - time.unwrap_or(0.0);
            assert!((-1e-6..600.0).contains(&passed), "{text}: {now:?}");
        }
        fs::remove_file(&path).unwrap();
    }
}

//! `latency`: measures how late a thread that sleeps 1 ms wakes up beside long work of the kernel.
//!
//! What holds a CPU for long with interrupts off, or a lock that wake-ups need, shows as a wake-up
//! that is late by as much.

use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::pool::Pool;
use crate::{Experiment, Failure, args, size};
use std::fs::{self, File};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The experiment `latency`, with its arguments, help text and function: measures the worst wake-up
/// beside long work of the kernel.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    usage: "[SIZE [ROUNDS]]",
    summary: "the worst wake-up of a thread that sleeps 1 ms, beside long work of the kernel",
    help: "\
Two threads sleep 1 ms again and again. Beside them another thread has the kernel do one kind of
work ROUNDS (3) times, with SIZE (256M) of memory:

  rest      nothing: it sleeps, 100 ms a round
  clear     touches memory that is advised to be in huge pages
  unmap     unmaps memory that was touched page by page
  compact   writes to /proc/sys/vm/compact_memory, with every other page of SIZE freed before
  procfs    reads /proc/self/maps and smaps, with 10,000 areas
  protect   changes the rights of 10,000 areas at once
  advise    advises 10,000 areas at once
  fork      makes a child that has 10,000 areas, and waits for it
  pool      adds huge pages to the pool, touches them, and takes them out again

Prints for each kind of work how late the latest wake-up was (worst_wake_up_ns), and how long the
work took at most (work_ns). Preparations, as memory that is touched before it is unmapped, count for
neither. Work that the guest does not have, or that needs root, is left out.",
    run,
};

const DEFAULT_BYTES: usize = 256 << 20;
const DEFAULT_ROUNDS: u64 = 3;
const MAX_ROUNDS: u64 = 10_000;
/// How long the threads sleep.
const SLEEP: Duration = Duration::from_millis(1);
const SLEEP_NS: u64 = 1_000_000;
/// How many threads sleep: with two CPUs or more, not both wake up on the one that works.
const SLEEPERS: usize = 2;
/// A round of no work.
const REST: Duration = Duration::from_millis(100);
/// Areas that `procfs` makes.
const AREAS: usize = 10_000;
/// Compacts all memory when it is written.
const COMPACT: &str = "/proc/sys/vm/compact_memory";

/// One kind of work: its name, and a function that does one round with memory of a size. The
/// function prepares the work and then does it in [`Watch::during`].
type Work = (&'static str, fn(usize, &Watch) -> Result<(), Failure>);

const WORK: [Work; 9] = [
    ("rest", rest),
    ("clear", clear),
    ("unmap", unmap),
    ("compact", compact),
    ("procfs", procfs),
    ("protect", protect),
    ("advise", advise),
    ("fork", fork),
    ("pool", pool),
];

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 2)?;
    let bytes = match words.first() {
        Some(word) => size::parse(word)?,
        None => DEFAULT_BYTES,
    };
    let rounds = match words.get(1) {
        Some(word) => args::number(word, "ROUNDS", 1, MAX_ROUNDS)?,
        None => DEFAULT_ROUNDS,
    };
    for (name, work) in WORK {
        match measure(bytes, rounds, work) {
            Ok(found) => tell(name, found, out)?,
            Err(Failure::Unsupported(what)) => out.say(&format!("{name}: left out, no {what}"))?,
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// The figures of one kind of work, in nanoseconds.
#[derive(Default)]
struct Found {
    worst_ns: u64,
    work_ns: u64,
}

/// The time during which the kernel works, and the figures of that time.
#[derive(Default)]
struct Watch(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// When the last work began and, unless it still runs, when it ended, on the monotonic clock.
    work: Option<(u64, Option<u64>)>,
    found: Found,
}

impl Watch {
    /// Runs `work`, and notes its time. Wake-ups count while it runs. Returns its result.
    fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        let begin = monotonic_ns();
        self.seen(|seen| seen.work = Some((begin, None)));
        let result = work();
        let end = monotonic_ns();
        self.seen(|seen| {
            seen.work = Some((begin, Some(end)));
            seen.found.work_ns = seen.found.work_ns.max(end - begin);
        });
        result
    }

    /// Notes that a thread that was due at the time `due` woke up at `now`.
    fn woke(&self, due: u64, now: u64) {
        self.seen(|seen| {
            let late = seen.work.map_or(0, |work| late_by_work(work, due, now));
            seen.found.worst_ns = seen.found.worst_ns.max(late);
        });
    }

    fn seen(&self, look: impl FnOnce(&mut Seen)) {
        // No thread panics while it has the lock.
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Returns the part of the delay from `due` to `now` that lies between the `begin` and the `end` of
/// the work. Without an `end` the work still runs.
fn late_by_work((begin, end): (u64, Option<u64>), due: u64, now: u64) -> u64 {
    let until = end.map_or(now, |end| end.min(now));
    until.saturating_sub(due.max(begin))
}

fn tell(work: &str, found: Found, out: &mut Output) -> Result<(), Failure> {
    let figures = [
        ("worst_wake_up_ns", found.worst_ns),
        ("work_ns", found.work_ns),
    ];
    for (name, ns) in figures {
        out.result(&Metric {
            name,
            value: ratio(ns, 1),
            unit: "ns",
            better: Better::Lower,
            labels: Labels::from([("work", work.to_owned())]),
        })?;
    }
    Ok(())
}

/// Does `rounds` rounds of work while threads sleep.
fn measure(
    bytes: usize,
    rounds: u64,
    work: fn(usize, &Watch) -> Result<(), Failure>,
) -> Result<Found, Failure> {
    let (over, watch) = (AtomicBool::new(false), Watch::default());
    thread::scope(|scope| {
        for _ in 0..SLEEPERS {
            scope.spawn(|| {
                // Relaxed: a flag that orders nothing.
                while !over.load(Ordering::Relaxed) {
                    let due = monotonic_ns() + SLEEP_NS;
                    thread::sleep(SLEEP);
                    watch.woke(due, monotonic_ns());
                }
            });
        }
        let done = (0..rounds).try_for_each(|_| work(bytes, &watch));
        over.store(true, Ordering::Relaxed);
        done
    })?;
    let seen = watch.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(seen.found)
}

fn rest(_: usize, watch: &Watch) -> Result<(), Failure> {
    watch.during(|| thread::sleep(REST));
    Ok(())
}

fn clear(bytes: usize, watch: &Watch) -> Result<(), Failure> {
    let mut mapping = Mapping::anonymous(bytes, PageSize::Huge)?;
    watch.during(|| mapping.touch());
    Ok(())
}

fn unmap(bytes: usize, watch: &Watch) -> Result<(), Failure> {
    let mut mapping = Mapping::anonymous(bytes, PageSize::Base)?;
    mapping.touch();
    watch.during(|| drop(mapping));
    Ok(())
}

fn compact(bytes: usize, watch: &Watch) -> Result<(), Failure> {
    let mut mapping = Mapping::anonymous(bytes, PageSize::Base)?;
    mapping.touch();
    for start in (0..bytes).step_by(2 * PAGE_BYTES) {
        mapping.free(start..start + PAGE_BYTES.min(bytes - start))?;
    }
    let written = watch.during(|| fs::write(COMPACT, "1"));
    written.map_err(|_| Failure::Unsupported(format!("{COMPACT} to write to")))
}

/// Makes a mapping of [`AREAS`] areas: every other page has other rights.
fn areas() -> Result<Mapping, Failure> {
    let mapping = Mapping::anonymous(AREAS * PAGE_BYTES, PageSize::Base)?;
    for start in mapping.addresses().step_by(2 * PAGE_BYTES) {
        set_rights(start, PAGE_BYTES, libc::PROT_READ)?;
    }
    Ok(mapping)
}

/// Gives `bytes` bytes from `start` on, which this experiment maps and does not access, the rights
/// `rights`.
fn set_rights(start: usize, bytes: usize, rights: i32) -> Result<(), Failure> {
    // SAFETY: the pages are inside a mapping of this experiment, which does not access it.
    let status =
        unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(start), bytes, rights) };
    if status != 0 {
        return Err(Failure::last_os("mprotect"));
    }
    Ok(())
}

fn protect(_: usize, watch: &Watch) -> Result<(), Failure> {
    let mapping = areas()?;
    let range = mapping.addresses();
    watch.during(|| set_rights(range.start, range.end - range.start, libc::PROT_READ))
}

fn advise(_: usize, watch: &Watch) -> Result<(), Failure> {
    let mapping = areas()?;
    let range = mapping.addresses();
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    let bytes = range.end - range.start;
    // SAFETY: the range is a mapping of this function; the advice changes no byte.
    let status = watch.during(|| unsafe { libc::madvise(start, bytes, libc::MADV_DONTDUMP) });
    if status != 0 {
        return Err(Failure::last_os("madvise"));
    }
    Ok(())
}

fn fork(_: usize, watch: &Watch) -> Result<(), Failure> {
    let _mapping = areas()?;
    watch.during(|| {
        // SAFETY: the child calls nothing but `_exit`.
        match unsafe { libc::fork() } {
            -1 => Err(Failure::last_os("fork")),
            // SAFETY: ends the child at once, without what threads of the parent may hold.
            0 => unsafe { libc::_exit(0) },
            child => {
                // SAFETY: no status is written.
                if unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == child {
                    Ok(())
                } else {
                    Err(Failure::last_os("waitpid"))
                }
            }
        }
    })
}

fn procfs(_: usize, watch: &Watch) -> Result<(), Failure> {
    let _mapping = areas()?;
    watch.during(|| {
        for name in ["/proc/self/maps", "/proc/self/smaps"] {
            let mut file = File::open(name).map_err(|_| Failure::Unsupported(name.to_owned()))?;
            let mut buffer = vec![0; 64 << 10];
            // Ends: each read moves on in a text of some 10 MB.
            while file.read(&mut buffer).map_err(Failure::system(name))? != 0 {}
        }
        Ok(())
    })
}

fn pool(bytes: usize, watch: &Watch) -> Result<(), Failure> {
    let refused = |_| Failure::Unsupported("pool of huge pages to change".to_owned());
    watch.during(|| {
        let lent = Pool::lend(bytes / 2, HUGE_BYTES).map_err(refused)?;
        Mapping::anonymous(bytes / 2, PageSize::Pool)?.touch();
        drop(lent);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_delay_during_the_work_counts() {
        assert_eq!(late_by_work((100, None), 90, 150), 50);
        assert_eq!(late_by_work((100, None), 120, 150), 30);
        assert_eq!(late_by_work((100, Some(140)), 120, 150), 20);
        // A thread that was due before or after the work and woke up outside it.
        assert_eq!(late_by_work((100, Some(140)), 150, 190), 0);
        assert_eq!(late_by_work((100, None), 60, 90), 0);
    }

    #[test]
    fn the_longest_work_and_the_latest_wake_up_are_kept() {
        let watch = Watch::default();
        watch.woke(0, 1_000_000);
        watch.during(|| watch.woke(0, monotonic_ns() + 5_000_000));
        watch.during(|| ());
        let found = watch.0.into_inner().expect("a value").found;
        assert!(found.worst_ns >= 5_000_000, "{}", found.worst_ns);
        assert!(found.work_ns > 0);
    }
}

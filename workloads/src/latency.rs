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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
longest round took (work_ns). Work that the guest does not have, or that needs root, is left out.",
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

/// One kind of work: its name, and a function that does one round with memory of a size.
type Work = (&'static str, fn(usize) -> Result<(), Failure>);

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

/// What was found beside one kind of work, in nanoseconds.
struct Found {
    worst_ns: u64,
    work_ns: u64,
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
    work: fn(usize) -> Result<(), Failure>,
) -> Result<Found, Failure> {
    let (over, worst_ns) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut work_ns = 0;
    thread::scope(|scope| {
        for _ in 0..SLEEPERS {
            scope.spawn(|| {
                // Relaxed (all): a flag and a maximum that order nothing.
                loop {
                    let begin = monotonic_ns();
                    thread::sleep(SLEEP);
                    let late = (monotonic_ns() - begin).saturating_sub(SLEEP_NS);
                    worst_ns.fetch_max(late, Ordering::Relaxed);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut done = Ok(());
        for _ in 0..rounds {
            let begin = monotonic_ns();
            done = work(bytes);
            work_ns = work_ns.max(monotonic_ns() - begin);
            if done.is_err() {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        done
    })?;
    Ok(Found {
        worst_ns: worst_ns.into_inner(),
        work_ns,
    })
}

fn rest(_: usize) -> Result<(), Failure> {
    thread::sleep(REST);
    Ok(())
}

fn clear(bytes: usize) -> Result<(), Failure> {
    Mapping::anonymous(bytes, PageSize::Huge)?.touch();
    Ok(())
}

fn unmap(bytes: usize) -> Result<(), Failure> {
    let mut mapping = Mapping::anonymous(bytes, PageSize::Base)?;
    mapping.touch();
    drop(mapping);
    Ok(())
}

fn compact(bytes: usize) -> Result<(), Failure> {
    let mut mapping = Mapping::anonymous(bytes, PageSize::Base)?;
    mapping.touch();
    for start in (0..bytes).step_by(2 * PAGE_BYTES) {
        mapping.free(start..start + PAGE_BYTES.min(bytes - start))?;
    }
    fs::write(COMPACT, "1").map_err(|_| Failure::Unsupported(format!("{COMPACT} to write to")))
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

fn protect(_: usize) -> Result<(), Failure> {
    let mapping = areas()?;
    let range = mapping.addresses();
    set_rights(range.start, range.end - range.start, libc::PROT_READ)
}

fn advise(_: usize) -> Result<(), Failure> {
    let mapping = areas()?;
    let range = mapping.addresses();
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: the range is a mapping of this function; the advice changes no byte.
    let status = unsafe { libc::madvise(start, range.end - range.start, libc::MADV_DONTDUMP) };
    if status != 0 {
        return Err(Failure::last_os("madvise"));
    }
    Ok(())
}

fn fork(_: usize) -> Result<(), Failure> {
    let _mapping = areas()?;
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
}

fn procfs(_: usize) -> Result<(), Failure> {
    let _mapping = areas()?;
    for name in ["/proc/self/maps", "/proc/self/smaps"] {
        let mut file = File::open(name).map_err(|_| Failure::Unsupported(name.to_owned()))?;
        let mut buffer = vec![0; 64 << 10];
        // Ends: each read moves on in a text of some 10 MB.
        while file.read(&mut buffer).map_err(Failure::system(name))? != 0 {}
    }
    Ok(())
}

fn pool(bytes: usize) -> Result<(), Failure> {
    let refused = |_| Failure::Unsupported("pool of huge pages to change".to_owned());
    let lent = Pool::lend(bytes / 2, HUGE_BYTES).map_err(refused)?;
    Mapping::anonymous(bytes / 2, PageSize::Pool)?.touch();
    drop(lent);
    Ok(())
}

//! `pin`: measures how long the kernel takes to find a user page, hold it and release it.
//!
//! gup_test does this with a test driver of the kernel. There is no such driver here, so system
//! calls stand in for it, of which each has a file of its own:
//!
//! | file | call | what it measures |
//! |---|---|---|
//! | `read` | `process_vm_readv` | find, hold and release in one, with a copy of one byte |
//! | `hold` | `vmsplice`, then `splice` to `/dev/null` | find and hold, release; with a pipe |
//!
//! Other calls on Linux hold pages from one call to another: io_uring's registered buffers, and
//! `MSG_ZEROCOPY`. Ebb has neither. `O_DIRECT` holds pages during a call only, and also measures
//! the disk.

mod hold;
mod read;

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio, seconds};
use crate::mapping::{GIGANTIC_BYTES, HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::percentiles::with_histogram;
use crate::pool::Pool;
use crate::{Experiment, Failure, size, thp};
use std::time::Duration;

/// The experiment `pin`, with its arguments, help text and function: measures how long the kernel
/// takes to find a user page, hold it and release it.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pin",
    usage: "[SIZE [SECONDS|ROUNDSr]] [--thp|--hugetlb|--1g] [--hold]",
    summary: "have the kernel hold and let go every page of a mapping",
    help: "\
SIZE (128M) is touched; then process_vm_readv reads a byte of every page of it, 512 pages a call,
for SECONDS (3) or a number of rounds (10r). --thp advises the memory to be in huge pages,
--hugetlb takes it from the kernel's pool of huge pages, to which it is added first, and --1g from
that of pages of 1 GiB.

With --hold vmsplice puts a byte of every page into a pipe, 256 pages a call, and splice throws them
away: the pages are held and let go by two calls.

Prints the time of a page with its part of the call (pin_page_ns; with --hold hold_page_ns and
release_page_ns), and that of a call by percentile and as a histogram (pin_call_ns, hold_call_ns,
release_call_ns).",
    run,
};

const DEFAULT_BYTES: usize = 128 << 20;
const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(3));
/// The largest number of calls whose times are kept for the distribution.
const CALLS_MAX: usize = 1 << 20;

/// The times of one kind of call.
#[derive(Debug, Default)]
struct Calls {
    /// The sum of all times in nanoseconds.
    ns: u64,
    /// The times of the first calls, at most [`CALLS_MAX`].
    times: Vec<u64>,
}

impl Calls {
    /// Runs `call` and adds its time. Returns its result.
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = monotonic_ns();
        let result = call();
        let ns = monotonic_ns() - begin;
        self.ns += ns;
        if self.times.len() < CALLS_MAX {
            self.times.push(ns);
        }
        result
    }
}

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let kinds = [
        ("--thp", PageSize::Huge, "thp", PAGE_BYTES),
        ("--hugetlb", PageSize::Pool, "hugetlb", HUGE_BYTES),
        ("--1g", PageSize::GiganticPool, "1g", GIGANTIC_BYTES),
    ];
    let (mut pages, mut mode, mut page_bytes) = (PageSize::Base, "4k", PAGE_BYTES);
    let mut asked = None;
    for (flag, kind, name, bytes) in kinds {
        if !args::take_flag(&mut words, flag) {
            continue;
        }
        if let Some(other) = asked.replace(flag) {
            return Err(Failure::Usage(format!(
                "{other} and {flag} do not go together"
            )));
        }
        (pages, mode, page_bytes) = (kind, name, bytes);
    }
    let hold = args::take_flag(&mut words, "--hold");
    args::no_more(&words, 2)?;
    let mut words = words.iter().map(String::as_str);
    let bytes = words.next().map_or(Ok(DEFAULT_BYTES), size::parse)?;
    let until = words.next().map_or(Ok(DEFAULT_UNTIL), Until::parse)?;
    let bytes = bytes.next_multiple_of(page_bytes);
    if pages == PageSize::Huge {
        thp::require()?;
    }
    // Dropped after the mapping, which is created later.
    let _lent = match pages {
        PageSize::Pool | PageSize::GiganticPool => Some(Pool::lend(bytes, page_bytes)?),
        PageSize::Default | PageSize::Base | PageSize::Huge => None,
    };
    let mut mapping = Mapping::anonymous(bytes, pages)?;
    mapping.touch();
    let labels = Labels::from([("mode", mode.to_owned())]);
    if hold {
        let mut holder = hold::Holder::new()?;
        let (mut held, mut released) = (Calls::default(), Calls::default());
        holder.round(&mapping, &mut Calls::default(), &mut Calls::default())?;
        let mut rounds = 0;
        while !until.reached(rounds, held.ns + released.ns) {
            holder.round(&mapping, &mut held, &mut released)?;
            rounds += 1;
        }
        let count = rounds * (bytes / PAGE_BYTES) as u64;
        report(["hold_page_ns", "hold_call_ns"], count, held, &labels, out)?;
        let names = ["release_page_ns", "release_call_ns"];
        report(names, count, released, &labels, out)?;
    } else {
        let mut calls = Calls::default();
        read::round(&mapping, &mut Calls::default())?;
        let mut rounds = 0;
        while !until.reached(rounds, calls.ns) {
            read::round(&mapping, &mut calls)?;
            rounds += 1;
        }
        let count = rounds * (bytes / PAGE_BYTES) as u64;
        report(["pin_page_ns", "pin_call_ns"], count, calls, &labels, out)?;
    }
    if pages == PageSize::Huge {
        let share = ratio(thp::huge_bytes(&mapping)?, bytes as u64);
        out.result(&Metric {
            name: "huge_share",
            value: share,
            unit: "share",
            better: Better::Higher,
            labels: Labels::new(),
        })?;
    }
    Ok(())
}

/// Prints the time of a page, under the first of `names`, and the distribution of the calls, under
/// the second. `pages` is the number of pages of all calls.
fn report(
    [page, call]: [&'static str; 2],
    pages: u64,
    calls: Calls,
    labels: &Labels,
    out: &mut Output,
) -> Result<(), Failure> {
    out.say(&format!("{pages} pages in {} s", seconds(calls.ns)))?;
    out.result(&Metric {
        name: page,
        value: ratio(calls.ns, pages),
        unit: "ns",
        better: Better::Lower,
        labels: labels.clone(),
    })?;
    out.distribution(&with_histogram(call, calls.times, labels.clone()))
}

/// Calls `work` with pieces of one byte of each page of `mapping`, at most `most` of them at once.
fn for_pieces(
    mapping: &Mapping,
    most: usize,
    mut work: impl FnMut(&[libc::iovec]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut pages = mapping.addresses().step_by(PAGE_BYTES);
    let mut pieces = Vec::with_capacity(most);
    loop {
        pieces.clear();
        pieces.extend(pages.by_ref().take(most).map(|page| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(page),
            iov_len: 1,
        }));
        if pieces.is_empty() {
            return Ok(());
        }
        work(&pieces)?;
    }
}

/// Checks that the call `name` has moved one byte of each of `pages` pages. Fails
/// with `Unsupported` if the kernel lacks the call, with `Wrong` if it moved fewer bytes, and with
/// `System` if it failed otherwise. `count` is what the call returned.
fn moved(name: &str, count: libc::ssize_t, pages: usize) -> Result<(), Failure> {
    match usize::try_from(count) {
        Ok(count) if count == pages => Ok(()),
        Ok(count) => Err(Failure::Wrong(format!(
            "{name} took {count} of {pages} pages"
        ))),
        Err(_) => match std::io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSYS) => {
                Err(Failure::Unsupported(name.to_owned()))
            }
            source => Err(Failure::System {
                what: format!("{name} of {pages} pages"),
                source,
            }),
        },
    }
}

//! `pin`: measures how long the kernel takes to find a user page, hold it and release it.
//!
//! gup_test does this with a test driver of the kernel. Among the system calls, `process_vm_readv`
//! is the nearest. For each segment it takes a reference to the page from the page tables, copies,
//! and drops the reference. With segments of one byte the copy costs almost nothing. `vmsplice` is
//! limited to the size of a pipe and also measures the pipe. `O_DIRECT` needs a disk and also
//! measures that.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio, seconds};
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::pool::Pool;
use crate::{Experiment, Failure, size, thp};
use std::time::Duration;

/// The experiment `pin`, with its arguments, help text and function: measures how long the kernel
/// takes to find a user page, hold it and release it.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pin",
    usage: "[SIZE [SECONDS|ROUNDSr]] [--thp|--hugetlb]",
    summary: "have the kernel hold and let go every page of a mapping",
    help: "\
SIZE (128M) is touched; then process_vm_readv reads a byte of every page of it, 512 pages a call,
for SECONDS (3) or a number of rounds (10r). --thp advises the memory to be in huge pages,
--hugetlb takes it from the kernel's pool of huge pages, to which it is added first.

Prints the time of a page (pin_page_ns), with its part of the call.",
    run,
};

const DEFAULT_BYTES: usize = 128 << 20;
const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(3));
/// Number of pages in a call: half of the kernel's limit for segments (`UIO_MAXIOV`).
const PAGES_A_CALL: usize = 512;

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let huge = args::take_flag(&mut words, "--thp");
    let pool = args::take_flag(&mut words, "--hugetlb");
    if huge && pool {
        let why = "--thp and --hugetlb do not go together";
        return Err(Failure::Usage(why.to_owned()));
    }
    args::no_more(&words, 2)?;
    let mut words = words.iter().map(String::as_str);
    let bytes = words.next().map_or(Ok(DEFAULT_BYTES), size::parse)?;
    let until = words.next().map_or(Ok(DEFAULT_UNTIL), Until::parse)?;
    let (pages, mode, page_bytes) = match (huge, pool) {
        (true, _) => (PageSize::Huge, "thp", PAGE_BYTES),
        (_, true) => (PageSize::Pool, "hugetlb", HUGE_BYTES),
        _ => (PageSize::Base, "4k", PAGE_BYTES),
    };
    let bytes = bytes.next_multiple_of(page_bytes);
    if huge {
        thp::require()?;
    }
    // Dropped after the mapping, which is created later.
    let _lent = if pool { Some(Pool::lend(bytes)?) } else { None };
    let mut mapping = Mapping::anonymous(bytes, pages)?;
    mapping.touch();
    round(&mapping)?;
    let (mut rounds, mut ns) = (0, 0);
    while !until.reached(rounds, ns) {
        let begin = monotonic_ns();
        round(&mapping)?;
        ns += monotonic_ns() - begin;
        rounds += 1;
    }
    let held = rounds * (bytes / PAGE_BYTES) as u64;
    out.say(&format!("{held} pages in {} s", seconds(ns)))?;
    out.result(&Metric {
        name: "pin_page_ns",
        value: ratio(ns, held),
        unit: "ns",
        better: Better::Lower,
        labels: Labels::from([("mode", mode.to_owned())]),
    })?;
    if huge {
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

/// Reads one byte of every page. Fails with `Wrong` if it is not the one written.
fn round(mapping: &Mapping) -> Result<(), Failure> {
    let addresses = mapping.addresses();
    let mut pages = addresses.step_by(PAGE_BYTES);
    let mut pieces = Vec::with_capacity(PAGES_A_CALL);
    loop {
        pieces.clear();
        pieces.extend(pages.by_ref().take(PAGES_A_CALL).map(|page| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(page),
            iov_len: 1,
        }));
        if pieces.is_empty() {
            return Ok(());
        }
        let bytes = read_own(&pieces)?;
        if bytes.iter().any(|&byte| byte != 1) {
            return Err(Failure::Wrong(
                "process_vm_readv read something else than was written".to_owned(),
            ));
        }
    }
}

/// Reads the segments at `pieces` of this process's own memory, one byte each.
fn read_own(pieces: &[libc::iovec]) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0_u8; pieces.len()];
    let here = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: `here` covers all of `bytes`, and the kernel checks the addresses that it reads from.
    let count = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const here,
            1,
            pieces.as_ptr(),
            pieces.len() as libc::c_ulong,
            0,
        )
    };
    match usize::try_from(count) {
        Ok(count) if count == bytes.len() => Ok(bytes),
        Ok(count) => Err(Failure::Wrong(format!(
            "process_vm_readv read {count} of {} pages",
            bytes.len()
        ))),
        Err(_) => match std::io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSYS) => {
                Err(Failure::Unsupported("process_vm_readv".to_owned()))
            }
            source => Err(Failure::System {
                what: format!("process_vm_readv of {} pages", bytes.len()),
                source,
            }),
        },
    }
}

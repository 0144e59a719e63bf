//! `fragment`: leaves free memory in pieces that are too small for a huge page.
//!
//! This is the situation that proactive compaction is for. Memory is filled with base pages, and
//! then three of every four are freed in each 2 MiB. Most memory is free afterwards, but no huge
//! page can be allocated until the remaining pages are moved. They are anonymous, so they can be.

use crate::clock::ratio;
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::{Experiment, Failure, args, buddyinfo, meminfo, size, unmovable};
use std::process::Command;
use std::time::Duration;

/// The experiment `fragment`, with its arguments, help text and function: leaves free memory in
/// pieces that are too small for a huge page.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "fragment",
    usage: "[SIZE [SECONDS [PROACTIVENESS]]] [-- EXPERIMENT [ARGUMENTS]]",
    summary: "fill memory, free 3 of every 4 base pages in each 2 MiB, hold the rest",
    help: "\
SIZE is 3/4 of what is free by default; `95%` is so much of what is free. What is left is held for SECONDS (60); where an experiment
follows, as in `fragment 700M 5 -- huge-latency 256M`, it runs after SECONDS (1), which leave the
kernel time to compact, and the rest is held until it ends. The pages that stay are checked. Where
PROACTIVENESS is given, compaction_proactiveness is that once memory is in pieces.

Prints the phases before, filled, fragmented and waited, and how much of the free memory is in free
blocks of 2 MiB and more, by /proc/buddyinfo (free_in_huge_blocks_share); then what the experiment
prints.",
    run,
};

const DEFAULT_HOLD: Duration = Duration::from_secs(60);
const DEFAULT_WAIT: Duration = Duration::from_secs(1);
const DEFAULT_PERCENT: u64 = 75;
/// The largest accepted share. The kernel reserves some memory, and page tables take some.
const MAX_PERCENT: u64 = 98;
/// [`thin_out`] leaves the first page of each group of this number of successive pages.
pub(crate) const PAGES_A_SURVIVOR: usize = 4;

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let then = match words.iter().position(|word| word == "--") {
        Some(at) => {
            let then = words.split_off(at)[1..].to_vec();
            let name = then
                .first()
                .ok_or_else(|| Failure::Usage("no experiment follows --".to_owned()))?;
            if crate::find(name).is_none() {
                return Err(Failure::Usage(format!("no experiment is called {name:?}")));
            }
            Some(then)
        }
        None => None,
    };
    args::no_more(&words, 3)?;
    let mut words = words.iter();
    let bytes = match words.next() {
        Some(word) => match word.strip_suffix('%') {
            Some(percent) => share_of_free(args::number(percent, "percent", 1, MAX_PERCENT)?)?,
            None => size::parse(word)?,
        },
        None => share_of_free(DEFAULT_PERCENT)?,
    };
    let wait = match (words.next(), &then) {
        (Some(word), _) => args::duration(word)?,
        (None, None) => DEFAULT_HOLD,
        (None, Some(_)) => DEFAULT_WAIT,
    };
    let proactiveness = words
        .next()
        .map(|word| args::number(word, "percent", 0, 100))
        .transpose()?;
    // Only whole sections of 2 MiB can be fragmented.
    let bytes = bytes.div_ceil(HUGE_BYTES) * HUGE_BYTES;
    state("before", bytes, out)?;
    let mut mapping = Mapping::anonymous(bytes, PageSize::Base)?;
    mapping.touch();
    out.phase("filled", Some(bytes))?;
    thin_out(&mut mapping, bytes)?;
    state("fragmented", bytes, out)?;
    if let Some(value) = proactiveness {
        unmovable::set_proactiveness(value)?;
    }
    std::thread::sleep(wait);
    state("waited", bytes, out)?;
    let outcome = then.map_or(Ok(()), |then| follow(&then, out));
    check(&mapping, bytes)?;
    outcome
}

/// Returns `percent` of the free memory in bytes. Fails if the free memory is unknown.
fn share_of_free(percent: u64) -> Result<usize, Failure> {
    let free_kib = meminfo::kib("MemFree")
        .ok_or_else(|| Failure::Unsupported("MemFree in /proc/meminfo: give a SIZE".to_owned()))?;
    usize::try_from(free_kib * 1024 / 100 * percent)
        .map_err(|_| Failure::Usage("too much memory is free: give a SIZE".to_owned()))
}

/// Frees three of every four pages of the first `bytes` bytes of `mapping` with `MADV_DONTNEED`.
/// Fails with `System` if that fails. Panics if `bytes` is no multiple of four pages or exceeds the
/// mapping.
///
/// Using `munmap` instead would split the mapping at each page, and Linux allows 65,530 mappings
/// per process.
pub(crate) fn thin_out(mapping: &mut Mapping, bytes: usize) -> Result<(), Failure> {
    let step = PAGES_A_SURVIVOR * PAGE_BYTES;
    for start in (0..bytes).step_by(step) {
        mapping.free(start + PAGE_BYTES..start + step)?;
    }
    Ok(())
}

/// Checks that the pages that [`thin_out`] left in the first `bytes` bytes still begin with the
/// byte 1 that `Mapping::touch` wrote, even if the kernel moved them. Fails with `Wrong` and the
/// number of those that do not.
pub(crate) fn check(mapping: &Mapping, bytes: usize) -> Result<(), Failure> {
    let lost = (0..bytes)
        .step_by(PAGES_A_SURVIVOR * PAGE_BYTES)
        .filter(|&offset| mapping.read(offset) != 1)
        .count();
    match lost {
        0 => Ok(()),
        lost => Err(Failure::Wrong(format!(
            "{lost} pages that stayed lost what was written"
        ))),
    }
}

/// Prints a phase and the share of free memory that is in huge blocks.
fn state(name: &'static str, bytes: usize, out: &mut Output) -> Result<(), Failure> {
    out.phase(name, Some(bytes))?;
    let Some(free) = buddyinfo::read() else {
        return Ok(());
    };
    out.result(&Metric {
        name: "free_in_huge_blocks_share",
        value: ratio(free.pages_in_huge_blocks, free.pages),
        unit: "share",
        better: Better::Higher,
        labels: Labels::from([("phase", name.to_owned())]),
    })
}

/// Runs another experiment of this program and waits for it. Fails with `ToldUnsupported` if the
/// guest cannot run it.
fn follow(words: &[String], out: &Output) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::system("find this program"))?;
    let mut command = Command::new(program);
    if out.is_json() {
        command.arg("--json");
    }
    let status = command
        .args(words)
        .status()
        .map_err(Failure::system(format!("start {}", words[0])))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) if code == i32::from(crate::EXIT_UNSUPPORTED) => Err(Failure::ToldUnsupported),
        _ => Err(Failure::Wrong(format!("{} ended with {status}", words[0]))),
    }
}

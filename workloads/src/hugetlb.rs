//! `hugetlb`: takes huge pages into the kernel's pool and gives them back.
//!
//! The experiment of freeing the page descriptors of huge pages: what the pool costs in time, and
//! how much memory it costs beside the pages themselves, or saves.

use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::{Experiment, Failure, args, meminfo};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "hugetlb",
    usage: "[N]",
    summary: "allocate and free huge pages by /proc/sys/vm/nr_hugepages",
    help: "\
N (64) huge pages more than there are; afterwards the pool is as it was.

Prints how many were obtained (huge_pages), the time to allocate and to free them in all and a page
(allocate_s, free_s, allocate_page_ns, free_page_ns), MemTotal and MemFree before, with the pages
and after, and the memory saved: what became free beside the pages themselves (saved_kib), as page
descriptors do that are given back.",
    run,
};

const POOL: &str = "/proc/sys/vm/nr_hugepages";
const DEFAULT_PAGES: u64 = 64;
const MAX_PAGES: u64 = 1 << 24;

/// What the guest says about its memory at one moment, in KiB.
#[derive(Debug, Clone, Copy)]
struct Memory {
    total: u64,
    free: u64,
    /// Pages in the pool.
    pool: u64,
    page: u64,
}

impl Memory {
    fn read() -> Result<Self, Failure> {
        let field = |name: &str| {
            meminfo::kib(name)
                .ok_or_else(|| Failure::Unsupported(format!("{name} in /proc/meminfo")))
        };
        let text = std::fs::read_to_string(POOL)
            .map_err(|_| Failure::Unsupported(format!("huge pages ({POOL})")))?;
        let pool = text
            .trim()
            .parse()
            .map_err(|_| Failure::Wrong(format!("{POOL} says {text:?}")))?;
        Ok(Self {
            total: field("MemTotal")?,
            free: field("MemFree")?,
            pool,
            page: field("Hugepagesize")?,
        })
    }
}

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 1)?;
    let wanted = words.first().map_or(Ok(DEFAULT_PAGES), |word| {
        args::number(word, "huge pages", 1, MAX_PAGES)
    })?;
    let before = show("before", out)?;
    let allocate_ns = resize(before.pool + wanted)?;
    let with = show("allocated", out)?;
    let free_ns = resize(before.pool)?;
    let after = show("after", out)?;
    if after.pool != before.pool {
        return Err(Failure::Wrong(format!(
            "{} huge pages stayed in the pool, {} were there before",
            after.pool, before.pool
        )));
    }
    let obtained = with.pool.saturating_sub(before.pool);
    if obtained == 0 {
        return Err(Failure::Wrong(format!(
            "none of {wanted} huge pages could be allocated"
        )));
    }
    let mut result = |name, value, unit, better| {
        out.result(&Metric {
            name,
            value,
            unit,
            better,
            labels: Labels::from([("wanted", wanted.to_string())]),
        })
    };
    let second = 1_000_000_000;
    result("huge_pages", ratio(obtained, 1), "pages", Better::Higher)?;
    result("allocate_s", ratio(allocate_ns, second), "s", Better::Lower)?;
    result("free_s", ratio(free_ns, second), "s", Better::Lower)?;
    let a_page = ratio(allocate_ns, obtained);
    result("allocate_page_ns", a_page, "ns", Better::Lower)?;
    result(
        "free_page_ns",
        ratio(free_ns, obtained),
        "ns",
        Better::Lower,
    )?;
    let saved = saved_kib(before, with, obtained);
    result("saved_kib", saved, "KiB", Better::Higher)
}

/// What is free with the pages beyond what they leave of what was free before; negative where they
/// cost more than themselves.
fn saved_kib(before: Memory, with: Memory, obtained: u64) -> f64 {
    ratio(with.free + obtained * with.page, 1) - ratio(before.free, 1)
}

fn show(name: &str, out: &mut Output) -> Result<Memory, Failure> {
    let memory = Memory::read()?;
    out.phase(name, None)?;
    out.say(&format!(
        "  MemTotal {} kB, MemFree {} kB, {} huge pages",
        memory.total, memory.free, memory.pool
    ))?;
    out.fact("mem_total_kib", memory.total, name)?;
    out.fact("mem_free_kib", memory.free, name)?;
    Ok(memory)
}

/// Sets the size of the pool; gives the nanoseconds of the write.
fn resize(pages: u64) -> Result<u64, Failure> {
    let text = pages.to_string();
    let begin = monotonic_ns();
    let written = std::fs::write(POOL, &text);
    let ns = monotonic_ns() - begin;
    match written {
        Ok(()) => Ok(ns),
        // SAFETY: a call without arguments that cannot fail.
        Err(error) if is_refused(&error) && unsafe { libc::geteuid() } == 0 => Err(
            Failure::Unsupported(format!("a pool of huge pages ({POOL} cannot be written)")),
        ),
        Err(error) => Err(Failure::system(format!("write {text} to {POOL}"))(error)),
    }
}

/// What a kernel answers, even to root, where the file is there and the pool is not.
fn is_refused(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::EOPNOTSUPP)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_is_what_became_free_beside_the_pages() {
        let memory = |free| Memory {
            total: 1 << 20,
            free,
            pool: 0,
            page: 2048,
        };
        // Ten pages of 2 MiB; 280 KiB of descriptors came back.
        let saved = saved_kib(memory(500_000), memory(500_000 - 20_480 + 280), 10);
        assert!((saved - 280.0).abs() < f64::EPSILON, "{saved}");
        let cost = saved_kib(memory(500_000), memory(500_000 - 20_480 - 4), 10);
        assert!((cost + 4.0).abs() < f64::EPSILON, "{cost}");
    }
}

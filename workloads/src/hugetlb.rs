//! `hugetlb`: adds huge pages to the kernel's pool and removes them.
//!
//! This is the experiment about freeing the page descriptors of huge pages. It measures the time
//! that the pool takes, and the memory that it costs or saves in addition to the pages themselves.

use crate::clock::ratio;
use crate::output::{Better, Labels, Metric, Output};
use crate::percentiles::with_histogram;
use crate::pool::{GIGANTIC_KIB, Pool};
use crate::{Experiment, Failure, args, meminfo};
use std::time::Duration;

/// The experiment `hugetlb`, with its arguments, help text and function: adds huge pages to the
/// kernel's pool and removes them, and measures both.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "hugetlb",
    usage: "[N|all] [--1g] [--each]",
    summary: "allocate and free huge pages by /proc/sys/vm/nr_hugepages",
    help: "\
N (64) huge pages more than there are; afterwards the pool is as it was. all asks for more than
memory holds. --1g takes pages of 1 GiB, by
/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages. With --each the pool grows and shrinks
by one page a write, and the time of each write is taken, which has the call in it.

Prints how many were obtained (huge_pages), the time to allocate and to free them in all and a page
(allocate_s, free_s, allocate_page_ns, free_page_ns), MemTotal and what is free before, with the
pages and after, and the memory saved: what became free beside the pages themselves (saved_kib), as
page descriptors do that are given back. Free are MemFree and what Linux's CPUs hold in reserve, by
/proc/zoneinfo. With all also the share of MemTotal that the pages are
(pool_share), by what MemTotal is with them. With --each the time of a page by percentile and as a
histogram (allocate_each_ns, free_each_ns).",
    run,
};

const DEFAULT_PAGES: u64 = 64;
const MAX_PAGES: u64 = 1 << 24;
/// The argument for as many pages as fit into memory.
const ALL: &str = "all";

/// The guest's memory at one moment, in KiB.
#[derive(Debug, Clone, Copy)]
struct Memory {
    total: u64,
    /// Free memory, including the per-CPU lists.
    free: u64,
    /// Number of pages in the pool.
    pool: u64,
}

impl Memory {
    fn read(pool: &Pool) -> Result<Self, Failure> {
        let lacks = |name: &str| Failure::Unsupported(format!("{name} in /proc/meminfo"));
        Ok(Self {
            total: meminfo::kib("MemTotal").ok_or_else(|| lacks("MemTotal"))?,
            free: meminfo::free_kib().ok_or_else(|| lacks("MemFree"))?,
            pool: pool.pages()?,
        })
    }
}

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let gigantic = args::take_flag(&mut words, "--1g");
    let each = args::take_flag(&mut words, "--each");
    args::no_more(&words, 1)?;
    let word = words.first().map(String::as_str);
    let wanted = match word {
        None => Some(DEFAULT_PAGES),
        Some(ALL) => None,
        Some(word) => Some(args::number(word, "huge pages", 1, MAX_PAGES)?),
    };
    if each && wanted.is_none() {
        let why = "--each needs a number of huge pages";
        return Err(Failure::Usage(why.to_owned()));
    }
    let pool = if gigantic {
        Pool::of(GIGANTIC_KIB)?
    } else {
        Pool::of_the_default()?
    };
    let before = show("before", &pool, out)?;
    let more = wanted.unwrap_or(before.total / pool.page_kib() + 1);
    let (mut allocated, mut freed) = (Vec::new(), Vec::new());
    let allocate_ns = if each {
        allocated = pool.step(before.pool, before.pool + more)?;
        allocated.iter().sum()
    } else {
        pool.resize(before.pool + more)?
    };
    let with = show("allocated", &pool, out)?;
    let free_ns = if each {
        // With fewer pages than asked for, the first writes would free nothing.
        freed = pool.step(with.pool, before.pool)?;
        freed.iter().sum()
    } else {
        pool.resize(before.pool)?
    };
    let after = show("after", &pool, out)?;
    if after.pool != before.pool {
        return Err(Failure::Wrong(format!(
            "{} huge pages stayed in the pool, {} were there before",
            after.pool, before.pool
        )));
    }
    let obtained = with.pool.saturating_sub(before.pool);
    if obtained == 0 {
        return Err(Failure::Wrong(format!(
            "none of {more} huge pages could be allocated"
        )));
    }
    let labels = Labels::from([
        (
            "wanted",
            wanted.map_or_else(|| ALL.to_owned(), |n| n.to_string()),
        ),
        ("size", if gigantic { "1G" } else { "2M" }.to_owned()),
    ]);
    for (name, times) in [("allocate_each_ns", allocated), ("free_each_ns", freed)] {
        if !times.is_empty() {
            out.distribution(&with_histogram(name, times, labels.clone()))?;
        }
    }
    let mut result = |name, value, unit, better| {
        out.result(&Metric {
            name,
            value,
            unit,
            better,
            labels: labels.clone(),
        })
    };
    let second = 1_000_000_000;
    result("huge_pages", ratio(obtained, 1), "pages", Better::Higher)?;
    result("allocate_s", ratio(allocate_ns, second), "s", Better::Lower)?;
    result("free_s", ratio(free_ns, second), "s", Better::Lower)?;
    let a_page = ratio(allocate_ns, obtained);
    result("allocate_page_ns", a_page, "ns", Better::Lower)?;
    let a_page = ratio(free_ns, obtained);
    result("free_page_ns", a_page, "ns", Better::Lower)?;
    let saved = saved_kib(before, with, obtained * pool.page_kib());
    result("saved_kib", saved, "KiB", Better::Higher)?;
    if wanted.is_none() {
        let share = ratio(obtained * pool.page_kib(), with.total);
        result("pool_share", share, "share", Better::Higher)?;
    }
    Ok(())
}

/// Time to wait before memory is measured, so that pending frees are done.
const SETTLE: Duration = Duration::from_secs(1);

/// Returns the memory in KiB that the pool has saved: the free memory with `pages_kib` of pages,
/// beyond the free memory before less `pages_kib`. It is negative if the pages cost more than their
/// own size.
fn saved_kib(before: Memory, with: Memory, pages_kib: u64) -> f64 {
    ratio(with.free + pages_kib, 1) - ratio(before.free, 1)
}

/// Prints a phase with the guest's memory, and returns that.
fn show(name: &str, pool: &Pool, out: &mut Output) -> Result<Memory, Failure> {
    // The kernel frees memory that it held only for a moment.
    std::thread::sleep(SETTLE);
    let memory = Memory::read(pool)?;
    out.phase(name, None)?;
    out.say(&format!(
        "  MemTotal {} kB, free {} kB, {} huge pages",
        memory.total, memory.free, memory.pool
    ))?;
    out.fact("mem_total_kib", memory.total, name)?;
    out.fact("mem_free_kib", memory.free, name)?;
    Ok(memory)
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
        };
        // Ten pages of 2 MiB, and 280 KiB of descriptors were freed.
        let saved = saved_kib(memory(500_000), memory(500_000 - 20_480 + 280), 20_480);
        assert!((saved - 280.0).abs() < f64::EPSILON, "{saved}");
        let cost = saved_kib(memory(500_000), memory(500_000 - 20_480 - 4), 20_480);
        assert!((cost + 4.0).abs() < f64::EPSILON, "{cost}");
    }
}

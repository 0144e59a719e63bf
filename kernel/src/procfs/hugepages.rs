//! The files of the pools of huge pages in `/proc` and `/sys`: Linux's knobs and counters, and the
//! boot line's words.

use crate::fs::knob::Store;
use crate::fs::synthetic::Entry;
use crate::fs::text::Text;
use crate::vm::compaction::daemon;
use core::fmt::{Result as Written, Write};
use logic::errno::Errno;
use logic::knob::{number, word};
use machine::memory::hugetlb::{self, Counts, PageSize};
use machine::sched;

/// The knobs of `/proc/sys/vm`: those of the pool of the default size, and
/// `hugetlb_optimize_vmemmap`.
pub(super) const PROC: &[Entry] = &[
    Entry::knob(
        "sys/vm/nr_hugepages",
        usual_total,
        Store::long(0, u64::MAX, set_usual_total),
    ),
    Entry::knob(
        "sys/vm/nr_hugepages_mempolicy",
        usual_total,
        Store::long(0, u64::MAX, set_usual_total),
    ),
    Entry::knob(
        "sys/vm/nr_overcommit_hugepages",
        |text| count(text, hugetlb::default_size(), |counts| counts.overcommit),
        Store::long(0, u64::MAX, |pages| {
            set_overcommit(hugetlb::default_size(), pages)
        }),
    ),
    Entry::knob(
        "sys/vm/hugetlb_optimize_vmemmap",
        |text| writeln!(text, "{}", u8::from(hugetlb::optimizes())),
        Store::Bool(|on| {
            hugetlb::set_optimize(on);
            Ok(())
        }),
    ),
];

/// The files of `/sys` about huge pages of 2 MiB.
pub(super) const SYS: &[Entry] = &[
    Entry::knob(
        "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        Mib2::total,
        Store::Decimal(Mib2::set_total),
    ),
    Entry::knob(
        "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages_mempolicy",
        Mib2::total,
        Store::Decimal(Mib2::set_total),
    ),
    Entry::knob(
        "kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages",
        Mib2::overcommit,
        Store::Decimal(Mib2::set_overcommit),
    ),
    Entry::file(
        "kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        Mib2::free,
    ),
    Entry::file(
        "kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
        Mib2::reserved,
    ),
    Entry::file(
        "kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages",
        Mib2::surplus,
    ),
    Entry::knob(
        "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        Mib2::total,
        Store::Decimal(Mib2::set_total),
    ),
    Entry::file(
        "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages",
        Mib2::free,
    ),
    Entry::file(
        "devices/system/node/node0/hugepages/hugepages-2048kB/surplus_hugepages",
        Mib2::surplus,
    ),
];

/// The files of `/sys` about huge pages of 1 GiB. They exist if the CPUs support such pages.
pub(super) const SYS_GIGANTIC: &[Entry] = &[
    Entry::knob(
        "kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
        Gib1::total,
        Store::Decimal(Gib1::set_total),
    ),
    Entry::knob(
        "kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages_mempolicy",
        Gib1::total,
        Store::Decimal(Gib1::set_total),
    ),
    Entry::knob(
        "kernel/mm/hugepages/hugepages-1048576kB/nr_overcommit_hugepages",
        Gib1::overcommit,
        Store::Decimal(Gib1::set_overcommit),
    ),
    Entry::file(
        "kernel/mm/hugepages/hugepages-1048576kB/free_hugepages",
        Gib1::free,
    ),
    Entry::file(
        "kernel/mm/hugepages/hugepages-1048576kB/resv_hugepages",
        Gib1::reserved,
    ),
    Entry::file(
        "kernel/mm/hugepages/hugepages-1048576kB/surplus_hugepages",
        Gib1::surplus,
    ),
    Entry::trigger(
        "kernel/mm/hugepages/hugepages-1048576kB/demote",
        Store::Decimal(demote),
    ),
    Entry::knob(
        "kernel/mm/hugepages/hugepages-1048576kB/demote_size",
        |text| writeln!(text, "2048kB"),
        Store::Size(set_demote_size),
    ),
    Entry::knob(
        "devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages",
        Gib1::total,
        Store::Decimal(Gib1::set_total),
    ),
    Entry::file(
        "devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages",
        Gib1::free,
    ),
    Entry::file(
        "devices/system/node/node0/hugepages/hugepages-1048576kB/surplus_hugepages",
        Gib1::surplus,
    ),
    Entry::trigger(
        "devices/system/node/node0/hugepages/hugepages-1048576kB/demote",
        Store::Decimal(demote),
    ),
    Entry::knob(
        "devices/system/node/node0/hugepages/hugepages-1048576kB/demote_size",
        |text| writeln!(text, "2048kB"),
        Store::Size(set_demote_size),
    ),
];

/// The functions of the files about huge pages of one size.
trait OfSize {
    /// The size of the pages.
    const SIZE: PageSize;

    /// Shows `nr_hugepages`: the number of pages in the pool, including surplus ones.
    fn total(text: &mut Text) -> Written {
        count(text, Self::SIZE, |counts| counts.total)
    }

    /// Shows `free_hugepages`: the number of free pages in the pool.
    fn free(text: &mut Text) -> Written {
        count(text, Self::SIZE, |counts| counts.free)
    }

    /// Shows `resv_hugepages`: the number of free pages that are reserved for mappings.
    fn reserved(text: &mut Text) -> Written {
        count(text, Self::SIZE, |counts| counts.reserved)
    }

    /// Shows `surplus_hugepages`: the number of pages beyond the requested size of the pool.
    fn surplus(text: &mut Text) -> Written {
        count(text, Self::SIZE, |counts| counts.surplus)
    }

    /// Shows `nr_overcommit_hugepages`: the limit of surplus pages.
    fn overcommit(text: &mut Text) -> Written {
        count(text, Self::SIZE, |counts| counts.overcommit)
    }

    /// Resizes the pool to `pages` pages, as far as there is memory. Never fails.
    fn set_total(pages: u64) -> Result<(), Errno> {
        set_total(Self::SIZE, pages)
    }

    /// Sets the limit of surplus pages. Fails with `EINVAL` for pages of 1 GiB.
    fn set_overcommit(pages: u64) -> Result<(), Errno> {
        set_overcommit(Self::SIZE, pages)
    }
}

struct Mib2;
struct Gib1;

impl OfSize for Mib2 {
    const SIZE: PageSize = PageSize::Mib2;
}

impl OfSize for Gib1 {
    const SIZE: PageSize = PageSize::Gib1;
}

fn count(text: &mut Text, size: PageSize, of: fn(&Counts) -> u64) -> Written {
    writeln!(text, "{}", of(&hugetlb::counts(size)))
}

fn usual_total(text: &mut Text) -> Written {
    count(text, hugetlb::default_size(), |counts| counts.total)
}

fn set_usual_total(pages: u64) -> Result<(), Errno> {
    set_total(hugetlb::default_size(), pages)
}

/// Lets other tasks run while a pool grows. Returns `true` if a signal is pending.
fn stops_growing() -> bool {
    sched::cond_resched();
    sched::current().signal_pending()
}

/// Lets other tasks run during other work on a pool. Returns `true` if the task is being killed.
fn stops() -> bool {
    sched::cond_resched();
    sched::current().killed()
}

/// Resizes the pool of pages of `size` to `pages` pages, as far as there is memory. As on Linux,
/// any signal stops a pool that grows, at the size that it has reached. Only a kill stops one that
/// shrinks. Never fails.
fn set_total(size: PageSize, pages: u64) -> Result<(), Errno> {
    hugetlb::resize(size, pages, stops_growing, stops);
    // A larger pool leaves less of the free memory in whole blocks, a smaller one frees memory.
    daemon::memory_freed();
    Ok(())
}

/// Sets the limit of surplus pages of `size`. As on Linux, there are no surplus pages of 1 GiB:
/// fails with `EINVAL` for them.
fn set_overcommit(size: PageSize, pages: u64) -> Result<(), Errno> {
    if size == PageSize::Gib1 {
        return Err(Errno::EINVAL);
    }
    hugetlb::set_overcommit(size, pages);
    Ok(())
}

fn demote(pages: u64) -> Result<(), Errno> {
    hugetlb::demote(pages, stops);
    Ok(())
}

/// Sets the size into which pages of 1 GiB are split. Fails with `EINVAL` for sizes other than 2
/// MiB.
fn set_demote_size(bytes: u64) -> Result<(), Errno> {
    if bytes == PageSize::Mib2.bytes() {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Writes the lines about huge pages of `/proc/meminfo`.
pub(super) fn meminfo(text: &mut Text) -> Written {
    let size = hugetlb::default_size();
    let counts = hugetlb::counts(size);
    for (name, value) in [
        ("Total", counts.total),
        ("Free", counts.free),
        ("Rsvd", counts.reserved),
        ("Surp", counts.surplus),
    ] {
        let name_width = 8_usize.saturating_sub(name.len());
        writeln!(text, "HugePages_{name}:{:name_width$}{value:>5}", "")?;
    }
    let all = PageSize::ALL.map(|size| hugetlb::counts(size).total * size.bytes());
    writeln!(text, "Hugepagesize:   {:>8} kB", size.bytes() >> 10)?;
    writeln!(
        text,
        "Hugetlb:        {:>8} kB",
        all.iter().sum::<u64>() >> 10
    )
}

/// Writes the lines about huge pages of node 0's `meminfo`.
pub(super) fn node_meminfo(text: &mut Text) -> Written {
    let counts = hugetlb::counts(hugetlb::default_size());
    writeln!(text, "Node 0 HugePages_Total: {:>5}", counts.total)?;
    writeln!(text, "Node 0 HugePages_Free:  {:>5}", counts.free)?;
    writeln!(text, "Node 0 HugePages_Surp:  {:>5}", counts.surplus)
}

/// Returns the size of huge pages that a word of the command line names, or `None` if this machine
/// does not have it.
fn boot_size(value: &str) -> Option<PageSize> {
    PageSize::of_bytes(number::size(value.as_bytes()).0)
}

/// Applies `hugepages=`, `hugepagesz=`, `default_hugepagesz=` and `hugetlb_free_vmemmap=` of the
/// boot line. Names unavailable pages and bad values on the console.
pub(super) fn apply_boot_line(line: &str) {
    let words = || {
        line.split_ascii_whitespace()
            .filter_map(|word| Some((word, word.split_once('=')?)))
    };
    for (text, (name, value)) in words() {
        match (name, value) {
            ("default_hugepagesz" | "hugepagesz", _) => match boot_size(value) {
                Some(size) if name == "default_hugepagesz" => hugetlb::set_default_size(size),
                Some(_) => {}
                None => machine::console!("{text}: no such huge pages here"),
            },
            ("hugetlb_free_vmemmap", _) => match word::boolean(value.as_bytes()) {
                Ok(on) => hugetlb::set_optimize(on),
                Err(_) => machine::console!("{text}: not on or off"),
            },
            _ => {}
        }
    }
    // The large pages first, since the small ones find room between them.
    for wanted in [PageSize::Gib1, PageSize::Mib2] {
        let mut size = Some(hugetlb::default_size());
        for (word, (name, value)) in words() {
            match name {
                "hugepagesz" | "default_hugepagesz" => size = boot_size(value),
                "hugepages" if size == Some(wanted) => fill_at_boot(word, wanted, value),
                _ => {}
            }
        }
    }
}

fn fill_at_boot(word: &str, size: PageSize, value: &str) {
    // As on Linux, a decimal number with any text after it, but not a number for each node.
    let pages = match number::leading(value.as_bytes()) {
        Some((pages, rest)) if rest.first() != Some(&b':') => pages,
        _ => {
            machine::console!("{word}: not a number");
            return;
        }
    };
    hugetlb::resize(size, pages, || false, || false);
    let got = hugetlb::counts(size).total;
    if got < pages {
        machine::console!("{word}: there is memory for {got}");
    }
}

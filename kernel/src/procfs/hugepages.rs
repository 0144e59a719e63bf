//! The pool of huge pages as `/proc` and `/sys` show it: Linux's knobs and counters, and the boot line's words.

use crate::fs::synthetic::Entry;
use crate::fs::text::Text;
use core::fmt::{Result as Written, Write};
use logic::errno::Errno;
use logic::mount_options;
use machine::memory::hugetlb::{self, Counts};
use machine::sched;

pub(super) const PROC: &[Entry] = &[
    Entry::knob("sys/vm/nr_hugepages", total, |value| {
        set_total(c_number(value)?)
    }),
    Entry::knob("sys/vm/nr_hugepages_mempolicy", total, |value| {
        set_total(c_number(value)?)
    }),
    Entry::knob("sys/vm/nr_overcommit_hugepages", overcommit, |value| {
        set_overcommit(c_number(value)?)
    }),
    Entry::knob(
        "sys/vm/hugetlb_optimize_vmemmap",
        |text| writeln!(text, "{}", u8::from(hugetlb::optimizes())),
        |value| match value {
            "0" => hugetlb_optimize(false),
            "1" => hugetlb_optimize(true),
            _ => Err(Errno::EINVAL),
        },
    ),
];

pub(super) const SYS: &[Entry] = &[
    Entry::knob(
        "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        total,
        |value| set_total(parse(value)?),
    ),
    Entry::knob(
        "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages_mempolicy",
        total,
        |value| set_total(parse(value)?),
    ),
    Entry::knob(
        "kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages",
        overcommit,
        |value| set_overcommit(parse(value)?),
    ),
    Entry::file("kernel/mm/hugepages/hugepages-2048kB/free_hugepages", free),
    Entry::file(
        "kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
        |text| count(text, |counts| counts.reserved),
    ),
    Entry::file(
        "kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages",
        surplus,
    ),
    Entry::knob(
        "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        total,
        |value| set_total(parse(value)?),
    ),
    Entry::file(
        "devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages",
        free,
    ),
    Entry::file(
        "devices/system/node/node0/hugepages/hugepages-2048kB/surplus_hugepages",
        surplus,
    ),
];

const KIB: u64 = hugetlb::BYTES >> 10;

fn count(text: &mut Text, of: fn(&Counts) -> u64) -> Written {
    writeln!(text, "{}", of(&hugetlb::counts()))
}

fn total(text: &mut Text) -> Written {
    count(text, |counts| counts.total)
}

fn free(text: &mut Text) -> Written {
    count(text, |counts| counts.free)
}

fn surplus(text: &mut Text) -> Written {
    count(text, |counts| counts.surplus)
}

fn overcommit(text: &mut Text) -> Written {
    count(text, |counts| counts.overcommit)
}

/// A number as those of `/sys` are written.
fn parse(value: &str) -> Result<u64, Errno> {
    value.parse().map_err(|_| Errno::EINVAL)
}

/// A number as those of `/proc/sys` are written: with C's prefixes.
fn c_number(value: &str) -> Result<u64, Errno> {
    match mount_options::c_number(value)? {
        (number, "") => Ok(number),
        _ => Err(Errno::EINVAL),
    }
}

fn hugetlb_optimize(on: bool) -> Result<(), Errno> {
    hugetlb::set_optimize(on);
    Ok(())
}

/// A signal ends the work; the pool is then as large as it has become.
fn set_total(pages: u64) -> Result<(), Errno> {
    hugetlb::resize(pages, || {
        sched::cond_resched();
        sched::current().signal_pending()
    });
    Ok(())
}

fn set_overcommit(pages: u64) -> Result<(), Errno> {
    hugetlb::set_overcommit(pages);
    Ok(())
}

/// The last lines of `/proc/meminfo`.
pub(super) fn meminfo(text: &mut Text) -> Written {
    let counts = hugetlb::counts();
    for (name, value) in [
        ("Total", counts.total),
        ("Free", counts.free),
        ("Rsvd", counts.reserved),
        ("Surp", counts.surplus),
    ] {
        let name_width = 9_usize.saturating_sub(name.len());
        writeln!(text, "HugePages_{name}:{:name_width$}{value:>5}", "")?;
    }
    writeln!(text, "Hugepagesize:   {KIB:>8} kB")?;
    writeln!(text, "Hugetlb:        {:>8} kB", counts.total * KIB)
}

/// The lines of node 0's `meminfo`.
pub(super) fn node_meminfo(text: &mut Text) -> Written {
    let counts = hugetlb::counts();
    writeln!(text, "Node 0 HugePages_Total: {:>5}", counts.total)?;
    writeln!(text, "Node 0 HugePages_Free:  {:>5}", counts.free)?;
    writeln!(text, "Node 0 HugePages_Surp:  {:>5}", counts.surplus)
}

/// Obeys `hugepages=`, `hugepagesz=`, `default_hugepagesz=` and `hugetlb_free_vmemmap=`. What cannot be had is named on
/// the console.
pub(super) fn apply_boot_line(line: &str) {
    let mut size = Ok(());
    for word in line.split_ascii_whitespace() {
        let Some((name, value)) = word.split_once('=') else {
            continue;
        };
        match name {
            "hugepagesz" | "default_hugepagesz" => {
                size = match value {
                    "2M" | "2m" | "2048K" | "2048k" | "2097152" => Ok(()),
                    _ => Err(value),
                };
                if size.is_err() {
                    machine::console!("{word}: huge pages have 2M");
                }
            }
            "hugetlb_free_vmemmap" => match value {
                "on" | "1" => hugetlb::set_optimize(true),
                "off" | "0" => hugetlb::set_optimize(false),
                _ => machine::console!("{word}: not on or off"),
            },
            _ => {}
        }
        if name == "hugepages" && size.is_ok() {
            match value.parse() {
                Ok(pages) => {
                    hugetlb::resize(pages, || false);
                    let got = hugetlb::counts().total;
                    if got < pages {
                        machine::console!("{word}: there is memory for {got}");
                    }
                }
                Err(_) => machine::console!("{word}: not a number"),
            }
        }
    }
}

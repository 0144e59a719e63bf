//! `unmovable`: leaves free memory in pieces that no compaction can join, and watches what the kernel makes of it.
//!
//! The test of backing off in the proactive compaction series, which fills memory with a kernel module's pages. Here it
//! is page tables: a byte is read in each 2 MiB of an endless mapping, which takes a table and, as what is read is the
//! zero page, nothing else.

use crate::mapping::HUGE_BYTES;
use crate::output::{Better, Labels, Metric, Output};
use crate::vmstat::Vmstat;
use crate::{Experiment, Failure, args, buddyinfo, meminfo};
use std::fs;
use std::ptr::NonNull;
use std::time::Duration;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "unmovable",
    usage: "[PERCENT [SECONDS [PROACTIVENESS]]]",
    summary: "leave free memory in pieces between page tables: does compaction know that it is in vain?",
    help: "\
PERCENT (85) of what is free becomes page tables, of which seven of every eight are freed. Then
compaction_proactiveness is 0 for SECONDS (90), and PROACTIVENESS (40) for as long.

Prints how much of the free memory is in free blocks of 2 MiB and more (free_in_huge_blocks_share),
and for both values how busy the CPUs were (busy_share, by /proc/stat), how often they changed tasks
in 30 s (in_30s_switches), and the frames that compaction looked at (scanned, by compact_*_scanned).",
    run,
};

const DEFAULT_PERCENT: u64 = 85;
const DEFAULT_HOLD: Duration = Duration::from_secs(90);
const DEFAULT_PROACTIVENESS: u64 = 40;
const KNOB: &str = "/proc/sys/vm/compaction_proactiveness";
/// Of so many tables one stays.
const TABLES_A_SURVIVOR: usize = 8;
/// Linux allows 65,530 mappings a process, and each survivor is one.
const MOST_TABLES: usize = 60_000 * TABLES_A_SURVIVOR;
const TABLE_KIB: u64 = 4;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 3)?;
    let mut words = words.iter();
    let percent = words.next().map_or(Ok(DEFAULT_PERCENT), |word| {
        args::number(word, "percent", 1, 95)
    })?;
    let hold = words
        .next()
        .map_or(Ok(DEFAULT_HOLD), |word| args::duration(word))?;
    let proactiveness = words.next().map_or(Ok(DEFAULT_PROACTIVENESS), |word| {
        args::number(word, "percent", 0, 100)
    })?;
    set_proactiveness(0)?;
    out.phase("start", None)?;
    let tables = Tables::fill(percent)?;
    out.phase("filled", None)?;
    tables.thin_out()?;
    out.phase("in pieces", None)?;
    if let Some(free) = buddyinfo::read() {
        out.result(&Metric {
            name: "free_in_huge_blocks_share",
            value: free.pages_in_huge_blocks as f64 / free.pages.max(1) as f64,
            unit: "share",
            better: Better::Lower,
            labels: Labels::new(),
        })?;
    }
    for value in [0, proactiveness] {
        set_proactiveness(value)?;
        let before = Activity::now()?;
        std::thread::sleep(hold);
        let after = Activity::now()?;
        let labels = Labels::from([("proactiveness", value.to_string())]);
        let ticks = after.ticks - before.ticks;
        for (name, figure, unit) in [
            (
                "busy_share",
                1.0 - (after.idle - before.idle) as f64 / ticks.max(1) as f64,
                "share",
            ),
            (
                "in_30s_switches",
                (after.switches - before.switches) as f64 * 30.0 / hold.as_secs_f64().max(1.0),
                "switches",
            ),
            ("scanned", (after.scanned - before.scanned) as f64, "frames"),
        ] {
            out.result(&Metric {
                name,
                value: figure,
                unit,
                better: Better::Lower,
                labels: labels.clone(),
            })?;
        }
    }
    out.phase("end", None)
}

fn set_proactiveness(value: u64) -> Result<(), Failure> {
    fs::write(KNOB, value.to_string()).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Unsupported(KNOB.to_owned()),
        _ => Failure::system(KNOB)(error),
    })
}

/// What the guest has done so far.
struct Activity {
    /// Of all CPUs, in `/proc/stat`'s units.
    ticks: u64,
    idle: u64,
    switches: u64,
    scanned: u64,
}

impl Activity {
    fn now() -> Result<Self, Failure> {
        let text = fs::read_to_string("/proc/stat").map_err(Failure::system("/proc/stat"))?;
        let line = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
                .ok_or_else(|| Failure::Unsupported(format!("{name} in /proc/stat")))
        };
        let times: Vec<u64> = line("cpu")?
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        let vmstat = Vmstat::read()?;
        Ok(Self {
            ticks: times.iter().sum(),
            // Idle, and idle while a disk works.
            idle: times.iter().skip(3).take(2).sum(),
            switches: line("ctxt")?.trim().parse().unwrap_or(0),
            scanned: vmstat.scanned()?,
        })
    }
}

/// A mapping each 2 MiB of which has a page table, or had one. It goes with the program: others may have been mapped where
/// it was thinned out.
struct Tables {
    start: NonNull<u8>,
    used: usize,
}

impl Tables {
    /// Makes as many as fit into so much of what is free.
    fn fill(percent: u64) -> Result<Self, Failure> {
        let free = meminfo::kib("MemFree")
            .ok_or_else(|| Failure::Unsupported("MemFree in /proc/meminfo".to_owned()))?;
        let wanted = usize::try_from(free * percent / 100 / TABLE_KIB).unwrap_or(usize::MAX);
        if wanted > MOST_TABLES {
            return Err(Failure::Usage(format!(
                "{wanted} page tables are more than {MOST_TABLES}: give the guest less memory"
            )));
        }
        let bytes = (wanted + 1) * HUGE_BYTES;
        // SAFETY: a new private mapping of nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Failure::last_os(format!("mmap of {bytes} bytes")));
        }
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| Failure::Wrong("mmap gave address 0".to_owned()))?;
        let tables = Self {
            start,
            used: wanted,
        };
        // A kernel without huge pages refuses, and has none.
        // SAFETY: advice alone, for the mapping just made.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        for table in 0..wanted {
            // SAFETY: inside the mapping, which can be read.
            unsafe { tables.place(table).read_volatile() };
        }
        Ok(tables)
    }

    /// Where the 2 MiB of a table begin: aligned, so each has one of its own.
    fn place(&self, table: usize) -> *mut u8 {
        let skip =
            self.start.as_ptr().addr().next_multiple_of(HUGE_BYTES) - self.start.as_ptr().addr();
        // SAFETY: the mapping has room for one more than are used.
        unsafe { self.start.as_ptr().add(skip + table * HUGE_BYTES) }
    }

    /// Frees seven of every eight.
    fn thin_out(&self) -> Result<(), Failure> {
        for first in (0..self.used).step_by(TABLES_A_SURVIVOR) {
            let gone = (self.used - first).min(TABLES_A_SURVIVOR) - 1;
            if gone == 0 {
                continue;
            }
            let from = self.place(first + 1).cast();
            // SAFETY: a part of the own mapping, to which nothing refers.
            if unsafe { libc::munmap(from, gone * HUGE_BYTES) } != 0 {
                return Err(Failure::last_os("munmap"));
            }
        }
        Ok(())
    }
}

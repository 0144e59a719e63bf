//! `bursts`: a load similar to a build, in memory that is nearly full, with bursts of huge page
//! allocations by another process.
//!
//! Each job reads files, uses some memory and replaces one file by another. This fragments memory:
//! small files lie next to large ones, old ones next to new ones. Between the jobs a program maps
//! huge pages, touches each one, and unmaps them.

use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::memory_file;
use crate::output::{Better, Labels, Metric, Output};
use crate::percentiles::spread;
use crate::tasks::Child;
use crate::vmstat::Vmstat;
use crate::{Experiment, Failure, args, meminfo, thp};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The experiment `bursts`, with its arguments, help text and function: bursts of huge page
/// allocations in memory that is nearly full.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "bursts",
    usage: "[BURSTS [PERCENT]]",
    summary: "bursts of huge-page faults while jobs come and go in memory that is nearly full",
    help: "\
Files in memory take PERCENT (85) of what is free. Jobs run, four at a time: each reads ten files and
touches 2 to 16 MiB, and with every fourth page writes one of a file, of 4 KiB to 1 MiB, that takes
the place of another. After every eight jobs comes one of BURSTS (60): half of what was free then,
advised to be in huge pages, is touched, one byte every 2 MiB, and unmapped again. What is random is
the same in every run.

Prints the latency of the faults that got a huge page by percentile (huge_fault_ns), of those that
did not (base_fault_ns), the share of the bursts in huge pages (huge_share), what jobs took each
(job_ns), and for each huge page that was got the frames that compaction looked at (scanned_per_page)
and moved (moved_per_page), by /proc/vmstat.",
    run,
};

const DEFAULT_BURSTS: u64 = 60;
const MOST_BURSTS: u64 = 100_000;
const DEFAULT_PERCENT: u64 = 85;
const JOBS_AT_ONCE: usize = 4;
const JOBS_A_BURST: usize = 8;
/// The share of free memory that a burst allocates.
const BURST_PERCENT: u64 = 50;
const FILES_READ: usize = 10;
/// A job writes one page to a file for this number of pages that it touches.
const PAGES_A_FILE_PAGE: usize = 4;
const LEAST_JOB_BYTES: usize = 2 << 20;
const MOST_JOB_BYTES: usize = 16 << 20;

/// A pseudo-random generator that returns the same numbers in every run.
struct Random(u64);

impl Random {
    /// Returns a number less than `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 20) % bound as u64).unwrap_or(0)
    }

    /// Returns the size of a file in bytes. Most files are small.
    fn file_bytes(&mut self) -> usize {
        let most = 1 << self.below(9);
        (1 + self.below(most)) * PAGE_BYTES
    }
}

/// The files that jobs read and replace.
struct Tree {
    files: Vec<File>,
    random: Random,
    page: Vec<u8>,
}

impl Tree {
    /// Creates files of `bytes` bytes in total.
    fn fill(bytes: u64) -> Result<Self, Failure> {
        let mut tree = Self {
            files: Vec::new(),
            random: Random(0x9e37_79b9_7f4a_7c15),
            page: vec![1; PAGE_BYTES],
        };
        let mut taken = 0;
        while taken < bytes {
            let (file, size) = tree.new_file()?;
            taken += size as u64;
            tree.files.push(file);
        }
        Ok(tree)
    }

    fn new_file(&mut self) -> Result<(File, usize), Failure> {
        let file = memory_file::empty()?;
        let bytes = self.random.file_bytes();
        self.write(&file, bytes)?;
        Ok((file, bytes))
    }

    fn write(&self, file: &File, bytes: usize) -> Result<(), Failure> {
        for offset in (0..bytes).step_by(PAGE_BYTES) {
            file.write_all_at(&self.page, offset as u64)
                .map_err(Failure::system(format!("write a file of {bytes} bytes")))?;
        }
        Ok(())
    }

    /// Runs one job, in a process of its own. `seed` decides which files it reads and replaces.
    fn job(&self, seed: u64) -> Result<(), Failure> {
        let mut random = Random(seed);
        let mut page = vec![0; PAGE_BYTES];
        for _ in 0..FILES_READ {
            let file = &self.files[random.below(self.files.len())];
            let mut at = 0;
            while let Ok(count @ 1..) = file.read_at(&mut page, at) {
                at += count as u64;
            }
        }
        let spread = (MOST_JOB_BYTES - LEAST_JOB_BYTES) / PAGE_BYTES;
        let bytes = LEAST_JOB_BYTES + random.below(spread) * PAGE_BYTES;
        let mut memory = Mapping::anonymous(bytes, PageSize::Base)?;
        let mut written = Replaced::default();
        for page in (0..bytes).step_by(PAGE_BYTES) {
            memory.write(page, 1);
            // Pages that stay are allocated between pages that are freed when the job ends.
            if (page / PAGE_BYTES).is_multiple_of(PAGES_A_FILE_PAGE) {
                self.replace_page(&mut random, &mut written)?;
            }
        }
        Ok(())
    }

    /// Writes the next page of the file that replaces another. Begins with a new one if the last is
    /// complete.
    fn replace_page(&self, random: &mut Random, written: &mut Replaced) -> Result<(), Failure> {
        if written.next == written.bytes {
            *written = Replaced {
                file: random.below(self.files.len()),
                bytes: random.file_bytes(),
                next: 0,
            };
            // The old contents are freed at once.
            self.files[written.file]
                .set_len(0)
                .map_err(Failure::system("cut a file in memory"))?;
        }
        self.files[written.file]
            .write_all_at(&self.page, written.next as u64)
            .map_err(Failure::system("write to a file in memory"))?;
        written.next += PAGE_BYTES;
        Ok(())
    }
}

/// The replacement of a file, and how far it has got.
#[derive(Default)]
struct Replaced {
    file: usize,
    bytes: usize,
    next: usize,
}

/// The times measured, in nanoseconds: faults that got a huge page, faults that did not, and jobs.
#[derive(Default)]
struct Met {
    huge: Vec<u64>,
    base: Vec<u64>,
    jobs: Vec<u64>,
}

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 2)?;
    let mut words = words.iter();
    let bursts = words.next().map_or(Ok(DEFAULT_BURSTS), |word| {
        args::number(word, "BURSTS", 1, MOST_BURSTS)
    })?;
    let percent = words.next().map_or(Ok(DEFAULT_PERCENT), |word| {
        args::number(word, "percent", 1, 95)
    })?;
    thp::require()?;
    let free = || {
        meminfo::free_kib()
            .map(|kib| kib * 1024)
            .ok_or_else(|| Failure::Unsupported("MemFree in /proc/meminfo".to_owned()))
    };
    raise_open_files()?;
    out.phase("start", None)?;
    let tree = Tree::fill(free()? / 100 * percent)?;
    let pages = free()? * BURST_PERCENT / 100 / HUGE_BYTES as u64;
    let burst_bytes = usize::try_from(pages.max(1)).unwrap_or(1) * HUGE_BYTES;
    out.phase("filled", None)?;
    let before = Vmstat::read()?;
    let mut met = Met::default();
    let mut seed = 1;
    for _ in 0..bursts {
        jobs(&tree, &mut seed, &mut met)?;
        burst(burst_bytes, &mut met)?;
    }
    let after = Vmstat::read()?;
    out.phase("end", None)?;
    let got = met.huge.len() as u64;
    let share = ratio(got, got + met.base.len() as u64);
    for (name, latencies) in [
        ("huge_fault_ns", met.huge),
        ("base_fault_ns", met.base),
        ("job_ns", met.jobs),
    ] {
        if !latencies.is_empty() {
            out.distribution(&spread(name, latencies, Labels::new()))?;
        }
    }
    let each = |frames: u64| frames as f64 / got.max(1) as f64;
    let scanned = after.scanned()? - before.scanned()?;
    let moved = after.get("pgmigrate_success")? - before.get("pgmigrate_success")?;
    for (name, value, unit, better) in [
        ("huge_share", share, "share", Better::Higher),
        ("scanned_per_page", each(scanned), "frames", Better::Lower),
        ("moved_per_page", each(moved), "frames", Better::Lower),
    ] {
        out.result(&Metric {
            name,
            value,
            unit,
            better,
            labels: Labels::new(),
        })?;
    }
    Ok(())
}

/// Runs [`JOBS_A_BURST`] jobs, [`JOBS_AT_ONCE`] at a time.
fn jobs(tree: &Tree, seed: &mut u64, met: &mut Met) -> Result<(), Failure> {
    for _ in 0..JOBS_A_BURST / JOBS_AT_ONCE {
        let begin = monotonic_ns();
        let mut children = Vec::new();
        for _ in 0..JOBS_AT_ONCE {
            *seed += 0x9e37_79b9;
            let seed = *seed;
            children.push(Child::fork(|| tree.job(seed))?);
        }
        for child in children {
            let status = child.wait()?;
            if !status.success() {
                return Err(Failure::Wrong(format!("a job ended with {status}")));
            }
        }
        met.jobs
            .push((monotonic_ns() - begin) / JOBS_AT_ONCE as u64);
    }
    Ok(())
}

/// Maps `bytes` bytes, touches each huge page and adds the times to `met`.
fn burst(bytes: usize, met: &mut Met) -> Result<(), Failure> {
    let mut mapping = Mapping::anonymous(bytes, PageSize::Huge)?;
    for start in (0..bytes).step_by(HUGE_BYTES) {
        let begin = monotonic_ns();
        mapping.write(start, 1);
        let ns = monotonic_ns() - begin;
        if mapping.is_resident(start..start + HUGE_BYTES)? {
            met.huge.push(ns);
        } else {
            met.base.push(ns);
        }
    }
    // Uses the memory for a moment.
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

/// Raises the limit of open files, since each file in memory has a descriptor.
fn raise_open_files() -> Result<(), Failure> {
    let limit = libc::rlimit {
        rlim_cur: 1 << 20,
        rlim_max: 1 << 20,
    };
    // SAFETY: the call only reads a plain structure.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(Failure::last_os("setrlimit(RLIMIT_NOFILE) to 1048576"));
    }
    Ok(())
}

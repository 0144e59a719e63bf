//! `unmovable`: fragments free memory so that compaction cannot repair it, and measures the
//! kernel's attempts.
//!
//! It is the test of backing off in the proactive compaction patches. They fill memory with pages
//! of a kernel module. Here the unmovable pages belong to pipes without a reader.

use crate::output::{Better, Labels, Metric, Output};
use crate::vmstat::Vmstat;
use crate::{Experiment, Failure, args, buddyinfo, meminfo};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// The experiment `unmovable`, with its arguments, help text and function: fragments free memory by
/// unmovable pages, and measures compaction that cannot help.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "unmovable",
    usage: "[PERCENT [SECONDS [PROACTIVENESS]]]",
    summary: "leave free memory in pieces between pages of pipes: does compaction know that it is in vain?",
    help: "\
PERCENT (85) of what is free becomes pages of pipes, of which seven of every eight are freed. Then
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
/// One pipe in each group of this number of pipes stays. The pipes of a group are filled in turns.
const PIPES_A_SURVIVOR: usize = 8;
const PAGE: usize = 4096;
/// Capacity of a pipe.
const PIPE_PAGES: usize = 256;
const PIPE_BYTES: libc::c_int = 1 << 20;
const _: () = assert!(PIPE_PAGES * PAGE == 1 << 20);
const PAGE_KIB: u64 = 4;

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
    let mut pipes = Pipes::fill(percent)?;
    out.phase("filled", None)?;
    pipes.thin_out();
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

/// Sets the kernel parameter `compaction_proactiveness` to `value`, from 0 (off) to 100, for good.
/// Fails with `Unsupported` if the kernel has no such parameter, and with `System` if it refuses.
pub(crate) fn set_proactiveness(value: u64) -> Result<(), Failure> {
    fs::write(KNOB, value.to_string()).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Unsupported(KNOB.to_owned()),
        _ => Failure::system(KNOB)(error),
    })
}

/// The guest's counters at one moment.
struct Activity {
    /// Time of all CPUs, in the units of `/proc/stat`.
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
            // Idle time, and idle time while a disk works.
            idle: times.iter().skip(3).take(2).sum(),
            switches: line("ctxt")?.trim().parse().unwrap_or(0),
            scanned: vmstat.scanned()?,
        })
    }
}

/// A pipe that is filled.
struct Full {
    _reader: OwnedFd,
    writer: File,
}

impl Full {
    fn new() -> Result<Self, Failure> {
        let (reader, writer) = std::io::pipe().map_err(Failure::system("pipe"))?;
        // SAFETY: the call is on a descriptor that this function owns.
        if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) } < PIPE_BYTES {
            return Err(Failure::last_os(format!("a pipe of {PIPE_BYTES} bytes")));
        }
        Ok(Self {
            _reader: reader.into(),
            writer: OwnedFd::from(writer).into(),
        })
    }
}

/// Pipes in groups of [`PIPES_A_SURVIVOR`], each group filled in turns, page by page.
struct Pipes(Vec<Full>);

impl Pipes {
    /// Fills `percent` percent of the free memory.
    fn fill(percent: u64) -> Result<Self, Failure> {
        let free = meminfo::kib("MemFree")
            .ok_or_else(|| Failure::Unsupported("MemFree in /proc/meminfo".to_owned()))?;
        let pages = usize::try_from(free * percent / 100 / PAGE_KIB).unwrap_or(usize::MAX);
        let groups = pages / PIPE_PAGES / PIPES_A_SURVIVOR;
        // Two descriptors for each pipe, and those that are open already.
        allow_descriptors(groups * PIPES_A_SURVIVOR * 2 + 64)?;
        let page = [1; PAGE];
        let mut pipes = Vec::new();
        for _ in 0..groups {
            let first = pipes.len();
            for _ in 0..PIPES_A_SURVIVOR {
                pipes.push(Full::new()?);
            }
            for _ in 0..PIPE_PAGES {
                for pipe in &mut pipes[first..] {
                    pipe.writer
                        .write_all(&page)
                        .map_err(Failure::system("write to a pipe"))?;
                }
            }
        }
        Ok(Self(pipes))
    }

    /// Closes seven of every eight pipes.
    fn thin_out(&mut self) {
        let mut index = 0;
        self.0.retain(|_| {
            index += 1;
            index % PIPES_A_SURVIVOR == 0
        });
    }
}

/// Sets the limit of open descriptors to `count`.
fn allow_descriptors(count: usize) -> Result<(), Failure> {
    let most = count as libc::rlim_t;
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the structure is on the stack, and the call only reads it.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return Err(Failure::last_os(format!("a limit of {count} descriptors")));
    }
    Ok(())
}

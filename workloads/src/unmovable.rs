//! `unmovable`: fragments free memory so that compaction cannot repair it, and measures the
//! kernel's attempts.
//!
//! It is the test of backing off in the proactive compaction patches. A kernel module there fills
//! memory with huge pages and frees the first three quarters of each. Here the unmovable pages
//! belong to pipes without a reader.

use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
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
    usage: "[PERCENT [SECONDS [PROACTIVENESS]]] [--traffic]",
    summary: "leave free memory in pieces between pages of pipes: does compaction know that it is in vain?",
    help: "\
PERCENT (85) of what is free becomes pages of pipes, of which the first three quarters of each 2 MiB
are freed. Then compaction_proactiveness is 0 for SECONDS (100), and PROACTIVENESS (40) for as long.
With --traffic the program touches and frees 4 MiB every half second, as a kernel may rest while no
memory comes and goes.

Prints how much of the free memory is in free blocks of 2 MiB and more (free_in_huge_blocks_share).
Prints for both values:
  compacting_half_seconds  in how many half seconds compaction looked at frames, until a quarter, a
                           half, three quarters and all of SECONDS. The series checks its score each
                           half second
  longest_rest             the longest time between two such half seconds
  proactive_runs           the runs that the kernel began, where it counts them (compact_daemon_run)
  busy_share               how busy the CPUs were, by /proc/stat
  in_30s_switches          how often they changed tasks in 30 s. The program wakes twice a second
  scanned                  the frames that compaction looked at, by compact_*_scanned",
    run,
};

const DEFAULT_PERCENT: u64 = 85;
const DEFAULT_HOLD: Duration = Duration::from_secs(100);
const DEFAULT_PROACTIVENESS: u64 = 40;
const KNOB: &str = "/proc/sys/vm/compaction_proactiveness";
/// The counter of the runs of proactive compaction. Linux has none.
const RUNS: &str = "compact_daemon_run";
/// The time between two looks at the counters.
const LOOK: Duration = Duration::from_millis(500);
/// The number of parts of the time, after each of which the looks with work are printed.
const PARTS: usize = 4;
/// The memory that is touched and freed at each look with `--traffic`.
const TRAFFIC_BYTES: usize = 2 * HUGE_BYTES;
/// The last one of this number of pipes stays. The pipes are filled one after the other, and have
/// as many pages together as a huge page.
const PIPES_A_SURVIVOR: usize = 4;
/// Capacity of a pipe.
const PIPE_PAGES: usize = 128;
const PIPE_BYTES: libc::c_int = 512 << 10;
const _: () = assert!(PIPE_PAGES * PAGE_BYTES == 512 << 10);
const _: () = assert!(PIPE_PAGES * PIPES_A_SURVIVOR * PAGE_BYTES == HUGE_BYTES);
const PAGE_KIB: u64 = 4;

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let traffic = args::take_flag(&mut words, "--traffic");
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
        let looks = Looks::watch(hold, traffic)?;
        let after = Activity::now()?;
        report(value, hold, &looks, [&before, &after], out)?;
    }
    out.phase("end", None)
}

/// Prints what compaction did in the time `hold` with `compaction_proactiveness` at `value`: by the
/// looks at it, and by the counters before and after.
fn report(
    value: u64,
    hold: Duration,
    looks: &Looks,
    [before, after]: [&Activity; 2],
    out: &mut Output,
) -> Result<(), Failure> {
    let labels = Labels::from([("proactiveness", value.to_string())]);
    let mut result = |name, figure, unit, better, labels| {
        out.result(&Metric {
            name,
            value: figure,
            unit,
            better,
            labels,
        })
    };
    for (end, working) in looks.by_part() {
        let mut labels = labels.clone();
        let seconds = (LOOK * u32::try_from(end).unwrap_or(u32::MAX)).as_secs_f64();
        labels.insert("until", format!("{seconds} s"));
        let working = working as f64;
        result(
            "compacting_half_seconds",
            working,
            "",
            Better::Lower,
            labels,
        )?;
    }
    if let Some(rest) = looks.longest_rest() {
        // As `s` it would be shown in instructions where these are counted.
        result(
            "longest_rest",
            rest.as_secs_f64(),
            "seconds",
            Better::Higher,
            labels.clone(),
        )?;
    }
    if let Some((before, after)) = before.runs.zip(after.runs) {
        let runs = (after - before) as f64;
        result("proactive_runs", runs, "", Better::Lower, labels.clone())?;
    }
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
        result(name, figure, unit, Better::Lower, labels.clone())?;
    }
    Ok(())
}

/// Looks at the counters of compaction, one each [`LOOK`].
#[derive(Debug)]
struct Looks {
    /// The number of looks.
    count: usize,
    /// The looks before which compaction examined frames, by their numbers from 0.
    working: Vec<usize>,
}

impl Looks {
    /// Looks at the counters for the time `hold`. With `traffic`, also touches and frees memory
    /// before each look. Fails if a counter cannot be read or memory cannot be mapped.
    fn watch(hold: Duration, traffic: bool) -> Result<Self, Failure> {
        let count = usize::try_from(hold.as_millis() / LOOK.as_millis()).unwrap_or(usize::MAX);
        let mut scanned = vec![Vmstat::read()?.scanned()?];
        for _ in 0..count {
            std::thread::sleep(LOOK);
            if traffic {
                Mapping::anonymous(TRAFFIC_BYTES, PageSize::Base)?.touch();
            }
            scanned.push(Vmstat::read()?.scanned()?);
        }
        Ok(Self::of(&scanned))
    }

    /// Returns the looks with the values `scanned` of the counter of examined frames: the first is
    /// that before the looks, each other one that of a look.
    fn of(scanned: &[u64]) -> Self {
        let rises = scanned.windows(2).map(|pair| pair[1] > pair[0]);
        let numbered = rises.enumerate();
        Self {
            count: scanned.len().saturating_sub(1),
            working: numbered
                .filter_map(|(at, rise)| rise.then_some(at))
                .collect(),
        }
    }

    /// Returns for each quarter the number of looks until its end, and how many of them had work.
    /// Returns one part of all looks if there are fewer than four.
    fn by_part(&self) -> Vec<(usize, usize)> {
        let parts = if self.count < PARTS { 1 } else { PARTS };
        let ends = (1..=parts).map(|part| self.count * part / parts);
        ends.map(|end| {
            let working = self.working.iter().filter(|look| **look < end);
            (end, working.count())
        })
        .collect()
    }

    /// Returns the longest time between two looks with work that follow each other. Returns `None`
    /// if there are fewer than two.
    fn longest_rest(&self) -> Option<Duration> {
        let gaps = self.working.windows(2).map(|pair| pair[1] - pair[0]);
        let longest = u32::try_from(gaps.max()?).unwrap_or(u32::MAX);
        Some(LOOK * longest)
    }
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
    /// The runs of proactive compaction, or `None` if the kernel does not count them.
    runs: Option<u64>,
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
            runs: vmstat.get(RUNS).ok(),
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

/// Pipes that were filled one after the other.
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
        let full = [1; PIPE_PAGES * PAGE_BYTES];
        let mut pipes = Vec::new();
        for _ in 0..groups * PIPES_A_SURVIVOR {
            let mut pipe = Full::new()?;
            pipe.writer
                .write_all(&full)
                .map_err(Failure::system("write to a pipe"))?;
            pipes.push(pipe);
        }
        Ok(Self(pipes))
    }

    /// Closes the first three of every four pipes, which have three quarters of 2 MiB.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_has_work_where_the_counter_rose() {
        let looks = Looks::of(&[5, 9, 9, 9, 12, 13, 13, 13, 13]);
        assert_eq!((looks.count, &looks.working[..]), (8, &[0, 3, 4][..]));
        assert_eq!(looks.by_part(), [(2, 1), (4, 2), (6, 3), (8, 3)]);
        assert_eq!(looks.longest_rest(), Some(LOOK * 3));
    }

    #[test]
    fn few_looks_are_one_part() {
        assert_eq!(Looks::of(&[5, 5, 7]).by_part(), [(2, 1)]);
        let none = Looks::of(&[5]);
        assert_eq!(none.by_part(), [(0, 0)]);
        assert_eq!(none.longest_rest(), None);
        assert_eq!(
            Looks::of(&[5, 6]).longest_rest(),
            None,
            "one look with work"
        );
    }
}

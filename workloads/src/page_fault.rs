//! `page-fault`: measures a page fault together with its part of `mmap` and `munmap`.
//!
//! It works like will-it-scale's `page_fault1` and `page_fault2`: each task maps 128 MiB, writes
//! one byte into every page and unmaps, again and again. `mmap` and `munmap` are included, since a
//! program that uses memory pays for all three.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio, seconds};
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::pauses::{Pause, Pauses};
use crate::pool::Pool;
use crate::reports::{self, Counter, Meanwhile};
use crate::tasks::{self, Kind};
use crate::{Experiment, Failure, first_use, memory_file, thp};
use std::fs::File;
use std::time::Duration;

/// The experiment `page-fault`, with its arguments, help text and function: measures a page fault
/// together with its part of `mmap` and `munmap`.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "page-fault",
    usage: "[4k|thp|file|hugetlb|hugetlb-file [TASKS [SECONDS|ROUNDSr]]] [--threads] [--memhog]",
    summary: "map 128 MiB, write a byte a page, unmap, again and again",
    help: "\
  4k       private anonymous memory in base pages (the default)
  thp      private anonymous memory advised to be in huge pages
  file     a private mapping of a file in memory, copied page by page as it is written
  hugetlb  private anonymous memory from the kernel's pool of huge pages; one byte a huge page
  hugetlb-file  a shared mapping of a file of such pages, which are in the file from the second
                round on: a fault neither takes a page from the pool nor clears one
The pool has enough pages for the last two while they run. TASKS (1) processes, or threads of one process with --threads, for SECONDS (5) or a fixed number
of rounds (10r). A round that warms up comes first and does not count, and several tasks wait for
each other after it. With --turns and rounds, processes also wait for their turn before each quarter
of a round. With --memhog all free memory is touched once and freed before, as the series on free page
reporting did.

Prints faults a second of each task (faults_per_second_per_task) and of all (faults_per_second),
and the time of a fault with its part of mmap and munmap (fault_ns): of a task, or of a CPU if there
are more tasks than CPUs. Every base page counts as one
fault in 4k and file, every 2 MiB in the others; huge_share says how much of thp was in huge pages.
hugetlb without --turns also prints what a fault takes beyond clearing its page
(beyond_clearing_ns). Where the very first faults, on pages never used before, take less than half
of the later ones, their pages were known to be zero, and the figure is theirs. Elsewhere it is
fault_ns less clear_ns, what a loop of rep stosq takes in this program to clear as much; the
kernel's own loop over the 512 parts of a page stays in the figure. Where the kernel tells, also how often
it reported free memory to the host meanwhile (reports).",
    run,
};

/// Number of figures that a task returns.
const FIGURES: usize = 11;
/// Number of times that several tasks wait for each other: before and after the rounds that count.
const MEETINGS: u64 = 2;
/// Size of the mapping of one round in bytes.
const ROUND_BYTES: usize = 128 << 20;
/// Number of parts of a round if others have their turn between them. More parts would be closer to
/// each other in time, but would change the measurement (by cold caches, probably): with eight,
/// Ebb's lead was a fifth smaller than with turns of 0.3 s.
const PIECES: usize = 4;
const PIECE_BYTES: usize = ROUND_BYTES / PIECES;
const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(5));

/// The kind of memory that is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Base,
    Huge,
    File,
    Pool,
    PoolFile,
}

impl Mode {
    const ALL: [Self; 5] = [
        Self::Base,
        Self::Huge,
        Self::File,
        Self::Pool,
        Self::PoolFile,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Base => "4k",
            Self::Huge => "thp",
            Self::File => "file",
            Self::Pool => "hugetlb",
            Self::PoolFile => "hugetlb-file",
        }
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| {
                Failure::Usage(format!(
                    "{text:?} is not a kind of page; known: {}",
                    Self::ALL.map(Self::name).join(", ")
                ))
            })
    }

    /// Returns the number of bytes that one fault should map.
    fn fault_bytes(self) -> usize {
        match self {
            Self::Base | Self::File => PAGE_BYTES,
            Self::Huge | Self::Pool | Self::PoolFile => HUGE_BYTES,
        }
    }

    /// Returns the distance between two written bytes.
    fn step(self) -> usize {
        match self {
            Self::Base | Self::File | Self::Huge => PAGE_BYTES,
            Self::Pool | Self::PoolFile => HUGE_BYTES,
        }
    }

    /// Returns whether the pages come from the kernel's pool of huge pages.
    fn is_of_the_pool(self) -> bool {
        matches!(self, Self::Pool | Self::PoolFile)
    }

    /// Returns the number of faults in a round.
    fn faults_a_round(self) -> u64 {
        (ROUND_BYTES / self.fault_bytes()) as u64
    }
}

/// The measurements of one task after its warm-up round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outcome {
    rounds: u64,
    total_ns: u64,
    fastest_round_ns: u64,
    slowest_round_ns: u64,
    huge_bytes: u64,
    /// Time of the very first round; 0 if it was not measured.
    first_round_ns: u64,
    /// Time to clear as much memory as a round has; 0 if it was not measured.
    clear_ns: u64,
    /// The clock at the begin of the first round that counts.
    begin_ns: u64,
    /// The clock at the end of the last round that counts.
    end_ns: u64,
    /// The count of reports before the first round that counts; 0 if the kernel has none.
    reports_before: u64,
    /// The same after the last round.
    reports_after: u64,
}

impl Outcome {
    fn to_figures(self) -> [u64; FIGURES] {
        [
            self.rounds,
            self.total_ns,
            self.fastest_round_ns,
            self.slowest_round_ns,
            self.huge_bytes,
            self.first_round_ns,
            self.clear_ns,
            self.begin_ns,
            self.end_ns,
            self.reports_before,
            self.reports_after,
        ]
    }

    fn of_figures(figures: [u64; FIGURES]) -> Self {
        let [
            rounds,
            total_ns,
            fastest_round_ns,
            slowest_round_ns,
            huge_bytes,
            first_round_ns,
            clear_ns,
            begin_ns,
            end_ns,
            reports_before,
            reports_after,
        ] = figures;
        Self {
            rounds,
            total_ns,
            fastest_round_ns,
            slowest_round_ns,
            huge_bytes,
            first_round_ns,
            clear_ns,
            begin_ns,
            end_ns,
            reports_before,
            reports_after,
        }
    }

    /// Returns the number of faults in a second.
    fn per_second(self, mode: Mode) -> f64 {
        ratio(self.rounds * mode.faults_a_round(), self.total_ns) * 1e9
    }
}

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let kind = if args::take_flag(&mut words, "--threads") {
        Kind::Threads
    } else {
        Kind::Processes
    };
    let memhog = args::take_flag(&mut words, "--memhog");
    args::no_more(&words, 3)?;
    let mut words = words.iter().map(String::as_str);
    let mode = words.next().map_or(Ok(Mode::Base), Mode::parse)?;
    let tasks = words
        .next()
        .map_or(Ok(1), |w| args::number(w, "tasks", 1, tasks::MAX_TASKS))?;
    let until = words.next().map_or(Ok(DEFAULT_UNTIL), Until::parse)?;
    if mode == Mode::Huge {
        thp::require()?;
    }
    if memhog {
        first_use::of_all_memory()?;
    }
    // Pages that come from the pool and go back to it are not free memory.
    let counter = if mode.is_of_the_pool() {
        None
    } else {
        Counter::find()
    };
    let count = usize::try_from(tasks).expect("bounded above");
    // The pool stays enlarged as long as the tasks run.
    let _lent = if mode.is_of_the_pool() {
        Some(Pool::lend(count * ROUND_BYTES, HUGE_BYTES)?)
    } else {
        None
    };
    let alone = !out.takes_turns();
    let pieces = match until {
        Until::Rounds(rounds) if out.takes_turns() && kind == Kind::Processes => {
            rounds * PIECES as u64
        }
        _ => 0,
    };
    let meetings = if count > 1 { MEETINGS } else { 0 };
    let all = pieces + meetings;
    let mut made = 0;
    let pauses = Pauses {
        count: all,
        turn: &mut || {
            made += 1;
            // The first and the last pause of several tasks are their meetings.
            if meetings > 0 && (made == 1 || made == all) {
                return Ok(());
            }
            out.rest()
        },
    };
    let work = |_, pause: Pause<'_>| {
        let task = Task::new(mode)?;
        let pace = Pace {
            meet: (meetings > 0).then_some(pause),
            rest: (pieces > 0).then_some(pause),
            alone,
            counter: counter.as_ref(),
        };
        task.run(until, &pace).map(Outcome::to_figures)
    };
    let outcomes: Vec<Outcome> = tasks::run(kind, count, pauses, work)?
        .into_iter()
        .map(Outcome::of_figures)
        .collect();
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    let fault_ns = fault_ns(&outcomes, mode, cpus, pieces > 0);
    report(&outcomes, mode, kind, fault_ns, out)?;
    let (begin, end) = measured_part(&outcomes);
    let meanwhile = Meanwhile {
        counter: counter.as_ref(),
        counts: reports_meanwhile(&outcomes),
        ns: end - begin,
    };
    meanwhile.print(&labels(&outcomes, mode, kind), out)
}

/// Returns the clock at the begin of the first task and at the end of the last one.
fn measured_part(outcomes: &[Outcome]) -> (u64, u64) {
    let begin = outcomes.iter().map(|o| o.begin_ns).min().unwrap_or(0);
    let end = outcomes.iter().map(|o| o.end_ns).max().unwrap_or(0);
    (begin, end)
}

/// Returns the counts of reports before and after the measured part. Tasks read them one after the
/// other, so these are the last one before and the first one after.
fn reports_meanwhile(outcomes: &[Outcome]) -> [u64; 2] {
    let before = outcomes.iter().map(|o| o.reports_before).max().unwrap_or(0);
    let after = outcomes.iter().map(|o| o.reports_after).min().unwrap_or(0);
    [before, after]
}

/// Returns the time of a fault in nanoseconds: of a task, or of a CPU if there are more tasks than
/// `cpus`, which then share these. In that case the work of the kernel's threads in the same time
/// is in it. `rests` says that the tasks rested between parts of their rounds, which does not
/// count.
fn fault_ns(outcomes: &[Outcome], mode: Mode, cpus: u64, rests: bool) -> f64 {
    let tasks = outcomes.len() as u64;
    let faults: u64 = outcomes
        .iter()
        .map(|o| o.rounds * mode.faults_a_round())
        .sum();
    let ns: u64 = outcomes.iter().map(|o| o.total_ns).sum();
    if tasks <= cpus {
        return ratio(ns, faults);
    }
    let (begin, end) = measured_part(outcomes);
    let elapsed = if rests { ns / tasks } else { end - begin };
    ratio(elapsed * cpus, faults)
}

/// When a task waits, and what it measures.
struct Pace<'a> {
    /// Waits for all other tasks; `None` if there are none.
    meet: Option<Pause<'a>>,
    /// Waits for the next turn, before each part of a round. `None` if a round has no parts.
    rest: Option<Pause<'a>>,
    /// Whether no other guest takes turns with this one. Only then the very first round is measured
    /// too, since it may get pages of the pool that were never used.
    alone: bool,
    /// The counter of reports to the host; `None` if the kernel has none.
    counter: Option<&'a Counter>,
}

/// The work of one task.
struct Task {
    mode: Mode,
    /// The file of `file` and `hugetlb-file`. Each task has one of its own, so that they share no
    /// pages.
    file: Option<File>,
}

impl Task {
    fn new(mode: Mode) -> Result<Self, Failure> {
        let file = match mode {
            Mode::File => Some(memory_file::filled(ROUND_BYTES)?),
            Mode::PoolFile => Some(memory_file::of_huge_pages(ROUND_BYTES)?),
            Mode::Base | Mode::Huge | Mode::Pool => None,
        };
        Ok(Self { mode, file })
    }

    /// Maps the memory of one round.
    fn map(&self) -> Result<Mapping, Failure> {
        match (&self.file, self.mode) {
            (Some(file), Mode::PoolFile) => Mapping::of_shared_file(file, ROUND_BYTES),
            (Some(file), _) => Mapping::of_file(file, ROUND_BYTES),
            (None, Mode::Huge) => Mapping::anonymous(ROUND_BYTES, PageSize::Huge),
            (None, Mode::Pool) => Mapping::anonymous(ROUND_BYTES, PageSize::Pool),
            (None, _) => Mapping::anonymous(ROUND_BYTES, PageSize::Base),
        }
    }

    /// Runs one round: maps, touches and unmaps.
    fn round(&self) -> Result<(), Failure> {
        let mut mapping = self.map()?;
        mapping.touch_each(self.mode.step(), 0..ROUND_BYTES);
        drop(mapping);
        Ok(())
    }

    /// Runs a round in parts, with a pause before each. Returns its time in nanoseconds without the
    /// pauses.
    fn round_with_pauses(&self, pause: Pause<'_>) -> Result<u64, Failure> {
        let mut ns = 0;
        let mut mapping = None;
        for piece in 0..PIECES {
            pause()?;
            let begin = monotonic_ns();
            let mut whole = match mapping.take() {
                Some(whole) => whole,
                None => self.map()?,
            };
            let part = piece * PIECE_BYTES..(piece + 1) * PIECE_BYTES;
            whole.touch_each(self.mode.step(), part);
            if piece + 1 < PIECES {
                mapping = Some(whole);
            } else {
                drop(whole);
            }
            ns += monotonic_ns() - begin;
        }
        Ok(ns)
    }

    /// Runs a round that does not count and checks the contents. Returns the number of bytes in
    /// huge pages (0 for modes without transparent huge pages).
    fn checked_round(&self) -> Result<u64, Failure> {
        let mut mapping = self.map()?;
        mapping.touch_each(self.mode.step(), 0..ROUND_BYTES);
        mapping.check_each(self.mode.step())?;
        match self.mode {
            Mode::Base | Mode::Pool | Mode::PoolFile => Ok(0),
            Mode::Huge => thp::huge_bytes(&mapping),
            Mode::File => memory_file::check(&mapping, ROUND_BYTES).map(|()| 0),
        }
    }

    /// Returns the time in nanoseconds to clear as much memory as a round has, in the way Linux
    /// does. The memory is resident before.
    fn clear(&self) -> Result<u64, Failure> {
        let mut mapping = self.map()?;
        mapping.touch_each(self.mode.step(), 0..ROUND_BYTES);
        let begin = monotonic_ns();
        for page in mapping.as_mut_slice().chunks_exact_mut(PAGE_BYTES) {
            clear_page(page);
        }
        Ok(monotonic_ns() - begin)
    }

    /// Runs rounds until `until`, after a warm-up round that does not count, and waits as `pace`
    /// says.
    fn run(&self, until: Until, pace: &Pace<'_>) -> Result<Outcome, Failure> {
        let meet = || pace.meet.map_or(Ok(()), |meet| meet());
        let beyond_clearing = pace.alone && self.mode == Mode::Pool;
        let mut first_round_ns = 0;
        if beyond_clearing {
            let begin = monotonic_ns();
            self.round()?;
            first_round_ns = monotonic_ns() - begin;
        }
        let huge_first = self.checked_round()?;
        let reports_before = reports::count(pace.counter);
        meet()?;
        let begin_ns = monotonic_ns();
        let [mut rounds, mut total_ns, mut fastest_ns, mut slowest_ns] = [0, 0, u64::MAX, 0];
        while !until.reached(rounds, total_ns) {
            let ns = match pace.rest {
                Some(rest) => self.round_with_pauses(rest)?,
                None => {
                    let begin = monotonic_ns();
                    self.round()?;
                    monotonic_ns() - begin
                }
            };
            rounds += 1;
            total_ns += ns;
            fastest_ns = fastest_ns.min(ns);
            slowest_ns = slowest_ns.max(ns);
        }
        let end_ns = monotonic_ns();
        // What follows must not take CPUs from tasks that still work.
        meet()?;
        let reports_after = reports::count(pace.counter);
        // Huge pages may run out in between. The smaller of the values before and after counts.
        let huge = match self.mode {
            Mode::Huge => huge_first.min(self.checked_round()?),
            Mode::Base | Mode::File | Mode::Pool | Mode::PoolFile => 0,
        };
        Ok(Outcome {
            rounds,
            total_ns,
            fastest_round_ns: fastest_ns,
            slowest_round_ns: slowest_ns,
            huge_bytes: huge,
            first_round_ns,
            clear_ns: if beyond_clearing { self.clear()? } else { 0 },
            begin_ns,
            end_ns,
            reports_before,
            reports_after,
        })
    }
}

/// Clears a page as Linux does on a CPU without fast strings, 8 bytes in a step.
fn clear_page(page: &mut [u8]) {
    // SAFETY: it writes `page.len() / 8` whole words into `page`, which this function alone may
    // use.
    unsafe {
        core::arch::asm!(
            "rep stosq",
            inout("rcx") page.len() / 8 => _,
            inout("rdi") page.as_mut_ptr() => _,
            in("rax") 0_u64,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns the labels of all figures.
fn labels(outcomes: &[Outcome], mode: Mode, kind: Kind) -> Labels {
    Labels::from([
        ("mode", mode.name().to_owned()),
        ("kind", kind.name().to_owned()),
        ("tasks", outcomes.len().to_string()),
    ])
}

fn report(
    outcomes: &[Outcome],
    mode: Mode,
    kind: Kind,
    fault_ns: f64,
    out: &mut Output,
) -> Result<(), Failure> {
    let a_round = mode.faults_a_round();
    for (index, outcome) in outcomes.iter().enumerate() {
        let faults = outcome.rounds * a_round;
        out.say(&format!(
            "task {index}: {faults} faults in {} s, {:.1} ns a fault ({:.1} to {:.1} by round), {:.0} a second",
            seconds(outcome.total_ns),
            ratio(outcome.total_ns, faults),
            ratio(outcome.fastest_round_ns, a_round),
            ratio(outcome.slowest_round_ns, a_round),
            outcome.per_second(mode),
        ))?;
    }
    let labels = labels(outcomes, mode, kind);
    let tasks = outcomes.len() as u64;
    let total: f64 = outcomes.iter().map(|o| o.per_second(mode)).sum();
    let mut result = |name, value, unit, better| {
        out.result(&Metric {
            name,
            value,
            unit,
            better,
            labels: labels.clone(),
        })
    };
    result("faults_per_second", total, "1/s", Better::Higher)?;
    let per_task = total * ratio(1, tasks);
    result(
        "faults_per_second_per_task",
        per_task,
        "1/s",
        Better::Higher,
    )?;
    result("fault_ns", fault_ns, "ns", Better::Lower)?;
    let first: u64 = outcomes.iter().map(|o| o.first_round_ns).sum();
    if first > 0 {
        let clear: u64 = outcomes.iter().map(|o| o.clear_ns).sum();
        let of_a_fault = |ns| ratio(ns, tasks * a_round);
        let first = of_a_fault(first);
        result("first_fault_ns", first, "ns", Better::Lower)?;
        result("clear_ns", of_a_fault(clear), "ns", Better::Lower)?;
        let beyond = beyond_clearing(first, fault_ns, of_a_fault(clear));
        result("beyond_clearing_ns", beyond, "ns", Better::Lower)?;
    }
    if mode == Mode::Huge {
        let huge: u64 = outcomes.iter().map(|o| o.huge_bytes).sum();
        let share = ratio(huge, tasks * ROUND_BYTES as u64);
        result("huge_share", share, "share", Better::Higher)?;
    }
    Ok(())
}

/// Returns the time of a fault in nanoseconds without clearing its page. `first` is the time of the
/// very first faults, `all_in` that of later ones, and `clear` that of clearing a page in this
/// program.
fn beyond_clearing(first: f64, all_in: f64, clear: f64) -> f64 {
    // The kernel knew that these first pages were zero, so it did not clear them.
    if first < all_in / 2.0 {
        first
    } else {
        all_in - clear
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clearing_is_left_out_or_taken_away() {
        let is = |beyond: f64, wanted: f64| assert!((beyond - wanted).abs() < 1e-9, "{beyond}");
        is(beyond_clearing(3e3, 70e3, 260e3), 3e3);
        is(beyond_clearing(301e3, 300e3, 260e3), 40e3);
    }

    #[test]
    fn a_page_is_cleared_from_end_to_end() {
        let mut bytes = vec![7_u8; PAGE_BYTES + 2];
        clear_page(&mut bytes[1..=PAGE_BYTES]);
        assert_eq!([bytes[0], bytes[PAGE_BYTES + 1]], [7, 7]);
        assert!(bytes[1..=PAGE_BYTES].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn tasks_that_share_cpus_share_the_time_of_a_fault() {
        let task = |begin_ns, end_ns| Outcome {
            rounds: 2,
            total_ns: end_ns - begin_ns,
            begin_ns,
            end_ns,
            ..Outcome::default()
        };
        let faults = Mode::Huge.faults_a_round() * 8;
        // The tasks begin and end when the CPUs come to them.
        let tasks = [
            task(100, 4196),
            task(612, 4196),
            task(100, 4100),
            task(1636, 4196),
        ];
        let is = |cpus, rests, ns: u64| {
            let time = fault_ns(&tasks, Mode::Huge, cpus, rests);
            assert!((time - ratio(ns, faults)).abs() < 1e-9, "{time}");
        };
        is(1, false, 4096);
        is(2, false, 2 * 4096);
        is(4, false, 4096 + 3584 + 4000 + 2560);
        // The others' turns are between the begin and the end.
        is(1, true, (4096 + 3584 + 4000 + 2560) / 4);
    }

    #[test]
    fn reports_count_between_the_last_reading_before_and_the_first_after() {
        let task = |reports_before, reports_after| Outcome {
            reports_before,
            reports_after,
            ..Outcome::default()
        };
        let of = |tasks: &[Outcome]| reports_meanwhile(tasks);
        assert_eq!(of(&[task(3, 7)]), [3, 7]);
        // The first task still warmed up when the guest reported, and the second read late.
        assert_eq!(of(&[task(3, 4), task(4, 6)]), [4, 4]);
    }

    #[test]
    fn figures_of_a_task_are_those_that_it_sent() {
        let outcome = Outcome {
            rounds: 1,
            huge_bytes: 2,
            clear_ns: 3,
            ..Outcome::default()
        };
        assert_eq!(Outcome::of_figures(outcome.to_figures()), outcome);
    }
}

//! `stalls`: measures how long a program that only uses its memory waits while the kernel compacts.
//!
//! Most complaints about compaction are about such programs, which stop although they requested
//! nothing. This one has fragmented memory, like that of `fragment`, and stores to one page after
//! another while the kernel moves them.

use crate::clock::monotonic_ns;
use crate::fragment::{PAGES_A_SURVIVOR, check, thin_out};
use crate::mapping::{HUGE_BYTES, Mapping, PAGE_BYTES, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::vmstat::Vmstat;
use crate::{Experiment, Failure, args, size, unmovable};
use std::time::Duration;

/// The experiment `stalls`, with its arguments, help text and function: measures how long stores to
/// memory wait while the kernel compacts.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "stalls",
    usage: "[SIZE [SECONDS [PROACTIVENESS]]]",
    summary: "use memory while the kernel compacts it: how long does a store take at most?",
    help: "\
SIZE (700M) is touched in base pages, and three of every four are freed in each 2 MiB. Then
compaction_proactiveness is PROACTIVENESS (90), and for SECONDS (20) the program stores to the pages
that are left, one after another.

Prints the longest time between two stores (longest_step_ns), how many times were above 100 us and
1 ms (steps_above, in_us), and the frames that were moved meanwhile (moved, by pgmigrate_success).
With nothing moved the figures say nothing.",
    run,
};

const DEFAULT_BYTES: usize = 700 << 20;
const DEFAULT_SPAN: Duration = Duration::from_secs(20);
const DEFAULT_PROACTIVENESS: u64 = 90;
/// The limits in microseconds above which times are counted.
const LONG_US: [u64; 2] = [100, 1000];

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 3)?;
    let mut words = words.iter();
    let bytes = words
        .next()
        .map_or(Ok(DEFAULT_BYTES), |word| size::parse(word))?
        .next_multiple_of(HUGE_BYTES);
    let span = words
        .next()
        .map_or(Ok(DEFAULT_SPAN), |word| args::duration(word))?;
    let proactiveness = words.next().map_or(Ok(DEFAULT_PROACTIVENESS), |word| {
        args::number(word, "percent", 0, 100)
    })?;
    unmovable::set_proactiveness(0)?;
    let mut memory = Mapping::anonymous(bytes, PageSize::Base)?;
    memory.touch();
    thin_out(&mut memory, bytes)?;
    out.phase("fragmented", Some(bytes))?;
    let moved = Vmstat::read()?.get("pgmigrate_success")?;
    unmovable::set_proactiveness(proactiveness)?;
    let steps = Steps::take(&mut memory, bytes, span);
    out.phase("end", Some(bytes))?;
    let moved = Vmstat::read()?.get("pgmigrate_success")? - moved;
    check(&memory, bytes)?;
    let mut tell = |name, value: u64, unit, labels| {
        out.result(&Metric {
            name,
            value: value as f64,
            unit,
            better: Better::Lower,
            labels,
        })
    };
    tell("longest_step_ns", steps.longest_ns, "ns", Labels::new())?;
    for (us, count) in LONG_US.into_iter().zip(steps.long) {
        let labels = Labels::from([("in_us", us.to_string())]);
        tell("steps_above", count, "steps", labels)?;
    }
    tell("moved", moved, "frames", Labels::new())
}

/// The times between stores: the longest in nanoseconds, and the numbers above each limit.
#[derive(Default)]
struct Steps {
    longest_ns: u64,
    long: [u64; LONG_US.len()],
}

impl Steps {
    /// Stores to the remaining pages of `memory` for the time `span`, and measures.
    fn take(memory: &mut Mapping, bytes: usize, span: Duration) -> Self {
        let mut steps = Self::default();
        let span_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let begin = monotonic_ns();
        let mut before = begin;
        loop {
            for start in (0..bytes).step_by(PAGES_A_SURVIVOR * PAGE_BYTES) {
                memory.touch_each(PAGE_BYTES, start..start + PAGE_BYTES);
                let now = monotonic_ns();
                let step = now - before;
                before = now;
                steps.longest_ns = steps.longest_ns.max(step);
                for (us, count) in LONG_US.into_iter().zip(&mut steps.long) {
                    *count += u64::from(step > us * 1000);
                }
                if now - begin > span_ns {
                    return steps;
                }
            }
        }
    }
}

//! `huge-latency`: measures the time of each huge page fault.
//!
//! This is the measurement of proactive compaction. In fragmented memory (`fragment`) each fault
//! may have to compact first. The results are the tail of the latencies and the number of faults
//! that got a huge page.

use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{HUGE_BYTES, Mapping, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::percentiles::spread;
use crate::{Experiment, Failure, args, thp};

/// The experiment `huge-latency`, with its arguments, help text and function: measures the time of
/// each huge page fault.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "huge-latency",
    usage: "[SIZE]",
    summary: "time the fault of every huge page of a mapping",
    help: "\
SIZE (256M) of memory advised to be in huge pages is touched, one byte every 2 MiB. Run it under
`fragment` to see what fragmentation costs.

Prints the latency of the faults that got a huge page by percentile (huge_fault_ns), of those that
did not (base_fault_ns), and the share of SIZE that is in huge pages by /proc/self/smaps
(huge_share).",
    run,
};

const DEFAULT_BYTES: usize = 256 << 20;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 1)?;
    let bytes = thp::size(&words, DEFAULT_BYTES)?;
    thp::require()?;
    let mut mapping = Mapping::anonymous(bytes, PageSize::Huge)?;
    let (mut huge, mut base) = (Vec::new(), Vec::new());
    // Some sandboxes report every page as resident.
    let told_by_mincore = !mapping.is_resident(0..HUGE_BYTES)?;
    let mut huge_before = 0;
    for start in (0..bytes).step_by(HUGE_BYTES) {
        let begin = monotonic_ns();
        mapping.write(start, 1);
        let ns = monotonic_ns() - begin;
        let came_huge = if told_by_mincore {
            // Only one byte was touched, so if the whole section is resident, it is one huge page.
            mapping.is_resident(start..start + HUGE_BYTES)?
        } else {
            let now = thp::huge_bytes(&mapping)?;
            std::mem::replace(&mut huge_before, now) < now
        };
        if came_huge {
            huge.push(ns);
        } else {
            base.push(ns);
        }
    }
    let obtained = thp::huge_bytes(&mapping)?;
    for (name, latencies) in [("huge_fault_ns", huge), ("base_fault_ns", base)] {
        if !latencies.is_empty() {
            out.distribution(&spread(name, latencies, Labels::new()))?;
        }
    }
    let lost = (0..bytes)
        .step_by(HUGE_BYTES)
        .filter(|&start| mapping.read(start) != 1)
        .count();
    if lost > 0 {
        return Err(Failure::Wrong(format!(
            "{lost} sections lost what was written"
        )));
    }
    out.result(&Metric {
        name: "huge_share",
        value: ratio(obtained, bytes as u64),
        unit: "share",
        better: Better::Higher,
        labels: Labels::new(),
    })
}

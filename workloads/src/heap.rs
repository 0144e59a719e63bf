//! `heap`: a large heap that is touched before it is used.
//!
//! This is the Java case of proactive compaction: a virtual machine maps its whole heap at the
//! start, advises huge pages for it and touches every page. The figures are those of a whole
//! process from its start to its end, as the command `time` shows them.

use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{Mapping, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::tasks::Child;
use crate::{Experiment, Failure, args, thp};
use std::io::{Read, Write};

/// The experiment `heap`, with its arguments, help text and function: measures a process that
/// touches a large heap in huge pages.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "heap",
    usage: "[SIZE]",
    summary: "start a process that touches every page of a heap advised to be in huge pages",
    help: "\
SIZE is 512M by default. Run it under `fragment` to see what fragmentation costs.

Prints the process's time in user mode, in the kernel and in all (user_s, system_s, elapsed_s), and
the share of the heap that is in huge pages by /proc/self/smaps (huge_share).",
    run,
};

const DEFAULT_BYTES: usize = 512 << 20;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 1)?;
    let bytes = thp::size(&words, DEFAULT_BYTES)?;
    thp::require()?;
    let (mut reader, mut writer) = std::io::pipe().map_err(Failure::system("make a pipe"))?;
    let begin = monotonic_ns();
    let child = Child::fork(|| {
        let mut heap = Mapping::anonymous(bytes, PageSize::Huge)?;
        heap.touch();
        heap.check()?;
        let huge = thp::huge_bytes(&heap)?;
        writer
            .write_all(&huge.to_le_bytes())
            .map_err(Failure::system("tell of the heap"))
    })?;
    drop(writer);
    let mut huge = [0; 8];
    let told = reader.read_exact(&mut huge);
    let (status, times) = child.wait_with_times()?;
    let elapsed_ns = monotonic_ns() - begin;
    if told.is_err() || !status.success() {
        return Err(Failure::Wrong(format!(
            "the process with the heap ended with {status}"
        )));
    }
    let labels = Labels::from([("mib", (bytes >> 20).to_string())]);
    for (name, ns) in [
        ("user_s", times.user_ns),
        ("system_s", times.system_ns),
        ("elapsed_s", elapsed_ns),
    ] {
        out.result(&Metric {
            name,
            value: ratio(ns, 1_000_000_000),
            unit: "s",
            better: Better::Lower,
            labels: labels.clone(),
        })?;
    }
    out.result(&Metric {
        name: "huge_share",
        value: ratio(u64::from_le_bytes(huge), bytes as u64),
        unit: "share",
        better: Better::Higher,
        labels,
    })
}

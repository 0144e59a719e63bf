//! The experiments on page faults of the series on free page reporting: `ebb compare faults
//! faults-shuffled`.
//!
//! All memory of the guest is used once before, as the series did by memhog, so that the host has
//! memory for all of it. Then one task, 16 processes and 16 threads take the faults of
//! will-it-scale's `page_fault1` (in huge pages) and `page_fault2`, in guests that give memory back
//! in each mode of their own, and with shuffled free memory.

use super::calls::{MEMHOG, words};
use super::experiment::{BootWords, Experiment, ExperimentProgram, Pace, Scope};
use super::give_back;

/// The memory of the guests in MiB. Each of 16 tasks has a file of 128 MiB and a copy of it.
const GUEST_MIB: &[u64] = &[6144];
/// The CPUs of the guests unless instructions are counted. Most hosts have few.
const CPUS: &[u32] = &[2];
/// The seconds for which tasks work, by the guest's clock. Free memory is reported each two
/// seconds, so that tasks work during two reports.
const SECONDS: &str = "5";
/// The words on the command line with which both kernels shuffle free memory.
const SHUFFLED: BootWords = BootWords::Both("page_alloc.shuffle=1");

/// Returns the arguments for page faults of the kind `kind` by `tasks` processes.
fn processes(kind: &str, tasks: &str) -> Vec<String> {
    words(["page-fault", kind, tasks, SECONDS, MEMHOG])
}

/// Returns the arguments for page faults of the kind `kind` by 16 threads.
fn threads(kind: &str) -> Vec<String> {
    words(["page-fault", kind, "16", SECONDS, "--threads", MEMHOG])
}

/// Defines an experiment on page faults. One guest runs at a time unless instructions are counted,
/// since the guests take all CPUs of a small host.
const fn part(
    name: &'static str,
    summary: &'static str,
    boot_words: BootWords,
    program: ExperimentProgram,
) -> Experiment {
    Experiment {
        name,
        pace: Pace::Apart,
        summary,
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: CPUS,
        seconds: 25.0,
        boot_words,
        scope: Scope::Modes {
            which: give_back::by_the_guest_countable,
            rounds: 2,
        },
        program,
    }
}

/// The experiments, in the order of `--list`.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    part(
        "faults/thp",
        "faults on 2 MiB pages by one task",
        BootWords::Usual,
        ExperimentProgram::Workloads(|_| processes("thp", "1")),
    ),
    part(
        "faults/thp-16",
        "the same by 16 processes, which share the CPUs",
        BootWords::Usual,
        ExperimentProgram::Workloads(|_| processes("thp", "16")),
    ),
    part(
        "faults/thp-16-threads",
        "the same by 16 threads, which share the CPUs",
        BootWords::Usual,
        ExperimentProgram::Workloads(|_| threads("thp")),
    ),
    part(
        "faults/file",
        "faults on a private mapping of a file by one task",
        BootWords::Usual,
        ExperimentProgram::Workloads(|_| processes("file", "1")),
    ),
    part(
        "faults/file-16",
        "the same by 16 processes, which share the CPUs",
        BootWords::Usual,
        ExperimentProgram::Workloads(|_| processes("file", "16")),
    ),
    part(
        "faults/file-16-threads",
        "the same by 16 threads, which share the CPUs",
        BootWords::Usual,
        ExperimentProgram::Workloads(|_| threads("file")),
    ),
    part(
        "faults-shuffled/thp",
        "faults on 2 MiB pages by one task; free memory is shuffled, with page_alloc.shuffle=1",
        SHUFFLED,
        ExperimentProgram::Workloads(|_| processes("thp", "1")),
    ),
    part(
        "faults-shuffled/thp-16",
        "the same by 16 processes, which share the CPUs",
        SHUFFLED,
        ExperimentProgram::Workloads(|_| processes("thp", "16")),
    ),
    part(
        "faults-shuffled/thp-16-threads",
        "the same by 16 threads, which share the CPUs",
        SHUFFLED,
        ExperimentProgram::Workloads(|_| threads("thp")),
    ),
    part(
        "faults-shuffled/file",
        "faults on a private mapping of a file by one task; free memory is shuffled",
        SHUFFLED,
        ExperimentProgram::Workloads(|_| processes("file", "1")),
    ),
    part(
        "faults-shuffled/file-16",
        "the same by 16 processes, which share the CPUs",
        SHUFFLED,
        ExperimentProgram::Workloads(|_| processes("file", "16")),
    ),
    part(
        "faults-shuffled/file-16-threads",
        "the same by 16 threads, which share the CPUs",
        SHUFFLED,
        ExperimentProgram::Workloads(|_| threads("file")),
    ),
];

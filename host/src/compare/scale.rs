//! The experiments that show how costs grow with numbers of objects: `ebb compare scale`.

use super::calls::words;
use super::experiment::{BootWords, Experiment, ExperimentProgram, Pace, Scope};

/// The memory of the guests in MiB, enough for 6,400 processes.
const SCALE_MIB: &[u64] = &[2048];

/// Defines an experiment with the program's `scale`. Timed runs have four CPUs, counted ones have
/// one.
const fn part(
    name: &'static str,
    summary: &'static str,
    seconds: f64,
    program: ExperimentProgram,
) -> Experiment {
    Experiment {
        name,
        pace: Pace::Apart,
        summary,
        usual: false,
        memory_mib: SCALE_MIB,
        cpus: &[4],
        seconds,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program,
    }
}

/// The experiments of `ebb compare scale`: one for each kind of object, in the order of `--list`.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    part(
        "scale/areas",
        "calls on one of 1,000 areas of memory, and of 30,000",
        2.0,
        ExperimentProgram::Workloads(|_| words(["scale", "areas"])),
    ),
    part(
        "scale/children",
        "fork and the child's end with 100 processes alive, and 6,400",
        20.0,
        ExperimentProgram::Workloads(|_| words(["scale", "children"])),
    ),
    part(
        "scale/mappers",
        "mapping a file that 50 processes map, and 3,200",
        10.0,
        ExperimentProgram::Workloads(|_| words(["scale", "mappers"])),
    ),
    part(
        "scale/threads",
        "making threads with 100 alive, and 6,400",
        8.0,
        ExperimentProgram::Workloads(|_| words(["scale", "threads"])),
    ),
    part(
        "scale/waiters",
        "futexes with 100 waiters, and 6,400",
        12.0,
        ExperimentProgram::Workloads(|_| words(["scale", "waiters"])),
    ),
    part(
        "scale/timers",
        "timers with 100 set, and 1,000",
        2.0,
        ExperimentProgram::Workloads(|_| words(["scale", "timers"])),
    ),
    part(
        "scale/descriptors",
        "open, close and fork with 100 open files, and 20,000",
        4.0,
        ExperimentProgram::Workloads(|_| words(["scale", "descriptors"])),
    ),
    part(
        "scale/directory",
        "a directory of 1,000 files, and of 64,000",
        6.0,
        ExperimentProgram::Workloads(|_| words(["scale", "directory"])),
    ),
    part(
        "scale/procfs",
        "/proc/self/maps and others with 10 areas, and 10,000",
        6.0,
        ExperimentProgram::Workloads(|_| words(["scale", "procfs"])),
    ),
];

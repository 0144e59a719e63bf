//! The experiments that show which resources CPUs share: `ebb compare parallel`.

use super::calls::words;
use super::experiment::{BootWords, Experiment, ExperimentProgram, Pace, Scope};
use super::shape::Shape;

/// The memory of the guests in MiB.
const GUEST_MIB: &[u64] = &[512];
/// The seconds of a turn. A turn has six slices, and either one task or all tasks work in each.
const TURN_SECONDS: &str = "0.6";
/// The number of batches of calls if instructions are counted.
const COUNTED_ROUNDS: &str = "50r";

/// The CPUs of guests for experiments with two tasks.
const PAIR: &[u32] = &[2];
/// The CPUs of guests for experiments with one task.
const ONE: &[u32] = &[1];
/// The CPUs of guests for an experiment with many tasks. Most hosts have fewer.
const CROWD: &[u32] = &[1, 2, 4, 8];

/// Returns the arguments for the program's `parallel`, with one task for each CPU of the guest.
fn call(name: &str, shape: &Shape) -> Vec<String> {
    let time = if shape.icount {
        COUNTED_ROUNDS
    } else {
        TURN_SECONDS
    };
    words(["parallel", name, &shape.cpus.to_string(), time])
}

/// Defines an experiment with the program's `parallel`. Guests take turns; if instructions are
/// counted, it runs on one CPU.
const fn part(
    name: &'static str,
    summary: &'static str,
    cpus: &'static [u32],
    program: ExperimentProgram,
) -> Experiment {
    Experiment {
        name,
        pace: Pace::Timed,
        summary,
        usual: false,
        memory_mib: GUEST_MIB,
        cpus,
        seconds: 0.7,
        boot_words: BootWords::Usual,
        scope: Scope::Usual,
        program,
    }
}

/// The experiments of `ebb compare parallel`: one for each system call, in the order of `--list`.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    part(
        "parallel/dup",
        "dup and close by one thread, and by two",
        PAIR,
        ExperimentProgram::Workloads(|shape| call("dup", shape)),
    ),
    part(
        "parallel/open",
        "open and close by one process, and by two",
        PAIR,
        ExperimentProgram::Workloads(|shape| call("open", shape)),
    ),
    part(
        "parallel/mmap",
        "mmap and munmap by one thread, and by two",
        PAIR,
        ExperimentProgram::Workloads(|shape| call("mmap", shape)),
    ),
    part(
        "parallel/mmap-file",
        "the same of a file",
        PAIR,
        ExperimentProgram::Workloads(|shape| call("mmap-file", shape)),
    ),
    part(
        "parallel/brk",
        "the end of the heap moved by one thread, and by two",
        PAIR,
        ExperimentProgram::Workloads(|shape| call("brk", shape)),
    ),
    part(
        "parallel/file-fault",
        "faults on private mappings of files by one thread, and by two",
        PAIR,
        ExperimentProgram::Workloads(|shape| call("file-fault", shape)),
    ),
    part(
        "parallel/fault",
        "a MiB mapped, touched and unmapped by one thread, and by one on each of up to 8 CPUs",
        CROWD,
        ExperimentProgram::Workloads(|shape| call("fault", shape)),
    ),
    part(
        "parallel/poll",
        "poll of one file that is ready",
        ONE,
        ExperimentProgram::Workloads(|shape| call("poll", shape)),
    ),
    part(
        "parallel/poll-128",
        "poll of 128 files of which none is ready",
        ONE,
        ExperimentProgram::Workloads(|shape| call("poll-128", shape)),
    ),
    part(
        "parallel/switch",
        "a byte to another thread and one back, through pipes",
        ONE,
        ExperimentProgram::Workloads(|shape| call("switch", shape)),
    ),
];

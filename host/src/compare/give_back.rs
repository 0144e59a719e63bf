//! The experiments that compare the modes to give memory back: `ebb compare give-back`.

use super::calls::{COUNTED_STAY, memhog, messaging, page_fault, share, words};
use super::experiment::{BootWords, Experiment, ExperimentProgram, Pace, Scope};
use super::give_back_mode::GiveBackMode;
use crate::machine::GiveBack;

/// The name of the experiment whose page faults are on memory that may have left the host.
pub(super) const AGAIN: &str = "give-back/again";

/// The memory of most guests in MiB.
const GUEST_MIB: &[u64] = &[1024];

/// All experiments that compare the modes of giving memory back, in the order of `--list`. The
/// terminal shows them in one table.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "give-back/memhog",
        pace: Pace::Once,
        summary: "70 % of memory is used and freed: when is it back, and what does the host pay?",
        usual: false,
        memory_mib: &[2048],
        cpus: &[1],
        seconds: 14.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: GiveBackMode::all,
            rounds: 2,
        },
        program: ExperimentProgram::Workloads(memhog),
    },
    Experiment {
        name: "give-back/counted",
        pace: Pace::Counted,
        summary: "the instructions by which half a guest's memory is given back",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 3.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: countable,
            rounds: 1,
        },
        program: ExperimentProgram::Workloads(|shape| {
            words(["memhog", &share(shape, 50), "0", COUNTED_STAY, "--count"])
        }),
    },
    Experiment {
        name: "give-back/build",
        pace: Pace::Together,
        summary: "a build of five rounds: what does the host hold beyond what is used?",
        usual: false,
        memory_mib: &[2048],
        cpus: &[1],
        seconds: 28.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: GiveBackMode::all,
            rounds: 1,
        },
        program: ExperimentProgram::Workloads(|shape| {
            words(["build", &share(shape, 60), "5", "4"])
        }),
    },
    Experiment {
        name: AGAIN,
        pace: Pace::Apart,
        summary: "a fault on a 4 KiB page that was freed a moment ago",
        usual: false,
        memory_mib: &[2048],
        cpus: &[1],
        seconds: 5.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: without_a_balloon,
            rounds: 3,
        },
        program: ExperimentProgram::Workloads(|_| words(["page-fault", "4k", "1", "100r"])),
    },
    Experiment {
        name: "give-back/page-fault",
        pace: Pace::Counted,
        summary: "instructions of a fault on a 4 KiB page",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: by_the_guest_countable,
            rounds: 1,
        },
        program: ExperimentProgram::Workloads(|shape| page_fault("4k", shape)),
    },
    Experiment {
        name: "give-back/messaging",
        pace: Pace::Counted,
        summary: "instructions of a message between processes",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: by_the_guest_countable,
            rounds: 1,
        },
        program: ExperimentProgram::Workloads(messaging),
    },
    Experiment {
        name: "give-back/stream",
        pace: Pace::Counted,
        summary: "bytes over a socket in 10⁹ instructions",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 1.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: by_the_guest_countable,
            rounds: 1,
        },
        program: ExperimentProgram::Workloads(|_| words(["stream", "10r"])),
    },
    Experiment {
        name: "give-back/idle",
        pace: Pace::Apart,
        summary: "who wakes up while nothing happens",
        usual: false,
        memory_mib: GUEST_MIB,
        cpus: &[1],
        seconds: 12.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: by_the_guest,
            rounds: 1,
        },
        program: ExperimentProgram::Workloads(|_| words(["idle", "12"])),
    },
];

/// Returns all modes but the balloon, which does nothing while a program uses its memory.
fn without_a_balloon() -> Vec<GiveBackMode> {
    let mut modes = GiveBackMode::all();
    modes.retain(|mode| *mode != GiveBackMode::Balloon);
    modes
}

/// Returns the modes that differ in what the guest does.
fn by_the_guest() -> Vec<GiveBackMode> {
    let mut modes = without_a_balloon();
    modes.retain(|mode| *mode != GiveBackMode::OffInBasePages);
    modes
}

/// Returns the modes of [`by_the_guest`] in which instructions can be counted. This excludes
/// `shared`, in which the host changes words of the guest's memory while its CPU runs; QEMU cannot
/// count then.
pub(super) fn by_the_guest_countable() -> Vec<GiveBackMode> {
    let mut modes = by_the_guest();
    modes.retain(|mode| *mode != GiveBackMode::Guest(GiveBack::Shared));
    modes
}

/// Returns the modes of [`by_the_guest_countable`], and the balloon.
fn countable() -> Vec<GiveBackMode> {
    let mut modes = by_the_guest_countable();
    modes.push(GiveBackMode::Balloon);
    modes
}

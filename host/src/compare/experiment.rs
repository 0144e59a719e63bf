//! The definition of an experiment.

use super::give_back_mode::GiveBackMode;
use super::guest::Guest;
use super::program::Program;
use super::shape::Shape;

/// An experiment of `ebb compare`: a program, the guests that it runs in, and how often.
#[derive(Debug)]
pub(crate) struct Experiment {
    /// The name: `NAME` or `NAME/VARIANT`.
    pub(crate) name: &'static str,
    /// The description for `--list`, one line.
    pub(crate) summary: &'static str,
    /// Whether it runs if the user names no experiment.
    pub(crate) usual: bool,
    /// The memory of its guests in MiB; it runs once with each.
    pub(super) memory_mib: &'static [u64],
    /// The number of CPUs of its guests; it runs once with each.
    pub(super) cpus: &'static [u32],
    /// The approximate duration of one round of the program in seconds, for the first estimate of
    /// the remaining time.
    pub(super) seconds: f64,
    /// How its guests share the machine.
    pub(crate) pace: Pace,
    /// More words on the guests' kernel command lines.
    pub(crate) boot_words: BootWords,
    /// The modes of giving memory back with which it runs.
    pub(super) scope: Scope,
    /// The program and its arguments.
    pub(super) program: ExperimentProgram,
}

/// Words that an experiment adds to the kernel command lines of its guests.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum BootWords {
    /// None.
    Usual,
    /// These words for the stock kernel, none for Ebb's.
    Linux(&'static str),
    /// These words for both kernels.
    Both(&'static str),
}

impl BootWords {
    /// Returns the words for `guest`, or `None` if it gets none.
    pub(crate) fn of(self, guest: Guest) -> Option<&'static str> {
        match (self, guest) {
            (Self::Both(words), _) | (Self::Linux(words), Guest::Linux) => Some(words),
            (Self::Usual, _) | (Self::Linux(_), Guest::Ebb) => None,
        }
    }
}

/// The modes of giving memory back that an experiment compares.
#[derive(Debug)]
pub(crate) enum Scope {
    /// Reporting and no giving back, for an experiment that compares kernels.
    Usual,
    /// The modes that `which` returns, for an experiment that compares these. `rounds` rounds of
    /// each are enough.
    Modes {
        which: fn() -> Vec<GiveBackMode>,
        rounds: u32,
    },
}

/// How the guests of an experiment share the machine, whose speed changes from second to second.
/// Both guests are one with Ebb's kernel and one with Linux.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// One guest runs at a time, from start to end.
    Apart,
    /// Both guests are up, and work in turns of a part of a second, each for the same time.
    Timed,
    /// Both guests are up, and work in turns. Each turn does the same work, or all turns of a round
    /// together do.
    Fixed,
    /// Both guests are up and run the experiment once. Its first part is divided into turns.
    Once,
    /// Guests run at the same time, each from start to end.
    Together,
    /// Guests run at the same time. Instructions are counted, so neither time nor the machine's
    /// speed affects the figures.
    Counted,
}

impl Pace {
    /// Returns whether the guests of such an experiment wait for turns that the host gives them.
    pub(crate) fn takes_turns(self) -> bool {
        match self {
            Self::Timed | Self::Fixed | Self::Once => true,
            Self::Apart | Self::Together | Self::Counted => false,
        }
    }
}

/// The program that an experiment runs in its guests, with its arguments.
#[derive(Debug)]
pub(super) enum ExperimentProgram {
    /// The experiments' program, with the arguments that the function returns.
    Workloads(fn(&Shape) -> Vec<String>),
    /// The experiments' program, which runs a program of the host.
    Program(&'static Program),
    /// A busybox shell, many times in a row on 1 to 8 CPUs, to test whether the guest boots each
    /// time.
    Boots,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_words_are_for_the_stock_kernel_or_for_both() {
        let words = |of: BootWords| [Guest::Ebb, Guest::Linux].map(|guest| of.of(guest));
        assert_eq!(words(BootWords::Usual), [None, None]);
        assert_eq!(words(BootWords::Linux("a=1")), [None, Some("a=1")]);
        assert_eq!(words(BootWords::Both("a=1")), [Some("a=1"), Some("a=1")]);
    }
}

//! What an experiment is.

use super::program::Program;
use super::shape::Shape;
use super::way::Way;

/// What is compared under one name.
#[derive(Debug)]
pub(crate) struct Experiment {
    /// `NAME` or `NAME/VARIANT`.
    pub(crate) name: &'static str,
    /// One line for `--list`.
    pub(crate) summary: &'static str,
    /// Part of a comparison that names no experiment.
    pub(crate) usual: bool,
    /// Memory of its guests, in MiB; one run for each.
    pub(super) memory_mib: &'static [u64],
    /// CPUs of its guests; one run for each.
    pub(super) cpus: &'static [u32],
    /// How long one round of the program takes, about, for the first guess of the remaining time.
    pub(super) seconds: f64,
    /// How its guests share the machine.
    pub(crate) pace: Pace,
    /// What stands on the stock kernel's command line besides; empty for nothing. Ebb gets none of it.
    pub(crate) linux_boot: &'static str,
    /// Which ways to give memory back it is done with.
    pub(super) scope: Scope,
    pub(super) words: Words,
}

/// Which ways to give memory back an experiment compares.
#[derive(Debug)]
pub(crate) enum Scope {
    /// Reporting and nothing: what matters is the kernel.
    Usual,
    /// The ways themselves are the matter. So many rounds of each are enough beside each other.
    Ways {
        which: fn() -> Vec<Way>,
        rounds: u32,
    },
}

/// How the guests of an experiment share the machine, whose speed changes from second to second.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// One guest runs at a time, from start to end.
    Apart,
    /// Both guests are up, and work in turns of a part of a second, each for the same time.
    Timed,
    /// Likewise, with the same work in each turn, or in the turns of a round.
    Fixed,
    /// Both guests are up and do the experiment once; its first part is cut into turns.
    Once,
    /// Guests run at the same time, each from start to end.
    Together,
    /// Likewise, of experiments whose instructions are counted, where neither time nor the machine's
    /// speed is in the figures.
    Counted,
}

impl Pace {
    /// Whether a guest waits until it is its turn.
    pub(crate) fn takes_turns(self) -> bool {
        match self {
            Self::Timed | Self::Fixed | Self::Once => true,
            Self::Apart | Self::Together | Self::Counted => false,
        }
    }
}

/// How the program of an experiment is called.
#[derive(Debug)]
pub(super) enum Words {
    /// The experiments' program.
    Workloads(fn(&Shape) -> Vec<String>),
    /// The same, which runs a program of the host.
    Program(&'static Program),
    /// A busybox shell, many times in a row on 1 to 8 CPUs: does the guest boot each time?
    Boots,
}

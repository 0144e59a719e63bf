//! The experiments about elasticity, and their programs' arguments.

use super::experiment::{BootWords, Experiment, ExperimentProgram, Pace, Scope};
use super::give_back_mode::GiveBackMode;
use super::program::Program;
use super::programs;
use super::shape::Shape;
use crate::text::Size;

/// The default number of rounds of each column in the experiments about elasticity.
pub(crate) const ROUNDS: u32 = 3;
/// The number of rounds within a run of STREAM or FTQ.
const WINDOWS: &str = "4";
/// The seconds of each of the three windows of a round.
const WINDOW_SECONDS: &str = "2";
/// The number of rounds of a build.
const BUILDS: &str = "2";
/// The length of the rest after a build, as a multiple of the build. With 2, three guests take
/// turns.
const REST_SHARE: &str = "2";
/// The smallest guest. Less does not fit the guest, its caches and the memory that is taken.
const LEAST: Size = Size::mebibytes(192);
/// The smallest guest in which the compiler fits.
const COMPILER: Size = Size::mebibytes(768);

/// One of the experiments about elasticity: how fast memory leaves and returns, and what work costs
/// then.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Memory,
    Stream,
    Ftq,
    Build,
    Builds,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Memory,
        Self::Stream,
        Self::Ftq,
        Self::Build,
        Self::Builds,
    ];

    /// Returns the experiment's name, such as `elasticity/memory`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "elasticity/memory",
            Self::Stream => "elasticity/stream",
            Self::Ftq => "elasticity/ftq",
            Self::Build => "elasticity/build",
            Self::Builds => "elasticity/builds",
        }
    }

    /// Returns the experiment about elasticity with the full name `name`. Returns `None` if there
    /// is none, also for `elasticity` alone.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the bytes that the experiment takes from a guest with `memory`: three quarters for
    /// `elasticity/memory`, else half. It is rounded down to a multiple of 2 MiB.
    pub(crate) fn leaving(self, memory: Size) -> u64 {
        let block = 2 << 20;
        let bytes = match self {
            Self::Memory => memory.bytes() / 4 * 3,
            _ => memory.bytes() / 2,
        };
        bytes / block * block
    }

    /// Returns the number of guests that run at once: one, or three for `elasticity/builds`.
    pub(crate) fn guests(self) -> usize {
        match self {
            Self::Builds => 3,
            _ => 1,
        }
    }

    /// Returns the arguments of `ebb-workloads` in a guest with `memory`.
    pub(crate) fn words(self, memory: Size) -> Vec<String> {
        let mebibytes = format!("{}M", self.leaving(memory) >> 20);
        let windows = |kind: &str| {
            ["elastic", kind, &mebibytes, WINDOW_SECONDS, WINDOWS]
                .map(str::to_owned)
                .to_vec()
        };
        match self {
            Self::Memory => ["elastic", "memory", &mebibytes]
                .map(str::to_owned)
                .to_vec(),
            Self::Stream => windows("stream"),
            Self::Ftq => windows("ftq"),
            Self::Build | Self::Builds => {
                let head = ["elastic", "build", BUILDS, REST_SHARE, "--"].map(str::to_owned);
                let program = match compiler(memory) {
                    Some(compiler) => {
                        let words = compiler.words();
                        let at = words.iter().position(|word| word == "--").unwrap_or(0);
                        words[at + 1..].to_vec()
                    }
                    // The experiments' program builds something itself if there is no compiler or
                    // it does not fit.
                    None => ["/proc/self/exe", "build", &mebibytes, "1", "0"]
                        .map(str::to_owned)
                        .to_vec(),
                };
                head.into_iter().chain(program).collect()
            }
        }
    }

    /// Returns the host's compiler with its files, for the experiments that build. Returns `None`
    /// if the experiment does not use it, the host has none, or `memory` is below 768 MiB.
    pub(crate) fn compiler(self, memory: Size) -> Option<&'static Program> {
        match self {
            Self::Build | Self::Builds => compiler(memory),
            _ => None,
        }
    }

    /// Returns an error message if a guest with `memory` is too small for the experiment: below 192
    /// MiB.
    pub(crate) fn check(self, memory: Size) -> Result<(), String> {
        if memory.bytes() < LEAST.bytes() {
            return Err(format!(
                "{} needs -m {LEAST} or more, not {memory}",
                self.name()
            ));
        }
        Ok(())
    }
}

/// Returns the host's compiler, or `None` if the host has none or it does not fit into `memory`.
fn compiler(memory: Size) -> Option<&'static Program> {
    (memory.bytes() >= COMPILER.bytes() && !programs::COMPILE.files().is_empty())
        .then_some(&programs::COMPILE)
}

/// Defines an experiment about elasticity. Most fields are unused, since its own code runs it.
const fn experiment(
    name: &'static str,
    summary: &'static str,
    memory_mib: &'static [u64],
    words: fn(&Shape) -> Vec<String>,
) -> Experiment {
    Experiment {
        name,
        pace: Pace::Apart,
        summary,
        usual: false,
        memory_mib,
        cpus: &[1],
        seconds: 30.0,
        boot_words: BootWords::Usual,
        scope: Scope::Modes {
            which: || vec![GiveBackMode::OFF],
            rounds: ROUNDS,
        },
        program: ExperimentProgram::Workloads(words),
    }
}

/// All experiments about elasticity, in the order of `--list`.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    experiment(
        "elasticity/memory",
        "HyperAlloc's figure: how fast does a guest shrink and grow, touched and untouched?",
        &[2048],
        |shape| Kind::Memory.words(shape.memory),
    ),
    experiment(
        "elasticity/stream",
        "what STREAM loses while memory leaves and returns",
        &[1024],
        |shape| Kind::Stream.words(shape.memory),
    ),
    experiment(
        "elasticity/ftq",
        "what work in fixed time quanta loses while memory leaves and returns",
        &[1024],
        |shape| Kind::Ftq.words(shape.memory),
    ),
    experiment(
        "elasticity/build",
        "a guest that builds and rests: area under its memory, and the peak",
        &[1024],
        |shape| Kind::Build.words(shape.memory),
    ),
    experiment(
        "elasticity/builds",
        "three of them, each a third of a round behind the one before",
        &[1024],
        |shape| Kind::Builds.words(shape.memory),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_kind() {
        for one in EXPERIMENTS {
            assert_eq!(Kind::of(one.name).map(Kind::name), Some(one.name));
        }
    }

    #[test]
    fn a_small_guest_is_refused_and_builds_without_the_compiler() {
        let error = Kind::Ftq.check(Size::mebibytes(128)).unwrap_err();
        assert!(error.contains("192"), "{error}");
        let words = Kind::Build.words(Size::mebibytes(256));
        assert!(words.contains(&"/proc/self/exe".to_owned()), "{words:?}");
        assert_eq!(Kind::Memory.leaving(Size::mebibytes(2048)), 1536 << 20);
    }
}

//! The experiments about elasticity, and what their guests' program is called with.

use super::experiment::{Experiment, Pace, Scope, Words};
use super::program::Program;
use super::programs;
use super::shape::Shape;
use super::way::Way;
use crate::text::Size;

/// Rounds of each column, unless the user says otherwise.
pub(crate) const ROUNDS: u32 = 3;
/// Rounds within a run of STREAM or FTQ, and seconds of each of their three windows.
const WINDOWS: &str = "4";
const WINDOW_SECONDS: &str = "2";
/// Rounds of a build, and how many times as long as a round the rest after it is: three guests take
/// turns so.
const BUILDS: &str = "2";
const REST_SHARE: &str = "2";
/// Below this the guest, its caches and what is taken do not fit beside each other.
const LEAST: Size = Size::mebibytes(192);
/// A guest with the compiler in it takes this.
const COMPILER: Size = Size::mebibytes(768);

/// One of the experiments.
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

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "elasticity/memory",
            Self::Stream => "elasticity/stream",
            Self::Ftq => "elasticity/ftq",
            Self::Build => "elasticity/build",
            Self::Builds => "elasticity/builds",
        }
    }

    /// The kind with this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Bytes that leave a guest with `memory`.
    pub(crate) fn leaving(self, memory: Size) -> u64 {
        let block = 2 << 20;
        let bytes = match self {
            Self::Memory => memory.bytes() / 4 * 3,
            _ => memory.bytes() / 2,
        };
        bytes / block * block
    }

    /// Guests that run at once.
    pub(crate) fn guests(self) -> usize {
        match self {
            Self::Builds => 3,
            _ => 1,
        }
    }

    /// What the guest's program is called with.
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
                    // The experiments' program itself, where there is no compiler or no room for it.
                    None => ["/proc/self/exe", "build", &mebibytes, "1", "0"]
                        .map(str::to_owned)
                        .to_vec(),
                };
                head.into_iter().chain(program).collect()
            }
        }
    }

    /// The compiler that the guest needs, and what belongs to it.
    pub(crate) fn compiler(self, memory: Size) -> Option<&'static Program> {
        match self {
            Self::Build | Self::Builds => compiler(memory),
            _ => None,
        }
    }

    /// Refuses guests that are too small.
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

/// The host's compiler, if it has one and a guest with `memory` has room for it.
fn compiler(memory: Size) -> Option<&'static Program> {
    (memory.bytes() >= COMPILER.bytes() && !programs::COMPILE.files().is_empty())
        .then_some(&programs::COMPILE)
}

/// An experiment; its own code runs it, so that little of the rest matters.
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
        linux_boot: "",
        scope: Scope::Ways {
            which: || vec![Way::OFF],
            rounds: ROUNDS,
        },
        words: Words::Workloads(words),
    }
}

/// All of them, as `--list` shows them.
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

//! The experiments for memory elasticity, in one static Linux program.
//!
//! It runs unchanged in a stock Linux guest and in a guest of Ebb, as `ebb-workloads NAME ARGS…` or
//! through a link called NAME. Each experiment has a file of its own and an entry in
//! [`EXPERIMENTS`].

mod args;
mod buddyinfo;
mod build;
mod bursts;
mod clock;
mod compact;
mod disk;
mod elastic;
mod first_use;
mod fragment;
mod heap;
mod histogram;
mod holes;
mod huge_latency;
mod hugetlb;
mod idle;
mod latency;
mod mapping;
mod memhog;
mod meminfo;
mod memory_file;
mod messaging;
mod others;
mod output;
mod page_fault;
mod parallel;
mod pauses;
mod percentiles;
mod pin;
mod pool;
mod program;
mod reports;
mod scale;
mod size;
mod sparse;
mod stalls;
mod stream;
mod swap_pressure;
mod tasks;
mod thp;
mod unmovable;
mod vmstat;

use output::{Format, Output, Pace};
use std::fmt;
use std::process::ExitCode;

/// The reason why an experiment failed. The variant decides the program's exit status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An argument is wrong. The text says which and why.
    Usage(String),
    /// The system refused a call.
    System {
        /// The call and its operands.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system did something wrong: memory lost its contents, or a task died.
    Wrong(String),
    /// The guest lacks something that the experiment needs. This is neither a success nor a defect.
    Unsupported(String),
    /// An experiment that this one started failed as unsupported, and has already said so.
    ToldUnsupported,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Wrong(text) => f.write_str(text),
            Self::System { what, source } => write!(f, "{what}: {source}"),
            Self::Unsupported(what) => write!(f, "unsupported: {what}"),
            Self::ToldUnsupported => f.write_str("the guest cannot run it"),
        }
    }
}

impl Failure {
    /// Returns a `System` failure with the calling thread's `errno`. `what` describes the failed
    /// call. Call it right after that call.
    pub(crate) fn last_os(what: impl Into<String>) -> Self {
        Self::System {
            what: what.into(),
            source: std::io::Error::last_os_error(),
        }
    }

    /// Returns a function for `map_err` that turns the system's error into a `System` failure.
    /// `what` describes the failed call.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System {
            what: what.into(),
            source,
        }
    }
}

/// One experiment of this program: its name, help texts and function.
pub(crate) struct Experiment {
    name: &'static str,
    /// Its arguments, the optional ones in brackets.
    usage: &'static str,
    /// A description in one line.
    summary: &'static str,
    /// The arguments, their defaults, and the output.
    help: &'static str,
    run: fn(Vec<String>, &mut Output) -> Result<(), Failure>,
}

/// All experiments, in the order of the help text.
const EXPERIMENTS: &[Experiment] = &[
    memhog::EXPERIMENT,
    page_fault::EXPERIMENT,
    swap_pressure::EXPERIMENT,
    fragment::EXPERIMENT,
    compact::EXPERIMENT,
    unmovable::EXPERIMENT,
    bursts::EXPERIMENT,
    build::EXPERIMENT,
    elastic::EXPERIMENT,
    huge_latency::EXPERIMENT,
    latency::EXPERIMENT,
    heap::EXPERIMENT,
    holes::EXPERIMENT,
    sparse::EXPERIMENT,
    stalls::EXPERIMENT,
    hugetlb::EXPERIMENT,
    pin::EXPERIMENT,
    messaging::EXPERIMENT,
    stream::EXPERIMENT,
    scale::EXPERIMENT,
    parallel::EXPERIMENT,
    disk::EXPERIMENT,
    idle::EXPERIMENT,
    program::EXPERIMENT,
];

/// The exit status for wrong arguments, as in the shell and most of its tools.
const EXIT_USAGE: u8 = 2;
/// The exit status of an experiment that this guest cannot run.
const EXIT_UNSUPPORTED: u8 = 3;

fn main() -> ExitCode {
    let mut words: Vec<String> = Vec::new();
    for word in std::env::args_os() {
        match word.into_string() {
            Ok(word) => words.push(word),
            Err(word) => return wrong_call(&format!("{word:?} is not UTF-8")),
        }
    }
    // The program may be called by the experiment's own name. The options then follow directly.
    if words.first().is_some_and(|w| find(file_name(w)).is_none()) {
        words.remove(0);
    }
    // Words after -- belong to an experiment that this one starts.
    let for_another = match words.iter().position(|word| word == "--") {
        Some(at) => words.split_off(at),
        None => Vec::new(),
    };
    let json = args::take_flag(&mut words, "--json");
    let turns = args::take_flag(&mut words, "--turns");
    let help = args::take_flag(&mut words, "--help") | args::take_flag(&mut words, "-h");
    words.extend(for_another);
    let format = if json { Format::Json } else { Format::Text };
    let Some(name) = words.first() else {
        if help {
            print!("{}", overview());
            return ExitCode::SUCCESS;
        }
        return wrong_call("which experiment?");
    };
    let Some(experiment) = find(file_name(name)) else {
        return wrong_call(&format!("no experiment is called {name:?}"));
    };
    if help {
        print!("{}", details(experiment));
        return ExitCode::SUCCESS;
    }
    words.remove(0);
    let pace = if turns { Pace::Turns } else { Pace::Own };
    let mut out = Output::new(experiment.name, format, pace);
    let outcome = match pace {
        Pace::Own => (experiment.run)(words, &mut out),
        Pace::Turns => again_and_again(experiment, &words, &mut out),
    };
    finish(experiment, outcome, &mut out)
}

/// Runs an experiment once for each line on standard input.
fn again_and_again(
    experiment: &Experiment,
    words: &[String],
    out: &mut Output,
) -> Result<(), Failure> {
    while out.turn("turn")? {
        (experiment.run)(words.to_vec(), out)?;
    }
    Ok(())
}

/// Prints a failure and returns the exit status.
fn finish(experiment: &Experiment, outcome: Result<(), Failure>, out: &mut Output) -> ExitCode {
    let Err(failure) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("{}: {failure}", experiment.name);
    match failure {
        Failure::Usage(_) => {
            eprintln!("usage: {}", usage(experiment));
            ExitCode::from(EXIT_USAGE)
        }
        Failure::Unsupported(what) => match out.unsupported(&what) {
            Ok(()) => ExitCode::from(EXIT_UNSUPPORTED),
            Err(failure) => {
                eprintln!("{}: {failure}", experiment.name);
                ExitCode::FAILURE
            }
        },
        Failure::ToldUnsupported => ExitCode::from(EXIT_UNSUPPORTED),
        Failure::System { .. } | Failure::Wrong(_) => ExitCode::FAILURE,
    }
}

fn wrong_call(text: &str) -> ExitCode {
    eprint!("ebb-workloads: {text}\n{}", overview());
    ExitCode::from(EXIT_USAGE)
}

fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Returns the experiment with this name, or `None`.
fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name)
}

fn usage(experiment: &Experiment) -> String {
    format!(
        "ebb-workloads [--json] {} {}",
        experiment.name, experiment.usage
    )
    .trim_end()
    .to_owned()
}

fn overview() -> String {
    let mut text = String::from("usage: ebb-workloads [--json] EXPERIMENT [ARGUMENTS]\n\n");
    for Experiment {
        name,
        usage,
        summary,
        ..
    } in EXPERIMENTS
    {
        text.push_str(&format!("  {name} {usage}\n      {summary}\n"));
    }
    text.push_str(
        "\n--json prints one JSON object a line; EXPERIMENT --help says more.\n\
         --turns waits for a line on stdin before each run, and runs until stdin ends.\n\
         Exit status: 0 done, 1 failed, 2 wrong call, 3 the guest cannot run this.\n",
    );
    text
}

fn details(experiment: &Experiment) -> String {
    let Experiment { summary, help, .. } = experiment;
    format!("usage: {}\n\n{summary}\n\n{help}\n", usage(experiment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_the_experiments_of_this_program_with_their_arguments() {
        let doc = include_str!("../../docs/compare.md");
        let mut documented: Vec<&str> = doc
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .collect();
        let mut known: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
        documented.sort_unstable();
        known.sort_unstable();
        assert_eq!(documented, known);
        for Experiment { name, usage, .. } in EXPERIMENTS {
            let call = format!("{name} {usage}");
            let section = format!("### {name}\n\n`{}`\n", call.trim_end());
            assert!(doc.contains(&section), "{name}: its arguments are {usage}");
        }
    }

    #[test]
    fn every_experiment_is_found_by_its_name_and_told_of() {
        for experiment in EXPERIMENTS {
            let found = find(experiment.name).expect(experiment.name);
            assert_eq!(found.summary, experiment.summary);
            assert!(overview().contains(&format!("  {} ", experiment.name)));
            assert!(
                details(experiment).contains("Prints"),
                "{}",
                experiment.name
            );
        }
        assert!(find("nothing").is_none());
    }
}

//! One static Linux program with the experiments that memory elasticity is judged by.
//!
//! It runs unchanged on a stock Linux guest and on Ebb: `ebb-workloads NAME ARGS…`, or through a
//! link called NAME. Each experiment has a file of its own and an entry in [`EXPERIMENTS`].

mod clock;
mod idle;
mod mapping;
mod memhog;
mod meminfo;
mod page_fault;
mod size;

use std::process::ExitCode;

/// What an experiment returns when it could not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The arguments make no sense; the text says which and why.
    #[error("{0}")]
    Usage(String),
    /// The system refused a call.
    #[error("{what}: {source}")]
    System {
        /// The call and its operands.
        what: String,
        /// What the system answered.
        source: std::io::Error,
    },
    /// The guest lacks something that this experiment needs: neither a pass nor a defect here.
    #[error("unsupported: {0}")]
    Unsupported(String),
}

impl Failure {
    /// Wraps the calling thread's `errno` after the call named by `what` failed.
    pub(crate) fn last_os(what: impl Into<String>) -> Self {
        Self::System {
            what: what.into(),
            source: std::io::Error::last_os_error(),
        }
    }
}

/// One experiment: its name, how it is called and what it does.
struct Experiment {
    name: &'static str,
    usage: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "memhog",
        usage: memhog::USAGE,
        run: memhog::run,
    },
    Experiment {
        name: "page-fault",
        usage: page_fault::USAGE,
        run: page_fault::run,
    },
    Experiment {
        name: "idle",
        usage: idle::USAGE,
        run: idle::run,
    },
];

/// The exit status of a wrong call, as in the shell and most of its tools.
const EXIT_USAGE: u8 = 2;
/// The exit status of an experiment that this guest cannot run.
const EXIT_UNSUPPORTED: u8 = 3;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().collect();
    let program = words.first().map_or("", String::as_str);
    let called_as = program.rsplit('/').next().unwrap_or(program).to_owned();
    if find(&called_as).is_none() && !words.is_empty() {
        words.remove(0);
    }
    let Some(name) = words
        .first()
        .map(|w| w.rsplit('/').next().unwrap_or(w).to_owned())
    else {
        eprint!("{}", overview());
        return ExitCode::from(EXIT_USAGE);
    };
    let Some(experiment) = find(&name) else {
        eprint!(
            "ebb-workloads: no experiment is called {name:?}\n{}",
            overview()
        );
        return ExitCode::from(EXIT_USAGE);
    };
    match (experiment.run)(&words[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            match failure {
                Failure::Usage(_) => {
                    eprintln!("usage: {}", experiment.usage);
                    ExitCode::from(EXIT_USAGE)
                }
                Failure::Unsupported(_) => ExitCode::from(EXIT_UNSUPPORTED),
                Failure::System { .. } => ExitCode::FAILURE,
            }
        }
    }
}

fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name)
}

fn overview() -> String {
    let mut text = String::from("usage:\n");
    for experiment in EXPERIMENTS {
        text.push_str("  ebb-workloads ");
        text.push_str(experiment.usage);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_found_by_its_name_and_its_usage_starts_with_it() {
        for experiment in EXPERIMENTS {
            assert!(find(experiment.name).is_some());
            assert!(
                experiment.usage.starts_with(experiment.name),
                "{}",
                experiment.usage
            );
        }
        assert!(find("nothing").is_none());
    }
}

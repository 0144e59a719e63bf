//! A storm over virtual memory. Many threads of several processes concurrently use all operations
//! on memory and on mapped files. Everything that they see is compared with naive models.
//!
//! `vmstorm SEED LENGTH [NAME=VALUE…]`. `LENGTH` is a number of rounds, or of seconds with an `s`.
//! The names are:
//! - `processes` (3)
//! - `threads` per process (2)
//! - `memory` (48): private memory in MiB. Forked children double it at times.
//! - `disk`: a block device or a file of 512 KiB or more, which is overwritten
//! - `theme`: one or several with commas (all)
//!
//! A round is a race and a check. In the race, each actor performs operations that its seed
//! selects. It changes memory of its own and files. It keeps a model of its memory (`areas`). Each
//! operation on a file is recorded with the time before and after it (`journal`).
//!
//! In the check, all actors stand still. The content of each file must be possible for some order
//! of the operations. Every mapping in every process and in every forked child must show the file.
//! Private memory must be as its owner left it, and `/proc/self/maps` must list it.
//!
//! A seed determines the operations but not their timing. So a failure repeats with the same seed
//! most likely, but not certainly. The status is 0 without an error, 1 with a finding, with the
//! last operations of each actor, and 3 without progress for a while, with the position of each
//! actor.

#[path = "vmstorm/actor.rs"]
mod actor;
#[path = "vmstorm/areas.rs"]
mod areas;
#[path = "vmstorm/checks.rs"]
mod checks;
#[path = "vmstorm/children.rs"]
mod children;
#[path = "vmstorm/control.rs"]
mod control;
#[path = "vmstorm/deeds.rs"]
mod deeds;
#[path = "vmstorm/files.rs"]
mod files;
#[path = "vmstorm/growth.rs"]
mod growth;
#[path = "vmstorm/guard.rs"]
mod guard;
#[path = "vmstorm/journal.rs"]
mod journal;
#[path = "vmstorm/looks.rs"]
mod looks;
#[path = "vmstorm/random.rs"]
mod random;
#[path = "vmstorm/rounds.rs"]
mod rounds;
#[path = "vmstorm/strikes.rs"]
mod strikes;
#[path = "vmstorm/sys.rs"]
mod sys;
#[path = "vmstorm/themes.rs"]
mod themes;
#[path = "vmstorm/watch.rs"]
mod watch;

use rounds::{Length, Plan};
use std::process::ExitCode;
use themes::Theme;

const USAGE: &str = "vmstorm SEED ROUNDS|SECONDSs [processes=N] [threads=N] [memory=MIB] [disk=PATH] \
                     [theme=mix,replace,move,grow,leave,tail,revive,disk]";

/// Parses the command line. Fails with a message.
fn plan(words: &[String]) -> Result<Plan, String> {
    let [seed, length, options @ ..] = words else {
        return Err("two numbers are needed".into());
    };
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("no number: {text:?}"))
    };
    let length = match length.strip_suffix('s') {
        Some(seconds) => Length::Seconds(number(seconds)?),
        None => Length::Rounds(number(length)?),
    };
    let mut plan = Plan {
        seed: number(seed)?,
        length,
        processes: 3,
        threads: 2,
        memory: 48,
        disk: None,
        themes: Theme::ALL.map(|(theme, _)| theme).to_vec(),
    };
    for option in options {
        match option.split_once('=') {
            Some(("processes", value)) => plan.processes = number(value)? as usize,
            Some(("threads", value)) => plan.threads = number(value)? as usize,
            Some(("memory", value)) => plan.memory = number(value)?,
            Some(("disk", value)) => plan.disk = Some(value.to_owned()),
            Some(("theme", value)) => {
                let find = |name: &str| {
                    let found = Theme::ALL.iter().find(|(_, known)| *known == name);
                    found
                        .map(|(theme, _)| *theme)
                        .ok_or(format!("no theme {name:?}"))
                };
                plan.themes = value.split(',').map(find).collect::<Result<_, _>>()?;
            }
            _ => return Err(format!("what is {option:?}?")),
        }
    }
    plan.themes
        .retain(|theme| theme.fits(plan.threads, plan.disk.is_some()));
    let actors = plan.processes * plan.threads;
    if plan.themes.is_empty() || actors == 0 || actors > control::ACTORS {
        return Err(format!(
            "1 to {} threads in all, and a theme that fits",
            control::ACTORS
        ));
    }
    Ok(plan)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["look"] {
        guard::install();
        return match children::look() {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                sys::say(&format!("vmstorm: a new program: {text}\n"));
                ExitCode::FAILURE
            }
        };
    }
    match plan(&words) {
        Ok(plan) => watch::run(&plan),
        Err(text) => {
            sys::say(&format!("vmstorm: {text}\nusage: {USAGE}\n"));
            ExitCode::from(2)
        }
    }
}

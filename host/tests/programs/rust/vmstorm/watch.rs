//! The process that starts the others and reports their results.

use crate::rounds::{self, Plan};
use crate::{control, files, sys};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A storm without progress for this time is considered stuck.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The number of processes that exist before those of the storm.
const FORERUNNERS: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs a storm to its end and returns the exit code.
pub fn run(plan: &Plan) -> ExitCode {
    sys::say(&format!("vmstorm: {plan:?}\n"));
    control::create();
    let files: &'static [files::File] = files::create(plan.disk.as_deref()).leak();
    std::panic::set_hook(Box::new(|info| {
        control::fail(&format!("the program panics: {info}"))
    }));
    let mut running: Vec<i32> = (0..FORERUNNERS).map(|_| forerunner()).collect();
    for process in 0..plan.processes {
        match sys::fork() {
            Ok(0) => {
                rounds::process(plan, files, process);
                sys::exit(0);
            }
            Ok(pid) => running.push(pid),
            Err(e) => control::fail(&format!("fork of process {process} failed with error {e}")),
        }
    }
    let verdict = watch(plan, &mut running);
    running.iter().for_each(|&pid| sys::kill(pid));
    match verdict {
        Verdict::Fine => {
            let rounds = control::get().round.load(Ordering::Relaxed) - 1;
            sys::say(&format!(
                "vmstorm: ok, seed {}, {rounds} rounds\n",
                plan.seed
            ));
            ExitCode::SUCCESS
        }
        Verdict::Finding(text) => {
            let operations = control::last_operations(plan.actors());
            sys::say(&format!(
                "{operations}vmstorm: FAIL, seed {}: {text}\n",
                plan.seed
            ));
            ExitCode::FAILURE
        }
        Verdict::Stuck => {
            let operations = control::last_operations(plan.actors());
            let text = "no actor gets on; see where each stands";
            sys::say(&format!(
                "{operations}vmstorm: HANG, seed {}: {text}\n",
                plan.seed
            ));
            ExitCode::from(3)
        }
    }
}

/// Forks a process that maps all files before those of the storm, and ends when they exist. The
/// kernel's list of the processes that map a file then has space before them, for their children.
fn forerunner() -> i32 {
    match sys::fork() {
        Ok(0) => {
            control::wait_until(|| control::round() > 0);
            sys::exit(0);
        }
        Ok(pid) => pid,
        Err(e) => control::fail(&format!("fork failed with error {e}")),
    }
}

enum Verdict {
    Fine,
    Finding(String),
    Stuck,
}

/// Waits until all processes have ended, or until an error occurs.
fn watch(plan: &Plan, running: &mut Vec<i32>) -> Verdict {
    let mut progress = (0, Instant::now());
    loop {
        if let Some(text) = control::failure() {
            return Verdict::Finding(text);
        }
        let mut odd = None;
        running.retain(|&pid| match sys::wait(pid, sys::WNOHANG) {
            Ok(None) => true,
            Ok(Some(0)) => false,
            outcome => {
                odd = Some(format!("process {pid} ended with status {outcome:x?}"));
                false
            }
        });
        if let Some(text) = odd {
            return Verdict::Finding(control::failure().unwrap_or(text));
        }
        if running.is_empty() {
            return Verdict::Fine;
        }
        let now = control::progress(plan.actors());
        if now != progress.0 {
            progress = (now, Instant::now());
        }
        if progress.1.elapsed() > TIMEOUT {
            return Verdict::Stuck;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

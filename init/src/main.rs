//! The first process of a stock Linux guest.
//!
//! `ebb run --kernel linux` packs this program as `/.ebb/init` beside what it packs for every
//! guest. It mounts what programs expect, loads the kernel modules of `/.ebb/modules`, connects
//! the program of `/.ebb/argv` to ebb's ports, and tells the host how it ended. Where it cannot,
//! it says so: on the control port if there is one yet, on the console if not.

mod control;
mod failure;
mod modules;
mod out;
mod ports;
mod program;
mod relay;
mod system;
mod typist;
mod victims;

use ebb_wire::report::Report;
use failure::Failure;
use program::Ended;
use std::convert::Infallible;
use victims::Victims;

fn main() {
    if std::process::id() != 1 {
        // Linux runs it so when it wants a module.
        let words: Vec<_> = std::env::args_os().skip(1).collect();
        if let [quiet, end, name] = words.as_slice()
            && quiet == "-q"
            && end == "--"
        {
            std::process::exit(i32::from(
                modules::provide(&name.to_string_lossy()).is_err(),
            ));
        }
        if let Some(status) = out::as_program(&words) {
            std::process::exit(status);
        }
        eprintln!("ebb-init: this is the first process of a guest; it does nothing elsewhere");
        std::process::exit(1);
    }
    let Err(failure) = run();
    // The kernel's console, which ebb shows when a guest ends without a word.
    eprintln!("ebb-init: {}", failure.line());
    system::restart();
}

/// Does all of it; returns only if there is no way to tell the host.
fn run() -> Result<Infallible, Failure> {
    system::mount_all()?;
    system::loopback_up()?;
    modules::load_all()?;
    modules::offer()?;
    let mut host = control::Host::connect()?;
    host.say(Report::Up)?;
    if let Some(kills) = system::oom_kills() {
        host.say(Report::OomKills(kills))?;
    }
    let victims = host.port().and_then(Victims::watch);
    let wanted = program::wanted()?;
    match program::run(&mut host) {
        Ok(Ended::CannotRun(error)) => host.say(Report::CannotRun(&error.to_string()))?,
        Ok(Ended::Exited { status, written }) => {
            if let Some(victims) = victims {
                victims.finish();
            }
            if let Some(Err(failure)) = wanted.map(out::Wanted::send) {
                // The host sees that something is missing.
                eprintln!("ebb-init: {}", failure.line());
            }
            // What a kernel does not count is not told.
            if let Some(kills) = system::oom_kills() {
                host.say(Report::OomKills(kills))?;
            }
            host.say(Report::Exited { status, written })?;
        }
        Err(failure) => host.say(Report::Failed(&failure.line()))?,
    }
    host.wait_for_end();
    system::restart();
}

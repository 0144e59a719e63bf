//! The first process of a stock Linux guest.
//!
//! `ebb run --kernel linux` packs this program as `/.ebb/init` into the initramfs, with the files
//! that every guest gets. It mounts the kernel's file systems, loads the modules of
//! `/.ebb/modules`, mounts the host's files if requested, and connects the program of `/.ebb/argv`
//! to ebb's ports. When the program ends it reports the exit status to the host. If it fails, it
//! reports that on the control port, or on the console if the port is not open yet.

mod caches;
mod control;
mod copy;
mod failure;
mod frames;
mod fuse;
mod host_port;
mod input_wait;
mod knobs;
mod modules;
mod oom_watcher;
mod out;
mod ports;
mod program;
mod root;
mod streams;
mod string_list;
mod system;
mod terminal;
mod volumes;

use ebb_wire::boot;
use ebb_wire::report::Report;
use failure::Failure;
use host_port::HostPort;
use oom_watcher::OomWatcher;
use program::Ended;
use std::convert::Infallible;
use std::sync::Arc;
use volumes::Volumes;

fn main() {
    if std::process::id() != 1 {
        // Linux starts this program again as its module loader.
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
    // The kernel's console. The host shows it if a guest ends without a report.
    eprintln!("ebb-init: {}", failure.line());
    system::restart();
}

/// Mounts the host's file tree and volumes, if the command line requests them. Returns the mounted
/// volumes. Fails if the host's port cannot be opened or a mount fails.
fn see_host(command_line: &str) -> Result<Volumes, Failure> {
    let is_set = |word| boot::value(command_line, word).is_some();
    let (root, volumes) = (
        is_set(ebb_wire::root::PARAMETER),
        is_set(ebb_wire::volume::PARAMETER),
    );
    if !root && !volumes {
        return Ok(Volumes::default());
    }
    let host_port = Arc::new(HostPort::open()?);
    if root {
        root::enter(&host_port)?;
    }
    if volumes {
        Volumes::mount(&host_port)
    } else {
        Ok(Volumes::default())
    }
}

/// Runs the guest from its start to its end. Returns only with a failure that cannot be reported to
/// the host.
fn run() -> Result<Infallible, Failure> {
    system::mount_all()?;
    system::loopback_up()?;
    let command_line = system::command_line()?;
    modules::load_all()?;
    root::set_host_name(&command_line)?;
    let volumes = see_host(&command_line)?;
    modules::offer()?;
    let mut host = control::Host::connect()?;
    host.say(Report::Up)?;
    if let Some(kills) = system::oom_kills() {
        host.say(Report::OomKills(kills))?;
    }
    let oom_watcher = host.port().and_then(OomWatcher::watch);
    let wanted = program::wanted()?;
    let run = match knobs::check(&command_line) {
        Ok(()) => program::run(&mut host, &command_line),
        Err(why) => Ok(Ended::CannotRun(std::io::Error::other(why))),
    };
    match run {
        Ok(Ended::CannotRun(error)) => host.say(Report::CannotRun(&error.to_string()))?,
        Ok(Ended::Exited { status, written }) => {
            if let Some(oom_watcher) = oom_watcher {
                oom_watcher.finish();
            }
            volumes.settle();
            if let Some(Err(failure)) = wanted.map(out::Wanted::send) {
                // The host notices itself that the archive is incomplete.
                eprintln!("ebb-init: {}", failure.line());
            }
            // A kernel without this counter sends no report.
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

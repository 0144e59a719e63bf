//! `ebb blk`: serves disks to guests, with buffers whose memory the host can reclaim.

mod attached;
mod disk;
mod options;

pub(crate) use attached::{DISKS_MAX, Disks};
pub(crate) use disk::ImageArgument;
use disk::{DiskArgument, found, refusal};
pub(crate) use options::BlkOptions;

use crate::failure::Failure;
use crate::registry::Fleet;
use crate::stdout;
use crate::system::opened::own_path;
use crate::system::{open_named, without_ignored_hangup};
use crate::text::{Rounded, printable, printable_json};
use ebb_blk::capabilities::keep_capabilities;
use ebb_blk::control::{self, Answer, Report, Request};
use ebb_blk::messages::print;
use ebb_blk::pool::PAGE_BYTES;
use ebb_blk::server::{self, Disk};
use ebb_blk::watcher;
use options::{Action, DiskSelector, ServeOptions};
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// Runs the action of `ebb blk`: serves disks until a signal arrives, or sends one request to a
/// server. Prints the answer to `get`. Returns the exit status 0. Fails if the action fails, no
/// server answers, or the server reports an error.
pub(crate) fn run(options: &BlkOptions) -> Result<u8, Failure> {
    match &options.action {
        Action::Serve(options) => serve(options),
        Action::Get {
            instance,
            json,
            selector,
        } => {
            let Answer::Instances(reports) = ask(
                selector,
                Request::Get {
                    instance: instance.clone(),
                },
            )?
            else {
                return Err(strange());
            };
            stdout::print(&if *json {
                as_json(&reports)?
            } else {
                table(&reports)
            })
            .map(|()| 0)
        }
        Action::Set {
            setting,
            instance,
            selector,
        } => {
            let request = Request::Set {
                knob: setting.knob().name().into(),
                value: setting.value(),
                instance: instance.clone(),
            };
            ask(selector, request).map(|_| 0)
        }
        Action::Squeeze { instance, selector } => ask(
            selector,
            Request::Squeeze {
                instance: instance.clone(),
            },
        )
        .map(|_| 0),
    }
}

/// Serves disks until a signal arrives. Fails if they cannot be served, or if stdout cannot be
/// written to. A closed pipe is no failure.
fn serve(options: &ServeOptions) -> Result<u8, Failure> {
    // Before the first thread starts, so that no thread handles the signals but the loop at the
    // end.
    let ends = without_ignored_hangup([SIGTERM, SIGQUIT, SIGINT, SIGHUP]);
    let mut signals = Signals::new(ends).map_err(cannot("signals"))?;
    allow_descriptors();
    let folder = options.folder()?;
    let control_path = options.socket.path()?;
    let listener = server::bind(&control_path).map_err(|source| Failure::Socket {
        path: control_path.clone(),
        source,
    })?;
    let _control = Removed(&control_path);
    let mut server = options.server()?;
    let watched = server.watch_memory();
    let watched = watched.unwrap_or_else(|error| not_watched(&error));
    let mut text = String::new();
    for DiskArgument { disk, incoming } in &options.disks {
        let disk = &Disk {
            spec: found(&disk.spec)?,
            ..disk.clone()
        };
        let path = folder.join(format!("{}.sock", disk.name));
        let handle = if *incoming {
            server.listen_incoming(disk, &path)
        } else {
            server.listen(disk, &path)
        };
        let handle = handle.map_err(|error| Failure::Disk(refusal(&error, &disk.spec)))?;
        let io = handle.io_kind();
        text.push_str(&format!("{} {} by {io}\n", disk.name, path.display()));
    }
    let server = Arc::new(server);
    print(format_args!("{watched}"));
    if let Some(name) = &options.xen {
        watcher::watch(server.clone(), name).map_err(cannot("disks for Xen domains"))?;
    }
    // Everything that needs root's privileges is done, except for removing sockets from another
    // user's folder.
    keep_capabilities(CapabilitySet::DAC_OVERRIDE).map_err(cannot("fewer privileges"))?;
    control::serve(server.clone(), listener).map_err(cannot("the control socket"))?;
    let printed = stdout::offer(&text);
    if printed.is_ok() {
        let _ = signals.forever().next();
        end_at_the_next(signals, control_path.clone());
    }
    // The control thread holds a reference to the server, and clients may hold one. So the disks
    // are stopped explicitly.
    server.stop();
    printed.map(|()| 0)
}

/// Raises this process's limit of descriptors to its maximum. A disk takes several, and its
/// front-end may send a hundred. The usual limit is low only for programs that use `select`.
fn allow_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the limit stays too low, the open that fails reports it.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Makes the next signal end the process at once, while requests that guests were promised are
/// being finished. Finishing takes at most half a minute.
fn end_at_the_next(mut signals: Signals, control: PathBuf) {
    let spawned = thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ = std::fs::remove_file(control);
                let _ = emulate_default_handler(signal);
            }
        });
    // Without the thread, the process ends when the guests' requests are finished.
    drop(spawned);
}

/// Returns the warning that disks are served without events of memory pressure because of `error`.
fn not_watched(error: &io::Error) -> String {
    format!("memory pressure is not watched, so disks free their pages only when asked: {error}")
}

/// Returns a function that turns an I/O error into the failure "cannot set up `what`".
fn cannot(what: &str) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure::Disk(format!("cannot set up {what}: {source}"))
}

/// A path that is removed when this is dropped.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// Sends `request` to the server that `selector` names, and returns its answer.
fn ask(selector: &DiskSelector, request: Request) -> Result<Answer, Failure> {
    let answer = match &selector.guest {
        Some(guest) => ask_guest(guest, request)?,
        None => {
            let path = selector.socket.path()?;
            let named = open_named(&path, OFlags::PATH).map_err(io::Error::from);
            // Connects to the socket that was opened, even if the path leads to another file by
            // now.
            let asked =
                named.and_then(|socket| control::ask(Path::new(&own_path(&socket)), &request));
            match asked {
                Ok(answer) => answer,
                Err(source) => return Err(Failure::NoServer { path, source }),
            }
        }
    };
    refused(answer)
}

/// The maximum number of characters of a server's error text that are shown.
const ERROR_MAX: usize = 4096;

/// Turns an answer that reports an error into a failure. The server chose the text, so it is made
/// printable.
fn refused(answer: Answer) -> Result<Answer, Failure> {
    match answer {
        Answer::Error(why) => {
            let short: String = why.chars().take(ERROR_MAX).collect();
            Err(Failure::Disk(printable(&short)))
        }
        answer => Ok(answer),
    }
}

/// Sends `request` to the disks of the run whose guest has this name or process number. Fails if
/// there is no such guest or more than one.
fn ask_guest(guest: &str, request: Request) -> Result<Answer, Failure> {
    let mut fleet = Fleet::new();
    let matching =
        fleet.matching(|figures| figures.name == guest || figures.pid.to_string() == guest);
    let mut found = matching.into_iter().map(|(id, figures)| (id, figures.pid));
    let Some((id, pid)) = found.next() else {
        return Err(Failure::Disk(format!(
            "no guest of this user is named {guest}"
        )));
    };
    if let Some((_, other)) = found.next() {
        return Err(Failure::Disk(format!(
            "several guests are named {guest}, of processes {pid} and {other}: say which"
        )));
    }
    let failed = |source: io::Error| {
        Failure::Disk(format!(
            "guest {guest} (process {pid}) did not answer: {source}"
        ))
    };
    fleet.ask_disks(&id, request).map_err(failed)
}

/// Returns the failure for an answer that does not match the request.
fn strange() -> Failure {
    Failure::Disk("the server answered something else than it was asked".into())
}

/// Returns the reports as JSON.
fn as_json(reports: &[Report]) -> Result<String, Failure> {
    let text = printable_json(reports, true);
    text.map(|text| text + "\n")
        .map_err(|error| Failure::Output {
            stream: "stdout",
            source: error.into(),
        })
}

/// Returns the reports as a table.
fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "{:<20} {:>5} {:>10} {:>9} {:>7} {:>10} {:>10} {:>9} {:>17} {:>27} {:>16} {:>22} {:>32} {:>9}\n",
        "NAME",
        "FRONT",
        "KEPT",
        "IN USE",
        "MAPPED",
        "REQUESTS",
        "FAILED",
        "SQUEEZES",
        "max_buffer_pages",
        "buffer_squeeze_duration_ms",
        "squeeze_hold_ms",
        "max_persistent_grants",
        "persistent_grant_unused_seconds",
        "log_stats"
    );
    let bytes = |pages: u32| Rounded(u64::from(pages) * PAGE_BYTES as u64).to_string();
    for report in reports {
        text.push_str(&format!(
            "{:<20} {:>5} {:>10} {:>9} {:>7} {:>10} {:>10} {:>9} {:>17} {:>27} {:>16} {:>22} {:>32} {:>9}\n",
            report.name,
            if report.connected { "yes" } else { "no" },
            bytes(report.pages_kept),
            bytes(report.pages_in_use),
            bytes(report.persistent_grants),
            report.requests,
            report.failed,
            report.squeezes,
            report.max_buffer_pages,
            report.buffer_squeeze_duration_ms,
            report.squeeze_hold_ms,
            report.max_persistent_grants,
            report.persistent_grant_unused_seconds,
            report.log_stats
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_server_is_one_line() {
        let refuse = |why: &str| refused(Answer::Error(why.into())).unwrap_err().to_string();
        let text = refuse("red\n\x1b[31mebb: fine");
        assert!(text.ends_with("red\\u{a}ebb: fine"), "{text}");
        assert!(refuse(&"x".repeat(1 << 20)).len() < 2 * ERROR_MAX);
        assert_eq!(refused(Answer::Done(1)).unwrap(), Answer::Done(1));
    }
}

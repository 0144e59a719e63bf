//! `ebb blk`: disks for guests, with buffers that the host can have back.

mod attached;
mod disk;
mod options;

pub(crate) use attached::{DISKS_MAX, Disks};
pub(crate) use disk::ImageArgument;
use disk::{DiskArgument, found};
pub(crate) use options::BlkOptions;

use crate::failure::Failure;
use crate::registry::{Fleet, Presence};
use crate::stdout;
use crate::system::open_named;
use crate::system::opened::own_path;
use crate::text::{Rounded, printable, printable_json};
use ebb_blk::capabilities::keep_capabilities;
use ebb_blk::control::{self, Answer, Report, Request};
use ebb_blk::pool::PAGE_BYTES;
use ebb_blk::server::{self, Disk, Options, Server};
use ebb_blk::watcher;
use ebb_blk::words::say;
use options::{Action, ServeOptions, Whom};
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// Does what `ebb blk` was asked to.
pub(crate) fn run(options: &BlkOptions) -> Result<u8, Failure> {
    match &options.action {
        Action::Serve(options) => serve(options),
        Action::Get {
            instance,
            json,
            whom,
        } => {
            let Answer::Instances(reports) = ask(
                whom,
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
            whom,
        } => {
            let request = Request::Set {
                knob: setting.knob.name().into(),
                value: setting.value,
                instance: instance.clone(),
            };
            ask(whom, request).map(|_| 0)
        }
        Action::Squeeze { instance, whom } => ask(
            whom,
            Request::Squeeze {
                instance: instance.clone(),
            },
        )
        .map(|_| 0),
    }
}

fn serve(options: &ServeOptions) -> Result<u8, Failure> {
    // Before the first thread: each of them is to leave the signals to the loop below.
    let mut signals = Signals::new(TERM_SIGNALS).map_err(cannot("signals"))?;
    allow_descriptors();
    let folder = options.folder()?;
    let control_path = options.place.path()?;
    let refuse = |error: server::ServeError| Failure::Disk(error.to_string());
    let listener = server::bind(&control_path).map_err(|source| Failure::Socket {
        path: control_path.clone(),
        source,
    })?;
    let _control = Removed(&control_path);
    let mut server = Server::new(Options::default());
    let watched = server.watch_memory().map_err(cannot("memory pressure"))?;
    let mut text = String::new();
    for DiskArgument { disk, incoming } in &options.disks {
        let disk = &Disk {
            name: disk.name.clone(),
            spec: found(&disk.spec)?,
        };
        let path = folder.join(format!("{}.sock", disk.name));
        let handle = if *incoming {
            server.listen_incoming(disk, &path)
        } else {
            server.listen(disk, &path)
        };
        let handle = handle.map_err(refuse)?;
        let io = handle.io_kind();
        text.push_str(&format!("{} {} by {io}\n", disk.name, path.display()));
    }
    let server = Arc::new(server);
    say(format_args!("{watched}"));
    if let Some(name) = &options.xen {
        watcher::watch(server.clone(), name).map_err(cannot("disks for Xen domains"))?;
    }
    // All that root alone may do is done, but for removing sockets from somebody's folder.
    keep_capabilities(CapabilitySet::DAC_OVERRIDE).map_err(cannot("fewer privileges"))?;
    control::serve(server.clone(), listener).map_err(cannot("the control socket"))?;
    stdout::print(&text)?;
    let _ = signals.forever().next();
    end_at_the_next(signals, control_path.clone());
    // The control thread holds the server too, and clients may: ask the disks to end here.
    server.stop();
    Ok(0)
}

/// A disk takes several descriptors, and its front-end may hand in a hundred: as many as this process
/// may have, not as few as shells give for programs that use `select`.
fn allow_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It is less than what is asked for if the system thinks so; then opening fails by name.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// What guests were promised is being finished, which takes half a minute at most: the next signal ends
/// the process at once.
fn end_at_the_next(mut signals: Signals, control: PathBuf) {
    let spawned = thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ = std::fs::remove_file(control);
                let _ = emulate_default_handler(signal);
            }
        });
    // Without a thread it ends when the guests' requests do.
    drop(spawned);
}

/// Turns an error into one of setting `what` up.
fn cannot(what: &str) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure::Disk(format!("cannot set up {what}: {source}"))
}

/// A path that is removed at the end.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

fn ask(whom: &Whom, request: Request) -> Result<Answer, Failure> {
    let answer = match &whom.guest {
        Some(guest) => ask_guest(guest, request)?,
        None => {
            let path = whom.place.path()?;
            let named = open_named(&path, OFlags::PATH).map_err(io::Error::from);
            // The socket that was found, whatever the path leads to by now.
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

/// Characters of a server's error that are shown.
const ERROR_MAX: usize = 4096;

/// Turns an answer that says why something was not done into a failure. Its text is the server's: it
/// becomes one line.
fn refused(answer: Answer) -> Result<Answer, Failure> {
    match answer {
        Answer::Error(why) => {
            let short: String = why.chars().take(ERROR_MAX).collect();
            Err(Failure::Disk(printable(&short)))
        }
        answer => Ok(answer),
    }
}

/// Asks the disks of the run that has this name or process number.
fn ask_guest(guest: &str, request: Request) -> Result<Answer, Failure> {
    let mut fleet = Fleet::new();
    let mut found = fleet.figures().into_iter().filter_map(|(id, presence)| {
        let Presence::Here(figures) = presence else {
            return None;
        };
        (figures.name == guest || figures.pid.to_string() == guest).then_some((id, figures.pid))
    });
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

fn strange() -> Failure {
    Failure::Disk("the server answered something else than it was asked".into())
}

fn as_json(reports: &[Report]) -> Result<String, Failure> {
    let text = printable_json(reports, true);
    text.map(|text| text + "\n")
        .map_err(|error| Failure::Output {
            stream: "stdout",
            source: error.into(),
        })
}

fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "{:<20} {:>5} {:>10} {:>9} {:>7} {:>10} {:>10} {:>9} {:>17} {:>27} {:>22} {:>32}\n",
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
        "max_persistent_grants",
        "persistent_grant_unused_seconds"
    );
    let bytes = |pages: u32| Rounded(u64::from(pages) * PAGE_BYTES as u64).to_string();
    for report in reports {
        text.push_str(&format!(
            "{:<20} {:>5} {:>10} {:>9} {:>7} {:>10} {:>10} {:>9} {:>17} {:>27} {:>22} {:>32}\n",
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
            report.max_persistent_grants,
            report.persistent_grant_unused_seconds
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

//! The program: started, connected, waited for.

use crate::control::Host;
use crate::failure::Failure;
use crate::modules;
use crate::out::Wanted;
use crate::ports;
use crate::streams::{Ends, Kind, Streams};
use crate::typist;
use crate::words;
use ebb_wire::boot::{self, ARGUMENTS, ENVIRONMENT, OUT};
use ebb_wire::port::{NAMES, STDERR, STDIO};
use ebb_wire::report::Report;
use ebb_wire::request::Request;
use ebb_wire::user::{USER, User};
use ebb_wire::{root, terminal};
use rustix::fs::{Access, access};
use rustix::process::{Gid, Pid, Signal, Uid, WaitOptions, kill_process_group, wait};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;
use std::thread;

const STATISTICS: &str = "/proc/self/stat";

/// What became of the program.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It could not be started.
    CannotRun(io::Error),
    /// Its wait status, and how much it wrote to stdout and stderr.
    Exited { status: u32, written: [u64; 2] },
}

/// The files that are to be sent when it has ended; to be asked for before [`run`], which takes the list away.
pub(crate) fn wanted() -> Result<Option<Wanted>, Failure> {
    if !Path::new(OUT).exists() {
        return Ok(None);
    }
    Wanted::new(&words::of(OUT)?).map(Some)
}

/// Runs it to its end.
pub(crate) fn run(host: &mut Host, command_line: &str) -> Result<Ended, Failure> {
    let arguments = words::of(ARGUMENTS)?;
    let environment = words::of(ENVIRONMENT)?;
    let typed = boot::is_set(command_line, boot::STDIN, boot::TERMINAL);
    let size = boot::value(command_line, terminal::WORD).and_then(terminal::Size::parse);
    let kind = match size {
        Some(size) => Kind::Terminal(size),
        None => Kind::Pipes {
            one_output: boot::is_set(command_line, boot::STDERR, boot::STDOUT),
            no_input: boot::is_set(command_line, boot::STDIN, boot::EMPTY),
        },
    };
    let user = optional(USER)?.map(|text| who(&text)).transpose()?;
    let folder = optional(root::FOLDER)?.map(OsString::from_vec);
    // Only memory, from here on; what may be wanted later stays.
    let used = if modules::are_on_demand() {
        vec![ARGUMENTS, ENVIRONMENT]
    } else {
        vec![boot::FOLDER]
    };
    for path in used {
        remove(path).map_err(|error| Failure::new(format!("remove {path}"), error))?;
    }
    let stdio = ports::open(NAMES[STDIO])?;
    let stderr = ports::open(NAMES[STDERR])?;

    let (program, arguments) = arguments.split_first().ok_or(Failure::List(ARGUMENTS))?;
    let setup = |error| Failure::new("set up the program's streams", error);
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    for variable in environment {
        let bytes = variable.into_vec();
        let equals = bytes
            .iter()
            .position(|byte| *byte == b'=')
            .ok_or(Failure::List(ENVIRONMENT))?;
        command.env(
            OsString::from_vec(bytes[..equals].to_vec()),
            OsString::from_vec(bytes[equals + 1..].to_vec()),
        );
    }
    let owner = user.as_ref().map(|(uid, gid, _)| (*uid, *gid));
    let ends = Ends::connect(&mut command, kind, owner).map_err(setup)?;
    host.say(Report::Running { nanoseconds: now() })?;
    let child = match spawn_as(&mut command, user.as_ref(), folder.as_deref()) {
        Ok(child) => child,
        Err(error) => return Ok(Ended::CannotRun(error)),
    };
    // It holds our copies of the program's ends.
    drop(command);

    let group = Pid::from_child(&child);
    if let (true, Some(input), Some(port)) = (typed, ends.input(), host.port()) {
        typist::watch(input, port);
    }
    let (streams, carried) = ends.carry(stdio, stderr).map_err(setup)?;
    if let Some(requests) = host.requests() {
        thread::spawn(move || serve(&requests, group, streams));
    }
    let faults_before = faults();
    let status = wait_for(group)?;
    host.say(Report::Ended {
        nanoseconds: now(),
        faults: faults().saturating_sub(faults_before),
    })?;
    // Nobody else may go on, nor keep the outputs open. Fails where there is nobody.
    let _ = kill_process_group(Pid::INIT, Signal::KILL);
    let written = carried.finish();
    let written = written.map_err(|error| Failure::new("carry the program's output", error))?;
    Ok(Ended::Exited { status, written })
}

/// The bytes of a file that ebb packs where there is need of it.
fn optional(path: &'static str) -> Result<Option<Vec<u8>>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!("read {path}"), error)),
    }
}

/// A user, its group, further groups.
type Who = (Uid, Gid, Vec<Gid>);

fn who(text: &[u8]) -> Result<Who, Failure> {
    let user = User::parse(text.strip_suffix(b"\0").unwrap_or(text));
    let user = user.ok_or(Failure::List(USER))?;
    let groups = user.groups().map(Gid::from_raw).collect();
    Ok((Uid::from_raw(user.uid), Gid::from_raw(user.gid), groups))
}

/// Starts the program as a user, in a folder that it may pass: Linux has a child act as the thread does that makes it.
fn spawn_as(
    command: &mut Command,
    user: Option<&Who>,
    folder: Option<&OsStr>,
) -> io::Result<Child> {
    let spawn = move |command: &mut Command| {
        let may_pass = |folder: &&OsStr| {
            fs::metadata(folder).is_ok_and(|there| there.is_dir())
                && access(*folder, Access::EXEC_OK).is_ok()
        };
        if let Some(folder) = folder.filter(may_pass) {
            command.current_dir(folder);
        }
        command.spawn()
    };
    let Some((uid, gid, groups)) = user else {
        return spawn(command);
    };
    thread::scope(|scope| {
        let spawned = scope.spawn(|| {
            set_thread_groups(groups)?;
            set_thread_res_gid(*gid, *gid, *gid)?;
            set_thread_res_uid(*uid, *uid, *uid)?;
            spawn(command)
        });
        spawned
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))
    })
}

fn remove(path: &str) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// The guest's clock, in nanoseconds.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let nanoseconds = time.tv_sec.saturating_mul(1_000_000_000);
    // A clock that begins with the kernel is never below zero.
    u64::try_from(nanoseconds.saturating_add(time.tv_nsec)).unwrap_or(0)
}

/// Page faults of all children that have been waited for, with those that they waited for.
fn faults() -> u64 {
    let text = fs::read_to_string(STATISTICS).unwrap_or_default();
    // The name of the process, in parentheses, may have blanks in it.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let field = |index| {
        let word = fields.split_whitespace().nth(index);
        word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    // cminflt and cmajflt, the 11th and the 13th field of all, of which two stand before.
    field(8).saturating_add(field(10))
}

/// Does what the host asks for while the program runs.
fn serve(requests: &Receiver<Request>, group: Pid, mut streams: Streams) {
    for request in requests {
        match request {
            Request::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // Fails if the program has just ended, and then nothing is lost.
                    let _ = kill_process_group(group, signal);
                }
            }
            Request::EndOfInput(total) => streams.end_input(total),
            Request::Closed(port) => streams.close(port),
            Request::Size(size) => streams.resize(size),
            // These are not about the program.
            Request::Window(..)
            | Request::GiveBack(_)
            | Request::Reclaim(..)
            | Request::Pressure { .. }
            | Request::End => {}
        }
    }
}

/// Reaps whatever ends, until the program has.
fn wait_for(program: Pid) -> Result<u32, Failure> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => {
                return Ok(status.as_raw().cast_unsigned());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Failure::new("wait for the program", errno)),
        }
    }
}

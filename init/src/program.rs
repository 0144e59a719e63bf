//! Starts the program, connects its streams, and waits for its end.

use crate::control::Host;
use crate::failure::Failure;
use crate::input_wait;
use crate::modules;
use crate::out::Wanted;
use crate::ports;
use crate::streams::{Ends, Kind, Streams};
use crate::string_list;
use ebb_wire::boot::{self, ARGUMENTS, ENVIRONMENT, OUT};
use ebb_wire::port::{NAMES, STDERR, STDIO};
use ebb_wire::report::Report;
use ebb_wire::request::Request;
use ebb_wire::user::{USER, User};
use ebb_wire::{root, terminal};
use rustix::fs::{Access, access};
use rustix::process::{Gid, Pid, Signal, Uid, WaitOptions, kill_process_group, wait};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;
use std::thread;

const STATISTICS: &str = "/proc/self/stat";

/// The outcome of running the program.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The program could not be started.
    CannotRun(io::Error),
    /// The program's wait status, and the numbers of bytes that it wrote to stdout and stderr.
    Exited { status: u32, written: [u64; 2] },
}

/// Returns the files to send after the program's end, or `None` if there are none. Call this before
/// [`run`], which deletes the list. Fails if the list is malformed or the port for the files cannot
/// be opened.
pub(crate) fn wanted() -> Result<Option<Wanted>, Failure> {
    if !Path::new(OUT).exists() {
        return Ok(None);
    }
    Wanted::new(&string_list::read(OUT)?).map(Some)
}

/// Runs the program until it ends, and then kills all other processes. During that time, copies its
/// streams, handles the host's requests, and reports the program's start and end to `host`. Fails
/// if the guest cannot be set up or a stream fails. A program that cannot be started is no failure,
/// but [`Ended::CannotRun`].
pub(crate) fn run(host: &mut Host, command_line: &str) -> Result<Ended, Failure> {
    let arguments = string_list::read(ARGUMENTS)?;
    let environment = string_list::read(ENVIRONMENT)?;
    let typed = boot::is_set(command_line, boot::STDIN, boot::TERMINAL);
    let size = boot::value(command_line, terminal::PARAMETER).and_then(terminal::Size::parse);
    let kind = match size {
        Some(size) => Kind::Terminal(size),
        None => Kind::Pipes {
            one_output: boot::is_set(command_line, boot::STDERR, boot::STDOUT),
            no_input: boot::is_set(command_line, boot::STDIN, boot::EMPTY),
        },
    };
    let user = optional(USER)?.map(|text| who(&text)).transpose()?;
    let folder = optional(root::FOLDER)?.map(OsString::from_vec);
    // These files only take memory from here on. Modules for later must stay.
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
    set_environment(environment)?;
    let mut command = Command::new(program);
    command.args(arguments);
    let owner = user.as_ref().map(|(uid, gid, _)| (*uid, *gid));
    let ends = Ends::connect(&mut command, kind, owner).map_err(setup)?;
    host.say(Report::Running { nanoseconds: now() })?;
    let child = match spawn_as(&mut command, user.as_ref(), folder.as_deref()) {
        Ok(child) => child,
        Err(error) => return Ok(Ended::CannotRun(error)),
    };
    // The command holds copies of the program's stream ends. They must be closed, so that streams
    // end.
    drop(command);

    let group = Pid::from_child(&child);
    if let (true, Some(input), Some(port)) = (typed, ends.input(), host.port()) {
        input_wait::watch(input, port);
    }
    let (streams, copied) = ends.start_copying(stdio, stderr).map_err(setup)?;
    if let Some(requests) = host.requests() {
        thread::spawn(move || serve(&requests, group, streams));
    }
    let faults_before = faults();
    let status = wait_for(group)?;
    host.say(Report::Ended {
        nanoseconds: now(),
        faults: faults().saturating_sub(faults_before),
    })?;
    // The remaining processes must not keep the outputs open. Fails if there is none.
    let _ = kill_process_group(Pid::INIT, Signal::KILL);
    let written = copied.finish();
    let written = written.map_err(|error| Failure::new("carry the program's output", error))?;
    Ok(Ended::Exited { status, written })
}

/// Makes `variables` the environment of this process, in this order. The program inherits it. In a
/// `Command` they would be sorted. Fails if a variable has no name or no `=`.
fn set_environment(variables: Vec<OsString>) -> Result<(), Failure> {
    for (name, _) in env::vars_os() {
        // SAFETY: other threads read the environment only through `std`, which has a lock for it.
        unsafe { env::remove_var(name) };
    }
    for variable in variables {
        let bytes = variable.as_bytes();
        let equals = bytes
            .iter()
            .position(|byte| *byte == b'=')
            .filter(|&name| name > 0)
            .ok_or(Failure::List(ENVIRONMENT))?;
        let (name, value) = (&bytes[..equals], &bytes[equals + 1..]);
        // SAFETY: other threads read the environment only through `std`, which has a lock for it.
        unsafe { env::set_var(OsStr::from_bytes(name), OsStr::from_bytes(value)) };
    }
    Ok(())
}

/// Reads a file that exists only if it is needed. Returns `None` if it does not exist. Fails if it
/// cannot be read.
fn optional(path: &'static str) -> Result<Option<Vec<u8>>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!("read {path}"), error)),
    }
}

/// A user ID, its group ID, and supplementary groups.
type Who = (Uid, Gid, Vec<Gid>);

/// Reads the user and groups from the file's text. Fails if it is malformed.
fn who(text: &[u8]) -> Result<Who, Failure> {
    let user = User::parse(text.strip_suffix(b"\0").unwrap_or(text));
    let user = user.ok_or(Failure::List(USER))?;
    let groups = user.groups().map(Gid::from_raw).collect();
    Ok((Uid::from_raw(user.uid), Gid::from_raw(user.gid), groups))
}

/// Starts the program with the IDs of `user`, in `folder` if that user may enter it. The IDs are
/// set in a thread that starts the program, since a child takes them from the thread that makes it.
/// Fails if the IDs cannot be set or the program cannot be started.
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

/// Returns the time since boot in nanoseconds.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let nanoseconds = time.tv_sec.saturating_mul(1_000_000_000);
    // The clock begins when the kernel starts, so the time is never negative.
    u64::try_from(nanoseconds.saturating_add(time.tv_nsec)).unwrap_or(0)
}

/// Returns the number of page faults of all children that have been waited for, and of their
/// children.
fn faults() -> u64 {
    let text = fs::read_to_string(STATISTICS).unwrap_or_default();
    // The process name in parentheses may contain spaces.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let field = |index| {
        let word = fields.split_whitespace().nth(index);
        word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    // cminflt and cmajflt are fields 11 and 13. The first two fields were cut off with the name.
    field(8).saturating_add(field(10))
}

/// Carries out the host's requests while the program runs.
fn serve(requests: &Receiver<Request>, group: Pid, mut streams: Streams) {
    for request in requests {
        match request {
            Request::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // Fails if the program has just ended. The signal is not needed then.
                    let _ = kill_process_group(group, signal);
                }
            }
            Request::EndOfInput(total) => streams.end_input(total),
            Request::Closed(port) => streams.close(port),
            Request::Size(size) => streams.resize(size),
            // These requests do not concern the program.
            Request::Window(..)
            | Request::GiveBack(_)
            | Request::Reclaim(..)
            | Request::Pressure { .. }
            | Request::End => {}
        }
    }
}

/// Reaps all child processes until the program has ended. Returns the program's wait status. Fails
/// if `wait` fails.
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

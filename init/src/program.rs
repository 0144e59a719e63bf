//! The program: started, connected, waited for.

use crate::control::Host;
use crate::failure::Failure;
use crate::modules;
use crate::out::Wanted;
use crate::ports;
use crate::relay::{Input, Output};
use crate::typist;
use ebb_wire::boot::{self, ARGUMENTS, ENVIRONMENT, FOLDER, OUT};
use ebb_wire::port::{NAMES, STDERR, STDIO};
use ebb_wire::report::Report;
use ebb_wire::request::Request;
use ebb_wire::user::{USER, User};
use rustix::process::{Gid, Pid, Signal, Uid, WaitOptions, kill_process_group, wait};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};

const COMMAND_LINE: &str = "/proc/cmdline";
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
    Wanted::new(&words(OUT)?).map(Some)
}

/// Runs it to its end.
pub(crate) fn run(host: &mut Host) -> Result<Ended, Failure> {
    let arguments = words(ARGUMENTS)?;
    let environment = words(ENVIRONMENT)?;
    let command_line = fs::read_to_string(COMMAND_LINE)
        .map_err(|error| Failure::new(format!("read {COMMAND_LINE}"), error))?;
    let one_output = boot::is_set(&command_line, boot::STDERR, boot::STDOUT);
    let typed = boot::is_set(&command_line, boot::STDIN, boot::TERMINAL);
    let no_input = boot::is_set(&command_line, boot::STDIN, boot::EMPTY);
    let user = match fs::read(USER) {
        Ok(text) => Some(who(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::new(format!("read {USER}"), error)),
    };
    // Only memory, from here on; what may be wanted later stays.
    let used = if modules::are_on_demand() {
        vec![ARGUMENTS, ENVIRONMENT]
    } else {
        vec![FOLDER]
    };
    for path in used {
        remove(path).map_err(|error| Failure::new(format!("remove {path}"), error))?;
    }
    let stdio = ports::open(NAMES[STDIO])?;
    let stderr = ports::open(NAMES[STDERR])?;

    let (program, arguments) = arguments.split_first().ok_or(Failure::List(ARGUMENTS))?;
    let setup = |error| Failure::new("set up the program's streams", error);
    let (stdin_reader, stdin_writer) = io::pipe().map_err(setup)?;
    let (stdout_reader, stdout_writer) = io::pipe().map_err(setup)?;
    let (stderr_reader, stderr_writer) = io::pipe().map_err(setup)?;
    if let Some((uid, gid, _)) = &user {
        // So that it may open them again, as `/dev/stdout`.
        let fails = |error: rustix::io::Errno| setup(error.into());
        for end in [
            stdin_reader.as_fd(),
            stdout_writer.as_fd(),
            stderr_writer.as_fd(),
        ] {
            rustix::fs::fchown(end, Some(*uid), Some(*gid)).map_err(fails)?;
        }
    }
    let mut command = Command::new(program);
    command.args(arguments).env_clear().process_group(0);
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
    command.stdin(stdin_reader);
    // The writer that is not used must go, or its pipe would never end.
    command.stderr(if one_output {
        drop(stderr_writer);
        stdout_writer.try_clone().map_err(setup)?
    } else {
        stderr_writer
    });
    command.stdout(stdout_writer);
    host.say(Report::Running { nanoseconds: now() })?;
    let child = match spawn_as(&mut command, user.as_ref()) {
        Ok(child) => child,
        Err(error) => return Ok(Ended::CannotRun(error)),
    };
    // It holds our copies of the program's ends.
    drop(command);

    let group = Pid::from_child(&child);
    let input = Arc::new(Input::new().map_err(setup)?);
    let outputs = [
        Arc::new(Output::new().map_err(setup)?),
        Arc::new(Output::new().map_err(setup)?),
    ];
    if no_input {
        drop(stdin_writer);
    } else {
        if let (true, Some(port)) = (typed, host.port()) {
            typist::watch(&stdin_writer, port);
        }
        let stdin_port = stdio.try_clone().map_err(setup)?;
        let carrier = Arc::clone(&input);
        thread::spawn(move || carrier.carry(stdin_port, stdin_writer));
    }
    let carriers = [
        carry(&outputs[0], stdout_reader, stdio),
        carry(&outputs[1], stderr_reader, stderr),
    ];
    if let Some(requests) = host.requests() {
        let outputs = outputs.clone();
        thread::spawn(move || serve(&requests, group, &input, &outputs));
    }
    let faults_before = faults();
    let status = wait_for(group)?;
    host.say(Report::Ended {
        nanoseconds: now(),
        faults: faults().saturating_sub(faults_before),
    })?;
    // Nobody else may go on, nor keep the outputs open. Fails where there is nobody.
    let _ = kill_process_group(Pid::INIT, Signal::KILL);
    let mut written = [0; 2];
    for (carrier, written) in carriers.into_iter().zip(&mut written) {
        match carrier.join() {
            Ok(Ok(bytes)) => *written = bytes,
            Ok(Err(error)) => return Err(Failure::new("carry the program's output", error)),
            Err(_) => return Err(Failure::List("the program's output")),
        }
    }
    Ok(Ended::Exited { status, written })
}

/// A user, its group, further groups.
type Who = (Uid, Gid, Vec<Gid>);

fn who(text: &[u8]) -> Result<Who, Failure> {
    let user = User::parse(text.strip_suffix(b"\0").unwrap_or(text));
    let user = user.ok_or(Failure::List(USER))?;
    let groups = user.groups().map(Gid::from_raw).collect();
    Ok((Uid::from_raw(user.uid), Gid::from_raw(user.gid), groups))
}

/// Starts the program as a user: Linux has a child act as the thread does that makes it.
fn spawn_as(command: &mut Command, user: Option<&Who>) -> io::Result<Child> {
    let Some((uid, gid, groups)) = user else {
        return command.spawn();
    };
    thread::scope(|scope| {
        let spawned = scope.spawn(|| {
            set_thread_groups(groups)?;
            set_thread_res_gid(*gid, *gid, *gid)?;
            set_thread_res_uid(*uid, *uid, *uid)?;
            command.spawn()
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

/// The words of a list that ebb packed.
fn words(path: &'static str) -> Result<Vec<OsString>, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::new(format!("read {path}"), error))?;
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = bytes.strip_suffix(b"\0").ok_or(Failure::List(path))?;
    let words = bytes.split(|byte| *byte == 0);
    Ok(words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect())
}

fn carry(output: &Arc<Output>, pipe: PipeReader, port: File) -> JoinHandle<io::Result<u64>> {
    let output = Arc::clone(output);
    thread::spawn(move || output.carry(pipe, port))
}

/// Does what the host asks for while the program runs.
fn serve(requests: &Receiver<Request>, group: Pid, input: &Input, outputs: &[Arc<Output>; 2]) {
    for request in requests {
        match request {
            Request::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    // Fails if the program has just ended, and then nothing is lost.
                    let _ = kill_process_group(group, signal);
                }
            }
            Request::EndOfInput(total) => input.ends_after(total),
            Request::Closed(port) => {
                if let Some(output) = outputs.get(port.number()) {
                    output.close();
                }
            }
            // These are not about the program.
            Request::Window(..)
            | Request::GiveBack(_)
            | Request::Reclaim(..)
            | Request::Size(_)
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

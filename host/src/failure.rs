//! Errors of `ebb` itself, as opposed to those of the program: their messages and exit statuses.

use crate::archive::{BusyboxError, FileError, LibraryError, PackError, ProgramError};
use crate::confine::SandboxError;
use crate::guest::{
    CacheError, Complaint, ImageError, InitError, KernelError, LinuxFormatError, LinuxKernelError,
    StockError,
};
use crate::machine::Accel;
use crate::qemu::{Ended, MonitorError, SpawnError, VmError};
use crate::system::OwnFolderError;
use crate::text::{one_line, seconds, stderr};
use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The exit status of `ebb` for a failure of its own, as opposed to one of the program. env(1) and
/// timeout(1) use the same number.
pub(crate) const STATUS_FAILED: u8 = 125;
const STATUS_CANNOT_RUN: u8 = 126;
const STATUS_NOT_FOUND: u8 = 127;
const STATUS_TIMEOUT: u8 = 124;

/// The reason why a command of `ebb` itself failed, as opposed to the program in the guest. It
/// determines the message on stderr and the exit status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Stock(#[from] StockError),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error("{0}")]
    Usage(String),
    #[error("`{0}` is no program of the image")]
    NotInImage(String),
    #[error("--env {}: {why}", one_line(.argument))]
    Env {
        argument: OsString,
        why: &'static str,
    },
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("cannot set up the guest: {what}")]
    Setup {
        what: &'static str,
        source: io::Error,
    },
    #[error("QEMU did not start the guest")]
    Monitor {
        source: MonitorError,
        qemu: Vec<String>,
    },
    #[error("{0}")]
    Accel(String),
    #[error("the guest kernel panicked")]
    Panic { console: Vec<String> },
    #[error("{kernel} panicked")]
    ForeignPanic {
        kernel: String,
        console: Vec<String>,
    },
    #[error("{kernel} does not boot: after {attempts} attempts it has not begun its first process")]
    NoBoot {
        kernel: String,
        attempts: u32,
        console: Vec<String>,
    },
    #[error("the guest cannot run the program: {why}")]
    CannotRun { why: String },
    #[error("the guest failed: {why}")]
    Guest { why: String },
    #[error("the guest ended without saying how the program did ({how})")]
    Lost {
        how: String,
        console: Vec<String>,
        qemu: Vec<String>,
    },
    #[error("{accel} cannot run the guest any further")]
    Stopped { accel: Accel, qemu: Vec<String> },
    #[error("QEMU was killed by signal {signal}")]
    Killed { signal: i32 },
    #[error("the program was still running after {}", seconds(*.after))]
    Timeout { after: Duration },
    #[error("{0}")]
    Disk(String),
    #[error("no disks are served at {}", one_line(path))]
    NoServer { path: PathBuf, source: io::Error },
    #[error("cannot listen at {}", one_line(path))]
    Socket { path: PathBuf, source: io::Error },
    #[error("cannot write {}", one_line(path))]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot serve on {address}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("{}", .lines.join("\nebb: "))]
    Out { lines: Vec<String> },
    #[error("cannot write {stream}")]
    Output {
        stream: &'static str,
        source: io::Error,
    },
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Ebb(error) => Self::Image(error),
            KernelError::Linux(LinuxKernelError::Stock(error)) => Self::Stock(error),
            KernelError::Linux(LinuxKernelError::Init(error)) => Self::Init(error),
        }
    }
}

impl From<VmError> for Failure {
    fn from(error: VmError) -> Self {
        match error {
            VmError::Setup { what, source } => Self::Setup { what, source },
            VmError::Spawn(error) => Self::Spawn(error),
            VmError::Monitor { source, qemu } => Self::Monitor { source, qemu },
        }
    }
}

impl From<Complaint> for Failure {
    fn from(complaint: Complaint) -> Self {
        match complaint {
            Complaint::CannotRun(why) => Self::CannotRun { why },
            Complaint::Failed(why) => Self::Guest { why },
        }
    }
}

impl Failure {
    /// Returns a function that wraps an I/O error as [`Failure::Setup`], for `map_err`. `what`
    /// names in the message the resource that could not be set up.
    pub(crate) fn setup<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Setup {
            what,
            source: source.into(),
        }
    }

    /// Returns the exit status of `ebb` for this failure: 124 for a timeout, 127 if the program
    /// does not exist, 126 if it cannot run in a guest, and 125 for all other failures.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Timeout { .. } => STATUS_TIMEOUT,
            Self::Program(ProgramError::NotFound(_) | ProgramError::UnknownCommand(_))
            | Self::NotInImage(_) => STATUS_NOT_FOUND,
            Self::Program(ProgramError::Volume(_)) => STATUS_FAILED,
            Self::Program(_) | Self::CannotRun { .. } => STATUS_CANNOT_RUN,
            _ => STATUS_FAILED,
        }
    }

    /// Prints the failure on stderr: the message, its causes, the last log lines, and a hint where
    /// there is one. Control characters are made printable. Ignores errors.
    pub(crate) fn print(&self) {
        stderr::say(&self.whole());
    }

    /// Returns the text that [`Self::print`] prints, without a newline at the end.
    fn whole(&self) -> String {
        let mut text = format!("ebb: {}\n", self.line());
        for (title, lines) in self.logs() {
            if !lines.is_empty() {
                text.push_str(&format!("  {title}:\n"));
            }
            for line in lines {
                text.push_str(&format!("    {line}\n"));
            }
        }
        if let Some(help) = self.help() {
            text.push_str(&format!("  help: {help}\n"));
        }
        text.pop();
        text
    }

    /// Returns the message and the messages of all its sources as one line, separated by colons.
    fn line(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(&format!(": {error}"));
            source = error.source();
        }
        text
    }

    /// Returns the message, its causes and the last log lines as one text, without the hint. Causes
    /// are separated by colons, log lines by semicolons.
    pub(crate) fn cause(&self) -> String {
        let logs = self.logs().into_iter().flat_map(|(_, lines)| lines);
        let lines = logs.filter(|line| !line.is_empty()).map(String::as_str);
        let mut text = self.line();
        for line in lines {
            text.push_str("; ");
            text.push_str(line);
        }
        text
    }

    fn logs(&self) -> Vec<(&'static str, &[String])> {
        match self {
            Self::Panic { console }
            | Self::ForeignPanic { console, .. }
            | Self::NoBoot { console, .. } => vec![("the last lines of its log", console)],
            Self::Lost { console, qemu, .. } => {
                vec![("the last lines of its log", console), ("QEMU said", qemu)]
            }
            Self::Monitor { qemu, .. } | Self::Stopped { qemu, .. } => vec![("QEMU said", qemu)],
            _ => Vec::new(),
        }
    }

    fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::Spawn(SpawnError::NotFound(_)) => {
                "apt install qemu-system-x86, or name one with --qemu PATH"
            }
            Self::Sandbox(_) | Self::Spawn(SpawnError::Confine { .. }) => {
                "--unconfined runs QEMU with all rights that ebb has"
            }
            Self::Program(ProgramError::Libraries {
                source: LibraryError::Interpreter(_) | LibraryError::Missing(_),
                ..
            }) => {
                "install it here, or name its folder in LD_LIBRARY_PATH (and to the guest: --env \
                 LD_LIBRARY_PATH)"
            }
            Self::Program(ProgramError::Busybox {
                source: BusyboxError::Missing | BusyboxError::NotStatic(_),
                ..
            }) => "apt install busybox-static",
            Self::Program(ProgramError::Interpreter { .. }) => {
                "pack one with --file INTERPRETER:PATH, or let it be a busybox script \
                 (#!/bin/sh)"
            }
            Self::Program(ProgramError::Volume(_)) => {
                "-v SRC:DST shares a folder, --file SRC:/DEST packs a copy, --disk PATH attaches a disk"
            }
            Self::Image(ImageError::NotEmbedded) => {
                "build it without EBB_SKIP_KERNEL, or name an image with --kernel-image"
            }
            Self::Init(InitError::NotEmbedded(_)) => {
                "build it without EBB_SKIP_KERNEL, or name that program with EBB_INIT"
            }
            Self::Stock(StockError::Cache(CacheError::Folder(OwnFolderError::Mode { .. }))) => {
                "remove it, or look through it and `chmod go-w` it; XDG_CACHE_HOME can name another"
            }
            Self::Stock(StockError::Cache(
                CacheError::File { .. } | CacheError::NoFolder | CacheError::Folder(_),
            )) => {
                "set XDG_CACHE_HOME to a folder that can be written, or give a kernel with its \
                 modules: --kernel linux:/path/boot/vmlinuz-RELEASE (to ebb compare: --linux \
                 /path/boot/vmlinuz-RELEASE)"
            }
            Self::Stock(StockError::Cache(_)) => {
                "run `apt-get update`, or give a kernel with its modules: \
                 --kernel linux:/path/boot/vmlinuz-RELEASE (to ebb compare: --linux \
                 /path/boot/vmlinuz-RELEASE)"
            }
            Self::Stock(StockError::Format {
                source: LinuxFormatError::Magic,
                ..
            }) => {
                "give a bzImage, as distributions have it: --kernel linux:/boot/vmlinuz-RELEASE \
                 (to ebb compare: --linux /boot/vmlinuz-RELEASE)"
            }
            Self::Stock(StockError::NoModules { .. }) => {
                "a kernel stands in PLACE/boot and its modules in PLACE/lib/modules/RELEASE, as \
                 an unpacked package has them; one with all drivers built in may stand anywhere \
                 but in a folder called boot"
            }
            Self::Stock(StockError::NotBuilt { .. }) => {
                "build it there (make bzImage modules), or name a bzImage"
            }
            Self::ForeignPanic { .. } | Self::NoBoot { .. } => {
                "more memory with -m, or another kernel; --verbose shows the whole log"
            }
            Self::NoServer { .. } => "`ebb blk serve --disk NAME=PATH` serves some",
            Self::NotInImage(_) => {
                "name one of its programs; --file PATH packs one of the host, --busybox packs busybox"
            }
            Self::Program(ProgramError::UnknownCommand(_)) => {
                "for an image of that name: `docker save NAME -o NAME.tar`, then \
                 `ebb run --root NAME.tar`"
            }
            Self::Killed { .. } => "was the host out of memory? `dmesg` tells",
            Self::Stopped {
                accel: Accel::Kvm, ..
            } => "--accel tcg works everywhere",
            Self::Panic { .. } => "this is a bug in ebb; --verbose shows the whole log",
            Self::Lost { .. } => "--verbose shows the whole log",
            _ => return None,
        })
    }
}

/// Returns a phrase for messages that says how QEMU ended: its exit status or the signal that
/// killed it.
pub(crate) fn describe(ended: Ended) -> String {
    match ended {
        Ended::Exit(code) => format!("QEMU exited with status {code}"),
        Ended::Signal(signal) => format!("QEMU died by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::hostile::{HOSTILE, assert_harmless};
    use crate::text::printable_lines;

    #[test]
    fn a_failure_keeps_its_lines_and_steers_no_terminal() {
        let failure = Failure::Lost {
            how: HOSTILE.to_owned(),
            console: vec!["one".to_owned(), HOSTILE.to_owned()],
            qemu: vec!["three".to_owned()],
        };
        let said = printable_lines(&failure.whole());
        assert_harmless(&said);
        assert_eq!(said.lines().count(), 7, "{said}");
        assert!(!said.ends_with('\n'), "the sink ends the last line");
    }
}

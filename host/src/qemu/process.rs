//! QEMU as a child process that never outlives `ebb`.

use super::vcpus::Vcpus;
use crate::confine::{Measure, Needs, QemuSandbox};
use crate::system::search_path;
use crate::text::{Log, Terminal, one_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A running QEMU process. Dropping this kills and reaps the process.
#[derive(Debug)]
pub(crate) struct Qemu {
    child: Child,
    handle: Handle,
    log: Arc<Log>,
    log_reader: Option<JoinHandle<()>>,
    cpu: Option<CpuTime>,
}

/// A handle that sends signals to QEMU from any thread. It holds a pidfd, so a signal never reaches
/// another process that got QEMU's process number.
#[derive(Clone, Debug)]
pub(crate) struct Handle(Arc<OwnedFd>);

/// How the QEMU process ended: with an exit status or by a signal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Exit(i32),
    Signal(i32),
}

/// The CPU time that a process's threads have taken, with the resolution of a clock tick (10 ms).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTime {
    /// Returns the sum of user and system time.
    pub(crate) fn sum(self) -> Duration {
        self.user + self.system
    }
}

/// The reason why QEMU could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("{} was not found", one_line(.0))]
    NotFound(PathBuf),
    #[error("cannot start {}", one_line(path))]
    Start { path: PathBuf, source: io::Error },
    #[error("cannot confine {}: {measure}", one_line(path))]
    Confine {
        path: PathBuf,
        measure: Measure,
        source: io::Error,
    },
}

impl Qemu {
    /// Starts `program` with `arguments`, confined by `sandbox` to the resources in `needs`. A
    /// `program` without a slash is searched in `PATH`. The process is in a process group of its
    /// own.
    ///
    /// The process inherits `files` under their present descriptor numbers, and no other files. A
    /// thread keeps the last lines of its stderr, and shows them on `shown_on` if that is given.
    ///
    /// # Errors
    /// `NotFound` if there is no such program, `Start` if it cannot be started or watched, and
    /// `Confine` if it cannot be confined.
    pub(crate) fn spawn(
        program: &Path,
        arguments: &[OsString],
        files: &[OwnedFd],
        sandbox: &QemuSandbox,
        needs: Needs,
        shown_on: Option<Arc<Terminal>>,
    ) -> Result<Self, SpawnError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => SpawnError::NotFound(program.to_owned()),
            _ => SpawnError::Start {
                path: program.to_owned(),
                source,
            },
        };
        // The path is resolved here, since the new process has no `PATH` and another working
        // folder.
        let path = if program.components().count() > 1 {
            std::path::absolute(program).map_err(failed)?
        } else {
            let found = search_path(program.as_os_str());
            found.ok_or_else(|| SpawnError::NotFound(program.to_owned()))?
        };
        let mut command = Command::new(&path);
        let confined = sandbox.apply_to(&mut command, &path, files, needs);
        let progress = confined.map_err(failed)?;
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C and Ctrl-Z of the terminal must reach the program, but not QEMU.
            .process_group(0);
        let mut child = command.spawn().map_err(|source| match progress.failed() {
            Some(measure) => SpawnError::Confine {
                path: program.to_owned(),
                measure,
                source,
            },
            None => failed(source),
        })?;
        // `pidfd_open` of a running child fails only if the kernel lacks some resource. The child
        // must not be left running in that case either.
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(error.into()));
            }
        };
        let log = Arc::new(Log::new("qemu"));
        let log_reader = child.stderr.take().map(|stderr| {
            let log = Arc::clone(&log);
            thread::spawn(move || log.pump(stderr, shown_on.as_deref()))
        });
        Ok(Self {
            child,
            handle: Handle(Arc::new(pidfd)),
            log,
            log_reader,
            cpu: None,
        })
    }

    /// Returns the CPU time that QEMU took in total. Returns `None` until [`Self::wait`] has
    /// returned how QEMU ended, and if `/proc` did not show it then.
    pub(crate) fn cpu_time(&self) -> Option<CpuTime> {
        self.cpu
    }

    /// Returns a handle that sends signals to QEMU from any thread.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns QEMU's process number. After [`Self::wait`] has returned how QEMU ended, another
    /// process may get the number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits at most `timeout` until QEMU ends, or until the eventfd `vcpus.eventfd()` is readable.
    /// Does not reset the eventfd. A signal to this process may end the wait early.
    ///
    /// Returns how QEMU ended, or `None` if it still runs. If it ended, reaps the process and
    /// records its CPU time. Fails if `timeout` is too large or the kernel refuses to wait.
    pub(crate) fn wait(&mut self, timeout: Duration, vcpus: &Vcpus) -> io::Result<Option<Ended>> {
        let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
        let pidfd = self.handle.0.as_fd();
        let eventfd = vcpus.eventfd();
        let mut awaited = [
            PollFd::new(&pidfd, PollFlags::IN),
            PollFd::new(&eventfd, PollFlags::IN),
        ];
        match poll(&mut awaited, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(_) if awaited[0].revents().is_empty() => Ok(None),
            Ok(_) => {
                // QEMU has ended but is not reaped yet, so this includes the time of all its
                // threads.
                self.cpu = cpu_time(self.pid());
                Ok(Some(self.child.wait()?.into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the last `lines` lines of QEMU's stderr, or all that are kept if these are fewer.
    /// Blocks until QEMU has closed its stderr.
    pub(crate) fn last_words(&mut self, lines: usize) -> Vec<String> {
        self.words().last(lines)
    }

    /// Returns the first `lines` of those lines of QEMU's stderr that are kept, which are the last
    /// ones. Blocks until QEMU has closed its stderr. If QEMU dumps registers, the reason for it
    /// precedes the dump.
    pub(crate) fn first_words(&mut self, lines: usize) -> Vec<String> {
        let mut words = self.words().last(usize::MAX);
        words.truncate(lines);
        words
    }

    /// Returns the log after QEMU has closed its stderr.
    fn words(&mut self) -> &Log {
        if let Some(reader) = self.log_reader.take() {
            let _ = reader.join();
        }
        &self.log
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Fails only if the process was reaped before, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Handle {
    /// Kills QEMU with SIGKILL. Does nothing if QEMU has ended. Nothing is lost, since QEMU keeps
    /// no state that outlives the run.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&*self.0, Signal::KILL);
    }

    /// Stops all of QEMU's threads with SIGSTOP. Does nothing if QEMU has ended.
    pub(crate) fn pause(&self) {
        let _ = pidfd_send_signal(&*self.0, Signal::STOP);
    }

    /// Lets QEMU's threads continue with SIGCONT. Does nothing if QEMU has ended.
    pub(crate) fn resume(&self) {
        let _ = pidfd_send_signal(&*self.0, Signal::CONT);
    }
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }
}

/// Returns the CPU time that all threads of process `pid` have taken so far. Returns `None` if
/// `/proc` does not show it, for example because the process is gone.
pub(crate) fn cpu_time(pid: u32) -> Option<CpuTime> {
    parse_cpu_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads user and system time out of the contents of `/proc/PID/stat`.
fn parse_cpu_time(stat: &str) -> Option<CpuTime> {
    // The second field is the program's name, which may contain any character; user time is the
    // 14th.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let ticks = rustix::param::clock_ticks_per_second();
    let mut time = || {
        let value = fields.next()?.parse::<u64>().ok()?;
        Some(Duration::from_millis(value * 1000 / ticks.max(1)))
    };
    Some(CpuTime {
        user: time()?,
        system: time()?,
    })
}

/// Returns the bytes that process `pid` holds in addition to the guest's RAM: its anonymous pages
/// and the files it maps, but no shared memory. Returns `None` if `/proc` does not show it, for
/// example because the process is gone.
pub(crate) fn overhead_bytes(pid: u32) -> Option<u64> {
    parse_overhead(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Returns the bytes that process `pid` holds in anonymous pages and in files that it maps, without
/// shared memory. Unlike in [`overhead_bytes`], a page that several processes share counts only in
/// proportion (PSS). Returns `None` if `/proc` does not show it, for example because the process is
/// gone.
///
/// This is slower than [`overhead_bytes`], since the kernel looks at every page of the process.
pub(crate) fn overhead_pss(pid: u32) -> Option<u64> {
    parse_pss(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

fn parse_pss(rollup: &str) -> Option<u64> {
    Some((kibibytes(rollup, "Pss_Anon:")? + kibibytes(rollup, "Pss_File:")?) << 10)
}

/// Returns the value of the line that begins with `name`, in KiB.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
}

fn parse_overhead(status: &str) -> Option<u64> {
    Some((kibibytes(status, "RssAnon:")? + kibibytes(status, "RssFile:")?) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_leaves_shared_memory_out() {
        let status = "Name:\tqemu\nRssAnon:\t   1000 kB\nRssFile:\t  24 kB\nRssShmem:\t 99 kB\n";
        assert_eq!(parse_overhead(status), Some(1024 << 10));
        assert_eq!(parse_overhead("Name:\tx\n"), None);
        assert!(overhead_bytes(std::process::id()).is_some());
    }

    #[test]
    fn a_share_of_what_is_shared_leaves_the_guest_out() {
        let rollup = "00400000-7ffc0000 ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nPss: 8000 kB\n\
                      Pss_Anon:  1000 kB\nPss_File:   24 kB\nPss_Shmem: 6976 kB\n";
        assert_eq!(parse_pss(rollup), Some(1024 << 10));
        assert_eq!(parse_pss("Pss: 8000 kB\n"), None);
        let own = std::process::id();
        assert!(overhead_pss(own).is_some() && overhead_pss(own) <= overhead_bytes(own));
    }

    #[test]
    fn cpu_time_is_in_the_fourteenth_field() {
        let ticks = rustix::param::clock_ticks_per_second();
        let stat = format!(
            "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 {} {} 13",
            2 * ticks,
            ticks / 2
        );
        assert_eq!(
            parse_cpu_time(&stat),
            Some(CpuTime {
                user: Duration::from_secs(2),
                system: Duration::from_millis(500)
            })
        );
        assert_eq!(parse_cpu_time("7 (a) S 1"), None);
        assert!(cpu_time(std::process::id()).is_some());
    }

    const NEEDS: Needs = Needs {
        kvm: false,
        memory_bytes: 1 << 20,
        cpus: 1,
        ram: None,
    };

    #[test]
    fn missing_program_is_named() {
        let path = Path::new("/no/such/qemu");
        let sandbox = QemuSandbox::open();
        let error = Qemu::spawn(path, &[], &[], &sandbox, NEEDS, None).unwrap_err();
        assert!(matches!(error, SpawnError::NotFound(p) if p == path));
    }

    #[test]
    fn dropped_process_is_gone() {
        let arguments = [OsString::from("1000")];
        let program = Path::new("sleep");
        let sandbox = QemuSandbox::open();
        let qemu = Qemu::spawn(program, &arguments, &[], &sandbox, NEEDS, None).unwrap();
        let pid = qemu.pid();
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        drop(qemu);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}

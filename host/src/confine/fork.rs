//! Forks a process that runs a function of this program.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A forked child process. Dropping it kills the process and waits for its end.
#[derive(Debug)]
pub(super) struct Forked {
    pid: Pid,
    handle: OwnedFd,
}

impl Forked {
    /// Forks a process that runs `body` and then exits, in a process group of its own. The process
    /// is killed when the calling thread ends or the result is dropped. A panic in `body` ends only
    /// the process. `body` must need no lock that another thread of this process may hold.
    ///
    /// # Errors
    /// If the host cannot create a process. An error in the new process ends it without running
    /// `body`.
    pub(super) fn start(body: impl FnOnce()) -> io::Result<Self> {
        let parent = rustix::process::getpid();
        // SAFETY: the child has one thread, the calling one. The C library makes its allocator
        // usable in a forked child. `body` owns its descriptors, prints nothing, and gets nothing
        // that another thread may have locked. The child never returns from this function.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // A panic must not unwind into the caller's frames, which belong to the parent
                // process.
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    if begin(parent).is_ok() {
                        body();
                    }
                }));
                // SAFETY: ends the process without running handlers that belong to the parent.
                unsafe { libc::_exit(i32::from(ended.is_err())) }
            }
            pid => {
                let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
                let handle = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
                })?;
                Ok(Self { pid, handle })
            }
        }
    }

    /// Returns the process number, which stays reserved until this is dropped.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // This fails only if the process has ended, which is the aim.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// Has the kernel kill this process when `parent` ends, and moves it to a process group of its own,
/// so that the terminal's Ctrl-C does not reach it. Fails with `ESRCH` if `parent` has ended.
fn begin(parent: Pid) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before that call sends no signal.
    if rustix::process::getppid() != Some(parent) {
        return Err(Errno::SRCH);
    }
    rustix::process::setpgid(None, None)
}

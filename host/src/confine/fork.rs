//! Starts a process of this program that goes on with a function.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A forked process. Dropping it kills and reaps it.
#[derive(Debug)]
pub(super) struct Forked {
    pid: Pid,
    handle: OwnedFd,
}

impl Forked {
    /// Forks; the new process runs `body` and ends. It is killed when `ebb` ends.
    ///
    /// # Errors
    /// The host's, if it has no room for a process.
    pub(super) fn start(body: impl FnOnce()) -> io::Result<Self> {
        let parent = rustix::process::getpid();
        // SAFETY: the child has one thread, the calling one. The C library makes its allocator usable
        // in a forked child, and `body` is given nothing that another thread may have locked: it owns
        // its descriptors, and prints nothing. It never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // A panic must not unwind into the caller, whose process this is not.
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

    /// The number of the process.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // Fails only if it has ended, which is the aim.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// Ties a new process to `parent`, and takes it out of reach of the terminal's Ctrl-C.
fn begin(parent: Pid) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before that call sends no signal.
    if rustix::process::getppid() != Some(parent) {
        return Err(Errno::SRCH);
    }
    rustix::process::setpgid(None, None)
}

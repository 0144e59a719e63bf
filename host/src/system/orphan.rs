//! Makes child processes end together with ebb.

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Sets `command` up so that its process is killed by `SIGKILL` when the thread that starts it
/// ends. Starting it fails with `ESRCH` if ebb has ended by then.
pub(crate) fn forbid(command: &mut Command) {
    let parent = getpid();
    let die_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If ebb died before that call, the signal would never come.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from(Errno::SRCH))
        }
    };
    // SAFETY: the closure runs in the forked child before exec. It makes two system calls, and it
    // neither allocates nor takes a lock.
    unsafe { command.pre_exec(die_with_parent) };
}

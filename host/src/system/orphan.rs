//! Children that do not outlive ebb.

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the child of `command` killed when the thread that starts it ends, as all do with ebb.
pub(crate) fn forbid(command: &mut Command) {
    let parent = getpid();
    let die_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If ebb died before that call, no signal will ever come.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from(Errno::SRCH))
        }
    };
    // SAFETY: the closure runs in the forked child before exec; it makes two system calls and
    // neither allocates nor takes a lock.
    unsafe { command.pre_exec(die_with_parent) };
}

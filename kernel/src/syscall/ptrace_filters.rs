//! `ptrace(2)`: a tracee's filters of calls.

use super::value;
use crate::process::ptrace::{self, at_stop};
use crate::process::task::Task;
use crate::process::{self, caller};
use alloc::sync::Arc;
use logic::bpf::Instruction;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::ptrace::Options;
use logic::seccomp::Filter;
use machine::uaccess::{self, UserPtr};

/// `SECCOMP_FILTER_FLAG_LOG`.
const LOG: u64 = 1 << 1;

/// Returns `options` if the caller may set them.
///
/// # Errors
/// Fails with `EPERM` if `options` suspend the tracee's filters, and the caller lacks
/// `CAP_SYS_ADMIN`, is under a filter, or has its filters suspended.
pub(super) fn check_options(options: Options) -> Result<Options, Errno> {
    if options.contains(Options::SUSPEND_SECCOMP) {
        let current = process::current();
        caller::need(Capabilities::SYS_ADMIN)?;
        if current.confinement().number() != 0 || ptrace::suspends_filters(current) {
            return Err(Errno::EPERM);
        }
    }
    Ok(options)
}

/// Checks that the caller may read the filters of a tracee in a ptrace-stop. Fails with `EACCES` if
/// it may not, and with `ESRCH` if the tracee is not stopped.
fn check_look(tracee: &Task) -> Result<(), Errno> {
    at_stop(tracee, |_, _| Ok(()))?;
    let free = process::current().confinement().number() == 0;
    if free && caller::can(Capabilities::SYS_ADMIN) {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

fn newest(tracee: &Task) -> Result<Arc<Filter>, Errno> {
    tracee.confinement().filters().ok_or(Errno::EINVAL)
}

/// Copies the instructions of a filter to the address `to`, and returns their number
/// (`PTRACE_SECCOMP_GET_FILTER`). `number` 0 is the oldest filter. If `to` is 0, copies nothing.
///
/// # Errors
/// Fails with `ENOENT` if there is no filter `number`, with `EINVAL` if the tracee has no filters,
/// with `EACCES` if the caller may not read them, with `ESRCH` if the tracee is not in a
/// ptrace-stop, and with `EFAULT`.
pub(super) fn get_filter(tracee: &Task, number: u64, to: u64) -> SysResult {
    check_look(tracee)?;
    let newest = newest(tracee)?;
    let filter = newest.numbered(value(number)).ok_or(Errno::ENOENT)?;
    let instructions = filter.program().instructions();
    if to != 0 {
        for (n, instruction) in instructions.iter().enumerate() {
            let place = to.wrapping_add((n * Instruction::BYTES) as u64);
            uaccess::copy_out(place, &instruction.to_bytes())?;
        }
    }
    Ok(instructions.len())
}

/// Writes the flags with which a filter was installed to the `struct seccomp_metadata` of `size`
/// bytes at `at`, which holds the filter's number (`PTRACE_SECCOMP_GET_METADATA`). Returns the
/// number of bytes written.
///
/// # Errors
/// Fails with `EINVAL` if `size` is below 8, and otherwise as [`get_filter`] does.
pub(super) fn get_metadata(tracee: &Task, size: u64, at: u64) -> SysResult {
    /// Bytes of a word, and of `struct seccomp_metadata`.
    const WORD: usize = 8;
    const ALL: usize = 16;
    check_look(tracee)?;
    let size = value(size).min(ALL);
    if size < WORD {
        return Err(Errno::EINVAL);
    }
    let number = UserPtr::<u64>::new(at).read()?;
    let newest = newest(tracee)?;
    let filter = newest.numbered(value(number)).ok_or(Errno::ENOENT)?;
    let flags = if filter.logs() { LOG } else { 0 };
    let mut bytes = [0; ALL];
    bytes[..WORD].copy_from_slice(&number.to_ne_bytes());
    bytes[WORD..].copy_from_slice(&flags.to_ne_bytes());
    uaccess::copy_out(at, &bytes[..size])?;
    Ok(size)
}

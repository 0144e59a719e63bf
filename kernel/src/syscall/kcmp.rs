//! `kcmp(2)`: tells whether two tasks share a resource.

use super::Args;
use super::process::of_number;
use crate::fs::{FileTable, OpenFile};
use crate::process::caller;
use crate::process::task::{Process, find_task};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::others::LooksAs;
use logic::errno::{Errno, SysResult};
use machine::arch::random;

const FILE: i32 = 0;
const VM: i32 = 1;
const FILES: i32 = 2;
const FS: i32 = 3;
const SIGHAND: i32 = 4;
const IO: i32 = 5;
const SYSVSEM: i32 = 6;
const EPOLL_TFD: i32 = 7;

/// Compares two addresses by values that are mixed with a key, so that the order does not reveal
/// the addresses. Returns 0 if they are equal, 1 if `one` comes first, and 2 otherwise.
fn compare(one: u64, other: u64, kind: i32) -> usize {
    static KEY: AtomicU64 = AtomicU64::new(0);
    // Relaxed: the first caller sets it.
    if KEY.load(Ordering::Relaxed) == 0 {
        let mut bytes = [0; 8];
        random::fill(&mut bytes);
        let fresh = u64::from_ne_bytes(bytes) | 1;
        let _ = KEY.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
    }
    let key = KEY
        .load(Ordering::Relaxed)
        .wrapping_add(2 * u64::from(kind.unsigned_abs()));
    let mix = |address: u64| (address ^ key.rotate_left(17)).wrapping_mul(key);
    match mix(one).cmp(&mix(other)) {
        core::cmp::Ordering::Equal => 0,
        core::cmp::Ordering::Less => 1,
        core::cmp::Ordering::Greater => 2,
    }
}

fn address<T>(shared: &Arc<T>) -> u64 {
    Arc::as_ptr(shared).addr() as u64
}

fn files(process: &Process) -> Result<Arc<FileTable>, Errno> {
    process.files().ok_or(Errno::EBADF)
}

fn file(process: &Process, fd: u64) -> Result<Arc<OpenFile>, Errno> {
    let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
    files(process)?.get(fd)
}

/// `kcmp(2)`.
pub fn kcmp(a: &Args) -> SysResult {
    let number = |i: usize| {
        let number = u32::try_from(a.int(i)).map_err(|_| Errno::ESRCH)?;
        of_number(number)
    };
    let (one, other) = (number(0)?, number(1)?);
    let kind = a.int(2);
    caller::look_into(&one, LooksAs::Real)?;
    caller::look_into(&other, LooksAs::Real)?;
    // Resources of processes that have ended compare as equal.
    let of = |look: &dyn Fn(&Process) -> Option<u64>| {
        compare(look(&one).unwrap_or(0), look(&other).unwrap_or(0), kind)
    };
    match kind {
        FILE => {
            let (one, other) = (file(&one, a.0[3])?, file(&other, a.0[4])?);
            Ok(compare(address(&one), address(&other), kind))
        }
        VM => Ok(of(&|process| process.vm().as_ref().map(address))),
        FILES => Ok(of(&|process| process.files().as_ref().map(address))),
        FS => Ok(of(&|process| process.fs().as_ref().map(address))),
        SIGHAND => Ok(of(&|process| Some(address(&process.actions())))),
        // No process has an I/O context, so all compare as equal.
        IO => Ok(0),
        SYSVSEM => {
            let undo = |i: usize| {
                let tid = u32::try_from(a.int(i)).ok();
                let task = tid.and_then(find_task);
                task.map_or(0, |task| task.undo_mark())
            };
            Ok(compare(undo(0), undo(1), kind))
        }
        EPOLL_TFD => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

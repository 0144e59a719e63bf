//! Calls on System V semaphores.

use super::ipc::{IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, permissions, result, word};
use super::record::{SemBuf, SemDs, SemInfo};
use super::{Args, value};
use crate::process::ipc::sem::{self, LIMITS, Status};
use crate::process::ipc::{Owner, READ, WRITE};
use crate::process::time::values::Timespec;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::errno::{Errno, SysResult};
use logic::own::Token;
use logic::semaphores::{MAX_VALUE, Operation};
use machine::arch::clock::{self, Nanos};
use machine::uaccess::{self, UserPtr};
use zerocopy::{FromZeros, IntoBytes};

const SEM_UNDO: u32 = 0o10000;

/// `semget(2)`.
pub fn semget(a: &Args) -> SysResult {
    result(sem::get(a.int(0), a.int(1), a.uint(2))?)
}

/// Reads the `count` operations of a call from `address`. Fails with `EFAULT` for a bad address,
/// and with `ENOMEM`.
fn read_operations(address: u64, count: usize) -> Result<Box<[Operation]>, Errno> {
    let mut raw = Vec::new();
    raw.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    raw.resize(count, SemBuf::new_zeroed());
    uaccess::copy_in(raw.as_mut_slice().as_mut_bytes(), address)?;
    let mut operations = Vec::new();
    operations
        .try_reserve_exact(count)
        .map_err(|_| Errno::ENOMEM)?;
    operations.extend(raw.iter().map(|raw| Operation {
        semaphore: raw.semaphore,
        change: raw.change,
        nowait: u32::from(raw.flags) & IPC_NOWAIT != 0,
        undo: u32::from(raw.flags) & SEM_UNDO != 0,
    }));
    Ok(operations.into_boxed_slice())
}

fn operate(a: &Args, timeout: Option<Nanos>, token: &mut Token) -> SysResult {
    let count = u64::from(a.uint(2));
    if count > LIMITS.operations.load(Ordering::Relaxed) {
        return Err(Errno::E2BIG);
    }
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    let operations = read_operations(a.addr(1), value(count))?;
    let deadline = timeout.map(|timeout| clock::now().saturating_add(timeout));
    sem::operate(a.int(0), operations, deadline, token)?;
    Ok(0)
}

/// `semop(2)`.
pub fn semop(a: &Args, token: &mut Token) -> SysResult {
    operate(a, None, token)
}

/// `semtimedop(2)`.
pub fn semtimedop(a: &Args, token: &mut Token) -> SysResult {
    if a.addr(3) == 0 {
        return operate(a, None, token);
    }
    let timeout = UserPtr::<Timespec>::new(a.addr(3)).read()?;
    // As on Linux, an invalid timeout is reported only after the operations were read.
    let count = u64::from(a.uint(2));
    match timeout.to_nanos() {
        Ok(timeout) => operate(a, Some(timeout), token),
        Err(_) if count > LIMITS.operations.load(Ordering::Relaxed) => Err(Errno::E2BIG),
        Err(error) => {
            read_operations(a.addr(1), value(count))?;
            Err(error)
        }
    }
}

fn write_status(address: u64, status: &Status) -> Result<(), Errno> {
    UserPtr::new(address).write(&SemDs {
        owner: permissions(status.id, &status.owner),
        used: status.used,
        changed: status.owner.changed,
        count: status.count as u64,
        ..SemDs::new_zeroed()
    })
}

/// Writes the limits to the program, with Linux's constants for limits that it does not apply. If
/// `in_use` is set, writes the present numbers of sets and semaphores in place of two values.
/// Returns the highest place in use. Fails with `EFAULT` for a bad address.
fn write_limits(address: u64, in_use: bool) -> SysResult {
    const UNDO_SIZE: u32 = 20;
    let (sets, semaphores, highest) = sem::totals();
    // Relaxed: each a value of its own.
    let limit = |limit: &core::sync::atomic::AtomicU64| word(limit.load(Ordering::Relaxed));
    let most = u32::from(MAX_VALUE);
    UserPtr::new(address).write(&SemInfo {
        map: DEFAULT_ALL,
        most_sets: limit(&LIMITS.sets),
        most: limit(&LIMITS.all),
        most_undo: DEFAULT_ALL,
        most_of_set: limit(&LIMITS.of_set),
        most_operations: limit(&LIMITS.operations),
        undo_entries: 500,
        sets_or_undo_size: if in_use { word(sets as u64) } else { UNDO_SIZE },
        most_value: most,
        semaphores_or_adjustment: if in_use { word(semaphores) } else { most },
    })?;
    Ok(highest)
}

/// Linux's `SEMMNS`.
const DEFAULT_ALL: u32 = 32_000 * 32_000;

/// `semctl(2)`.
pub fn semctl(a: &Args) -> SysResult {
    const GETPID: i32 = 11;
    const GETVAL: i32 = 12;
    const GETALL: i32 = 13;
    const GETNCNT: i32 = 14;
    const GETZCNT: i32 = 15;
    const SETVAL: i32 = 16;
    const SETALL: i32 = 17;
    const SEM_STAT: i32 = 18;
    const SEM_INFO: i32 = 19;
    const SEM_STAT_ANY: i32 = 20;
    let (id, semaphore, command, buffer) = (a.int(0), a.int(1), a.int(2), a.addr(3));
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        IPC_INFO => write_limits(buffer, false),
        SEM_INFO => write_limits(buffer, true),
        IPC_STAT => {
            let status = sem::status(id)?;
            status.owner.check(READ)?;
            write_status(buffer, &status)?;
            Ok(0)
        }
        SEM_STAT | SEM_STAT_ANY => {
            let status = sem::status_at(id)?;
            if command == SEM_STAT {
                status.owner.check(READ)?;
            }
            write_status(buffer, &status)?;
            result(status.id)
        }
        GETALL => {
            sem::status(id)?.owner.check(READ)?;
            let values = sem::values(id)?;
            uaccess::copy_out(buffer, values.as_bytes())?;
            Ok(0)
        }
        SETALL => {
            let status = sem::status(id)?;
            status.owner.check(WRITE)?;
            let count = status.count;
            let mut values = Vec::new();
            values.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
            values.resize(count, 0_u16);
            uaccess::copy_in(values.as_mut_slice().as_mut_bytes(), buffer)?;
            sem::set_all(id, &values).map(|()| 0)
        }
        SETVAL => {
            let may = |owner: &Owner| owner.check(WRITE);
            sem::set_value(id, semaphore, a.int(3), may).map(|()| 0)
        }
        GETVAL | GETPID | GETNCNT | GETZCNT => {
            sem::status(id)?.owner.check(READ)?;
            let look = sem::look(id, semaphore)?;
            Ok(match command {
                GETVAL => look.value.into(),
                GETPID => look.pid as usize,
                GETNCNT => look.growing,
                _ => look.zero,
            })
        }
        IPC_SET => {
            let new = UserPtr::<SemDs>::new(buffer).read()?.owner;
            sem::status(id)?.owner.check_change()?;
            sem::set(id, [new.uid, new.gid], new.mode).map(|()| 0)
        }
        IPC_RMID => {
            sem::status(id)?.owner.check_change()?;
            sem::remove(id).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

//! Calls on System V shared memory.

use super::ipc::{IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, permissions, result};
use super::record::{ShmDs, ShmInfo, ShmLimits};
use super::{Args, value};
use crate::process;
use crate::process::ipc::READ;
use crate::process::ipc::shm::{self, LIMITS, Status};
use core::sync::atomic::Ordering;
use logic::errno::{Errno, SysResult};
use machine::uaccess::UserPtr;
use zerocopy::FromZeros;

/// `shmget(2)`.
pub fn shmget(a: &Args) -> SysResult {
    result(shm::get(a.int(0), a.0[1], a.uint(2))?)
}

/// `shmat(2)`.
pub fn shmat(a: &Args) -> SysResult {
    let space = process::current().vm().ok_or(Errno::EFAULT)?;
    Ok(value(shm::attach(&space, a.int(0), a.addr(1), a.uint(2))?))
}

/// `shmdt(2)`.
pub fn shmdt(a: &Args) -> SysResult {
    shm::detach(a.addr(0))?;
    Ok(0)
}

fn write_status(address: u64, status: &Status) -> Result<(), Errno> {
    let [attached, detached] = status.times;
    let [made_by, last_by] = status.pids;
    UserPtr::new(address).write(&ShmDs {
        owner: permissions(status.id, &status.owner),
        bytes: status.bytes,
        attached,
        detached,
        changed: status.owner.changed,
        made_by,
        last_by,
        attachments: status.attached,
        ..ShmDs::new_zeroed()
    })
}

/// `shmctl(2)`.
pub fn shmctl(a: &Args) -> SysResult {
    const SHM_LOCK: i32 = 11;
    const SHM_UNLOCK: i32 = 12;
    const SHM_STAT: i32 = 13;
    const SHM_INFO: i32 = 14;
    const SHM_STAT_ANY: i32 = 15;
    let (id, command, buffer) = (a.int(0), a.int(1), a.addr(2));
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        IPC_INFO => {
            // Relaxed: each a value of its own.
            let segments = LIMITS.segments.load(Ordering::Relaxed);
            UserPtr::new(buffer).write(&ShmLimits {
                most_bytes: LIMITS.bytes.load(Ordering::Relaxed),
                least_bytes: 1,
                most_segments: segments,
                most_attached: segments,
                most_pages: LIMITS.pages.load(Ordering::Relaxed),
                ..ShmLimits::new_zeroed()
            })?;
            Ok(shm::totals().highest)
        }
        SHM_INFO => {
            let totals = shm::totals();
            UserPtr::new(buffer).write(&ShmInfo {
                // Far fewer than 2^32.
                segments: u32::try_from(totals.segments).unwrap_or(u32::MAX),
                pages: totals.pages,
                resident: totals.resident,
                ..ShmInfo::new_zeroed()
            })?;
            Ok(totals.highest)
        }
        IPC_STAT => {
            let status = shm::status(id)?;
            status.owner.check(READ)?;
            write_status(buffer, &status)?;
            Ok(0)
        }
        SHM_STAT | SHM_STAT_ANY => {
            let status = shm::status_at(id)?;
            if command == SHM_STAT {
                status.owner.check(READ)?;
            }
            write_status(buffer, &status)?;
            result(status.id)
        }
        IPC_SET => {
            let new = UserPtr::<ShmDs>::new(buffer).read()?.owner;
            shm::set(id, [new.uid, new.gid], new.mode)?;
            Ok(0)
        }
        IPC_RMID => shm::remove(id).map(|()| 0),
        SHM_LOCK => shm::lock(id, true).map(|()| 0),
        SHM_UNLOCK => shm::lock(id, false).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

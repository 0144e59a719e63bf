//! Scheduling.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `sched_yield(2)`.
pub fn sched_yield(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_setaffinity(2)`.
pub fn sched_setaffinity(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_getaffinity(2)`.
pub fn sched_getaffinity(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_getscheduler(2)`.
pub fn sched_getscheduler(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_setscheduler(2)`.
pub fn sched_setscheduler(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_getparam(2)`.
pub fn sched_getparam(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_setparam(2)`.
pub fn sched_setparam(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_get_priority_max(2)`.
pub fn sched_get_priority_max(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_get_priority_min(2)`.
pub fn sched_get_priority_min(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_rr_get_interval(2)`.
pub fn sched_rr_get_interval(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_setattr(2)`.
pub fn sched_setattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sched_getattr(2)`.
pub fn sched_getattr(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getpriority(2)`.
pub fn getpriority(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setpriority(2)`.
pub fn setpriority(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getcpu(2)`.
pub fn getcpu(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `membarrier(2)`.
pub fn membarrier(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `rseq(2)`.
pub fn rseq(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `ioprio_get(2)`.
pub fn ioprio_get(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `ioprio_set(2)`.
pub fn ioprio_set(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

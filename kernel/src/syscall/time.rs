//! Clocks, sleeps and timers.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `nanosleep(2)`.
pub fn nanosleep(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `clock_nanosleep(2)`.
pub fn clock_nanosleep(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `clock_gettime(2)`.
pub fn clock_gettime(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `clock_settime(2)`.
pub fn clock_settime(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `clock_getres(2)`.
pub fn clock_getres(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `gettimeofday(2)`.
pub fn gettimeofday(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `settimeofday(2)`.
pub fn settimeofday(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `time(2)`.
pub fn time(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `times(2)`.
pub fn times(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `alarm(2)`.
pub fn alarm(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setitimer(2)`.
pub fn setitimer(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getitimer(2)`.
pub fn getitimer(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `timer_create(2)`.
pub fn timer_create(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `timer_settime(2)`.
pub fn timer_settime(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `timer_gettime(2)`.
pub fn timer_gettime(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `timer_getoverrun(2)`.
pub fn timer_getoverrun(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `timer_delete(2)`.
pub fn timer_delete(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `adjtimex(2)`.
pub fn adjtimex(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `clock_adjtime(2)`.
pub fn clock_adjtime(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

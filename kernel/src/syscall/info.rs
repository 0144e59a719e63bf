//! Identity, limits and facts about the system.

use super::Args;
use crate::errno::{Errno, SysResult};

/// `uname(2)`.
pub fn uname(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sysinfo(2)`.
pub fn sysinfo(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getrandom(2)`.
pub fn getrandom(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getrlimit(2)`.
pub fn getrlimit(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setrlimit(2)`.
pub fn setrlimit(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `prlimit64(2)`.
pub fn prlimit64(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getrusage(2)`.
pub fn getrusage(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getuid(2)`.
pub fn getuid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `geteuid(2)`.
pub fn geteuid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getgid(2)`.
pub fn getgid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getegid(2)`.
pub fn getegid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setuid(2)`.
pub fn setuid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setgid(2)`.
pub fn setgid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setreuid(2)`.
pub fn setreuid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setregid(2)`.
pub fn setregid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setresuid(2)`.
pub fn setresuid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getresuid(2)`.
pub fn getresuid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setresgid(2)`.
pub fn setresgid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getresgid(2)`.
pub fn getresgid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setfsuid(2)`.
pub fn setfsuid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setfsgid(2)`.
pub fn setfsgid(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `getgroups(2)`.
pub fn getgroups(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setgroups(2)`.
pub fn setgroups(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `capget(2)`.
pub fn capget(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `capset(2)`.
pub fn capset(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `sethostname(2)`.
pub fn sethostname(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `setdomainname(2)`.
pub fn setdomainname(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `syslog(2)`.
pub fn syslog(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `reboot(2)`.
pub fn reboot(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `vhangup(2)`.
pub fn vhangup(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

/// `acct(2)`.
pub fn acct(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}

//! Attributes that a process or thread sets for itself: `prctl(2)`, `arch_prctl(2)`,
//! `personality(2)`.

use super::{Args, seccomp};
use crate::process;
use crate::process::signal::MAX_SIGNAL;
use core::sync::atomic::Ordering;
use linux_raw_sys::prctl as raw_prctl;
use logic::credentials::{Capabilities, Credentials, SecureBits};
use logic::errno::{Errno, SysResult};
use logic::own::Token;
use machine::arch::{USER_END, cpu};
use machine::sched::work;
use machine::uaccess::{self, UserPtr};

/// The code of `arch_prctl` that sets the base of GS.
pub(super) const ARCH_SET_GS: u32 = 0x1001;
/// The code of `arch_prctl` that sets the base of FS.
pub(super) const ARCH_SET_FS: u32 = 0x1002;
/// The code of `arch_prctl` that stores the base of FS.
pub(super) const ARCH_GET_FS: u32 = 0x1003;
/// The code of `arch_prctl` that stores the base of GS.
pub(super) const ARCH_GET_GS: u32 = 0x1004;

/// `prctl(2)`, with the options that programs use. Other options fail with `EINVAL`.
pub fn prctl(a: &Args, token: &mut Token) -> SysResult {
    let current = process::current();
    let process = current.process();
    let write_int = |value: u32| UserPtr::<u32>::new(a.addr(1)).write(&value).map(|()| 0);
    match a.uint(0) {
        raw_prctl::PR_SET_NAME => {
            let mut name = [0; 15];
            let len = uaccess::copy_in_partial(&mut name, a.addr(1));
            let end = name[..len].iter().position(|&byte| byte == 0);
            if end.is_none() && len < name.len() {
                return Err(Errno::EFAULT);
            }
            current.set_name(&name[..end.unwrap_or(len)]);
            Ok(0)
        }
        raw_prctl::PR_GET_NAME => {
            uaccess::copy_out(a.addr(1), current.name().padded())?;
            Ok(0)
        }
        raw_prctl::PR_SET_PDEATHSIG => {
            if a.addr(1) > u64::from(MAX_SIGNAL) {
                return Err(Errno::EINVAL);
            }
            process::task::set_death_signal(process, a.uint(1));
            Ok(0)
        }
        raw_prctl::PR_GET_PDEATHSIG => write_int(process.death_signal.load(Ordering::Relaxed)),
        raw_prctl::PR_SET_DUMPABLE => {
            if a.addr(1) > 1 {
                return Err(Errno::EINVAL);
            }
            process.dumpable.store(a.uint(1), Ordering::Relaxed);
            Ok(0)
        }
        raw_prctl::PR_GET_DUMPABLE => Ok(process.dumpable.load(Ordering::Relaxed) as usize),
        // Each process may trace the other processes of its user anyway, so this only checks that
        // the process exists.
        raw_prctl::PR_SET_PTRACER => match a.int(1) {
            0 | -1 => Ok(0),
            pid => {
                let pid = u32::try_from(pid).map_err(|_| Errno::EINVAL)?;
                let there = process::task::find_task(pid).is_some();
                if there { Ok(0) } else { Err(Errno::EINVAL) }
            }
        },
        raw_prctl::PR_SET_CHILD_SUBREAPER => {
            process.subreaper.store(a.addr(1) != 0, Ordering::Relaxed);
            Ok(0)
        }
        raw_prctl::PR_GET_CHILD_SUBREAPER => {
            write_int(u32::from(process.subreaper.load(Ordering::Relaxed)))
        }
        raw_prctl::PR_SET_NO_NEW_PRIVS => {
            if a.addr(1) != 1 || a.addr(2) != 0 || a.addr(3) != 0 || a.addr(4) != 0 {
                return Err(Errno::EINVAL);
            }
            let own = Credentials::clone(&current.credentials());
            let bound = Credentials {
                no_new_privileges: true,
                ..own
            };
            current.act_as(bound, token);
            Ok(0)
        }
        raw_prctl::PR_GET_NO_NEW_PRIVS => {
            if a.addr(1) != 0 || a.addr(2) != 0 || a.addr(3) != 0 || a.addr(4) != 0 {
                return Err(Errno::EINVAL);
            }
            Ok(current.credentials().no_new_privileges.into())
        }
        raw_prctl::PR_SET_TIMERSLACK => {
            current.set_timer_slack(a.addr(1));
            Ok(0)
        }
        raw_prctl::PR_GET_TIMERSLACK => Ok(super::value(current.timer_slack())),
        raw_prctl::PR_SET_THP_DISABLE => {
            if a.addr(2) != 0 || a.addr(3) != 0 || a.addr(4) != 0 {
                return Err(Errno::EINVAL);
            }
            let space = current.vm().ok_or(Errno::EINVAL)?;
            space.decline_huge_pages(a.addr(1) != 0);
            Ok(0)
        }
        raw_prctl::PR_GET_THP_DISABLE => {
            if a.addr(1) != 0 || a.addr(2) != 0 || a.addr(3) != 0 || a.addr(4) != 0 {
                return Err(Errno::EINVAL);
            }
            Ok(current
                .vm()
                .is_some_and(|vm| vm.declines_huge_pages())
                .into())
        }
        raw_prctl::PR_SET_KEEPCAPS => {
            if a.addr(1) > 1 {
                return Err(Errno::EINVAL);
            }
            let new = current.credentials().with_kept_capabilities(a.addr(1) == 1);
            current.act_as(new?, token);
            Ok(0)
        }
        raw_prctl::PR_GET_KEEPCAPS => {
            let bits = current.credentials().secure_bits;
            Ok(bits.contains(SecureBits::KEEP_CAPS).into())
        }
        raw_prctl::PR_SET_SECUREBITS => {
            let new = current.credentials().with_secure_bits(a.addr(1));
            current.act_as(new?, token);
            Ok(0)
        }
        raw_prctl::PR_GET_SECUREBITS => Ok(current.credentials().secure_bits.bits() as usize),
        raw_prctl::PR_GET_SPECULATION_CTRL => speculation(a),
        raw_prctl::PR_SET_SPECULATION_CTRL => set_speculation(a),
        raw_prctl::PR_GET_SECCOMP => Ok(current.confinement().number()),
        raw_prctl::PR_SET_SECCOMP => seccomp::set_mode(a),
        // As on Linux, only statistical times can be selected. Times are exact nevertheless.
        raw_prctl::PR_GET_TIMING => Ok(0),
        raw_prctl::PR_SET_TIMING if a.addr(1) == raw_prctl::PR_TIMING_STATISTICAL.into() => Ok(0),
        raw_prctl::PR_GET_TSC => write_int(if current.work() & work::NO_TSC == 0 {
            raw_prctl::PR_TSC_ENABLE
        } else {
            raw_prctl::PR_TSC_SIGSEGV
        }),
        raw_prctl::PR_SET_TSC => {
            match a.uint(1) {
                raw_prctl::PR_TSC_ENABLE => current.clear_work(work::NO_TSC),
                raw_prctl::PR_TSC_SIGSEGV => current.add_work(work::NO_TSC),
                _ => return Err(Errno::EINVAL),
            }
            // Every switch to another task does the same.
            cpu::allow_user_tsc(current.work() & work::NO_TSC == 0);
            Ok(0)
        }
        raw_prctl::PR_CAPBSET_READ => {
            let asked = Capabilities::numbered(a.addr(1)).ok_or(Errno::EINVAL)?;
            Ok(current.credentials().bounding.contains(asked).into())
        }
        raw_prctl::PR_CAPBSET_DROP => {
            let own = Credentials::clone(&current.credentials());
            own.need(Capabilities::SETPCAP)?;
            let dropped = Capabilities::numbered(a.addr(1)).ok_or(Errno::EINVAL)?;
            let less = Credentials {
                bounding: own.bounding.without(dropped),
                ..own
            };
            current.act_as(less, token);
            Ok(0)
        }
        raw_prctl::PR_CAP_AMBIENT => ambient(a, token),
        _ => Err(Errno::EINVAL),
    }
}

/// `PR_GET_SPECULATION_CTRL`. Speculation is always enabled, and the flush of the first-level data
/// cache always disabled. Fails with `EINVAL` for further arguments, and with `ENODEV` for another
/// feature.
fn speculation(a: &Args) -> SysResult {
    if a.addr(2) != 0 || a.addr(3) != 0 || a.addr(4) != 0 {
        return Err(Errno::EINVAL);
    }
    match a.uint(1) {
        raw_prctl::PR_SPEC_STORE_BYPASS | raw_prctl::PR_SPEC_INDIRECT_BRANCH => {
            Ok(raw_prctl::PR_SPEC_ENABLE as usize)
        }
        raw_prctl::PR_SPEC_L1D_FLUSH => Ok(raw_prctl::PR_SPEC_FORCE_DISABLE as usize),
        _ => Err(Errno::ENODEV),
    }
}

/// `PR_SET_SPECULATION_CTRL`. Changes nothing. The errors are those of a Linux without mitigations.
fn set_speculation(a: &Args) -> SysResult {
    if a.addr(3) != 0 || a.addr(4) != 0 {
        return Err(Errno::EINVAL);
    }
    match (a.uint(1), a.uint(2)) {
        (raw_prctl::PR_SPEC_STORE_BYPASS, _) => Err(Errno::ENXIO),
        (raw_prctl::PR_SPEC_INDIRECT_BRANCH, raw_prctl::PR_SPEC_ENABLE) => Ok(0),
        (
            raw_prctl::PR_SPEC_INDIRECT_BRANCH,
            raw_prctl::PR_SPEC_DISABLE | raw_prctl::PR_SPEC_FORCE_DISABLE,
        )
        | (raw_prctl::PR_SPEC_L1D_FLUSH, _) => Err(Errno::EPERM),
        (raw_prctl::PR_SPEC_INDIRECT_BRANCH, _) => Err(Errno::ERANGE),
        _ => Err(Errno::ENODEV),
    }
}

/// `PR_CAP_AMBIENT`: reads or changes the capabilities that a thread keeps when it executes a
/// program. Returns 0 or, for `PR_CAP_AMBIENT_IS_SET`, whether the set has the capability. Fails
/// with `EINVAL` for bad arguments, and with `EPERM` if a capability may not be added.
fn ambient(a: &Args, token: &mut Token) -> SysResult {
    let current = process::current();
    let own = Credentials::clone(&current.credentials());
    let rest = [a.addr(3), a.addr(4)];
    let ambient = match a.uint(1) {
        raw_prctl::PR_CAP_AMBIENT_CLEAR_ALL if a.addr(2) == 0 && rest == [0; 2] => {
            Capabilities::NONE
        }
        how => {
            let one = Capabilities::numbered(a.addr(2)).filter(|_| rest == [0; 2]);
            let one = one.ok_or(Errno::EINVAL)?;
            match how {
                raw_prctl::PR_CAP_AMBIENT_IS_SET => {
                    return Ok(own.ambient.contains(one).into());
                }
                raw_prctl::PR_CAP_AMBIENT_RAISE => own.with_ambient(one)?.ambient,
                raw_prctl::PR_CAP_AMBIENT_LOWER => own.ambient.without(one),
                _ => return Err(Errno::EINVAL),
            }
        }
    };
    current.act_as(Credentials { ambient, ..own }, token);
    Ok(0)
}

/// `arch_prctl(2)`.
pub fn arch_prctl(a: &Args) -> SysResult {
    const GET_CPUID: u32 = 0x1011;
    const SET_CPUID: u32 = 0x1012;
    let current = process::current();
    let user = current.user_state().ok_or(Errno::EPERM)?;
    let address = a.addr(1);
    match a.uint(0) {
        ARCH_SET_FS | ARCH_SET_GS if address >= USER_END => Err(Errno::EPERM),
        ARCH_SET_FS => {
            user.set_fs_base(address);
            Ok(0)
        }
        ARCH_SET_GS => {
            user.set_gs_base(address);
            Ok(0)
        }
        ARCH_GET_FS => {
            let base = user.fs_base();
            UserPtr::<u64>::new(address).write(&base).map(|()| 0)
        }
        ARCH_GET_GS => {
            let base = user.gs_base();
            UserPtr::<u64>::new(address).write(&base).map(|()| 0)
        }
        // The instruction always works, and no CPU here can be made to fault on it.
        GET_CPUID => Ok(1),
        SET_CPUID => Err(Errno::ENODEV),
        _ => Err(Errno::EINVAL),
    }
}

/// `personality(2)`. Stores the personality, except for `0xffff_ffff`, and returns the previous
/// one. As on Linux for x86-64, `PER_LINUX32` changes the machine's name in `uname(2)`, and
/// `ADDR_NO_RANDOMIZE` fixes the addresses of the next program.
pub fn personality(a: &Args) -> SysResult {
    const QUERY: u32 = 0xffff_ffff;
    let process = process::current().process().clone();
    let old = process.personality.load(Ordering::Relaxed);
    if a.uint(0) != QUERY {
        process.personality.store(a.uint(0), Ordering::Relaxed);
    }
    Ok(old as usize)
}

//! Users, groups and capabilities: numbers are kept and shown, and refuse nothing.

use super::Args;
use crate::process;
use crate::process::task::{self, Credentials};
use crate::vm::uaccess::{self, UserPtr};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::errno::{Errno, SysResult};
use zerocopy::IntoBytes;

fn credentials() -> Credentials {
    process::current().process().credentials()
}

/// `getuid(2)`.
pub fn getuid(_a: &Args) -> SysResult {
    Ok(credentials().uid[0] as usize)
}

/// `geteuid(2)`.
pub fn geteuid(_a: &Args) -> SysResult {
    Ok(credentials().uid[1] as usize)
}

/// `getgid(2)`.
pub fn getgid(_a: &Args) -> SysResult {
    Ok(credentials().gid[0] as usize)
}

/// `getegid(2)`.
pub fn getegid(_a: &Args) -> SysResult {
    Ok(credentials().gid[1] as usize)
}

/// "Leave it as it is" in the calls below.
const KEEP: u32 = u32::MAX;

/// Changes the numbers. Where others are in force afterwards the process leaves no core file any more: it may hold
/// what is not its new owner's.
fn change<R>(set: impl FnOnce(&mut Credentials) -> R) -> R {
    let in_force = |own: &Credentials| [own.uid[1], own.gid[1], own.file_uid, own.file_gid];
    let task = process::current();
    let process = task.process();
    let mut own = process.credentials.lock();
    let before = in_force(&own);
    let result = set(&mut own);
    if in_force(&own) != before {
        process.dumpable.store(0, Ordering::Relaxed);
    }
    result
}

/// Real, effective, saved with those that are given.
fn replaced(ids: [u32; 3], new: [u32; 3]) -> [u32; 3] {
    let mut all = ids;
    for (id, new) in all.iter_mut().zip(new) {
        if new != KEEP {
            *id = new;
        }
    }
    all
}

/// `setuid(2)`: numbers are kept and reported, not enforced.
pub fn setuid(a: &Args) -> SysResult {
    if a.uint(0) == KEEP {
        return Err(Errno::EINVAL);
    }
    change(|own| own.set_users([a.uint(0); 3]));
    Ok(0)
}

/// `setgid(2)`.
pub fn setgid(a: &Args) -> SysResult {
    if a.uint(0) == KEEP {
        return Err(Errno::EINVAL);
    }
    change(|own| own.set_groups([a.uint(0); 3]));
    Ok(0)
}

/// `setreuid(2)`.
pub fn setreuid(a: &Args) -> SysResult {
    change(|own| own.set_users(replaced(own.uid, [a.uint(0), a.uint(1), a.uint(1)])));
    Ok(0)
}

/// `setregid(2)`.
pub fn setregid(a: &Args) -> SysResult {
    change(|own| own.set_groups(replaced(own.gid, [a.uint(0), a.uint(1), a.uint(1)])));
    Ok(0)
}

/// `setresuid(2)`.
pub fn setresuid(a: &Args) -> SysResult {
    change(|own| own.set_users(replaced(own.uid, [a.uint(0), a.uint(1), a.uint(2)])));
    Ok(0)
}

/// `setresgid(2)`.
pub fn setresgid(a: &Args) -> SysResult {
    change(|own| own.set_groups(replaced(own.gid, [a.uint(0), a.uint(1), a.uint(2)])));
    Ok(0)
}

fn write_three(a: &Args, ids: [u32; 3]) -> SysResult {
    for (i, id) in ids.into_iter().enumerate() {
        UserPtr::<u32>::new(a.addr(i)).write(&id)?;
    }
    Ok(0)
}

/// `getresuid(2)`.
pub fn getresuid(a: &Args) -> SysResult {
    write_three(a, credentials().uid)
}

/// `getresgid(2)`.
pub fn getresgid(a: &Args) -> SysResult {
    write_three(a, credentials().gid)
}

/// `setfsuid(2)`: gives the old one.
pub fn setfsuid(a: &Args) -> SysResult {
    let new = a.uint(0);
    let old = change(|own| {
        if new == KEEP {
            own.file_uid
        } else {
            core::mem::replace(&mut own.file_uid, new)
        }
    });
    Ok(old as usize)
}

/// `setfsgid(2)`: gives the old one.
pub fn setfsgid(a: &Args) -> SysResult {
    let new = a.uint(0);
    let old = change(|own| {
        if new == KEEP {
            own.file_gid
        } else {
            core::mem::replace(&mut own.file_gid, new)
        }
    });
    Ok(old as usize)
}

/// `getgroups(2)`.
pub fn getgroups(a: &Args) -> SysResult {
    let room = usize::try_from(a.int(0)).map_err(|_| Errno::EINVAL)?;
    let groups = process::current().process().supplementary_groups();
    if room != 0 {
        if groups.len() > room {
            return Err(Errno::EINVAL);
        }
        uaccess::copy_out(a.addr(1), groups.as_bytes())?;
    }
    Ok(groups.len())
}

/// `setgroups(2)`.
pub fn setgroups(a: &Args) -> SysResult {
    const MAX_GROUPS: usize = 65536;
    let count = a.uint(0) as usize;
    if count > MAX_GROUPS {
        return Err(Errno::EINVAL);
    }
    let mut groups = Vec::new();
    groups.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    groups.resize(count, 0_u32);
    uaccess::copy_in(groups.as_mut_slice().as_mut_bytes(), a.addr(1))?;
    groups.sort_unstable();
    let task = process::current();
    task.process().set_supplementary_groups(Arc::from(groups));
    Ok(0)
}

/// Linux's `_LINUX_CAPABILITY_VERSION_1` to `_3`.
const VERSIONS: [u32; 3] = [0x1998_0330, 0x2007_1026, 0x2008_0522];
/// All capabilities of Linux 6.1, low and high word.
const ALL_CAPABILITIES: [u32; 2] = [u32::MAX, 0x1ff];

/// Reads the header of the two calls below: how many words a set has, and whose it is. The version
/// that is wanted goes to where an unknown one was.
fn capability_header(a: &Args) -> Result<Option<(usize, i32)>, Errno> {
    let header = UserPtr::<[u32; 2]>::new(a.addr(0));
    let [version, pid] = header.read()?;
    match VERSIONS.iter().position(|&known| known == version) {
        None => {
            header.write(&[VERSIONS[2], pid])?;
            Ok(None)
        }
        Some(0) => Ok(Some((1, pid.cast_signed()))),
        Some(_) => Ok(Some((2, pid.cast_signed()))),
    }
}

/// `capget(2)`: everybody has all capabilities.
pub fn capget(a: &Args) -> SysResult {
    let data = a.addr(1);
    let Some((words, pid)) = capability_header(a)? else {
        return if data == 0 { Ok(0) } else { Err(Errno::EINVAL) };
    };
    let pid = u32::try_from(pid).map_err(|_| Errno::EINVAL)?;
    if pid != 0 {
        task::find_task(pid).ok_or(Errno::ESRCH)?;
    }
    if data != 0 {
        for (place, word) in ALL_CAPABILITIES.into_iter().take(words).enumerate() {
            let at = data.wrapping_add((place * size_of::<[u32; 3]>()) as u64);
            UserPtr::<[u32; 3]>::new(at).write(&[word, word, 0])?;
        }
    }
    Ok(0)
}

/// `capset(2)`: nobody can be without one.
pub fn capset(a: &Args) -> SysResult {
    let (words, pid) = capability_header(a)?.ok_or(Errno::EINVAL)?;
    let own = process::current();
    let of_caller = [0, own.tid()].map(u32::cast_signed).contains(&pid);
    if !of_caller {
        return Err(Errno::EPERM);
    }
    let mut same = true;
    for (place, word) in ALL_CAPABILITIES.into_iter().take(words).enumerate() {
        let at = a
            .addr(1)
            .wrapping_add((place * size_of::<[u32; 3]>()) as u64);
        let [effective, permitted, inheritable] = UserPtr::<[u32; 3]>::new(at).read()?;
        // Bits that Linux does not know are dropped.
        same &= effective & word == word && permitted & word == word && inheritable & word == 0;
    }
    if same { Ok(0) } else { Err(Errno::EPERM) }
}

//! Users, groups and capabilities.

use super::Args;
use crate::process;
use crate::process::task::Scheduled;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::credentials::changes::Change;
use logic::credentials::{Capabilities, Credentials, Ids};
use logic::errno::{Errno, SysResult};
use logic::own::Token;
use machine::uaccess::{self, UserPtr};
use zerocopy::IntoBytes;

fn users() -> Ids {
    process::current().users()
}

fn groups() -> Ids {
    process::current().groups()
}

/// `getuid(2)`.
pub fn getuid(_a: &Args) -> SysResult {
    Ok(users().real as usize)
}

/// `geteuid(2)`.
pub fn geteuid(_a: &Args) -> SysResult {
    Ok(users().effective as usize)
}

/// `getgid(2)`.
pub fn getgid(_a: &Args) -> SysResult {
    Ok(groups().real as usize)
}

/// `getegid(2)`.
pub fn getegid(_a: &Args) -> SysResult {
    Ok(groups().effective as usize)
}

fn change_users(change: Change, token: &mut Token) -> SysResult {
    let task = process::current();
    let new = task.credentials().with_users(change)?;
    task.act_as(new, token);
    Ok(0)
}

fn change_groups(change: Change, token: &mut Token) -> SysResult {
    let task = process::current();
    let new = task.credentials().with_groups(change)?;
    task.act_as(new, token);
    Ok(0)
}

/// `setuid(2)`.
pub fn setuid(a: &Args, token: &mut Token) -> SysResult {
    change_users(Change::One(a.uint(0)), token)
}

/// `setgid(2)`.
pub fn setgid(a: &Args, token: &mut Token) -> SysResult {
    change_groups(Change::One(a.uint(0)), token)
}

/// `setreuid(2)`.
pub fn setreuid(a: &Args, token: &mut Token) -> SysResult {
    change_users(Change::Two(a.uint(0), a.uint(1)), token)
}

/// `setregid(2)`.
pub fn setregid(a: &Args, token: &mut Token) -> SysResult {
    change_groups(Change::Two(a.uint(0), a.uint(1)), token)
}

/// `setresuid(2)`.
pub fn setresuid(a: &Args, token: &mut Token) -> SysResult {
    change_users(Change::Three([a.uint(0), a.uint(1), a.uint(2)]), token)
}

/// `setresgid(2)`.
pub fn setresgid(a: &Args, token: &mut Token) -> SysResult {
    change_groups(Change::Three([a.uint(0), a.uint(1), a.uint(2)]), token)
}

fn write_three(a: &Args, ids: Ids) -> SysResult {
    for (i, id) in ids.three().into_iter().enumerate() {
        UserPtr::<u32>::new(a.addr(i)).write(&id)?;
    }
    Ok(0)
}

/// `getresuid(2)`.
pub fn getresuid(a: &Args) -> SysResult {
    write_three(a, users())
}

/// `getresgid(2)`.
pub fn getresgid(a: &Args) -> SysResult {
    write_three(a, groups())
}

/// `setfsuid(2)`. Returns the previous ID, also if the caller may not change it.
pub fn setfsuid(a: &Args, token: &mut Token) -> SysResult {
    let task = process::current();
    let old = task.users().file;
    let new = task.credentials().with_file_user(a.uint(0));
    if let Some(new) = new {
        task.act_as(new, token);
    }
    Ok(old as usize)
}

/// `setfsgid(2)`. Returns the previous ID, also if the caller may not change it.
pub fn setfsgid(a: &Args, token: &mut Token) -> SysResult {
    let task = process::current();
    let old = task.groups().file;
    let new = task.credentials().with_file_group(a.uint(0));
    if let Some(new) = new {
        task.act_as(new, token);
    }
    Ok(old as usize)
}

/// `getgroups(2)`.
pub fn getgroups(a: &Args) -> SysResult {
    let room = usize::try_from(a.int(0)).map_err(|_| Errno::EINVAL)?;
    let groups = process::current().credentials().supplementary.clone();
    if room != 0 {
        if groups.len() > room {
            return Err(Errno::EINVAL);
        }
        uaccess::copy_out(a.addr(1), groups.as_bytes())?;
    }
    Ok(groups.len())
}

/// `setgroups(2)`.
pub fn setgroups(a: &Args, token: &mut Token) -> SysResult {
    const MAX_GROUPS: usize = 65536;
    let task = process::current();
    task.credentials().need(Capabilities::SETGID)?;
    let count = a.uint(0) as usize;
    if count > MAX_GROUPS {
        return Err(Errno::EINVAL);
    }
    let mut groups = Vec::new();
    groups.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    groups.resize(count, 0_u32);
    uaccess::copy_in(groups.as_mut_slice().as_mut_bytes(), a.addr(1))?;
    if groups.contains(&u32::MAX) {
        return Err(Errno::EINVAL);
    }
    groups.sort_unstable();
    let new = Credentials {
        supplementary: Arc::from(groups),
        ..Credentials::clone(&task.credentials())
    };
    task.act_as(new, token);
    Ok(0)
}

/// Linux's `_LINUX_CAPABILITY_VERSION_1` to `_3`.
const VERSIONS: [u32; 3] = [0x1998_0330, 0x2007_1026, 0x2008_0522];

/// Reads the header of `capget` and `capset`. Returns the number of words of a set, and the number
/// of the thread. If the version is unknown, writes the preferred version to the header and returns
/// `None`. Fails with `EFAULT` for a bad address.
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

/// Returns the place of word `place` of each set.
fn capability_words(a: &Args, place: usize) -> UserPtr<[u32; 3]> {
    let offset = (place * size_of::<[u32; 3]>()) as u64;
    UserPtr::new(a.addr(1).wrapping_add(offset))
}

/// `capget(2)`.
pub fn capget(a: &Args) -> SysResult {
    let data = a.addr(1);
    let Some((words, pid)) = capability_header(a)? else {
        return if data == 0 { Ok(0) } else { Err(Errno::EINVAL) };
    };
    let pid = u32::try_from(pid).map_err(|_| Errno::EINVAL)?;
    let who = match pid {
        0 => process::current().credentials(),
        pid => Scheduled::find(pid).ok_or(Errno::ESRCH)?.credentials(),
    };
    if data != 0 {
        let sets = [who.effective, who.permitted, who.inheritable];
        for place in 0..words {
            let word = sets.map(|set| {
                // One half of the set.
                u32::try_from(set.0 >> (32 * place) & u64::from(u32::MAX)).unwrap_or(0)
            });
            capability_words(a, place).write(&word)?;
        }
    }
    Ok(0)
}

/// `capset(2)`.
pub fn capset(a: &Args, token: &mut Token) -> SysResult {
    let (words, pid) = capability_header(a)?.ok_or(Errno::EINVAL)?;
    let own = process::current();
    let of_caller = [0, own.tid()].map(u32::cast_signed).contains(&pid);
    if !of_caller {
        return Err(Errno::EPERM);
    }
    let mut sets = [0; 3];
    for place in 0..words {
        let word = capability_words(a, place).read()?;
        for (set, word) in sets.iter_mut().zip(word) {
            *set |= u64::from(word) << (32 * place);
        }
    }
    // Bits that Linux does not know are dropped.
    let [effective, permitted, inheritable] = sets.map(|set| Capabilities(set) & Capabilities::ALL);
    let new = own
        .credentials()
        .with_capabilities(effective, permitted, inheritable)?;
    own.act_as(new, token);
    Ok(0)
}

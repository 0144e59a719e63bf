//! Calls that mount and unmount.

use super::Args;
use super::at;
use crate::fs::lookup::LastLink;
use crate::fs::mounts::{self, When};
use crate::fs::volume::MountFlags;
use crate::process::caller;
use alloc::vec::Vec;
use linux_raw_sys::general as abi;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::memory::PAGE_SIZE;
use machine::uaccess;

/// The value that programs for Linux before 2.4 pass in the upper half of the flags.
const MAGIC: u32 = abi::MS_MGC_VAL;
/// Flags that change the propagation of mounts. There is one namespace, so they have no effect.
const PROPAGATION: u32 = abi::MS_SHARED | abi::MS_PRIVATE | abi::MS_SLAVE | abi::MS_UNBINDABLE;
/// Flags that do here what they do on Linux. The others are refused.
const KNOWN: u32 = MountFlags::all().bits()
    | abi::MS_STRICTATIME
    | abi::MS_SILENT
    | abi::MS_REMOUNT
    | abi::MS_BIND
    | PROPAGATION
    | abi::MS_REC;

/// Reads a string of less than a page. Returns `None` for a null pointer. Fails with `EINVAL` if
/// the string is longer, and with `EFAULT`.
fn string(address: u64) -> Result<Option<Vec<u8>>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let string = uaccess::read_cstr(address, PAGE_SIZE);
    string.map(Some).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        other => other,
    })
}

/// Reads the options: the bytes up to a NUL, to the length of a page, or to the end of the readable
/// memory. Returns no bytes for a null pointer. Fails with `EFAULT` if no byte can be read, and
/// with `ENOMEM`.
fn options(address: u64) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    if address == 0 {
        return Ok(text);
    }
    text.try_reserve_exact(PAGE_SIZE)
        .map_err(|_| Errno::ENOMEM)?;
    text.resize(PAGE_SIZE - 1, 0);
    let there = uaccess::copy_in_partial(&mut text, address);
    if there == 0 {
        return Err(Errno::EFAULT);
    }
    let end = text[..there].iter().position(|&byte| byte == 0);
    text.truncate(end.unwrap_or(there));
    Ok(text)
}

/// Returns the flags of a mount for the `flags` of the call. If they do not mention access times,
/// those of the existing mount `before` are kept.
fn mount_flags(flags: u32, before: Option<MountFlags>) -> MountFlags {
    let mut mount = MountFlags::from_bits_truncate(flags);
    let times = MountFlags::TIMES.bits() | abi::MS_STRICTATIME;
    if let Some(before) = before.filter(|_| flags & times == 0) {
        return (mount - MountFlags::TIMES) | (before & MountFlags::TIMES);
    }
    mount.set(
        MountFlags::RELATIVE_TIMES,
        flags & (abi::MS_NOATIME | abi::MS_STRICTATIME) == 0,
    );
    if flags & abi::MS_STRICTATIME != 0 {
        mount -= MountFlags::NO_ACCESS_TIMES;
    }
    mount
}

/// `mount(2)`.
pub fn mount(a: &Args) -> SysResult {
    let kind = string(a.addr(2))?;
    let source = string(a.addr(0))?.unwrap_or_default();
    let options = options(a.addr(4))?;
    let found = at::find(abi::AT_FDCWD, a.addr(1), LastLink::Follow)?;
    let place = found.place();
    let point = found.existing()?;
    caller::need(Capabilities::SYS_ADMIN)?;
    let mut flags = a.uint(3);
    if flags & abi::MS_MGC_MSK == MAGIC {
        flags &= !abi::MS_MGC_MSK;
    }
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let bind = flags & abi::MS_BIND != 0;
    if flags & abi::MS_REMOUNT != 0 {
        // With `MS_BIND` the mount alone changes.
        let options = (!bind).then_some(&options[..]);
        mounts::remount(&point, |before| mount_flags(flags, Some(before)), options)?;
        return Ok(0);
    }
    if bind {
        if source.is_empty() {
            return Err(Errno::EINVAL);
        }
        let found = at::find(abi::AT_FDCWD, a.addr(0), LastLink::Follow)?;
        let origin = found.place();
        // As on Linux, the mount takes its other flags from the source.
        let recursive = flags & abi::MS_REC != 0;
        mounts::bind((found.existing()?, origin), (point, place), recursive)?;
        return Ok(0);
    }
    if flags & PROPAGATION != 0 {
        // All mounts are private already.
        let all_is_said = flags & !(abi::MS_PRIVATE | abi::MS_REC | abi::MS_SILENT) == 0;
        return if all_is_said && mounts::is_mounted(&point) {
            Ok(0)
        } else {
            Err(Errno::EINVAL)
        };
    }
    let kind = kind.ok_or(Errno::EINVAL)?;
    mounts::mount(&kind, &source, point, mount_flags(flags, None), &options)?;
    Ok(0)
}

/// `umount2(2)`.
pub fn umount2(a: &Args) -> SysResult {
    use abi::{
        MNT_DETACH as DETACH, MNT_EXPIRE as EXPIRE, MNT_FORCE as FORCE,
        UMOUNT_NOFOLLOW as NO_FOLLOW,
    };
    let flags = a.uint(1);
    if flags & !(FORCE | DETACH | EXPIRE | NO_FOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let last_link = if flags & NO_FOLLOW != 0 {
        LastLink::Keep
    } else {
        LastLink::Follow
    };
    let top = at::find(abi::AT_FDCWD, a.addr(0), last_link)?.existing()?;
    caller::need(Capabilities::SYS_ADMIN)?;
    if !mounts::is_mounted(&top) || flags & EXPIRE != 0 && flags & (FORCE | DETACH) != 0 {
        return Err(Errno::EINVAL);
    }
    // `MNT_FORCE` has no effect: no task waits for a file system in memory.
    let when = match flags & (DETACH | EXPIRE) {
        DETACH => When::Now,
        EXPIRE => When::Idle,
        _ => When::Unused,
    };
    mounts::unmount(&top, when)?;
    Ok(0)
}

/// `pivot_root(2)`. Not supported: fails with `EPERM`.
pub fn pivot_root(_a: &Args) -> SysResult {
    Err(Errno::EPERM)
}

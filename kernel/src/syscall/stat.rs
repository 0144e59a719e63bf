//! Calls on the attributes of files.

use super::Args;
use super::at::{self, Target};
use super::record::{Stat, StatFs, Statx, StatxTime, Time};
use crate::fs::devices;
use crate::fs::lookup::LastLink;
use crate::fs::node::{AttributeChange, Node, change_by, mount_number};
use crate::fs::volume::MountFlags;
use crate::fs::watch::Events;
use crate::fs::{FileKind, NodeRef, Timestamp, permission};
use crate::process::{self, caller};
use linux_raw_sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW,
    STATX__RESERVED, STATX_BASIC_STATS, STATX_MNT_ID, UTIME_NOW, UTIME_OMIT,
};
use logic::credentials::{Capabilities, Credentials, Wanted};
use logic::errno::{Errno, SysResult};
use machine::uaccess::UserPtr;
use zerocopy::FromZeros;

fn last_link(flags: u32) -> LastLink {
    if flags & AT_SYMLINK_NOFOLLOW != 0 {
        LastLink::Keep
    } else {
        LastLink::Follow
    }
}

fn write_stat(address: u64, node: &dyn Node) -> SysResult {
    let metadata = node.metadata();
    let time = |time: Timestamp| [time.seconds.cast_unsigned(), time.nanos.into()];
    UserPtr::new(address).write(&Stat {
        device: metadata.id.device,
        inode: metadata.id.inode,
        links: metadata.links.into(),
        mode: metadata.mode(),
        uid: metadata.uid,
        gid: metadata.gid,
        rdev: metadata.rdev,
        size: metadata.size,
        block_size: node.block_size().into(),
        blocks: metadata.blocks,
        accessed: time(metadata.accessed),
        modified: time(metadata.modified),
        changed: time(metadata.changed),
        ..Stat::new_zeroed()
    })?;
    Ok(0)
}

fn stat_path(fd: i32, path: u64, address: u64, flags: u32) -> SysResult {
    let target = at::target(fd, path, flags, last_link(flags))?;
    write_stat(address, &**target.node())
}

/// `stat(2)`.
pub fn stat(a: &Args) -> SysResult {
    stat_path(AT_FDCWD, a.addr(0), a.addr(1), 0)
}

/// `lstat(2)`.
pub fn lstat(a: &Args) -> SysResult {
    stat_path(AT_FDCWD, a.addr(0), a.addr(1), AT_SYMLINK_NOFOLLOW)
}

/// `fstat(2)`.
pub fn fstat(a: &Args) -> SysResult {
    write_stat(a.addr(1), &**caller::place(a.int(0))?.node())
}

/// `newfstatat(2)`.
pub fn newfstatat(a: &Args) -> SysResult {
    let flags = a.uint(3);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    stat_path(a.int(0), a.addr(1), a.addr(2), flags)
}

/// `statx(2)`.
pub fn statx(a: &Args) -> SysResult {
    let (flags, mask) = (a.uint(2), a.uint(3));
    let known = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    if flags & !known != 0
        || mask & STATX__RESERVED != 0
        || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE
    {
        return Err(Errno::EINVAL);
    }
    let target = at::target(a.int(0), a.addr(1), flags, last_link(flags))?;
    let metadata = target.node().metadata();
    let time = |time: Timestamp| StatxTime {
        seconds: time.seconds,
        nanos: time.nanos,
        reserved: 0,
    };
    let halves = |number: u64| {
        <[u64; 2]>::from(devices::parts(number)).map(|n| u32::try_from(n).unwrap_or(0))
    };
    UserPtr::new(a.addr(4)).write(&Statx {
        mask: STATX_BASIC_STATS | STATX_MNT_ID,
        block_size: target.node().block_size(),
        links: metadata.links,
        uid: metadata.uid,
        gid: metadata.gid,
        // Kind and permissions are the low 16 bits.
        mode: u16::try_from(metadata.mode()).unwrap_or(u16::MAX),
        inode: metadata.id.inode,
        size: metadata.size,
        blocks: metadata.blocks,
        accessed: time(metadata.accessed),
        changed: time(metadata.changed),
        modified: time(metadata.modified),
        rdev: halves(metadata.rdev),
        device: halves(metadata.id.device),
        mount: mount_number(target.node()),
        ..Statx::new_zeroed()
    })?;
    Ok(0)
}

/// Checks that `who` has the access `mode` to `node` (`R_OK`, `W_OK`, `X_OK`). Returns 0. Fails
/// with `EACCES`, `EROFS` or `EINVAL`.
fn check_access(who: &Credentials, node: &NodeRef, mode: u32) -> SysResult {
    const EXECUTE: u32 = 1;
    const ALL: u32 = 7;
    if mode & !ALL != 0 {
        return Err(Errno::EINVAL);
    }
    const WRITE: u32 = 2;
    let metadata = node.metadata();
    let mount = MountFlags::from_bits_truncate(node.fs_stats().flags);
    let regular = metadata.kind == FileKind::Regular;
    if mode & EXECUTE != 0 && regular && mount.contains(MountFlags::NO_EXECUTION) {
        return Err(Errno::EACCES);
    }
    let in_it = matches!(
        metadata.kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    );
    if mode & WRITE != 0 && in_it && mount.contains(MountFlags::READ_ONLY) {
        return Err(Errno::EROFS);
    }
    permission::check(who, &**node, Wanted(mode))?;
    Ok(0)
}

fn access_path(fd: i32, path: u64, mode: u32, flags: u32) -> SysResult {
    let own = &process::current().credentials();
    let ids = [own.users, own.groups];
    let plain = ids.iter().all(|ids| ids.file == ids.real)
        && own.effective == own.permitted
        && (own.users.real == 0 || own.permitted == Capabilities::NONE);
    if flags & AT_EACCESS != 0 || plain {
        let target = at::target(fd, path, flags, last_link(flags))?;
        return check_access(own, target.node(), mode);
    }
    let real = own.as_real();
    let target = at::target_as(&real, fd, path, flags, last_link(flags))?;
    check_access(&real, target.node(), mode)
}

/// `access(2)`.
pub fn access(a: &Args) -> SysResult {
    access_path(AT_FDCWD, a.addr(0), a.uint(1), 0)
}

/// `faccessat(2)`.
pub fn faccessat(a: &Args) -> SysResult {
    access_path(a.int(0), a.addr(1), a.uint(2), 0)
}

/// `faccessat2(2)`.
pub fn faccessat2(a: &Args) -> SysResult {
    let flags = a.uint(3);
    if flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    access_path(a.int(0), a.addr(1), a.uint(2), flags)
}

fn change_mode(target: &Target, mode: u32) -> SysResult {
    let node = target.node();
    node.check_writable()?;
    if node.kind() == FileKind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let who = process::current().credentials();
    change_by(&**node, |owned| {
        Ok(AttributeChange {
            permissions: Some(who.new_permissions(owned, mode & 0o7777)?),
            ..AttributeChange::default()
        })
    })?;
    target.tell(Events::ATTRIB);
    Ok(0)
}

/// `chmod(2)`.
pub fn chmod(a: &Args) -> SysResult {
    change_mode(
        &at::path_target(AT_FDCWD, a.addr(0), LastLink::Follow)?,
        a.uint(1),
    )
}

/// `fchmod(2)`.
pub fn fchmod(a: &Args) -> SysResult {
    change_mode(&Target::File(caller::file(a.int(0))?), a.uint(1))
}

/// `fchmodat(2)`.
pub fn fchmodat(a: &Args) -> SysResult {
    change_mode(
        &at::path_target(a.int(0), a.addr(1), LastLink::Follow)?,
        a.uint(2),
    )
}

/// `fchmodat2(2)`.
pub fn fchmodat2(a: &Args) -> SysResult {
    let flags = a.uint(3);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let target = at::target(a.int(0), a.addr(1), flags, last_link(flags))?;
    change_mode(&target, a.uint(2))
}

fn change_owner(target: &Target, uid: u32, gid: u32) -> SysResult {
    let node = target.node();
    node.check_writable()?;
    let chosen = |id: u32| (id != u32::MAX).then_some(id);
    let who = process::current().credentials();
    change_by(&**node, |owned| {
        // A change of owner clears set-id bits.
        let left = who.new_owner(owned, chosen(uid), chosen(gid))?;
        Ok(AttributeChange {
            uid: chosen(uid),
            gid: chosen(gid),
            permissions: (left != owned.permissions).then_some(left),
            ..AttributeChange::default()
        })
    })?;
    if node.kind() != FileKind::Directory {
        node.forget_capabilities();
    }
    if chosen(uid).or(chosen(gid)).is_some() {
        target.tell(Events::ATTRIB);
    }
    Ok(0)
}

/// `chown(2)`.
pub fn chown(a: &Args) -> SysResult {
    let target = at::path_target(AT_FDCWD, a.addr(0), LastLink::Follow)?;
    change_owner(&target, a.uint(1), a.uint(2))
}

/// `lchown(2)`.
pub fn lchown(a: &Args) -> SysResult {
    let target = at::path_target(AT_FDCWD, a.addr(0), LastLink::Keep)?;
    change_owner(&target, a.uint(1), a.uint(2))
}

/// `fchown(2)`.
pub fn fchown(a: &Args) -> SysResult {
    let target = Target::File(caller::file(a.int(0))?);
    change_owner(&target, a.uint(1), a.uint(2))
}

/// `fchownat(2)`.
pub fn fchownat(a: &Args) -> SysResult {
    let flags = a.uint(4);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let target = at::target(a.int(0), a.addr(1), flags, last_link(flags))?;
    change_owner(&target, a.uint(2), a.uint(3))
}

/// The new access and modification times. `None` keeps the present time.
type Times = [Option<Timestamp>; 2];

/// The times that a call sets.
#[derive(Copy, Clone)]
struct Asked {
    times: Times,
    /// Whether both times are the present, which each writer of the file may set.
    touches: bool,
}

fn set_times(target: &Target, asked: Asked) -> SysResult {
    let [accessed, modified] = asked.times;
    if accessed.is_none() && modified.is_none() {
        return Ok(0);
    }
    target.node().check_writable()?;
    if !caller::with_credentials(|who| who.owns(&target.node().owned())) {
        if !asked.touches {
            return Err(Errno::EPERM);
        }
        target.check(Wanted::WRITE)?;
    }
    target.node().change(&AttributeChange {
        accessed,
        modified,
        ..AttributeChange::default()
    })?;
    target.tell(match (accessed, modified) {
        (Some(_), Some(_)) => Events::ATTRIB,
        (Some(_), None) => Events::ACCESS,
        _ => Events::MODIFY,
    });
    Ok(0)
}

fn both_now() -> Asked {
    Asked {
        times: [Some(Timestamp::now()); 2],
        touches: true,
    }
}

const fn given(times: Times) -> Asked {
    Asked {
        times,
        touches: false,
    }
}

/// Reads two `struct timeval`. A null pointer stands for the present. Fails with `EFAULT` for a bad
/// address, and with `EINVAL` for an invalid time.
fn read_timevals(address: u64) -> Result<Asked, Errno> {
    if address == 0 {
        return Ok(both_now());
    }
    let raw = UserPtr::<[Time; 2]>::new(address).read()?;
    let mut times = [None; 2];
    for (time, [seconds, micros]) in times.iter_mut().zip(raw) {
        let micros = u32::try_from(micros).ok();
        let micros = micros
            .filter(|&micros| micros < 1_000_000)
            .ok_or(Errno::EINVAL)?;
        *time = Some(Timestamp {
            seconds: seconds.cast_signed(),
            nanos: micros * 1000,
        });
    }
    Ok(given(times))
}

/// Reads two `struct timespec`, which may have the values `UTIME_NOW` and `UTIME_OMIT`. A null
/// pointer stands for the present. Fails with `EFAULT` for a bad address, and with `EINVAL` for an
/// invalid time.
fn read_timespecs(address: u64) -> Result<Asked, Errno> {
    if address == 0 {
        return Ok(both_now());
    }
    let raw = UserPtr::<[Time; 2]>::new(address).read()?;
    let mut times = [None; 2];
    for (time, [seconds, nanos]) in times.iter_mut().zip(raw) {
        let nanos = u32::try_from(nanos).map_err(|_| Errno::EINVAL)?;
        *time = match nanos {
            UTIME_NOW => Some(Timestamp::now()),
            UTIME_OMIT => None,
            0..1_000_000_000 => Some(Timestamp {
                seconds: seconds.cast_signed(),
                nanos,
            }),
            _ => return Err(Errno::EINVAL),
        };
    }
    let now = u64::from(UTIME_NOW);
    Ok(Asked {
        times,
        touches: raw.iter().all(|[_, nanos]| *nanos == now),
    })
}

/// `utime(2)`.
pub fn utime(a: &Args) -> SysResult {
    let times = if a.addr(1) == 0 {
        both_now()
    } else {
        let times = UserPtr::<[u64; 2]>::new(a.addr(1)).read()?;
        given(times.map(|seconds| {
            Some(Timestamp {
                seconds: seconds.cast_signed(),
                nanos: 0,
            })
        }))
    };
    set_times(
        &at::target(AT_FDCWD, a.addr(0), 0, LastLink::Follow)?,
        times,
    )
}

/// `utimes(2)`.
pub fn utimes(a: &Args) -> SysResult {
    let times = read_timevals(a.addr(1))?;
    set_times(
        &at::target(AT_FDCWD, a.addr(0), 0, LastLink::Follow)?,
        times,
    )
}

/// `futimesat(2)`.
pub fn futimesat(a: &Args) -> SysResult {
    let times = read_timevals(a.addr(2))?;
    if a.addr(1) == 0 {
        return set_times(&Target::File(caller::file(a.int(0))?), times);
    }
    set_times(
        &at::target(a.int(0), a.addr(1), 0, LastLink::Follow)?,
        times,
    )
}

/// `utimensat(2)`.
pub fn utimensat(a: &Args) -> SysResult {
    let flags = a.uint(3);
    let times = read_timespecs(a.addr(2))?;
    if times.times == [None; 2] {
        // As on Linux, nothing else is checked.
        return Ok(0);
    }
    if a.addr(1) == 0 && a.int(0) != AT_FDCWD {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        return set_times(&Target::File(caller::file(a.int(0))?), times);
    }
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    set_times(
        &at::target(a.int(0), a.addr(1), flags, last_link(flags))?,
        times,
    )
}

fn write_statfs(address: u64, node: &dyn Node) -> SysResult {
    let (stats, block_size) = (node.fs_stats(), u64::from(node.block_size()));
    const VALID: u64 = 0x20;
    /// `ST_RELATIME`. The other flags have the bits of `MS_*`.
    const RELATIVE_TIMES: u64 = 0x1000;
    /// `ST_RDONLY`, `ST_NOSUID`, `ST_NODEV`, `ST_NOEXEC`, `ST_SYNCHRONOUS`, `ST_NOATIME`,
    /// `ST_NODIRATIME`.
    const AS_MOUNTED: u64 = 0xc1f;
    let relative = stats.flags & MountFlags::RELATIVE_TIMES.bits() != 0;
    let times = if relative { RELATIVE_TIMES } else { 0 };
    UserPtr::new(address).write(&StatFs {
        magic: stats.magic,
        block_size,
        blocks: stats.blocks,
        free_blocks: stats.free_blocks,
        available_blocks: stats.free_blocks,
        files: stats.files,
        free_files: stats.free_files,
        id: node.id().device,
        name_length: 255,
        fragment_size: block_size,
        flags: VALID | times | u64::from(stats.flags) & AS_MOUNTED,
        ..StatFs::new_zeroed()
    })?;
    Ok(0)
}

/// `statfs(2)`.
pub fn statfs(a: &Args) -> SysResult {
    let node = at::find(AT_FDCWD, a.addr(0), LastLink::Follow)?.existing()?;
    write_statfs(a.addr(1), &*node)
}

/// `fstatfs(2)`.
pub fn fstatfs(a: &Args) -> SysResult {
    let file = caller::place(a.int(0))?;
    let node = file.node();
    write_statfs(a.addr(1), &**node)
}

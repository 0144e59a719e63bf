//! Reads and changes the attributes of files in volumes.

use super::handles::{Access, Volumes};
use super::quota::growth_of_size;
use crate::system::opened::{kind, own_path, version_of};
use ebb_wire::volume::{Attributes, change};
use rustix::fs::{CWD, FileType, Mode, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;

/// The set-user-ID and set-group-ID bits. A file with them would run bytes that the guest wrote
/// with another user's rights.
const SET_ID: u32 = 0o6000;
/// Bits of a mode that a guest may set: permissions and the sticky bit.
const PLAIN: u32 = 0o1777;
/// Permissions that the owner of a volume's directory must keep.
const OWNER_ALL: u32 = 0o700;

/// Returns whether a guest may change files of this `kind`: `true` for regular files, directories
/// and symbolic links. It may not change devices, pipes and sockets, which the host's programs use.
pub(super) fn is_guests_to_change(kind: FileType) -> bool {
    matches!(
        kind,
        FileType::RegularFile | FileType::Directory | FileType::Symlink
    )
}

/// Returns whether `stat` describes a regular file with the set-user-ID or set-group-ID bit, which
/// runs with the rights of its owner or group.
pub(super) fn has_set_id(stat: &Stat) -> bool {
    kind(stat) == FileType::RegularFile && stat.st_mode & SET_ID != 0
}

/// Clears the set-user-ID and set-group-ID bits of the open regular `file`, whose attributes are
/// `stat`. Does nothing if it has neither. Call this before its bytes change. The host's kernel
/// does the same, but not if root runs `ebb`.
///
/// # Errors
/// Fails if the bits cannot be cleared, for example with `EPERM` for a file of another user. The
/// caller must not change the bytes then.
pub(super) fn drop_set_id(file: impl AsFd, stat: &Stat) -> Result<(), Errno> {
    if !has_set_id(stat) {
        return Ok(());
    }
    let file = file.as_fd();
    rustix::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode & 0o7777 & !SET_ID))?;
    // Some file systems accept any mode and do not change it.
    if has_set_id(&rustix::fs::fstat(file)?) {
        return Err(Errno::PERM);
    }
    Ok(())
}

/// Returns an inode number that is unique in a volume, although the volume may span several devices
/// of the host.
fn inode(stat: &Stat, device: u64) -> u64 {
    if stat.st_dev == device {
        return stat.st_ino;
    }
    let mut inode = DefaultHasher::new();
    (stat.st_dev, stat.st_ino).hash(&mut inode);
    inode.finish() | 1 << 63
}

/// Converts the attributes `stat` of a file for the guest, which knows it by `handle`. `device` is
/// the device of the volume's directory, by which the inode number is made unique. `owner` is the
/// guest's user and group that own files of the user of `ebb`. The version of both times is the
/// present one.
pub(super) fn facts(stat: &Stat, handle: u64, device: u64, owner: [u32; 2]) -> Attributes {
    // The user of `ebb` is shown as the guest's root, or as the program's user.
    let own = |id: u32, own, shown| u64::from(if id == own { shown } else { id });
    let version = version_of(stat);
    Attributes {
        handle,
        inode: inode(stat, device),
        mode: stat.st_mode.into(),
        links: stat.st_nlink,
        uid: own(stat.st_uid, geteuid().as_raw(), owner[0]),
        gid: own(stat.st_gid, getegid().as_raw(), owner[1]),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        times: [
            (stat.st_atime, stat.st_atime_nsec),
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        ],
        version,
        version_before: version,
    }
}

impl Volumes {
    /// Reads the present attributes of the file of `handle`.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known, or if the host cannot read them.
    pub(super) fn facts(&self, handle: u64) -> Result<Attributes, Errno> {
        let entry = self.entry(handle)?;
        let stat = rustix::fs::fstat(&entry.file)?;
        Ok(facts(&stat, handle, entry.device, self.owner))
    }

    /// Reads the attributes of the file of `handle` after a change by the guest. `before` has those
    /// from before it, and its version becomes `version_before`. By that the guest recognizes its
    /// own change.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known, or if the host cannot read the attributes.
    pub(super) fn facts_after(
        &self,
        handle: u64,
        before: &Attributes,
    ) -> Result<Attributes, Errno> {
        Ok(Attributes {
            version_before: before.version,
            ..self.facts(handle)?
        })
    }

    /// Changes the mode, the size and the times of the file of `handle`, in this order, and returns
    /// its new attributes. `numbers` are those of [`ebb_wire::volume::Opcode::SetAttributes`]. If
    /// one change fails, those before it stay. Set-user-ID and set-group-ID cannot be set, and a
    /// new size clears them.
    ///
    /// # Errors
    /// Fails with `EINVAL` for too few or impossible numbers, `EPERM` for devices, pipes and
    /// sockets or if the host's user would lose access to the volume's directory, `EOPNOTSUPP` for
    /// the mode of a symbolic link, `EROFS` in a read-only volume, `EDQUOT` at the volume's limit,
    /// `ESTALE` for an unknown handle, or with another error of the host.
    pub(super) fn change(&mut self, handle: u64, numbers: &[u64]) -> Result<Attributes, Errno> {
        let &[what, mode, size, seconds, nanos, ..] = numbers else {
            return Err(Errno::INVAL);
        };
        let before = self.facts(handle)?;
        let entry = self.entry_to_change(handle)?;
        let path = own_path(&entry.file);
        let stat = rustix::fs::fstat(&entry.file)?;
        let kind = kind(&stat);
        if !is_guests_to_change(kind) {
            return Err(Errno::PERM);
        }
        if what & change::MODE != 0 {
            let wanted = u32::try_from(mode).map_err(|_| Errno::INVAL)?;
            let allowed = match kind {
                FileType::Symlink => return Err(Errno::OPNOTSUPP),
                FileType::Directory => {
                    if self.is_top(&stat) && wanted & OWNER_ALL != OWNER_ALL {
                        return Err(Errno::PERM);
                    }
                    // Bits that the host has set may stay. With set-group-ID, new files below get
                    // the directory's group.
                    wanted & (PLAIN | stat.st_mode & SET_ID)
                }
                _ => wanted & PLAIN,
            };
            rustix::fs::chmod(&path, Mode::from_raw_mode(allowed))?;
        }
        if what & change::SIZE != 0 {
            self.opened(handle, Access::Write)?;
            self.check_growth(handle, growth_of_size(&stat, size))?;
            let file = self.opened(handle, Access::Write)?;
            drop_set_id(file, &rustix::fs::fstat(file)?)?;
            rustix::fs::ftruncate(file, size)?;
            self.count_size(handle, &stat, size)?;
        }
        if what & (change::ACCESSED | change::MODIFIED) != 0 {
            let time = Timespec {
                tv_sec: seconds.cast_signed(),
                tv_nsec: i64::try_from(nanos).unwrap_or(0).min(999_999_999),
            };
            let keep = Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            };
            let pick = |bit| if what & bit != 0 { time } else { keep };
            let times = Timestamps {
                last_access: pick(change::ACCESSED),
                last_modification: pick(change::MODIFIED),
            };
            rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty())?;
        }
        self.facts_after(handle, &before)
    }
}

//! What the guest is told of a file.

use super::handles::Volumes;
use crate::system::opened::{kind, own_path, version_of};
use ebb_wire::volume::{Facts, change};
use rustix::fs::{CWD, FileType, Mode, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bits of set-user-ID and set-group-ID: what a guest writes is nobody's way to another's rights.
const SET_ID: u32 = 0o6000;

/// A number that a file has in its volume, on whatever device of the host's it is.
fn inode(stat: &Stat, device: u64) -> u64 {
    if stat.st_dev == device {
        return stat.st_ino;
    }
    let mut inode = DefaultHasher::new();
    (stat.st_dev, stat.st_ino).hash(&mut inode);
    inode.finish() | 1 << 63
}

pub(super) fn facts(stat: &Stat, handle: u64, device: u64, owner: [u32; 2]) -> Facts {
    // Who runs ebb is the guest's root, or the program's user.
    let own = |id: u32, own, shown| u64::from(if id == own { shown } else { id });
    let version = version_of(stat);
    Facts {
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
    /// What is known of a file.
    pub(super) fn facts(&self, handle: u64) -> Result<Facts, Errno> {
        let known = self.known(handle)?;
        let stat = rustix::fs::fstat(&known.file)?;
        Ok(facts(&stat, handle, known.device, self.owner))
    }

    /// The same, after something that began with `before`.
    pub(super) fn facts_after(&self, handle: u64, before: &Facts) -> Result<Facts, Errno> {
        Ok(Facts {
            version_before: before.version,
            ..self.facts(handle)?
        })
    }

    /// Changes attributes.
    pub(super) fn change(&mut self, handle: u64, numbers: &[u64]) -> Result<Facts, Errno> {
        let &[what, mode, size, seconds, nanos, ..] = numbers else {
            return Err(Errno::INVAL);
        };
        let before = self.facts(handle)?;
        let path = own_path(&self.known_to_change(handle)?.file);
        let stat = rustix::fs::fstat(&self.known(handle)?.file)?;
        if what & change::MODE != 0 {
            let mode = u32::try_from(mode).map_err(|_| Errno::INVAL)? & 0o7777;
            let allowed = match kind(&stat) {
                FileType::Symlink => return Err(Errno::OPNOTSUPP),
                FileType::Directory => mode,
                _ => mode & !SET_ID,
            };
            rustix::fs::chmod(&path, Mode::from_raw_mode(allowed))?;
        }
        if what & change::SIZE != 0 {
            let file = self.opened(handle, super::handles::Access::Write)?;
            rustix::fs::ftruncate(file, size)?;
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

//! Checks access to files by their permission bits.

use super::{Capabilities, Credentials};
use crate::errno::Errno;
use core::ops::BitOr;

/// The kinds of access to a file that a caller wants.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted(pub u32);

impl Wanted {
    /// No access.
    pub const NOTHING: Self = Self(0);
    /// Execute a file, or search a directory.
    pub const EXECUTE: Self = Self(1);
    /// Write.
    pub const WRITE: Self = Self(2);
    /// Read.
    pub const READ: Self = Self(4);
    /// Create or remove an entry of a directory.
    pub const CHANGE: Self = Self(3);

    /// Returns whether all kinds of access in `others` are in `self`.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Wanted {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The attributes of a file that decide about access to it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// Whether the file is a directory.
    pub directory: bool,
    /// Whether the file is a regular file.
    pub regular: bool,
    /// Permission bits with set-id and sticky bits, below 0o10000.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The set-user-ID bit of a file (`S_ISUID`).
pub const SET_UID: u32 = 0o4000;
/// The set-group-ID bit of a file (`S_ISGID`).
pub const SET_GID: u32 = 0o2000;
/// The sticky bit of a directory (`S_ISVTX`).
pub const STICKY: u32 = 0o1000;
/// The set-group-ID bit and the group's right to execute. Without that right, the set-group-ID bit
/// once marked a file for mandatory locking.
pub const SET_GID_EXECUTABLE: u32 = SET_GID | 0o010;

impl Credentials {
    /// Returns whether `CAP_DAC_OVERRIDE` or `CAP_DAC_READ_SEARCH` is in force. Either permits
    /// search of every directory, independent of its permission bits.
    #[inline]
    pub const fn passes_directories(&self) -> bool {
        const EITHER: Capabilities =
            Capabilities(Capabilities::DAC_OVERRIDE.0 | Capabilities::DAC_READ_SEARCH.0);
        self.effective.meets(EITHER)
    }

    /// Returns whether `CAP_DAC_OVERRIDE` is in force and `wanted` does not contain `EXECUTE`. Then
    /// the access is granted independent of the permission bits.
    #[inline]
    pub const fn overrides(&self, wanted: Wanted) -> bool {
        self.can(Capabilities::DAC_OVERRIDE) && wanted.0 & Wanted::EXECUTE.0 == 0
    }

    /// Checks whether these credentials have the access in `wanted` to the file `what`, by the
    /// permission bits of `what` or by a capability.
    ///
    /// # Errors
    /// `EACCES` if neither the permission bits nor a capability grants the access.
    pub fn may(&self, wanted: Wanted, what: &Owned) -> Result<(), Errno> {
        let granted = if self.users.file == what.uid {
            what.permissions >> 6
        } else if self.is_in_group(what.gid) {
            what.permissions >> 3
        } else {
            what.permissions
        };
        if wanted.0 & !granted & 7 == 0 {
            return Ok(());
        }
        let reads = if what.directory {
            wanted.0 & Wanted::WRITE.0 == 0
        } else {
            wanted == Wanted::READ
        };
        if reads && self.can(Capabilities::DAC_READ_SEARCH) {
            return Ok(());
        }
        let executable = what.directory || what.permissions & 0o111 != 0;
        let harmless = wanted.0 & Wanted::EXECUTE.0 == 0 || executable;
        if harmless && self.can(Capabilities::DAC_OVERRIDE) {
            return Ok(());
        }
        Err(Errno::EACCES)
    }

    /// Returns whether the user ID for access to files is the owner of `what`, or `CAP_FOWNER` is
    /// in force.
    pub const fn owns(&self, what: &Owned) -> bool {
        self.users.file == what.uid || self.can(Capabilities::FOWNER)
    }

    /// Checks whether these credentials permit removing the file `entry` from `directory`.
    ///
    /// # Errors
    /// `EACCES` if the directory must not be changed. `EPERM` if the directory is sticky, the user
    /// owns neither the directory nor the entry, and `CAP_FOWNER` is missing.
    pub fn may_remove(&self, directory: &Owned, entry: &Owned) -> Result<(), Errno> {
        self.may(Wanted::CHANGE, directory)?;
        self.may_take(directory, entry)
    }

    /// Checks whether the sticky bit of `directory` permits removing the file `entry`. The caller
    /// has checked that these credentials may change `directory`.
    ///
    /// # Errors
    /// `EPERM` if the directory is sticky, the user owns neither the directory nor the entry, and
    /// `CAP_FOWNER` is missing.
    pub fn may_take(&self, directory: &Owned, entry: &Owned) -> Result<(), Errno> {
        let sticky = directory.permissions & STICKY != 0
            && self.users.file != entry.uid
            && self.users.file != directory.uid;
        if sticky {
            return self.need(Capabilities::FOWNER);
        }
        Ok(())
    }

    /// Checks whether another hard link to `what` may be made (`fs.protected_hardlinks`). The user
    /// must [own](Self::owns) `what`. Or `what` must be a regular file that the user may read and
    /// write, and that has no set-user-ID bit and no set-group-ID bit with the group's right to
    /// execute.
    ///
    /// # Errors
    /// `EPERM` if the link must not be made.
    pub fn may_link(&self, what: &Owned) -> Result<(), Errno> {
        self.may_link_if(what, self.may(Wanted::READ | Wanted::WRITE, what).is_ok())
    }

    /// Like [`Self::may_link`]. `usable` says whether the user may read and write `what`.
    ///
    /// # Errors
    /// `EPERM` if the link must not be made.
    pub fn may_link_if(&self, what: &Owned, usable: bool) -> Result<(), Errno> {
        let bits = what.permissions;
        let safe = what.regular
            && bits & SET_UID == 0
            && bits & SET_GID_EXECUTABLE != SET_GID_EXECUTABLE
            && usable;
        if safe || self.owns(what) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    /// Checks whether a symbolic link of the user `link_uid` in `directory`, at the end of a path,
    /// may be followed (`fs.protected_symlinks`).
    ///
    /// # Errors
    /// `EACCES` if `directory` is sticky and all users may write to it, and the link belongs to
    /// neither the user nor the owner of the directory.
    pub const fn may_follow(&self, directory: &Owned, link_uid: u32) -> Result<(), Errno> {
        const STICKY_FOR_ALL: u32 = STICKY | 0o002;
        let trap = directory.permissions & STICKY_FOR_ALL == STICKY_FOR_ALL
            && self.users.file != link_uid
            && directory.uid != link_uid;
        if trap { Err(Errno::EACCES) } else { Ok(()) }
    }
}

//! Who may do what with a file, by its permission bits.

use super::{Capabilities, Credentials};
use crate::errno::Errno;
use core::ops::BitOr;

/// What is to be done with a file.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted(pub u32);

impl Wanted {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// Executing a file, passing a directory.
    pub const EXECUTE: Self = Self(1);
    /// Writing.
    pub const WRITE: Self = Self(2);
    /// Reading.
    pub const READ: Self = Self(4);
    /// Making or removing an entry of a directory.
    pub const CHANGE: Self = Self(3);

    /// Whether all of `others` is in it.
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

/// What permissions are about.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// Whether it is a directory.
    pub directory: bool,
    /// Whether it is a regular file.
    pub regular: bool,
    /// Permission bits with set-id and sticky, below 0o10000.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// `S_ISUID`.
pub const SET_UID: u32 = 0o4000;
/// `S_ISGID`.
pub const SET_GID: u32 = 0o2000;
/// `S_ISVTX`.
pub const STICKY: u32 = 0o1000;
/// Set-group-id and executable for the group: without the latter it once meant locks.
pub const SET_GID_EXECUTABLE: u32 = SET_GID | 0o010;

impl Credentials {
    /// Whether it passes any directory, so that nobody need look at its bits.
    #[inline]
    pub const fn passes_directories(&self) -> bool {
        const EITHER: Capabilities =
            Capabilities(Capabilities::DAC_OVERRIDE.0 | Capabilities::DAC_READ_SEARCH.0);
        self.effective.meets(EITHER)
    }

    /// Whether nobody need look at a file's bits: all but executing is granted.
    #[inline]
    pub const fn overrides(&self, wanted: Wanted) -> bool {
        self.can(Capabilities::DAC_OVERRIDE) && wanted.0 & Wanted::EXECUTE.0 == 0
    }

    /// Whether a file's bits grant what is wanted, or a capability does.
    ///
    /// # Errors
    /// `EACCES`.
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

    /// Whether it owns a file, or may do as if it did.
    pub const fn owns(&self, what: &Owned) -> bool {
        self.users.file == what.uid || self.can(Capabilities::FOWNER)
    }

    /// Whether it may take the name of a file out of a directory.
    ///
    /// # Errors
    /// `EACCES`: the directory cannot be changed; `EPERM`: it is sticky, and neither is one's own.
    pub fn may_remove(&self, directory: &Owned, entry: &Owned) -> Result<(), Errno> {
        self.may(Wanted::CHANGE, directory)?;
        self.may_take(directory, entry)
    }

    /// Whether it may take the name of a file out of a directory that it may change.
    ///
    /// # Errors
    /// Fails with `EPERM` if the directory is sticky and neither is its own.
    pub fn may_take(&self, directory: &Owned, entry: &Owned) -> Result<(), Errno> {
        let sticky = directory.permissions & STICKY != 0
            && self.users.file != entry.uid
            && self.users.file != directory.uid;
        if sticky {
            return self.need(Capabilities::FOWNER);
        }
        Ok(())
    }

    /// Whether it may give a file a further name (`fs.protected_hardlinks`).
    ///
    /// # Errors
    /// `EPERM`.
    pub fn may_link(&self, what: &Owned) -> Result<(), Errno> {
        self.may_link_if(what, self.may(Wanted::READ | Wanted::WRITE, what).is_ok())
    }

    /// The same for a file that it may read and write if `usable`.
    ///
    /// # Errors
    /// Fails with `EPERM` if not.
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

    /// Whether it may follow a symbolic link at the end of a path (`fs.protected_symlinks`).
    ///
    /// # Errors
    /// `EACCES`: another user put it where anybody can.
    pub const fn may_follow(&self, directory: &Owned, link_uid: u32) -> Result<(), Errno> {
        const ANYBODYS: u32 = STICKY | 0o002;
        let trap = directory.permissions & ANYBODYS == ANYBODYS
            && self.users.file != link_uid
            && directory.uid != link_uid;
        if trap { Err(Errno::EACCES) } else { Ok(()) }
    }
}

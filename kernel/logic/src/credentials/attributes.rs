//! Permission checks for changes of a file's attributes, and the attributes of a new file.

use super::access::{SET_GID, SET_GID_EXECUTABLE, SET_UID};
use super::{Capabilities, Credentials, Owned};
use crate::errno::Errno;

/// The attributes of a new file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Permission bits with set-id and sticky bits, as the call asks for them.
    pub permissions: u32,
    /// Permission bits to clear, unless the file inherits an access list from its directory.
    pub mask: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Beginning {
    /// Returns the attributes of a file that the kernel creates with `permissions`. Root owns it.
    pub const fn of_root(permissions: u32) -> Self {
        Self {
            permissions,
            mask: 0,
            uid: 0,
            gid: 0,
        }
    }
}

impl Beginning {
    /// Returns the permission bits of the new file if it inherits no access list: `permissions`
    /// without the bits in `mask`.
    pub const fn masked(&self) -> u32 {
        self.permissions & 0o7777 & !self.mask
    }
}

impl Credentials {
    /// Returns the attributes of a file that is created with `permissions` in the directory
    /// `above`. `directory` says whether the file is a directory. If `above` has `S_ISGID`, the
    /// file inherits its group, and a directory also inherits `S_ISGID`.
    pub fn new_file(&self, above: &Owned, permissions: u32, directory: bool) -> Beginning {
        let mut permissions = permissions;
        let mut gid = self.groups.file;
        if above.permissions & SET_GID != 0 {
            gid = above.gid;
            if directory {
                permissions |= SET_GID;
            } else if permissions & SET_GID_EXECUTABLE == SET_GID_EXECUTABLE
                && !self.keeps_group(gid)
            {
                permissions &= !SET_GID;
            }
        }
        Beginning {
            permissions,
            mask: 0,
            uid: self.users.file,
            gid,
        }
    }

    /// Returns whether the user may set `S_ISGID` on a file of the group `gid`.
    fn keeps_group(&self, gid: u32) -> bool {
        self.is_in_group(gid) || self.can(Capabilities::FSETID)
    }

    /// Returns the permission bits that the file `what` gets from a call such as `chmod` that asks
    /// for `asked`. `S_ISGID` is cleared if the user is not in the file's group and `CAP_FSETID` is
    /// missing.
    ///
    /// # Errors
    /// `EPERM` if the file belongs to another user and `CAP_FOWNER` is missing.
    pub fn new_permissions(&self, what: &Owned, asked: u32) -> Result<u32, Errno> {
        if !self.owns(what) {
            return Err(Errno::EPERM);
        }
        Ok(if self.keeps_group(what.gid) {
            asked
        } else {
            asked & !SET_GID
        })
    }

    /// Checks whether the owner and the group of the file `what` may become `uid` and `gid`. `None`
    /// leaves the ID as it is. Returns the permission bits that the file has after the change.
    ///
    /// # Errors
    /// `EPERM` if `CAP_CHOWN` is missing and the user must not make the change. The user's own
    /// files may keep their owner, and keep their group or get another one of the user's. `EPERM`
    /// if the change would clear a set-id bit and the user does not [own](Self::owns) the file.
    pub fn new_owner(
        &self,
        what: &Owned,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<u32, Errno> {
        let own = self.users.file == what.uid;
        let user_stays = uid.is_none_or(|uid| own && uid == what.uid);
        let group_is_own = gid.is_none_or(|gid| own && (gid == what.gid || self.is_in_group(gid)));
        if !(user_stays && group_is_own) {
            self.need(Capabilities::CHOWN)?;
        }
        if what.directory {
            return Ok(what.permissions);
        }
        let left = self.without_set_ids(what);
        // Removing a set-id bit is a change of permissions, which also needs ownership.
        if left != what.permissions && !self.owns(what) {
            return Err(Errno::EPERM);
        }
        Ok(left)
    }

    /// Returns the permission bits of the file `what` without the set-id bits that a change of
    /// owner or a write removes.
    fn without_set_ids(&self, what: &Owned) -> u32 {
        let mut permissions = what.permissions & !SET_UID;
        if what.permissions & SET_GID_EXECUTABLE == SET_GID_EXECUTABLE
            || !self.keeps_group(what.gid)
        {
            permissions &= !SET_GID;
        }
        permissions
    }

    /// Returns the permission bits that the file `what` has after a write, or `None` if a write
    /// does not change them.
    pub fn after_write(&self, what: &Owned) -> Option<u32> {
        if !what.regular || self.can(Capabilities::FSETID) {
            return None;
        }
        let permissions = self.without_set_ids(what);
        (permissions != what.permissions).then_some(permissions)
    }
}

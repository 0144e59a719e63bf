//! Who may change what of a file, and what a new one begins with.

use super::access::{SET_GID, SET_GID_EXECUTABLE, SET_UID};
use super::{Capabilities, Credentials, Owned};
use crate::errno::Errno;

/// What a new file begins with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Permission bits with set-id and sticky, as they were asked for.
    pub permissions: u32,
    /// Permission bits that it does not get, unless it gets an access list from its directory.
    pub mask: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Beginning {
    /// What the kernel makes is root's.
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
    /// Returns the permission bits of a file that gets no access list.
    pub const fn masked(&self) -> u32 {
        self.permissions & 0o7777 & !self.mask
    }
}

impl Credentials {
    /// What a file begins with that is made in a directory: where that has `S_ISGID`, its group goes on.
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

    /// Whether a file of this group may have `S_ISGID` of it.
    fn keeps_group(&self, gid: u32) -> bool {
        self.is_in_group(gid) || self.can(Capabilities::FSETID)
    }

    /// The permission bits that a file gets which are asked for.
    ///
    /// # Errors
    /// `EPERM`: it is another's.
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

    /// Whether it may give a file to a user and a group; the permission bits that the file has then.
    ///
    /// # Errors
    /// `EPERM`.
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
        // That is a change of permissions, too.
        if left != what.permissions && !self.owns(what) {
            return Err(Errno::EPERM);
        }
        Ok(left)
    }

    /// The permission bits without those that a change of owner, or of the bytes, takes away.
    fn without_set_ids(&self, what: &Owned) -> u32 {
        let mut permissions = what.permissions & !SET_UID;
        if what.permissions & SET_GID_EXECUTABLE == SET_GID_EXECUTABLE
            || !self.keeps_group(what.gid)
        {
            permissions &= !SET_GID;
        }
        permissions
    }

    /// The permission bits that a file has once its bytes were changed; `None`: the same as before.
    pub fn after_write(&self, what: &Owned) -> Option<u32> {
        if !what.regular || self.can(Capabilities::FSETID) {
            return None;
        }
        let permissions = self.without_set_ids(what);
        (permissions != what.permissions).then_some(permissions)
    }
}

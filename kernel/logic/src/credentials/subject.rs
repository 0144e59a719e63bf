//! The credentials of a thread.

use super::{Capabilities, SecureBits};
use crate::errno::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The user IDs, or the group IDs, of a thread.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// The ID of the user who started the thread.
    pub real: u32,
    /// The ID with which the thread acts.
    pub effective: u32,
    /// An ID that the thread may make effective again.
    pub saved: u32,
    /// The ID with which the thread accesses files.
    pub file: u32,
}

impl Ids {
    /// Returns real, effective, saved and file IDs that all equal `id`.
    pub const fn all(id: u32) -> Self {
        Self {
            real: id,
            effective: id,
            saved: id,
            file: id,
        }
    }

    /// Returns the real, effective and saved ID.
    pub const fn three(self) -> [u32; 3] {
        [self.real, self.effective, self.saved]
    }
}

/// The credentials of a thread. They are never changed in place, only replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User IDs.
    pub users: Ids,
    /// Group IDs.
    pub groups: Ids,
    /// Supplementary groups, ascending.
    pub supplementary: Arc<[u32]>,
    /// Capabilities that the thread may make effective.
    pub permitted: Capabilities,
    /// Capabilities in force.
    pub effective: Capabilities,
    /// Capabilities that a program keeps if its file grants them. No file here grants any.
    pub inheritable: Capabilities,
    /// Upper bound of the capabilities that `execve` can grant.
    pub bounding: Capabilities,
    /// Capabilities that a program keeps if its file grants none.
    pub ambient: Capabilities,
    /// Flags that limit the privileges of root's ID.
    pub secure_bits: SecureBits,
    /// No `execve` grants more privileges (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privileges: bool,
}

impl Credentials {
    /// Returns the credentials of root.
    pub fn root() -> Self {
        Self {
            users: Ids::default(),
            groups: Ids::default(),
            supplementary: Arc::from([]),
            permitted: Capabilities::ALL,
            effective: Capabilities::ALL,
            inheritable: Capabilities::NONE,
            bounding: Capabilities::ALL,
            ambient: Capabilities::NONE,
            secure_bits: SecureBits::empty(),
            no_new_privileges: false,
        }
    }

    /// Returns the credentials of the user `uid` in the group `gid` and the groups `supplementary`.
    /// Only root, user 0, has capabilities.
    pub fn of_user(uid: u32, gid: u32, supplementary: Vec<u32>) -> Self {
        let held = if uid == 0 {
            Capabilities::ALL
        } else {
            Capabilities::NONE
        };
        let mut supplementary = supplementary;
        supplementary.sort_unstable();
        Self {
            users: Ids::all(uid),
            groups: Ids::all(gid),
            supplementary: supplementary.into(),
            permitted: held,
            effective: held,
            ..Self::root()
        }
    }

    /// Returns whether `capability` is in force, that is, in the effective set. If `capability` has
    /// several capabilities, all of them must be.
    #[inline]
    pub const fn can(&self, capability: Capabilities) -> bool {
        self.effective.contains(capability)
    }

    /// Checks whether `capability` is in force, as [`Self::can`] does.
    ///
    /// # Errors
    /// `EPERM` if `capability` is not in force.
    #[inline]
    pub const fn need(&self, capability: Capabilities) -> Result<(), Errno> {
        if self.can(capability) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    /// Returns whether `gid` is the thread's group for access to files, or one of its supplementary
    /// groups.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.groups.file == gid || self.supplementary.binary_search(&gid).is_ok()
    }

    /// Returns whether `gid` is the thread's effective group, or one of its supplementary groups.
    pub fn acts_in_group(&self, gid: u32) -> bool {
        self.groups.effective == gid || self.supplementary.binary_search(&gid).is_ok()
    }

    /// Returns these credentials with the real user and group for access to files, as `access(2)`
    /// needs. Unless a secure bit forbids it, the permitted capabilities are effective if the real
    /// user is root, and no capabilities otherwise.
    #[must_use]
    pub fn as_real(&self) -> Self {
        let mut real = self.clone();
        real.users.file = self.users.real;
        real.groups.file = self.groups.real;
        if self.secure_bits.contains(SecureBits::NO_SETUID_FIXUP) {
            return real;
        }
        real.effective = if self.users.real == 0 {
            self.permitted
        } else {
            Capabilities::NONE
        };
        real
    }
}

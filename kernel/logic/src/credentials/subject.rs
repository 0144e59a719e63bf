//! What a thread acts as.

use super::{Capabilities, SecureBits};
use crate::errno::Errno;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Numbers of a user, or of a group.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Who started it.
    pub real: u32,
    /// Whom it acts as.
    pub effective: u32,
    /// Whom it may act as again.
    pub saved: u32,
    /// Whom it looks at files as.
    pub file: u32,
}

impl Ids {
    /// One number for all.
    pub const fn all(id: u32) -> Self {
        Self {
            real: id,
            effective: id,
            saved: id,
            file: id,
        }
    }

    /// Real, effective, saved.
    pub const fn three(self) -> [u32; 3] {
        [self.real, self.effective, self.saved]
    }
}

/// Who a thread acts as. They are never changed, but replaced by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its user.
    pub users: Ids,
    /// Its group.
    pub groups: Ids,
    /// Further groups, ascending.
    pub supplementary: Arc<[u32]>,
    /// What it may make effective.
    pub permitted: Capabilities,
    /// What is in force.
    pub effective: Capabilities,
    /// What programs may get that files give it to. No file does here.
    pub inheritable: Capabilities,
    /// What programs get at most.
    pub bounding: Capabilities,
    /// What programs keep that files give nothing to.
    pub ambient: Capabilities,
    /// What root's numbers are worth.
    pub secure_bits: SecureBits,
    /// No program gives it more (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privileges: bool,
}

impl Credentials {
    /// Root's.
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

    /// A user's, who has no capability unless it is root.
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

    /// Whether a capability is in force.
    #[inline]
    pub const fn can(&self, capability: Capabilities) -> bool {
        self.effective.contains(capability)
    }

    /// `EPERM` unless a capability is in force.
    ///
    /// # Errors
    /// That.
    #[inline]
    pub const fn need(&self, capability: Capabilities) -> Result<(), Errno> {
        if self.can(capability) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    /// Whether it looks at files as a member of a group.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.groups.file == gid || self.supplementary.binary_search(&gid).is_ok()
    }

    /// Whether it acts as a member of a group.
    pub fn acts_in_group(&self, gid: u32) -> bool {
        self.groups.effective == gid || self.supplementary.binary_search(&gid).is_ok()
    }

    /// The same as the real user and group, as `access(2)` looks at files.
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

//! Changes of credentials, by system calls and by `execve`.

use super::{Capabilities, Credentials, Ids, SecureBits};
use crate::errno::Errno;

/// The ID in a call that means "leave the ID as it is".
pub const KEEP: u32 = u32::MAX;

/// Real, effective and saved ID as a call asks for them. Each may be [`KEEP`].
type Three = [u32; 3];

impl Ids {
    /// Returns the IDs after `setuid` or `setgid` with `id`. `any` permits every ID. Fails with
    /// `EPERM` if `id` is not permitted.
    fn set(self, id: u32, any: bool) -> Result<Self, Errno> {
        if any {
            Ok(Self::all(id))
        } else if id == self.real || id == self.saved {
            Ok(Self {
                effective: id,
                file: id,
                ..self
            })
        } else {
            Err(Errno::EPERM)
        }
    }

    /// Returns the IDs after `setreuid` or `setregid` with `real` and `effective`, each of which
    /// may be [`KEEP`]. `any` permits every ID. Fails with `EPERM` if an ID is not permitted.
    fn set_two(self, real: u32, effective: u32, any: bool) -> Result<Self, Errno> {
        let mut new = self;
        if real != KEEP {
            if !any && real != self.real && real != self.effective {
                return Err(Errno::EPERM);
            }
            new.real = real;
        }
        if effective != KEEP {
            if !any && !self.three().contains(&effective) {
                return Err(Errno::EPERM);
            }
            new.effective = effective;
        }
        if real != KEEP || effective != KEEP && effective != self.real {
            new.saved = new.effective;
        }
        new.file = new.effective;
        Ok(new)
    }

    /// Returns the IDs after `setresuid` or `setresgid` with the IDs in `asked`. `any` permits
    /// every ID. Fails with `EPERM` if an ID is not permitted.
    fn set_three(self, asked: Three, any: bool) -> Result<Self, Errno> {
        let own = self.three();
        if !any && !asked.iter().all(|id| *id == KEEP || own.contains(id)) {
            return Err(Errno::EPERM);
        }
        let or = |asked: u32, own: u32| if asked == KEEP { own } else { asked };
        let effective = or(asked[1], self.effective);
        Ok(Self {
            real: or(asked[0], self.real),
            effective,
            saved: or(asked[2], self.saved),
            file: effective,
        })
    }

    fn has_root(self) -> bool {
        self.three().contains(&0)
    }
}

/// A system call that changes user or group IDs, with its arguments.
#[derive(Copy, Clone, Debug)]
pub enum Change {
    /// `setuid`, `setgid`.
    One(u32),
    /// `setreuid`, `setregid`.
    Two(u32, u32),
    /// `setresuid`, `setresgid`.
    Three(Three),
}

impl Change {
    fn apply(self, own: Ids, any: bool) -> Result<Ids, Errno> {
        match self {
            Self::One(id) if id == KEEP => Err(Errno::EINVAL),
            Self::One(id) => own.set(id, any),
            Self::Two(real, effective) => own.set_two(real, effective, any),
            Self::Three(asked) => own.set_three(asked, any),
        }
    }
}

impl Credentials {
    /// Returns the credentials after `change` of the user IDs. Unless a secure bit forbids it,
    /// giving up root's IDs removes capabilities, and making root's ID effective makes the
    /// permitted capabilities effective.
    ///
    /// # Errors
    /// `EPERM` if the change is not permitted; `EINVAL` if `change` is [`Change::One`] of [`KEEP`].
    pub fn with_users(&self, change: Change) -> Result<Self, Errno> {
        let mut new = self.clone();
        new.users = change.apply(self.users, self.can(Capabilities::SETUID))?;
        if self.secure_bits.contains(SecureBits::NO_SETUID_FIXUP) {
            return Ok(new);
        }
        if self.users.has_root() && !new.users.has_root() {
            if !self.secure_bits.contains(SecureBits::KEEP_CAPS) {
                new.permitted = Capabilities::NONE;
                new.effective = Capabilities::NONE;
            }
            new.ambient = Capabilities::NONE;
        }
        match (self.users.effective, new.users.effective) {
            (0, 0) => {}
            (0, _) => new.effective = Capabilities::NONE,
            (_, 0) => new.effective = new.permitted,
            _ => {}
        }
        Ok(new)
    }

    /// Returns the credentials after `change` of the group IDs.
    ///
    /// # Errors
    /// `EPERM` if the change is not permitted; `EINVAL` if `change` is [`Change::One`] of [`KEEP`].
    pub fn with_groups(&self, change: Change) -> Result<Self, Errno> {
        let mut new = self.clone();
        new.groups = change.apply(self.groups, self.can(Capabilities::SETGID))?;
        Ok(new)
    }

    /// Returns the credentials with the user ID `uid` for access to files (`setfsuid`). Returns
    /// `None` if `uid` is [`KEEP`], or if it is not one of the present user IDs and `CAP_SETUID` is
    /// missing. Unless a secure bit forbids it, the effective capabilities for access to files are
    /// removed when `uid` replaces root's ID. If root's ID replaces another one, those that are
    /// permitted become effective.
    pub fn with_file_user(&self, uid: u32) -> Option<Self> {
        let known = self.users.three().contains(&uid) || self.users.file == uid;
        if uid == KEEP || !known && !self.can(Capabilities::SETUID) {
            return None;
        }
        let mut new = self.clone();
        new.users.file = uid;
        if self.secure_bits.contains(SecureBits::NO_SETUID_FIXUP) {
            return Some(new);
        }
        match (self.users.file, uid) {
            (0, 0) => {}
            (0, _) => new.effective = new.effective.without(Capabilities::OF_FILES),
            (_, 0) => new.effective = new.effective | new.permitted & Capabilities::OF_FILES,
            _ => {}
        }
        Some(new)
    }

    /// Returns the credentials with the group ID `gid` for access to files (`setfsgid`). Returns
    /// `None` if `gid` is [`KEEP`], or if it is not one of the present group IDs and `CAP_SETGID`
    /// is missing.
    pub fn with_file_group(&self, gid: u32) -> Option<Self> {
        let known = self.groups.three().contains(&gid) || self.groups.file == gid;
        if gid == KEEP || !known && !self.can(Capabilities::SETGID) {
            return None;
        }
        let mut new = self.clone();
        new.groups.file = gid;
        Some(new)
    }

    /// Returns the credentials with the sets `effective`, `permitted` and `inheritable`, as
    /// `capset(2)` sets them. Ambient capabilities that are no longer both permitted and
    /// inheritable are removed.
    ///
    /// # Errors
    /// `EPERM` if `permitted` has a capability that is not permitted now, or `effective` one that
    /// is not in `permitted`. `EPERM` if `inheritable` gains a capability that is not in the
    /// bounding set, or that is not permitted while `CAP_SETPCAP` is missing.
    pub fn with_capabilities(
        &self,
        effective: Capabilities,
        permitted: Capabilities,
        inheritable: Capabilities,
    ) -> Result<Self, Errno> {
        let capped = !self.can(Capabilities::SETPCAP);
        let refused = capped && !(self.inheritable | self.permitted).contains(inheritable)
            || !(self.inheritable | self.bounding).contains(inheritable)
            || !self.permitted.contains(permitted)
            || !permitted.contains(effective);
        if refused {
            return Err(Errno::EPERM);
        }
        Ok(Self {
            effective,
            permitted,
            inheritable,
            ambient: self.ambient & permitted & inheritable,
            ..self.clone()
        })
    }

    /// Returns the credentials after `execve`, and whether the C library must not trust its
    /// environment (`AT_SECURE`). Set-id bits and capabilities of files have no effect, as on a
    /// file system mounted with `nosuid`.
    ///
    /// `tracer` has the credentials with which a thread began to trace the process, or is `None` if
    /// the process is not traced. The program gains no capability if `tracer` has no
    /// `CAP_SYS_PTRACE`, or if the process has called `PR_SET_NO_NEW_PRIVS`.
    pub fn for_program(&self, tracer: Option<&Self>) -> (Self, bool) {
        let mut new = self.clone();
        let of_root = self.users.real == 0 || self.users.effective == 0;
        let (mut permitted, mut effective) = (Capabilities::NONE, false);
        if of_root && !self.secure_bits.contains(SecureBits::NO_ROOT) {
            permitted = self.bounding | self.inheritable;
            effective = self.users.effective == 0;
        }
        let set_id =
            self.users.effective != self.users.real || self.groups.effective != self.groups.real;
        if set_id {
            new.ambient = Capabilities::NONE;
        }
        new.permitted = permitted | new.ambient;
        // With `no_new_privileges`, the program gains no capability, and a different effective user
        // or group is reset to the real one. So it is if the tracer may not use what the program
        // would gain. A process that may choose its user then keeps the effective one.
        let grows = !self.permitted.contains(new.permitted);
        let watched = tracer.is_some_and(|tracer| !tracer.can(Capabilities::SYS_PTRACE));
        if (self.no_new_privileges || watched) && (set_id || grows) {
            if self.no_new_privileges || !self.can(Capabilities::SETUID) {
                new.users.effective = self.users.real;
                new.groups.effective = self.groups.real;
            }
            new.permitted = new.permitted & self.permitted;
        }
        new.effective = if effective {
            new.permitted
        } else {
            new.ambient
        };
        new.users.saved = new.users.effective;
        new.users.file = new.users.effective;
        new.groups.saved = new.groups.effective;
        new.groups.file = new.groups.effective;
        new.secure_bits.remove(SecureBits::KEEP_CAPS);
        let grew = new.permitted != new.ambient;
        let secure = set_id || self.users.real != 0 && (effective || grew);
        (new, secure)
    }

    /// Returns whether a process that changes from the credentials `before` to these may hold data
    /// that its new user must not see. Such a process writes no core file, and other processes of
    /// that user cannot inspect it.
    pub fn hides_from(&self, before: &Self) -> bool {
        self.users.effective != before.users.effective
            || self.users.file != before.users.file
            || self.groups.effective != before.groups.effective
            || self.groups.file != before.groups.file
            || !before.permitted.contains(self.permitted)
    }
}

impl Credentials {
    /// Returns the credentials with the secure bits `bits`, as `PR_SET_SECUREBITS` sets them.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SETPCAP`, for unknown bits, and for a change of a locked bit.
    pub fn with_secure_bits(&self, bits: u64) -> Result<Self, Errno> {
        self.need(Capabilities::SETPCAP)?;
        let asked = u32::try_from(bits).ok().and_then(SecureBits::from_bits);
        let asked = asked.ok_or(Errno::EPERM)?;
        let kept = self.secure_bits.kept();
        if (self.secure_bits ^ asked).intersects(kept) {
            return Err(Errno::EPERM);
        }
        Ok(Self {
            secure_bits: asked,
            ..self.clone()
        })
    }

    /// Returns the credentials with [`SecureBits::KEEP_CAPS`] set to `keep` (`PR_SET_KEEPCAPS`).
    ///
    /// # Errors
    /// `EPERM` if the bit is locked.
    pub fn with_kept_capabilities(&self, keep: bool) -> Result<Self, Errno> {
        if self.secure_bits.contains(SecureBits::KEEP_CAPS_LOCKED) {
            return Err(Errno::EPERM);
        }
        let mut new = self.clone();
        new.secure_bits.set(SecureBits::KEEP_CAPS, keep);
        Ok(new)
    }

    /// Returns the credentials with `one` in the ambient set (`PR_CAP_AMBIENT_RAISE`).
    ///
    /// # Errors
    /// `EPERM` if `one` is not both permitted and inheritable, or a secure bit forbids the change.
    pub fn with_ambient(&self, one: Capabilities) -> Result<Self, Errno> {
        let held = self.permitted & self.inheritable;
        let forbidden = self.secure_bits.contains(SecureBits::NO_AMBIENT_RAISE);
        if forbidden || !held.contains(one) {
            return Err(Errno::EPERM);
        }
        Ok(Self {
            ambient: self.ambient | one,
            ..self.clone()
        })
    }
}

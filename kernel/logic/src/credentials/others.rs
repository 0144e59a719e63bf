//! What credentials permit with other threads' processes and with IPC objects.

use super::{Capabilities, Credentials};
use crate::errno::Errno;

/// The IDs and capabilities that count when a process inspects another one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LooksAs {
    /// The IDs for access to files and the effective capabilities (`PTRACE_MODE_FSCREDS`).
    OfFiles,
    /// The real IDs and the permitted capabilities (`PTRACE_MODE_REALCREDS`).
    Real,
}

impl Credentials {
    /// Returns whether a thread with these credentials may send a signal to a process with the
    /// credentials `other`.
    pub const fn may_signal(&self, other: &Self) -> bool {
        let (own, others) = (&self.users, &other.users);
        own.effective == others.saved
            || own.effective == others.real
            || own.real == others.saved
            || own.real == others.real
            || self.can(Capabilities::KILL)
    }

    /// Returns whether the effective user ID is the effective or the real user ID of `other`, or
    /// `CAP_SYS_NICE` is in force.
    pub const fn is_owner_of(&self, other: &Self) -> bool {
        self.users.effective == other.users.effective
            || self.users.effective == other.users.real
            || self.can(Capabilities::SYS_NICE)
    }

    /// Returns whether a thread with these credentials may change the scheduling of a thread with
    /// the credentials `other`. `CAP_SYS_NICE` is enough. Without it, `self` must
    /// [own](Self::is_owner_of) `other` and have all capabilities permitted to `other`.
    pub fn may_schedule(&self, other: &Self) -> bool {
        let subset = self.permitted.contains(other.permitted);
        self.is_owner_of(other) && (subset || self.can(Capabilities::SYS_NICE))
    }

    /// Returns whether a process with these credentials may change the resource limits of a process
    /// with the credentials `other`. `CAP_SYS_RESOURCE` is enough. Without it, the real user and
    /// group must equal the real, effective and saved ones of `other`.
    pub fn may_limit(&self, other: &Self) -> bool {
        let same = |own: u32, others: [u32; 3]| others.iter().all(|id| *id == own);
        same(self.users.real, other.users.three()) && same(self.groups.real, other.groups.three())
            || self.can(Capabilities::SYS_RESOURCE)
    }

    /// Returns whether a process with these credentials may inspect a process with the credentials
    /// `other`. `CAP_SYS_PTRACE` is enough. Without it, that process must be `dumpable`. The user,
    /// the group and the capabilities that `how` selects must then cover those of `other`.
    pub fn may_look_into(&self, other: &Self, dumpable: bool, how: LooksAs) -> bool {
        if self.can(Capabilities::SYS_PTRACE) {
            return true;
        }
        let (uid, gid, own) = match how {
            LooksAs::OfFiles => (self.users.file, self.groups.file, self.effective),
            LooksAs::Real => (self.users.real, self.groups.real, self.permitted),
        };
        let same = |own: u32, others: [u32; 3]| others.iter().all(|id| *id == own);
        dumpable
            && same(uid, other.users.three())
            && same(gid, other.groups.three())
            && own.contains(other.permitted)
    }

    /// Checks whether the mode of the IPC object `ipc` grants the access in `wanted` (4 to read, 2
    /// to write).
    ///
    /// # Errors
    /// `EACCES` if neither the mode nor `CAP_IPC_OWNER` grants the access.
    pub fn may_use_ipc(&self, ipc: &IpcOwned, wanted: u32) -> Result<(), Errno> {
        let uid = self.users.effective;
        let in_group = |gid| self.is_in_group(gid);
        let granted = if uid == ipc.owner[0] || uid == ipc.maker[0] {
            ipc.mode >> 6
        } else if in_group(ipc.owner[1]) || in_group(ipc.maker[1]) {
            ipc.mode >> 3
        } else {
            ipc.mode
        };
        if wanted & !granted & 7 == 0 || self.can(Capabilities::IPC_OWNER) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// Checks whether the IPC object `ipc` may be changed or removed.
    ///
    /// # Errors
    /// `EPERM` if the effective user is neither its owner nor its creator and `CAP_SYS_ADMIN` is
    /// missing.
    pub const fn may_change_ipc(&self, ipc: &IpcOwned) -> Result<(), Errno> {
        let uid = self.users.effective;
        if uid == ipc.owner[0] || uid == ipc.maker[0] {
            return Ok(());
        }
        self.need(Capabilities::SYS_ADMIN)
    }
}

/// Owner, creator and mode of an IPC object.
#[derive(Copy, Clone, Debug)]
pub struct IpcOwned {
    /// Owner: user and group.
    pub owner: [u32; 2],
    /// Creator: user and group.
    pub maker: [u32; 2],
    /// Permission bits.
    pub mode: u32,
}

//! Who may do what with another's processes and IPC objects.

use super::{Capabilities, Credentials};
use crate::errno::Errno;

/// As whom one looks into another process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LooksAs {
    /// As who looks at files, by the capabilities in force (`PTRACE_MODE_FSCREDS`).
    OfFiles,
    /// As the real user, by what could be in force (`PTRACE_MODE_REALCREDS`).
    Real,
}

impl Credentials {
    /// Whether it may send a process of `other` a signal.
    pub const fn may_signal(&self, other: &Self) -> bool {
        let (own, others) = (&self.users, &other.users);
        own.effective == others.saved
            || own.effective == others.real
            || own.real == others.saved
            || own.real == others.real
            || self.can(Capabilities::KILL)
    }

    /// Whether threads of `other` are its own to schedule: by its effective user, or by
    /// `CAP_SYS_NICE`.
    pub const fn is_owner_of(&self, other: &Self) -> bool {
        self.users.effective == other.users.effective
            || self.users.effective == other.users.real
            || self.can(Capabilities::SYS_NICE)
    }

    /// Whether it may say how a thread of `other` is scheduled: one that is its own, and has no
    /// capabilities that it lacks itself.
    pub fn may_schedule(&self, other: &Self) -> bool {
        let subset = self.permitted.contains(other.permitted);
        self.is_owner_of(other) && (subset || self.can(Capabilities::SYS_NICE))
    }

    /// Whether it may change another process's limits.
    pub fn may_limit(&self, other: &Self) -> bool {
        let same = |own: u32, others: [u32; 3]| others.iter().all(|id| *id == own);
        same(self.users.real, other.users.three()) && same(self.groups.real, other.groups.three())
            || self.can(Capabilities::SYS_RESOURCE)
    }

    /// Whether it may look into another process, which may have said that nobody should
    /// (`dumpable` is not 1).
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

    /// Whether the bits of an IPC object grant what is wanted (bits as of a file: 4, 2) to who acts.
    ///
    /// # Errors
    /// `EACCES`.
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

    /// Whether it may change or remove an IPC object.
    ///
    /// # Errors
    /// `EPERM`.
    pub const fn may_change_ipc(&self, ipc: &IpcOwned) -> Result<(), Errno> {
        let uid = self.users.effective;
        if uid == ipc.owner[0] || uid == ipc.maker[0] {
            return Ok(());
        }
        self.need(Capabilities::SYS_ADMIN)
    }
}

/// To whom an IPC object belongs.
#[derive(Copy, Clone, Debug)]
pub struct IpcOwned {
    /// Owner: user and group.
    pub owner: [u32; 2],
    /// Maker: user and group.
    pub maker: [u32; 2],
    /// Permission bits.
    pub mode: u32,
}

//! The measures that confine QEMU, by name.

use std::fmt;

/// A measure that confines QEMU.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Measure {
    /// It runs as a user without rights: where root starts `ebb`, one of its own; else the same.
    User,
    /// It has no capabilities.
    Capabilities,
    /// It can gain no privileges.
    NoNewPrivileges,
    /// It can make a part of the system calls alone.
    Seccomp,
    UserNamespace,
    NetworkNamespace,
    IpcNamespace,
    /// It opens nothing but system folders, for reading, and devices that it needs.
    Files,
    /// The memory, descriptors and threads that it may take are bounded.
    Limits,
    Environment,
    Descriptors,
    /// Its working folder is `/`.
    Folder,
}

impl Measure {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::User,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::Seccomp,
        Self::UserNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::Files,
        Self::Limits,
        Self::Environment,
        Self::Descriptors,
        Self::Folder,
    ];
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "unprivileged user",
            Self::Capabilities => "no capabilities",
            Self::NoNewPrivileges => "no_new_privs",
            Self::Seccomp => "seccomp",
            Self::UserNamespace => "user namespace",
            Self::NetworkNamespace => "network namespace",
            Self::IpcNamespace => "IPC namespace",
            Self::Files => "Landlock",
            Self::Limits => "limits",
            Self::Environment => "empty environment",
            Self::Descriptors => "no other descriptors",
            Self::Folder => "folder /",
        })
    }
}

//! The names of the measures that confine QEMU.

use std::fmt;

/// A measure that confines QEMU.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Measure {
    /// QEMU runs as an unprivileged user. If root runs `ebb`, this is a user of QEMU's own, else
    /// the same user.
    User,
    /// QEMU has no capabilities.
    Capabilities,
    /// QEMU can gain no privileges.
    NoNewPrivileges,
    /// QEMU can make only some of the system calls.
    Seccomp,
    UserNamespace,
    NetworkNamespace,
    IpcNamespace,
    /// QEMU can open only system folders, for reading, and the devices that it needs.
    Files,
    /// The memory, descriptors and threads of QEMU are limited.
    Limits,
    Environment,
    Descriptors,
    /// The working folder of QEMU is `/`.
    Folder,
}

impl Measure {
    /// All measures, in the order in which messages list them. A failed process reports a measure
    /// by its position in this array.
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

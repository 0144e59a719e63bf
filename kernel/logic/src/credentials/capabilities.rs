//! Capabilities: the privileges of root, one by one.

use core::ops::{BitAnd, BitOr};

/// A set of capabilities. Bit `n` is the capability with Linux's number `n`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

/// The highest number of a capability in Linux 6.1 (`CAP_CHECKPOINT_RESTORE`).
pub const LAST: u32 = 40;

macro_rules! capabilities {
    ($($name:ident = $number:literal: $what:literal)*) => {
        impl Capabilities {
            $(
                #[doc = concat!("`CAP_", stringify!($name), "`: ", $what, ".")]
                pub const $name: Self = Self(1 << $number);
            )*
        }
    };
}

capabilities! {
    CHOWN = 0: "give files away"
    DAC_OVERRIDE = 1: "pass the permission bits of files"
    DAC_READ_SEARCH = 2: "read files and pass directories whatever their bits"
    FOWNER = 3: "do with files what their owner may"
    FSETID = 4: "keep set-id bits"
    KILL = 5: "send signals to any process"
    SETGID = 6: "take any group"
    SETUID = 7: "become any user"
    SETPCAP = 8: "drop capabilities from the bounding set"
    LINUX_IMMUTABLE = 9: "change what cannot be changed"
    NET_BIND_SERVICE = 10: "bind to ports below 1024"
    NET_ADMIN = 12: "administer the network"
    NET_RAW = 13: "tie a socket to another interface"
    IPC_LOCK = 14: "lock memory without limit"
    IPC_OWNER = 15: "pass the permission bits of IPC objects"
    SYS_CHROOT = 18: "change the root"
    SYS_PTRACE = 19: "look into any user's processes"
    SYS_ADMIN = 21: "administer the system"
    SYS_BOOT = 22: "restart it"
    SYS_NICE = 23: "raise priorities"
    SYS_RESOURCE = 24: "raise limits"
    SYS_TIME = 25: "set clocks"
    SYS_TTY_CONFIG = 26: "hang up terminals"
    MKNOD = 27: "make device nodes"
    SETFCAP = 31: "give files capabilities"
    MAC_OVERRIDE = 32: "pass mandatory access control"
    SYSLOG = 34: "read the kernel's log"
    WAKE_ALARM = 35: "set timers that wake the machine"
    CHECKPOINT_RESTORE = 40: "checkpoint and restore"
}

impl Capabilities {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// All capabilities of Linux 6.1.
    pub const ALL: Self = Self((1 << (LAST + 1)) - 1);
    /// The capabilities for access to files. `setfsuid` from root to another user removes them from
    /// the effective set, and `setfsuid` to root makes those effective that are permitted.
    pub const OF_FILES: Self = Self(
        Self::CHOWN.0
            | Self::MKNOD.0
            | Self::DAC_OVERRIDE.0
            | Self::DAC_READ_SEARCH.0
            | Self::FOWNER.0
            | Self::FSETID.0
            | Self::LINUX_IMMUTABLE.0
            | Self::MAC_OVERRIDE.0,
    );

    /// Returns the capability with this `number`, or `None` if Linux has none.
    pub const fn numbered(number: u64) -> Option<Self> {
        if number <= LAST as u64 {
            Some(Self(1 << number))
        } else {
            None
        }
    }

    /// Returns whether all of `others` are in `self`.
    #[inline]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns whether at least one of `others` is in `self`.
    #[inline]
    pub const fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the capabilities of `self` that are not in `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl BitOr for Capabilities {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Capabilities {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

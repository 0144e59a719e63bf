//! Restrictions of root's privileges: `PR_SET_SECUREBITS`.

bitflags::bitflags! {
    /// The secure bits of a thread (`SECBIT_*`). Each lock makes the bit before it unchangeable.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
    pub struct SecureBits: u32 {
        /// A program that root starts gets no capabilities from root's ID.
        const NO_ROOT = 1;
        /// Locks `NO_ROOT`.
        const NO_ROOT_LOCKED = 1 << 1;
        /// A change of the user changes no capabilities.
        const NO_SETUID_FIXUP = 1 << 2;
        /// Locks `NO_SETUID_FIXUP`.
        const NO_SETUID_FIXUP_LOCKED = 1 << 3;
        /// A change from root to another user keeps the permitted capabilities (`PR_SET_KEEPCAPS`).
        const KEEP_CAPS = 1 << 4;
        /// Locks `KEEP_CAPS`.
        const KEEP_CAPS_LOCKED = 1 << 5;
        /// No capability can be made ambient.
        const NO_AMBIENT_RAISE = 1 << 6;
        /// Locks `NO_AMBIENT_RAISE`.
        const NO_AMBIENT_RAISE_LOCKED = 1 << 7;
    }
}

impl SecureBits {
    const LOCKS: Self = Self::NO_ROOT_LOCKED
        .union(Self::NO_SETUID_FIXUP_LOCKED)
        .union(Self::KEEP_CAPS_LOCKED)
        .union(Self::NO_AMBIENT_RAISE_LOCKED);

    /// Returns the locks that are set, and the bits that they lock.
    pub(super) const fn kept(self) -> Self {
        let locks = self.intersection(Self::LOCKS);
        Self::from_bits_truncate(locks.bits() | locks.bits() >> 1)
    }
}

//! Memory policies of areas. They are stored and shown without an effect, since there is one memory
//! node.

use super::map::page_range;
use super::{AddressSpace, VmaFlags, VmaInfo};
use logic::errno::Errno;
use logic::mempolicy::{POLICY_BITS, Policy};

/// The number of the lowest bit of a policy in an area's flags.
const AT: u32 = VmaFlags::POLICY.bits().trailing_zeros();
const _: () = assert!(VmaFlags::POLICY.bits().count_ones() == POLICY_BITS);

fn policy_of(flags: VmaFlags) -> Policy {
    let bits = (flags & VmaFlags::POLICY).bits() >> AT;
    // Below 2^POLICY_BITS.
    Policy::from_bits(u8::try_from(bits).unwrap_or(0))
}

impl VmaInfo {
    /// Returns the memory policy of the area.
    pub fn policy(&self) -> Policy {
        policy_of(self.flags)
    }
}

impl AddressSpace {
    /// Returns the memory policy of the area at `address`.
    ///
    /// # Errors
    /// Fails with `EFAULT` if nothing is mapped there.
    pub fn policy_at(&self, address: u64) -> Result<Policy, Errno> {
        self.look_settled(|state| {
            let area = state.areas.find(address).ok_or(Errno::EFAULT)?;
            Ok(policy_of(area.flags))
        })
    }

    /// Gives the areas in a range a policy (`mbind(2)`).
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned start, for a range that leaves the user's half, and if
    /// an end of the range cuts a page of the pool of huge pages. Fails with `EFAULT` if a part is
    /// not mapped, and with `ENOMEM` if there would be too many areas.
    pub fn set_policy(&self, start: u64, bytes: u64, policy: Policy) -> Result<(), Errno> {
        let range = page_range(start, bytes, Errno::EINVAL)?;
        if range.is_empty() {
            return Ok(());
        }
        if !self.covers(&range) {
            return Err(Errno::EFAULT);
        }
        let set = VmaFlags::from_bits_retain(u32::from(policy.bits()) << AT);
        self.set_flags(range, VmaFlags::POLICY, set, |_| true)
    }

    /// Checks that the areas in a range may have a home node (`set_mempolicy_home_node(2)`). Areas
    /// with the default policy do not count.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned start or a range that leaves the user's half. Fails
    /// with `ENOENT` if no area in the range has a policy, and with `EOPNOTSUPP` if an area has a
    /// policy without a home node.
    pub fn check_home_node(&self, start: u64, bytes: u64) -> Result<(), Errno> {
        const PREFERS_MANY: u32 = 5;
        const BINDS: u32 = 2;
        const MODE: u32 = 7;
        let range = page_range(start, bytes, Errno::EINVAL)?;
        let state = self.state.lock();
        // No area: as on Linux.
        let mut result = if range.is_empty() {
            Ok(())
        } else {
            Err(Errno::ENOENT)
        };
        for area in state.areas.overlapping(range) {
            let policy = policy_of(area.flags);
            if policy.is_default() {
                continue;
            }
            if ![PREFERS_MANY, BINDS].contains(&(policy.mode() & MODE)) {
                return Err(Errno::EOPNOTSUPP);
            }
            result = Ok(());
        }
        result
    }

    /// Checks that the page at `address` is in memory and mapped there.
    ///
    /// # Errors
    /// Fails with `EFAULT` if nothing is mapped there. If an area is, but not the page, fails with
    /// `ENOENT` for a file and with `EFAULT` for private anonymous memory, as on Linux 6.1.
    pub fn check_page_is_there(&self, address: u64) -> Result<(), Errno> {
        let of_file = self.look_settled(|state| {
            let area = state.areas.find(address).ok_or(Errno::EFAULT)?;
            Ok::<_, Errno>(area.backing.file().is_some())
        })?;
        let mut there = false;
        self.show_pages(address & !4095, 1, |shown| there = shown.is_some());
        match (there, of_file) {
            (true, _) => Ok(()),
            (false, true) => Err(Errno::ENOENT),
            (false, false) => Err(Errno::EFAULT),
        }
    }
}

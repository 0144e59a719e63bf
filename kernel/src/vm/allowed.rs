//! Whether the page tables allow an access as they are.

use super::AddressSpace;
use super::entry::{NO_EXECUTE, PRESENT, USER, WRITABLE};
use super::fault::Access;
use super::pagetable::Leaf;
use core::sync::atomic::Ordering;
use machine::arch::USER_END;

impl AddressSpace {
    /// Returns the version of the areas (`State::version`) if the page tables allow `access` to
    /// `address`. A fault there needs no work then. Returns `None` if the tables do not allow the
    /// access.
    pub(super) fn allows(&self, address: u64, access: Access) -> Option<u64> {
        if address >= USER_END {
            return None;
        }
        let state = self.state.lock();
        let entry = match state.tables.leaf(address) {
            // Relaxed: under the lock.
            Leaf::Page(entry) => entry.load(Ordering::Relaxed),
            Leaf::Huge(slot) => slot.load(),
            Leaf::Trial(_) | Leaf::Absent => 0,
        };
        let needed = match access {
            Access::Write => PRESENT | USER | WRITABLE,
            Access::Read | Access::Execute => PRESENT | USER,
        };
        let forbidden = access == Access::Execute && entry & NO_EXECUTE != 0;
        (entry & needed == needed && !forbidden).then_some(state.version)
    }
}

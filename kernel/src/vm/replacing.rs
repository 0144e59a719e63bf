//! Mappings that replace others, as other threads see them.
//!
//! `MAP_FIXED` and `MREMAP_FIXED` remove the old areas and insert the new one under several holds
//! of `state`, all within one hold of `change`. An access that finds no area in between waits for
//! the end of the change and checks again. So every thread sees the old mapping or the new one.

use super::fault::{Access, Fault};
use super::space::State;
use super::want::Want;
use super::{AddressSpace, VmaInfo};
use core::ops::Range;
use machine::sched;

/// Marks a range whose mapping is being replaced, until this is dropped. The caller holds `change`.
pub(super) struct Replacing<'a>(&'a AddressSpace);

impl<'a> Replacing<'a> {
    /// Marks `range` of `space`, whose mapping is about to be replaced by another.
    pub(super) fn begin(space: &'a AddressSpace, range: Range<u64>) -> Self {
        space.state.lock().replacing = range;
        Self(space)
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().replacing = 0..0;
    }
}

impl AddressSpace {
    /// Returns the result of `look` on the locked state. If `look` fails, waits for the end of a
    /// change of the areas and calls `look` once more. The caller holds no spin lock.
    ///
    /// # Errors
    /// Fails with the error of the second call of `look`.
    pub(super) fn look_settled<T, E>(&self, look: impl Fn(&State) -> Result<T, E>) -> Result<T, E> {
        let found = look(&self.state.lock());
        found.or_else(|_| {
            let _change = self.change.lock();
            look(&self.state.lock())
        })
    }

    /// Returns whether areas cover `range` without a gap. The caller holds no spin lock.
    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        if self.covered_until(range) >= range.end {
            return true;
        }
        let _change = self.change.lock();
        self.covered_until(range) >= range.end
    }

    /// Returns the first area that ends behind `at`, or `None` if there is none. If another mapping
    /// is just being put in the place of an area, waits for that.
    pub fn vma_from(&self, at: u64) -> Option<VmaInfo> {
        let (info, replaced) = {
            let state = self.state.lock();
            let info = state.info_from(at);
            let next = info.as_ref().map_or(u64::MAX, |info| info.start);
            (
                info,
                state.replacing.start < next && at < state.replacing.end,
            )
        };
        if !replaced {
            return info;
        }
        let _change = self.change.lock();
        self.state.lock().info_from(at)
    }

    /// Continues a fault at `address` that failed with `fault`. If the areas allow the access while
    /// no change of them is under way, calls `again` to serve the fault, and returns its result.
    ///
    /// # Errors
    /// Fails with the reason why the page cannot be accessed. [`Fault::NoMemory`] can also mean
    /// that the thread is being killed.
    #[cold]
    pub(super) fn serve_again<T>(
        &self,
        (address, access, want): (u64, Access, Want),
        mut fault: Fault,
        mut again: impl FnMut() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        // Ends: another turn needs another change of the mapping between the check and the fault. A
        // killed thread leaves.
        loop {
            if fault == Fault::NoMemory || sched::current().killed() {
                return Err(Fault::NoMemory);
            }
            {
                let _change = self.change.lock_killable().map_err(|_| Fault::NoMemory)?;
                self.state.lock().check_fault(address, access, want)?;
            }
            // What the file of an area has not got is not there after a change either.
            let beyond = fault == Fault::BeyondFile;
            match again() {
                Err(next) if !(beyond && next == Fault::BeyondFile) => fault = next,
                result => return result,
            }
        }
    }
}

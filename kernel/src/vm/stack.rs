//! Areas that grow downwards when they are touched below.

use super::fault::Fault;
use super::space::{Area, PAGE, Sizes, State};
use super::{AddressSpace, VmaFlags};
use machine::memory::knobs;

/// The lowest address of mappings, so that an access by a null pointer with an offset faults.
pub(super) const MAP_BOTTOM: u64 = 64 << 10;
/// The size in bytes of the free range below a stack that can still grow.
pub(super) const GUARD: u64 = 1 << 20;

impl AddressSpace {
    /// Grows the stack above `page` down to it, if there is such a stack. Waits for another change
    /// of the areas.
    ///
    /// # Errors
    /// Fails with [`Fault::NotMapped`] if no stack can grow there or a limit of the process is
    /// exceeded. Fails with [`Fault::NoMemory`] if too much memory would be committed, or the task
    /// is being killed.
    pub(super) fn grow_stack(&self, page: u64) -> Result<(), Fault> {
        let _change = self.change.lock_killable().map_err(|_| Fault::NoMemory)?;
        self.state.lock().grow_stack(page)
    }
}

impl State {
    /// Returns the stack that might grow down to `page`, which lies in no area. Fails with
    /// [`Fault::NotMapped`] if there is none.
    pub(super) fn stack_above(&self, page: u64) -> Result<&Area, Fault> {
        self.areas
            .next_from(page)
            .filter(|above| above.flags.contains(VmaFlags::GROWS_DOWN))
            .ok_or(Fault::NotMapped)
    }

    /// Grows the stack above `page` down to it. The caller holds `change`. Fails as
    /// [`AddressSpace::grow_stack`].
    pub(super) fn grow_stack(&mut self, page: u64) -> Result<(), Fault> {
        if self.areas.find(page).is_some() {
            // Another thread was here first.
            return Ok(());
        }
        let above = self.stack_above(page)?;
        let (start, end, flags) = (above.start, above.end, above.flags);
        let below = self.areas.last_before(page);
        // What cannot be touched, or is a stack too, need not be kept away from.
        let apart = |flags: VmaFlags| {
            flags.contains(VmaFlags::GROWS_DOWN) || !flags.intersects(VmaFlags::RIGHTS)
        };
        let guarded =
            page >= MAP_BOTTOM && below.is_none_or(|b| b.end + GUARD <= page || apart(b.flags));
        let growth = Sizes::of(flags, start - page);
        if !guarded || end - page > self.limits.stack || self.check_limits(growth).is_err() {
            return Err(Fault::NotMapped);
        }
        knobs::commit(growth.accounted / PAGE).map_err(|_| Fault::NoMemory)?;
        self.areas.grow_down(start, page);
        self.sizes.add(growth);
        self.changed();
        Ok(())
    }
}

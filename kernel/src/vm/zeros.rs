//! The huge page of zeros, which private memory maps for a whole region that was read and not
//! stored to.

use super::entry::{ADDRESS, HUGE, REGION, ZERO};
use super::pagetable::{PageTables, Slot};
use super::serve::{Asked, Step, Supplies};
use super::thp::HugeTry;
use super::tlb;
use super::want::{Want, entry_flags};
use machine::arch::CpuSet;
use machine::memory::frame::FrameRef;
use machine::memory::zero_block;
use machine::memory::zero_frame;

impl Asked<'_> {
    /// Returns whether the fault is a load that the huge page of zeros may serve. Returns `false`
    /// if the fault wants a reference to the frame, if that huge page is not in use, or if an
    /// attempt to get it has failed. The caller checks that the area may have huge pages.
    #[inline(always)]
    pub(super) fn wants_zeros(&self, supplies: &Supplies) -> bool {
        !self.store
            && self.want == Want::Mapped
            && zero_block::is_used()
            && !matches!(supplies.huge, HugeTry::Failed)
    }

    /// Maps the huge page of zeros at the region, where nothing is mapped. If a supply is missing,
    /// returns the step that gets it.
    #[cold]
    pub(super) fn new_zeros(&self, tables: &PageTables, supplies: &mut Supplies) -> Step {
        let HugeTry::Zeros(block, table) = core::mem::take(&mut supplies.huge) else {
            return Step::NeedsZeros;
        };
        match tables.region_slot_or_new(self.page) {
            Ok(slot) => {
                let block = block.into_counted().address();
                tables.set_huge(slot, block | entry_flags(self.area.flags) | ZERO, table);
                Step::Done(None)
            }
            Err(error) => {
                supplies.huge = HugeTry::Zeros(block, table);
                error.into()
            }
        }
    }

    /// Gives the entry `slot` of the huge page of zeros the rights of the area, for a load. Returns
    /// a reference to a frame of zeros, or `None` if the fault wants none ([`Want::Mapped`]).
    #[cold]
    pub(super) fn allow_zeros(&self, slot: Slot<'_>) -> Option<FrameRef> {
        let kept = slot.load() & (ADDRESS | HUGE | ZERO);
        slot.set_page(kept | entry_flags(self.area.flags));
        // As for `Change::allow`.
        machine::arch::cpu::invlpg(self.page);
        (self.want != Want::Mapped).then(|| FrameRef::new_reference(zero_frame()))
    }
}

impl PageTables {
    /// Unmaps the huge page of zeros at a region, if it is mapped there, to make room for the page
    /// of a store.
    pub(super) fn drop_zeros(&self, slot: Slot<'_>, region: u64, cpus: &CpuSet) {
        let entry = slot.load();
        if entry & (HUGE | ZERO) != HUGE | ZERO {
            return;
        }
        debug_assert!(region.is_multiple_of(REGION));
        // Not both at once: some CPUs must not read zeros when others store to the new one.
        slot.set_page(0);
        tlb::flush(cpus, region..region + 1);
        drop(self.deposits.pop());
        zero_block::release(1);
    }
}

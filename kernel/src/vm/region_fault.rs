//! Faults in a region that has no table of pages, or a huge page in its place.

use super::VmaFlags;
use super::backing::Bytes;
use super::collapse::may_join;
use super::entry::{DIRTY, NO_EXECUTE, PRESENT, REGION, WRITABLE, ZERO, index};
use super::pagetable::{Leaf, PageTables, Slot};
use super::serve::{Asked, Step, Supplies};
use super::thp::{
    HugeTry, allow_huge, asks_for_huge, pin_huge, put_huge, put_on_trial, wants_huge,
};
use super::trial::table_of;
use super::want::{Want, entry_flags};
use core::sync::atomic::Ordering;
use machine::memory::zero_block;

impl Asked<'_> {
    /// Serves a fault in a region without a table, or with another entry in its place. `leaf` is
    /// what maps the page. `mapped` is the space's `State::mapped`, which counts the pages that
    /// this maps. Returns the supply that is missing, if any. Returns `None` if the fault needs a
    /// base page.
    #[cold]
    pub(super) fn no_table(
        &self,
        leaf: Leaf<'_>,
        tables: &PageTables,
        mapped: &mut [u64; 3],
        supplies: &mut Supplies,
    ) -> Option<Step> {
        let (page, flags) = (self.page, self.area.flags);
        let region = page & !(REGION - 1);
        let holds_region = self.area.start <= region && self.area.end - region >= REGION;
        match leaf {
            Leaf::Huge(slot) if slot.load() & ZERO != 0 => {
                if !self.store && holds_region {
                    return Some(Step::Done(self.allow_zeros(slot)));
                }
                let step = if self.store && self.may_have_huge(holds_region) {
                    self.new_huge(tables, mapped, supplies)
                } else {
                    None
                };
                if step.is_none() {
                    tables.split(page, &self.space.cpus);
                }
                step
            }
            Leaf::Huge(slot) => {
                if holds_region && allow_huge(slot, page, flags, self.store) {
                    return Some(Step::Done(pin_huge(slot, page, self.want)));
                }
                tables.split(page, &self.space.cpus);
                None
            }
            Leaf::Trial(slot) => Some(self.on_trial(slot)),
            Leaf::Absent
                if holds_region
                    && (!self.store || flags.contains(VmaFlags::SHARED))
                    && let Bytes::File(file, offset) = &self.area.backing =>
            {
                self.block(tables, mapped, supplies, file, *offset)
            }
            // Where zeros are not shown so, a load gets what a store would.
            Leaf::Absent
                if (self.store || !zero_block::is_used()) && self.may_have_huge(holds_region) =>
            {
                self.new_huge(tables, mapped, supplies)
            }
            Leaf::Absent if self.wants_zeros(supplies) && self.may_have_huge(holds_region) => {
                Some(self.new_zeros(tables, supplies))
            }
            Leaf::Absent if !supplies.unlisted && self.may_be_joined() => Some(Step::NeedsListing),
            Leaf::Page(_) | Leaf::Absent => None,
        }
    }

    /// Returns whether a huge page may serve the fault. `holds_region` says whether the area
    /// contains the whole region.
    fn may_have_huge(&self, holds_region: bool) -> bool {
        let flags = self.area.flags;
        holds_region
            && self.area.backing.file().is_none()
            && wants_huge(flags)
            && (asks_for_huge(flags) || self.want == Want::Mapped)
            && !self.space.declines_huge_pages()
    }

    /// Maps a private huge page in a region that maps no page, or zeros. `mapped` is the space's
    /// `State::mapped`. Returns the supply that is missing, if any. Returns `None` if there is no
    /// huge page.
    #[cold]
    fn new_huge(
        &self,
        tables: &PageTables,
        mapped: &mut [u64; 3],
        supplies: &mut Supplies,
    ) -> Option<Step> {
        let (page, flags) = (self.page, self.area.flags);
        let region = page & !(REGION - 1);
        let asks = asks_for_huge(flags);
        match core::mem::take(&mut supplies.huge) {
            HugeTry::NotTried => Some(Step::NeedsHuge(asks)),
            HugeTry::Got(_) if !asks && !self.space.is_enlisted() => Some(Step::NeedsHuge(asks)),
            HugeTry::Got(supply) => match tables.region_slot_or_new(page) {
                Ok(slot) => {
                    tables.drop_zeros(slot, region, &self.space.cpus);
                    let owner = self.space.owner_of(region);
                    if asks {
                        put_huge(tables, mapped, slot, supply, flags, owner);
                    } else {
                        put_on_trial(tables, mapped, slot, supply, flags, owner, page);
                    }
                    Some(Step::Done(pin_huge(slot, page, self.want)))
                }
                Err(error) => {
                    supplies.huge = HugeTry::Got(supply);
                    Some(error.into())
                }
            },
            // A supply for loads is never requested for stores.
            HugeTry::Failed | HugeTry::Zeros(..) => {
                supplies.huge = HugeTry::Failed;
                None
            }
        }
    }

    /// Returns whether the pages of a new table may be joined one day and `khugepaged` does not
    /// visit this space yet.
    fn may_be_joined(&self) -> bool {
        !self.space.is_enlisted()
            && self.area.end - self.area.start >= REGION
            && may_join(self.area)
    }

    /// Serves a fault in a huge page on trial. Mostly another CPU has served it just before.
    /// Returns `NeedsVerdict` if the trial must be decided first.
    #[cold]
    fn on_trial(&self, slot: Slot<'_>) -> Step {
        // Relaxed (all): under the lock.
        let entry = &table_of(slot)[index(self.page, 0)];
        let (has, gives) = (entry.load(Ordering::Relaxed), entry_flags(self.area.flags));
        let allowed =
            (has ^ gives) & (PRESENT | NO_EXECUTE) == 0 && (!self.store || has & WRITABLE != 0);
        if self.want != Want::Mapped || !allowed {
            return Step::NeedsVerdict;
        }
        if self.store {
            entry.fetch_or(DIRTY, Ordering::Relaxed);
        }
        machine::arch::cpu::invlpg(self.page);
        Step::Done(None)
    }
}

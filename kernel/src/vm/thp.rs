//! Faults that huge pages serve: which areas get huge pages, and how a fault in one is served.

use super::compaction::{self, daemon, proactive};
use super::entry::{ADDRESS, DIRTY, FILE, HUGE, REGION, SHMEM, WRITABLE, ZERO, frame_of, index};
use super::family::Owner;
use super::khugepaged::{enlist, enlist_for_trial};
use super::leaf::{HugeSupply, TableFrame};
use super::pagetable::{PageTables, Slot};
use super::want::{Want, entry_flags, store_flags};
use super::{AddressSpace, VmaFlags};
use ebb_mm::AllocError;
use machine::memory::frame::FrameRef;
use machine::memory::huge::{self, Effort, HugeFrame, Policy};
use machine::memory::memmap::Descriptor;
use machine::memory::percpu::{self, Count};
use machine::memory::zero_block::ZeroBlock;

/// The state of the attempt to serve a fault by a huge page.
#[derive(Default)]
pub(super) enum HugeTry {
    #[default]
    NotTried,
    Got(HugeSupply),
    /// The huge page of zeros, and the table in reserve for its entry. They serve a load.
    Zeros(ZeroBlock, TableFrame),
    /// There is no huge page. Base pages must serve the fault.
    Failed,
}

impl HugeTry {
    /// Gets the huge page of zeros and a table for its entry, without waiting for memory. Returns
    /// [`Self::Zeros`], or [`Self::Failed`] if one of them is missing.
    #[cold]
    pub(super) fn zeros() -> Self {
        match (ZeroBlock::get(), TableFrame::try_new()) {
            (Some(block), Ok(table)) => Self::Zeros(block, table),
            _ => Self::Failed,
        }
    }

    /// Allocates a huge page for an area of `space`, as far as `defrag` allows. `asks` says whether
    /// the area asks for huge pages. Otherwise the page is for a trial. Returns [`Self::Got`] or
    /// [`Self::Failed`].
    #[cold]
    pub(super) fn get(asks: bool, space: &AddressSpace) -> Self {
        if asks {
            // Where it gets none it may later.
            enlist(space);
        } else if !enlist_for_trial(space) {
            return Self::Failed;
        }
        match HugeSupply::get(huge::defrag().effort(asks)) {
            Ok(supply) => Self::Got(supply),
            Err(_) => {
                percpu::add(Count::HugeFallbacks, 1);
                Self::Failed
            }
        }
    }
}

impl HugeSupply {
    /// Allocates a huge block and a table. `effort` limits the work if no block is free. Fails if
    /// that frees no block, or if no frame is free for the table.
    pub(super) fn get(effort: Effort) -> Result<Self, AllocError> {
        let mut block = HugeFrame::try_new();
        if block.is_err() {
            match effort {
                Effort::Direct => {
                    if compaction::make_block() {
                        block = HugeFrame::try_new();
                    }
                }
                Effort::Background => daemon::want_block(),
                Effort::None => {}
            }
        }
        let block = block?;
        proactive::note_block_taken();
        let table = TableFrame::try_new()?;
        Ok(Self { block, table })
    }
}

/// Maps the huge block of `supply` at `slot`, for a region of an area with `flags`. Adds its pages
/// to `mapped`, the space's `State::mapped`. `owner` becomes the owner word of the block.
pub(super) fn put_huge(
    tables: &PageTables,
    mapped: &mut [u64; 3],
    slot: Slot<'_>,
    supply: HugeSupply,
    flags: VmaFlags,
    owner: Owner,
) {
    let frame = supply.block.into_counted();
    Descriptor::get(frame).set_owner(owner.0);
    let entry = frame.address() | entry_flags(flags) | store_flags(flags);
    tables.set_huge(slot, entry, supply.table);
    mapped[0] += huge::FRAMES;
    percpu::add(Count::HugeFaults, 1);
}

/// Maps the huge block of `supply`, which no program asked for, on trial. `page` is the address of
/// the page of the store. The other parameters are those of [`put_huge`].
pub(super) fn put_on_trial(
    tables: &PageTables,
    mapped: &mut [u64; 3],
    slot: Slot<'_>,
    supply: HugeSupply,
    flags: VmaFlags,
    owner: Owner,
    page: u64,
) {
    let frame = supply.block.into_counted();
    Descriptor::get(frame).set_owner(owner.0);
    let rights = entry_flags(flags) | store_flags(flags);
    let start = page & !(REGION - 1);
    tables.set_trial(slot, start, frame, rights, index(page, 0), supply.table);
    mapped[0] += huge::FRAMES;
    percpu::add(Count::HugeFaults, 1);
}

/// Returns whether areas with these flags get huge pages without a trial, because the program said
/// that it uses all of the memory.
pub(super) fn asks_for_huge(flags: VmaFlags) -> bool {
    flags.intersects(VmaFlags::HUGE_PAGES | VmaFlags::LOCKED)
}

/// The flags of areas that get no huge pages. Stacks grow and shrink by pages, and most stay small.
pub(super) const NEVER: VmaFlags = VmaFlags::SHARED
    .union(VmaFlags::GROWS_DOWN)
    .union(VmaFlags::STACK)
    .union(VmaFlags::NO_HUGE_PAGES);

/// Returns whether areas with these flags get huge pages, by the policy for huge pages.
pub(super) fn wants_huge(flags: VmaFlags) -> bool {
    !flags.intersects(NEVER)
        && match huge::policy() {
            Policy::Always => true,
            Policy::Madvise => flags.contains(VmaFlags::HUGE_PAGES),
            Policy::Never => false,
        }
}

/// Gives the entry `slot` of a huge page, which lies wholly in an area with `flags`, the rights of
/// the area, for an access to `page`. Returns `false` and changes nothing if the access is a store
/// and needs a private copy, because other spaces or a file share the huge page.
pub(super) fn allow_huge(slot: Slot<'_>, page: u64, flags: VmaFlags, store: bool) -> bool {
    let old = slot.load();
    let rights = if !store || old & WRITABLE != 0 {
        old & (WRITABLE | DIRTY)
    } else if old & (FILE | SHMEM) != 0 {
        if !flags.contains(VmaFlags::SHARED) {
            return false;
        }
        store_flags(flags)
    } else if huge::is_own(frame_of(old)) {
        store_flags(flags)
    } else {
        return false;
    };
    let kept = old & (ADDRESS | HUGE | FILE | SHMEM | ZERO);
    slot.set_page(kept | entry_flags(flags) | rights);
    // As for `Change::allow`.
    machine::arch::cpu::invlpg(page);
    true
}

/// Returns a reference to the frame of `page` in the huge page that `slot` maps. Returns `None` if
/// `want` is [`Want::Mapped`].
pub(super) fn pin_huge(slot: Slot<'_>, page: u64, want: Want) -> Option<FrameRef> {
    if want == Want::Mapped {
        return None;
    }
    let entry = slot.load();
    if entry & (FILE | SHMEM) == 0 {
        huge::part(frame_of(entry));
    }
    pin_part(slot, index(page, 0) as u64, want)
}

/// Returns a reference to the frame with the index `part` in the huge page that `slot` maps.
/// Returns `None` if `want` is [`Want::Mapped`]. The huge page must be a page of a pool, or its
/// frames must have separate descriptors.
pub(super) fn pin_part(slot: Slot<'_>, part: u64, want: Want) -> Option<FrameRef> {
    if want == Want::Mapped {
        return None;
    }
    let block = frame_of(slot.load());
    // The entry holds a reference to each frame while the lock is held.
    Some(FrameRef::new_reference(block.offset(part)))
}

//! Faults that huge pages serve: who gets them, and what a fault in one does.

use super::compaction::{self, daemon, proactive};
use super::entry::{ADDRESS, DIRTY, FILE, HUGE, REGION, SHMEM, WRITABLE, ZERO, frame_of, index};
use super::family::Owner;
use super::khugepaged::{enlist, enlist_for_trial};
use super::leaf::{HugeSupply, TableFrame};
use super::pagetable::PageTables;
use super::want::{Want, entry_flags, store_flags};
use super::{AddressSpace, VmaFlags};
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::AllocError;
use machine::memory::frame::FrameRef;
use machine::memory::huge::{self, Effort, HugeFrame, Policy};
use machine::memory::memmap::Descriptor;
use machine::memory::percpu::{self, Count};
use machine::memory::zero_block::ZeroBlock;

/// How far a fault came with a huge page.
#[derive(Default)]
pub(super) enum HugeTry {
    #[default]
    NotTried,
    Got(HugeSupply),
    /// For a load: the page of zeros, and the table in reserve for its entry.
    Zeros(ZeroBlock, TableFrame),
    /// There is none: pages have to do.
    Failed,
}

impl HugeTry {
    /// Gets the page of zeros, without waiting for memory.
    #[cold]
    pub(super) fn zeros() -> Self {
        match (ZeroBlock::get(), TableFrame::try_new()) {
            (Some(block), Ok(table)) => Self::Zeros(block, table),
            _ => Self::Failed,
        }
    }

    /// Gets one for an area that `asks` for huge pages or does not, as `defrag` says.
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
    /// Gets one. `effort` limits the work if no block is free.
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

/// Has a huge block stand for a region of an area.
pub(super) fn put_huge(
    tables: &mut PageTables,
    mapped: &mut [u64; 3],
    slot: &AtomicU64,
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

/// Does the same for a huge page that no program asked for: on trial, with the page of the store.
pub(super) fn put_on_trial(
    tables: &mut PageTables,
    mapped: &mut [u64; 3],
    slot: &AtomicU64,
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

/// Whether areas with these flags get huge pages for good: their program said that it uses all of
/// them.
pub(super) fn asks_for_huge(flags: VmaFlags) -> bool {
    flags.intersects(VmaFlags::HUGE_PAGES | VmaFlags::LOCKED)
}

/// Areas with one of these have none. Stacks grow and shrink by pages, and most stay small.
pub(super) const NEVER: VmaFlags = VmaFlags::SHARED
    .union(VmaFlags::GROWS_DOWN)
    .union(VmaFlags::STACK)
    .union(VmaFlags::NO_HUGE_PAGES);

/// Whether areas with these flags are mapped by huge pages.
pub(super) fn wants_huge(flags: VmaFlags) -> bool {
    !flags.intersects(NEVER)
        && match huge::policy() {
            Policy::Always => true,
            Policy::Madvise => flags.contains(VmaFlags::HUGE_PAGES),
            Policy::Never => false,
        }
}

/// Gives a huge page, which lies wholly in its area, the area's rights. False: others have it too,
/// and a store needs pages of the program's own.
pub(super) fn allow_huge(slot: &AtomicU64, page: u64, flags: VmaFlags, store: bool) -> bool {
    let old = slot.load(Ordering::Relaxed);
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
    slot.store(kept | entry_flags(flags) | rights, Ordering::Relaxed);
    // As for `Change::allow`.
    machine::arch::cpu::invlpg(page);
    true
}

/// What the caller of a fault wants besides: a reference to a page of a huge page.
pub(super) fn pin_huge(slot: &AtomicU64, page: u64, want: Want) -> Option<FrameRef> {
    if want == Want::Mapped {
        return None;
    }
    let entry = slot.load(Ordering::Relaxed);
    if entry & (FILE | SHMEM) == 0 {
        huge::part(frame_of(entry));
    }
    pin_part(slot, index(page, 0) as u64, want)
}

/// The same of a page of the pool, or of a huge page whose frames have descriptors of their own.
pub(super) fn pin_part(slot: &AtomicU64, part: u64, want: Want) -> Option<FrameRef> {
    if want == Want::Mapped {
        return None;
    }
    let block = frame_of(slot.load(Ordering::Relaxed));
    // The entry holds a reference to each frame while the lock is held.
    Some(FrameRef::new_reference(block.offset(part)))
}

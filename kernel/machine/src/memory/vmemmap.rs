//! The exchange of the memmap's own memory on this machine. [`logic::vmemmap`] has the procedures.

use super::memmap::{DESCRIPTOR_BYTES, Descriptor, HUGE_PAGE_HEAD, Kind, frame_ptr};
use super::percpu::{self, Count};
use super::{allocator, clear_page, tables};
use crate::arch::ipi::{self, FlushRequest};
use crate::arch::pte::{ACCESSED, ADDRESS, DIRTY, GLOBAL, LARGE, NO_EXECUTE, PRESENT, WRITABLE};
use crate::arch::spin::{SpinGuard, SpinLock};
use crate::arch::{MEMMAP_BASE, cpu, online_cpus};
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame, FrameRange, Mobility, Order, PAGEBLOCK_FRAMES, Request, Reserve};
use ebb_wire::header::memmap as wire;
use logic::vmemmap::{Bits, Machine, Shared};
pub(super) use logic::vmemmap::{Carrier, Restored, TOGETHER};

/// The number of pages of the memmap that describe a pageblock.
const PAGES: u64 = PAGEBLOCK_FRAMES * DESCRIPTOR_BYTES / 4096;
/// The number of frames whose descriptors fill the memory under one last-level page table.
pub(super) const LARGE_FRAMES: u64 = (2 << 20) / DESCRIPTOR_BYTES;

const _: () = assert!(Hardware::PAGES as u64 == PAGES);
const _: () = assert!(Hardware::ENTRIES == PAGEBLOCK_FRAMES);
const _: () = assert!(Order::GIB.frames() == PAGES * LARGE_FRAMES);

/// The value of [`boot_pages`].
static BOOT_PAGES: AtomicU64 = AtomicU64::new(0);
/// The page of descriptors that all huge pages share, once it exists.
static SHARED: SpinLock<Option<Shared>> = SpinLock::new(None);

/// Sets the number that [`boot_pages`] returns to `frames`, the number of frames of the memmap at
/// boot.
pub(super) fn set_boot_pages(frames: u64) {
    // Relaxed (all): a figure.
    BOOT_PAGES.store(frames, Ordering::Relaxed);
}

/// Returns the number of frames that were reserved for the memmap at boot and that it still has.
pub(super) fn boot_pages() -> u64 {
    BOOT_PAGES.load(Ordering::Relaxed)
}

type Guard = SpinGuard<'static, Option<Shared>>;
/// A change of the memmap parts of several blocks; see [`logic::vmemmap::Exchange`].
pub(super) type Exchange = logic::vmemmap::Exchange<Hardware, Guard>;

/// Begins a change of parts of the memmap. Waits until no other CPU makes such a change, because
/// only one runs at a time.
pub(super) fn begin() -> Exchange {
    Exchange::begin(Hardware, SHARED.lock())
}

/// Allocates the frames in which parts of the memmap are restored when huge pages leave a pool. See
/// [`logic::vmemmap::Supply`].
pub(super) struct Supply(pub(super) logic::vmemmap::Supply<Hardware>);

impl Supply {
    /// Makes a supply for the memmap parts of `blocks` pageblocks. Allocates no frames yet.
    pub(super) const fn new(blocks: u64) -> Self {
        Self(logic::vmemmap::Supply::new(Hardware, blocks))
    }
}

/// Restores the part of the memmap for the [`LARGE_FRAMES`] frames from `first` on, in a newly
/// allocated pageblock of zeros. All these frames must belong to unused huge pages. Returns `false`
/// if no pageblock is free. See [`logic::vmemmap::restore_large`].
pub(super) fn restore_large(first: Frame) -> bool {
    logic::vmemmap::restore_large(Hardware, || SHARED.lock(), first)
}

/// Tries to move the part of the memmap out of each block of `carriers`, which contains the block's
/// own part, and frees the blocks for which that succeeds. Calls `is_whole` with each such block
/// before the block is freed. See [`logic::vmemmap::relieve`].
pub(super) fn relieve(carriers: &mut [Carrier], is_whole: impl FnMut(Frame)) {
    logic::vmemmap::relieve(Hardware, || SHARED.lock(), carriers, is_whole);
}

/// The memmap, page tables, allocator and CPUs of this machine.
#[derive(Copy, Clone, Debug)]
pub(super) struct Hardware;

const fn unmovable(order: Order) -> Request {
    Request::new(order, Mobility::Unmovable).reserve(Reserve::Keep)
}

fn memmap_offset(block: Frame) -> u64 {
    block.number() * DESCRIPTOR_BYTES
}

impl Machine for Hardware {
    const ENTRIES: u64 = 512;
    const PAGES: usize = 8;
    const BITS: Bits = Bits {
        address: ADDRESS,
        large: LARGE,
        page: PRESENT | ACCESSED | DIRTY | GLOBAL | NO_EXECUTE,
        writable: WRITABLE,
        table: PRESENT | WRITABLE | ACCESSED | DIRTY,
        owned: wire::OWNED,
    };

    #[inline]
    fn slot<'a>(self, block: Frame) -> &'a AtomicU64 {
        match tables::memmap_slot(memmap_offset(block)) {
            Some(slot) => slot,
            None => panic!("{block:?} has no descriptors"),
        }
    }

    #[inline]
    fn entry<'a>(self, table: Frame, index: u64) -> &'a AtomicU64 {
        tables::memmap_entry(table.address(), index * 4096)
    }

    #[inline]
    fn shared_entries<'a>(self, table: Frame) -> &'a AtomicU64 {
        &Descriptor::get(table).objects
    }

    #[inline]
    fn clear(self, frames: FrameRange) {
        for index in 0..frames.frames {
            // SAFETY: the frames are the caller's alone.
            unsafe { clear_page(frame_ptr(frames.start.offset(index))) };
            if index % PAGES == PAGES - 1 {
                ipi::poll_mailbox();
            }
        }
    }

    fn describe_huge_page(self, page: Frame) {
        let descriptors = frame_ptr(page).cast::<Descriptor>();
        for index in 0..4096 / size_of::<Descriptor>() {
            // SAFETY: inside the page, which is the caller's and zero, a valid value.
            let descriptor = unsafe { &*descriptors.add(index) };
            descriptor.head.store(HUGE_PAGE_HEAD, Ordering::Relaxed);
        }
    }

    #[inline]
    fn own(self, frame: Frame) {
        Descriptor::get(frame).take(Kind::Memmap, Order::BASE);
    }

    #[inline]
    fn disown(self, frame: Frame) {
        debug_assert_eq!(Descriptor::get(frame).kind(), Some(Kind::Memmap));
        Descriptor::get(frame).clear();
    }

    #[inline]
    fn count(self, frames: u64) {
        percpu::add(Count::MemmapFrames, frames);
    }

    #[inline]
    fn uncount(self, frames: u64) {
        percpu::subtract(Count::MemmapFrames, frames);
    }

    fn allocate(self) -> Result<Frame, AllocError> {
        percpu::allocate(unmovable(Order::BASE))
    }

    #[inline]
    fn allocate_many(self, frames: &mut [Frame]) -> usize {
        percpu::this().allocate_many(unmovable(Order::BASE), frames)
    }

    fn allocate_block(self) -> Result<Frame, AllocError> {
        let block = percpu::allocate(unmovable(Order::PAGEBLOCK))?;
        allocator().split(block, Order::PAGEBLOCK, Order::BASE);
        Ok(block)
    }

    fn allocate_range(self, range: FrameRange) -> bool {
        percpu::this().allocate_range(range)
    }

    #[inline]
    fn free(self, range: FrameRange) {
        percpu::this().free_range(range);
    }

    fn admit(self, range: FrameRange) {
        if let Err(error) = allocator().admit(range) {
            panic!("the memmap's memory does not become ordinary: {error}");
        }
        BOOT_PAGES.fetch_sub(range.frames, Ordering::Relaxed);
    }

    #[inline]
    fn forget(self, block: Frame) {
        for page in 0..PAGES {
            cpu::invlpg(MEMMAP_BASE + memmap_offset(block) + page * 4096);
        }
    }

    fn flush(self) {
        ipi::flush_tlb(online_cpus(), FlushRequest::Kernel);
    }
}

//! Unmapped frames on their way to the allocator.
//!
//! The protocol has three steps. With the space's lock held, entries are cleared and their frames
//! are gathered. Without the lock, [`Gather::flush`] makes every CPU that may know the old entries
//! drop them. Only then [`Gather::free`] frees the frames. One flush serves a whole batch.

use super::entry::{FILE, SHMEM, ZERO, frame_of};
use super::leaf::TableFrame;
use super::tlb;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{Frame, FreeBatch};
use machine::arch::CpuSet;
use machine::memory::memmap::{self, Descriptor};
use machine::memory::percpu::{self, Count};
use machine::memory::{FrameBatch, file_block, huge, hugetlb, poison, zero_block};
use machine::sched;

/// The most frames in a batch.
const CAPACITY: usize = 512;
/// The most huge blocks in a batch.
const HUGE_CAPACITY: usize = 64;
const _: () = assert!(HUGE_CAPACITY <= u64::BITS as usize);
/// The most huge blocks of a batch that are freed in part.
pub(super) const RESTS: usize = 4;

/// A batch of frames that were unmapped and are not freed yet.
pub(super) struct Gather {
    frames: FrameBatch<CAPACITY>,
    huge: FrameBatch<HUGE_CAPACITY>,
    /// Bit `n` is set if the huge block number `n` of `huge` belongs to a file.
    of_files: u64,
    /// The number of entries of the huge page of zeros that were taken.
    zeros: u64,
    pool: FrameBatch<HUGE_CAPACITY>,
    rests: [Option<(Frame, huge::FrameSet)>; RESTS],
    /// The number of pages taken, by kind: anonymous, file, shared memory.
    pub(super) pages: [u64; 3],
    /// Whether an entry was taken since the last flush, so that a TLB may have its translation.
    any: bool,
}

/// Returns the index of an entry's kind in [`Gather::pages`].
#[inline]
pub(super) fn kind_index(entry: u64) -> usize {
    // FILE and SHMEM are never set together.
    ((entry / FILE) % 4) as usize
}

const _: () = assert!(SHMEM == FILE << 1);

impl Gather {
    /// Returns an empty batch.
    pub(super) const fn new() -> Self {
        Self {
            frames: FrameBatch::new(),
            huge: FrameBatch::new(),
            of_files: 0,
            zeros: 0,
            pool: FrameBatch::new(),
            rests: [None; RESTS],
            pages: [0; 3],
            any: false,
        }
    }

    /// Returns whether there is no room for another frame.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// Takes used entries out of `entries`, a part of a table, with the references that they hold,
    /// while there is room. With `files_only`, private pages stay. Returns the number of entries
    /// examined.
    #[inline]
    pub(super) fn take(&mut self, entries: &[AtomicU64], files_only: bool) -> usize {
        let first = self.frames.len();
        let looked_at = entries.len().min(CAPACITY - first);
        let mut others = [0; 3];
        let mut any = false;
        self.frames
            .push_used(&entries[..looked_at], |entry, value| {
                // Relaxed (all): the space's lock is held; the CPU does not write our entries.
                if value & (FILE | SHMEM | ZERO) != 0 {
                    any = true;
                    entry.store(0, Ordering::Relaxed);
                    if value & ZERO != 0 {
                        return None;
                    }
                    others[kind_index(value)] += 1;
                } else if files_only {
                    return None;
                } else {
                    entry.store(0, Ordering::Relaxed);
                }
                Some(frame_of(value))
            });
        let len = self.frames.len();
        self.any |= any;
        self.any |= len != first;
        self.pages[0] += (len - first) as u64 - others[1] - others[2];
        self.pages[1] += others[1];
        self.pages[2] += others[2];
        looked_at
    }

    /// Returns whether a huge block and its page table fit in the batch.
    #[inline]
    pub(super) fn has_room_for_huge(&self) -> bool {
        !self.is_full() && !self.huge.is_full() && !self.pool.is_full()
    }

    /// Takes the reference to the huge block `block`, and `table`, the page table in reserve for
    /// it.
    pub(super) fn huge(&mut self, block: Frame, table: TableFrame) {
        self.huge.push(block);
        self.pages[0] += huge::FRAMES;
        self.table(table);
    }

    /// Takes the references that `entry` holds to a huge block of a file, and `table`, the page
    /// table in reserve for it.
    pub(super) fn file_block(&mut self, entry: u64, table: TableFrame) {
        self.of_files |= 1 << self.huge.len();
        self.huge.push(frame_of(entry));
        self.pages[kind_index(entry)] += huge::FRAMES;
        file_block::unmap(frame_of(entry));
        self.table(table);
    }

    /// Takes an entry of the huge page of zeros, with `table`, the page table in reserve for it.
    pub(super) fn zeros(&mut self, table: TableFrame) {
        self.zeros += 1;
        self.table(table);
    }

    /// Takes the reference to a page of the pool of huge pages.
    pub(super) fn pool(&mut self, page: Frame) {
        self.any = true;
        self.pool.push(page);
    }

    /// Takes the frames of a huge block that are not in `kept`. Call this for [`RESTS`] blocks of a
    /// batch at most.
    pub(super) fn rest(&mut self, block: Frame, kept: huge::FrameSet) {
        let place = self.rests.iter_mut().find(|rest| rest.is_none());
        let Some(place) = place else {
            panic!("no room for the rest of a huge page")
        };
        *place = Some((block, kept));
        let kept: u32 = kept.iter().map(|word| word.count_ones()).sum();
        self.pages[0] += huge::FRAMES - u64::from(kept);
        self.any = true;
    }

    /// Takes a page table.
    pub(super) fn table(&mut self, table: TableFrame) {
        self.any = true;
        self.frames.push(table.into_frame());
    }

    /// Returns whether an entry was taken that a TLB may know.
    pub(super) fn needs_flush(&self) -> bool {
        self.any
    }

    /// Makes the next [`Self::flush`] flush the TLBs even if no entry was taken.
    pub(super) fn must_flush(&mut self) {
        self.any = true;
    }

    /// Makes all of `cpus` drop their translations of `range`, if an entry was taken since the last
    /// flush. Waits until they have done so.
    pub(super) fn flush(&mut self, cpus: &CpuSet, range: Range<u64>) {
        if core::mem::take(&mut self.any) {
            tlb::flush(cpus, range);
        }
    }

    /// Drops the frames' references after a flush. The caller holds no spin lock, since other tasks
    /// may run between huge pages.
    pub(super) fn free(&mut self) {
        debug_assert!(!self.any, "frames are freed that a TLB may know");
        if self.zeros != 0 {
            zero_block::release(core::mem::take(&mut self.zeros));
        }
        let of_files = core::mem::take(&mut self.of_files);
        for (index, block) in self.huge.take_all().enumerate() {
            if of_files >> index & 1 == 0 {
                huge::release(block);
            } else {
                file_block::release(block);
            }
            sched::give_way();
        }
        for page in self.pool.take_all() {
            hugetlb::release(page);
            sched::give_way();
        }
        for rest in &mut self.rests {
            if let Some((block, kept)) = rest.take() {
                huge::free_rest(block, &kept);
            }
        }
        // Asked once, and not for each frame.
        if poison::is_filling() {
            self.free_frames::<true>();
        } else {
            self.free_frames::<false>();
        }
        let mapped = self.pages[1] + self.pages[2];
        if mapped != 0 {
            percpu::subtract(Count::MappedFile, mapped);
        }
        self.pages = [0; 3];
        percpu::drain_if_asked();
    }

    /// Drops the references of frames of their own. With `FILL` those that are freed are filled.
    fn free_frames<const FILL: bool>(&mut self) {
        let this = percpu::this();
        let allocator = machine::memory::allocator();
        let mut batch = FreeBatch::new();
        let mut anonymous = 0;
        for frame in self.frames.take_all() {
            if Descriptor::get(frame).clear_own_anonymous() {
                if FILL {
                    this.free_in(allocator, &mut batch, frame);
                } else {
                    this.free_unfilled(allocator, &mut batch, frame);
                }
                anonymous += 1;
            } else {
                memmap::release(frame);
            }
        }
        this.finish(batch);
        this.subtract(Count::AnonymousFrames, anonymous);
        this.add(Count::Freed, anonymous);
    }
}

//! What each CPU keeps for itself: its cache of free frames, and its counters.

use super::poison;
use crate::arch::header::HEADER;
use crate::arch::percpu::memory_own;
use crate::arch::{MAX_CPUS, cpu_count, cpu_id, ipi, online_cpus, virt_to_phys};
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use ebb_mm::{
    AllocError, Allocator, Contents, CpuCache, Frame, FrameRange, FreeBatch, Mobility, Order,
    Request,
};

/// The counters. Each CPU counts for itself; the sum over all, modulo 2^64, is the value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Count {
    /// Page faults.
    Faults,
    /// Page faults that had to wait for memory or a file.
    MajorFaults,
    /// Frames allocated below 4 GiB.
    AllocatedDma32,
    /// Frames allocated above.
    AllocatedNormal,
    /// Frames freed.
    Freed,
    /// Frames in use: private memory of programs.
    AnonymousFrames,
    /// Frames in use: files and shared memory.
    FileFrames,
    /// Frames in use: page tables.
    PageTableFrames,
    /// Frames in use: the heap.
    SlabFrames,
    /// Frames in use: kernel stacks.
    StackFrames,
    /// Frames in use: other kernel memory.
    KernelFrames,
    /// Frames in use: parts of the memmap that came back.
    MemmapFrames,
    /// Frames in use: the pool of huge pages.
    HugetlbFrames,
    /// Page-table entries that map file and shared pages.
    MappedFile,
    /// Of `FileFrames`, those of shared memory and tmpfs that are not cached boot files.
    SharedFrames,
    /// Times that the OOM killer was called.
    OomKills,
    /// Times that an allocation had to wait.
    Stalls,
    /// Reports of free pages that the host refused.
    ReportErrors,
    /// 512-byte sectors read from disks.
    SectorsRead,
    /// 512-byte sectors written to disks.
    SectorsWritten,
    /// Pages that were shared and had to be copied for a store.
    CopiedPages,
    /// The part of `AnonymousFrames` in huge blocks that are not parted.
    HugeFrames,
    /// Faults that mapped a huge block.
    HugeFaults,
    /// Faults that would have, had there been one.
    HugeFallbacks,
    /// Huge blocks that were parted into frames.
    HugeParted,
    /// Entries of huge blocks that were split into entries of frames.
    HugeSplits,
    /// Huge blocks on trial that were mostly unused.
    HugeUnderused,
    /// Huge blocks that pages were joined to.
    Collapsed,
    /// Failed allocations of such blocks.
    CollapseFailed,
    /// Pages that went into the balloon.
    BalloonInflated,
    /// Pages that came out of it, for the host or for want of memory.
    BalloonDeflated,
    /// Frames whose bytes were moved to others.
    Migrated,
    /// Frames that could not be moved.
    MigrateFailed,
    /// Of `FileFrames`, those in whole huge blocks of shared memory and tmpfs.
    SharedHuge,
    /// Of `SharedHuge`, those that entries of huge blocks map.
    SharedHugeMapped,
    /// Huge blocks that such files got.
    SharedHugeAllocs,
    /// Failed allocations of such blocks.
    SharedHugeFallbacks,
    /// Entries of such blocks that were made.
    SharedHugeMaps,
    /// Huge blocks of zeros that were made to be read.
    ZeroBlocks,
    /// Failed allocations of such blocks.
    ZeroBlockFailures,
}

const COUNTS: usize = Count::ZeroBlockFailures as usize + 1;

/// One CPU's own. Aligned to two cache lines so that neighbours do not disturb each other.
#[repr(C, align(128))]
pub struct Local {
    cache: UnsafeCell<CpuCache>,
    /// The address space whose tables this CPU uses, as the part above knows it; null: the kernel's
    /// own.
    pub space: AtomicPtr<()>,
    /// The last fault here that was looked at closely was for memory of zeros: so is the next,
    /// probably. That part's, too.
    pub expects_zeros: AtomicBool,
    counts: [AtomicU64; COUNTS],
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

// SAFETY: `cache` is used by its own CPU alone, where kernel code is never preempted and no called
// function comes back here (`Events` sets flags and records hints); the rest is atomic.
unsafe impl Sync for Local {}

static LOCALS: [Local; MAX_CPUS] = [const {
    Local {
        cache: UnsafeCell::new(CpuCache::new()),
        space: AtomicPtr::new(ptr::null_mut()),
        expects_zeros: AtomicBool::new(false),
        counts: [const { AtomicU64::new(0) }; COUNTS],
    }
}; MAX_CPUS];

/// The address of a CPU's own, which the CPU then finds by `arch::percpu::memory_own`.
pub fn own_of(cpu: usize) -> usize {
    ptr::from_ref(&LOCALS[cpu]).addr()
}

/// This CPU's own. Not to be kept while the task may block: it may wake up on another CPU.
#[inline]
pub fn this() -> &'static Local {
    // SAFETY: what `own_of` gave for this CPU: an element of a static.
    unsafe { &*ptr::with_exposed_provenance::<Local>(memory_own()) }
}

impl Local {
    /// Counts `by` more. Relaxed, and not one atomic operation: only this CPU writes, readers take
    /// any value.
    #[inline]
    pub fn add(&self, count: Count, by: u64) {
        let value = &self.counts[count as usize];
        value.store(
            value.load(Ordering::Relaxed).wrapping_add(by),
            Ordering::Relaxed,
        );
    }

    /// Counts `by` less.
    #[inline]
    pub fn subtract(&self, count: Count, by: u64) {
        self.add(count, by.wrapping_neg());
    }

    /// Allocates a block through this CPU's cache; does not wait.
    #[inline]
    pub fn allocate(&self, request: Request) -> Result<Frame, AllocError> {
        // SAFETY: see `Sync for Local`: no other reference to the cache exists now.
        let cache = unsafe { &mut *self.cache.get() };
        let frame = match cache.take_held(request) {
            Some(frame) => frame,
            None => super::allocator().allocate(cache, request)?,
        };
        self.count_allocated(frame, request.order);
        poison::allocated(frame, request.order.frames());
        Ok(frame)
    }

    /// Does the same for a block of zeros; calls `clear` for a block that was used before.
    #[inline]
    pub fn allocate_zeroed(
        &self,
        request: Request,
        clear: impl Fn(Frame),
    ) -> Result<Frame, AllocError> {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        let frame = match cache.take_held(request) {
            Some(frame) => {
                clear(frame);
                frame
            }
            None => self.allocate_zeroed_shared(request, clear)?,
        };
        self.count_allocated(frame, request.order);
        Ok(frame)
    }

    /// Out of line with its clearing: who clears what the cache holds need not ask whether he must.
    #[inline(never)]
    fn allocate_zeroed_shared(
        &self,
        request: Request,
        clear: impl Fn(Frame),
    ) -> Result<Frame, AllocError> {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        let (frame, contents) = super::allocator().allocate_known(cache, request)?;
        if contents != Contents::NeverUsed {
            clear(frame);
        }
        Ok(frame)
    }

    /// Allocates a block and returns it with its contents, which may have to be cleared. Does not
    /// wait.
    pub fn allocate_known(&self, request: Request) -> Result<(Frame, Contents), AllocError> {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        let (frame, contents) = super::allocator().allocate_known(cache, request)?;
        self.count_allocated(frame, request.order);
        poison::allocated_known(frame, request.order.frames(), contents);
        Ok((frame, contents))
    }

    /// Fills a slice with frames, as far as there are any; how many. Does not wait.
    pub fn allocate_many(&self, request: Request, frames: &mut [Frame]) -> usize {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        let taken = match super::allocator().allocate_bulk(cache, request, frames) {
            Ok(()) => frames.len(),
            Err(error) => error.taken,
        };
        for &frame in &frames[..taken] {
            self.count_allocated(frame, Order::BASE);
            poison::allocated(frame, 1);
        }
        taken
    }

    /// Fills a slice with blocks of the request's order, which is that of a pageblock or more, and
    /// whether each was used before. Returns their number, and the error if the slice is not full.
    /// Does not wait.
    pub fn allocate_blocks(
        &self,
        request: Request,
        blocks: &mut [(Frame, Contents)],
    ) -> (usize, Option<AllocError>) {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        let (taken, error) = if request.order == Order::PAGEBLOCK {
            match super::allocator().allocate_pageblocks(cache, request, blocks) {
                Ok(()) => (blocks.len(), None),
                Err(error) => (error.taken, Some(error.error)),
            }
        } else {
            let mut taken = 0;
            loop {
                let Some(block) = blocks.get_mut(taken) else {
                    break (taken, None);
                };
                match super::allocator().allocate_known(cache, request) {
                    Ok(known) => *block = known,
                    Err(error) => break (taken, Some(error)),
                }
                taken += 1;
            }
        };
        for &(block, contents) in &blocks[..taken] {
            self.count_allocated(block, request.order);
            poison::allocated_known(block, request.order.frames(), contents);
        }
        (taken, error)
    }

    /// Gives pageblocks back.
    pub fn free_pageblocks(&self, blocks: &[Frame]) {
        self.add(
            Count::Freed,
            blocks.len() as u64 * Order::PAGEBLOCK.frames(),
        );
        for &block in blocks {
            poison::freed(block, Order::PAGEBLOCK.frames());
        }
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        super::allocator().free_bulk(cache, blocks, Order::PAGEBLOCK);
    }

    /// Takes exactly these frames, as single ones, if all are free.
    pub fn allocate_range(&self, range: FrameRange) -> bool {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        let taken = super::allocator().allocate_range(cache, range, Mobility::Unmovable);
        if taken.is_ok() {
            self.count_allocated_frames(range.start, range.frames);
            poison::allocated(range.start, range.frames);
        }
        taken.is_ok()
    }

    /// Gives frames back that follow each other and were taken as single ones, or as parts.
    pub fn free_range(&self, range: FrameRange) {
        self.add(Count::Freed, range.frames);
        poison::freed(range.start, range.frames);
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        super::allocator().free_range(cache, range);
    }

    #[inline]
    fn count_allocated(&self, frame: Frame, order: Order) {
        self.count_allocated_frames(frame, order.frames());
    }

    #[inline]
    fn count_allocated_frames(&self, frame: Frame, frames: u64) {
        let zone = if frame.address() < 1 << 32 {
            Count::AllocatedDma32
        } else {
            Count::AllocatedNormal
        };
        self.add(zone, frames);
    }

    /// Gives a frame back to `allocator`, which is the kernel's, through this CPU's cache, with
    /// others of the batch; the caller counts it.
    #[inline]
    pub fn free_in(&self, allocator: &Allocator<'_>, batch: &mut FreeBatch, frame: Frame) {
        poison::freed(frame, 1);
        self.free_unfilled(allocator, batch, frame);
    }

    /// Does the same for a caller that has checked that freed pages are not filled
    /// ([`poison::is_filling`]).
    #[inline]
    pub fn free_unfilled(&self, allocator: &Allocator<'_>, batch: &mut FreeBatch, frame: Frame) {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        batch.free(allocator, cache, frame);
    }

    /// Gives the last of a batch back.
    pub fn finish(&self, batch: FreeBatch) {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        batch.finish(super::allocator(), cache);
    }
}

/// Counts `by` more.
#[inline]
pub fn add(count: Count, by: u64) {
    this().add(count, by);
}

/// Counts `by` less.
#[inline]
pub fn subtract(count: Count, by: u64) {
    this().subtract(count, by);
}

/// Bytes that the CPUs keep for themselves.
pub fn bytes() -> u64 {
    (cpu_count() * size_of::<Local>()) as u64
}

/// The sum over all CPUs.
pub fn sum(count: Count) -> u64 {
    // A CPU counts nothing before it is online; before the first one is, only that one runs.
    online_cpus()
        .iter()
        .chain((cpu_count() == 0).then_some(0))
        .fold(0, |sum, cpu| {
            sum.wrapping_add(LOCALS[cpu].counts[count as usize].load(Ordering::Relaxed))
        })
}

/// Publishes the places of the CPUs' counters that are not in the allocator's metadata, so that the
/// host reads their present values at no cost for the guest.
pub(super) fn publish_counts() {
    let first = |count: Count| {
        let word = ptr::from_ref(&LOCALS[0].counts[count as usize]);
        virt_to_phys(word.cast())
    };
    let number = |value: usize| u32::try_from(value).unwrap_or(0);
    HEADER
        .count_stride
        .store(number(size_of::<Local>()), Ordering::Relaxed);
    HEADER.count_cpus.store(number(MAX_CPUS), Ordering::Relaxed);
    // Release: pairs with the host's Acquire: an address means that the two above hold.
    HEADER
        .file_counts
        .store(first(Count::FileFrames), Ordering::Release);
    HEADER
        .fault_counts
        .store(first(Count::Faults), Ordering::Release);
}

/// Allocates a block through this CPU's cache; does not wait.
#[inline]
pub fn allocate(request: Request) -> Result<Frame, AllocError> {
    this().allocate(request)
}

/// Gives a block back through this CPU's cache.
#[inline]
pub fn free(frame: Frame, order: Order) {
    let this = this();
    this.add(Count::Freed, order.frames());
    poison::freed(frame, order.frames());
    // SAFETY: as in `Local::allocate`.
    let cache = unsafe { &mut *this.cache.get() };
    super::allocator().free(cache, frame, order);
}

/// Counts frames as allocated that were taken from the allocator without a cache.
pub fn count_taken(frames: &[Frame]) {
    let this = this();
    for &frame in frames {
        this.count_allocated(frame, Order::BASE);
        poison::allocated(frame, 1);
    }
}

/// Empties this CPU's cache.
pub fn drain() {
    // SAFETY: as in `Local::allocate`.
    let cache = unsafe { &mut *this().cache.get() };
    super::allocator().drain(cache);
}

/// Empties this CPU's cache, and asks the other CPUs to empty theirs. They do so when they next run
/// a program or serve their interrupts, which may be after this returns.
pub fn drain_all() {
    drain();
    super::allocator().request_drain();
    let this = cpu_id();
    for cpu in online_cpus().iter().filter(|&cpu| cpu != this) {
        ipi::resched(cpu);
    }
}

/// Empties this CPU's cache if another CPU asked all of them to. Each CPU calls it when it is asked
/// to look at its run queue.
#[inline]
pub fn drain_if_asked() {
    // SAFETY: as in `Local::allocate`.
    let cache = unsafe { &mut *this().cache.get() };
    if super::allocator().drain_requested(cache) {
        super::allocator().drain(cache);
    }
}

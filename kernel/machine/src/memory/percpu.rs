//! The data of each CPU for memory management: its cache of free frames, and its counters.

use super::poison;
use crate::arch::header::HEADER;
use crate::arch::percpu::memory_own;
use crate::arch::{MAX_CPUS, cpu_count, cpu_id, ipi, online_cpus, virt_to_phys};
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use ebb_mm::{
    AllocError, Allocator, Contents, CpuCache, EmptyingGib, Frame, FrameRange, FreeBatch, Mobility,
    Order, Request,
};

/// The counters of memory management, most of them for `/proc/meminfo` and `/proc/vmstat`. Each CPU
/// has its own copy. The value of a counter is the sum over all CPUs, modulo 2^64.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Count {
    /// Page faults.
    Faults,
    /// Page faults that had to read a disk or a file of the host.
    MajorFaults,
    /// Frames allocated below 4 GiB.
    AllocatedDma32,
    /// Frames allocated from 4 GiB on.
    AllocatedNormal,
    /// Frames freed.
    Freed,
    /// Frames in use as private memory of programs.
    AnonymousFrames,
    /// Frames in use for files and shared memory.
    FileFrames,
    /// Frames in use as page tables.
    PageTableFrames,
    /// Frames in use for the heap.
    SlabFrames,
    /// Frames in use as kernel stacks.
    StackFrames,
    /// Frames in use for other kernel memory.
    KernelFrames,
    /// Frames in use for parts of the memmap that were restored.
    MemmapFrames,
    /// Frames in the pools of huge pages.
    HugetlbFrames,
    /// Frames in the balloon, or on their way into it or out of it.
    BalloonFrames,
    /// Page-table entries that map file and shared pages.
    MappedFile,
    /// The part of `FileFrames` in tmpfs, shared memory and files of the host.
    SharedFrames,
    /// Processes that the OOM killer has killed.
    OomKills,
    /// Steps of allocations that freed memory or waited for some (`pressure`).
    Stalls,
    /// Reports of free memory that the host refused.
    ReportErrors,
    /// 512-byte sectors read from disks.
    SectorsRead,
    /// 512-byte sectors written to disks.
    SectorsWritten,
    /// Pages that were copied because a program stored to a page that it shares.
    CopiedPages,
    /// The part of `AnonymousFrames` in huge blocks that are not parted.
    HugeFrames,
    /// Page faults that mapped a huge block.
    HugeFaults,
    /// Page faults that needed a huge block and did not get one.
    HugeFallbacks,
    /// Huge blocks that were parted into frames.
    HugeParted,
    /// Page-table entries of huge blocks that were split into entries of single frames.
    HugeSplits,
    /// Huge blocks on trial whose unused frames were freed.
    HugeUnderused,
    /// Huge blocks into which the pages of a region were copied.
    Collapsed,
    /// Failed allocations of huge blocks for such copies.
    CollapseFailed,
    /// Pages that went into the balloon.
    BalloonInflated,
    /// Pages that came out of the balloon, at the host's request or because memory was short.
    BalloonDeflated,
    /// Pages of the balloon that compaction exchanged for others.
    BalloonMigrated,
    /// Frames whose contents were moved to other frames.
    Migrated,
    /// Frames that could not be moved.
    MigrateFailed,
    /// The part of `FileFrames` in whole huge blocks of shared memory and tmpfs.
    SharedHuge,
    /// The part of `SharedHuge` in blocks that a page-table entry maps as a whole.
    SharedHugeMapped,
    /// Huge blocks that were allocated for shared memory and tmpfs.
    SharedHugeAllocs,
    /// Failed allocations of huge blocks for shared memory and tmpfs.
    SharedHugeFallbacks,
    /// Page-table entries that were made for whole huge blocks of shared memory and tmpfs.
    SharedHugeMaps,
    /// Huge blocks of zeros that were allocated.
    ZeroBlocks,
    /// Failed allocations of huge blocks of zeros.
    ZeroBlockFailures,
}

const COUNTS: usize = Count::ZeroBlockFailures as usize + 1;

/// The data of one CPU. Aligned to two cache lines so that neighbours do not disturb each other.
#[repr(C, align(128))]
pub struct Local {
    cache: UnsafeCell<CpuCache>,
    /// The address space whose page tables this CPU uses; null for the kernel's own tables. The
    /// upper half sets it and knows its type.
    pub space: AtomicPtr<()>,
    /// Whether the last page fault on this CPU that was examined in full was for memory of zeros.
    /// Then the next one probably is, too. The upper half sets it.
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

/// Returns the address of the memory manager's data for CPU `cpu`. The CPU then finds the data
/// through `arch::percpu::memory_own`.
pub fn own_of(cpu: usize) -> usize {
    ptr::from_ref(&LOCALS[cpu]).addr()
}

/// Returns the data of this CPU. Do not keep the reference while the task may block, since the task
/// may continue on another CPU.
#[inline]
pub fn this() -> &'static Local {
    // SAFETY: what `own_of` gave for this CPU: an element of a static.
    unsafe { &*ptr::with_exposed_provenance::<Local>(memory_own()) }
}

impl Local {
    /// Adds `by` to this CPU's counter `count`. Relaxed, and not one atomic operation: only this
    /// CPU writes it, and readers accept any value.
    #[inline]
    pub fn add(&self, count: Count, by: u64) {
        let value = &self.counts[count as usize];
        value.store(
            value.load(Ordering::Relaxed).wrapping_add(by),
            Ordering::Relaxed,
        );
    }

    /// Subtracts `by` from this CPU's counter `count`.
    #[inline]
    pub fn subtract(&self, count: Count, by: u64) {
        self.add(count, by.wrapping_neg());
    }

    /// Allocates a block for `request` through this CPU's cache, and returns its first frame. Does
    /// not wait.
    ///
    /// # Errors
    /// [`AllocError`] if no block is free that the request may use.
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

    /// Allocates a block of zeros for `request` through this CPU's cache, and returns its first
    /// frame. Calls `clear` to fill the block with zeros, unless it was never used. Does not wait.
    ///
    /// # Errors
    /// [`AllocError`] if no block is free that the request may use.
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

    /// The part of [`Self::allocate_zeroed`] for a block that the cache does not hold. Returns the
    /// first frame of the block, or fails with [`AllocError`]. It is not inlined and has its own
    /// call of `clear`, so that a block that the cache holds is cleared without a check.
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

    /// Allocates a block for `request` through this CPU's cache. Returns its first frame and its
    /// known contents, so that the caller clears the block only if necessary. Does not wait.
    ///
    /// # Errors
    /// [`AllocError`] if no block is free that the request may use.
    pub fn allocate_known(&self, request: Request) -> Result<(Frame, Contents), AllocError> {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        let (frame, contents) = super::allocator().allocate_known(cache, request)?;
        self.count_allocated(frame, request.order);
        poison::allocated_known(frame, request.order.frames(), contents);
        Ok((frame, contents))
    }

    /// Allocates single frames and stores them in `frames`, from the start on, until the slice is
    /// full or no frame is free that `request` may use. Returns the number of allocated frames.
    /// Does not wait.
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

    /// Allocates blocks for `request` and stores them in `blocks` with their known contents, from
    /// the start on, until the slice is full or no such block is free. The order of `request` is
    /// that of a pageblock or higher. Returns the number of allocated blocks. Also returns the
    /// error, or `None` if the slice is full. Does not wait.
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

    /// Allocates `gib`, a GiB that compaction has emptied, for huge pages. Returns its first frame.
    /// See [`Allocator::take_emptied_gib`].
    ///
    /// # Errors
    /// `gib` itself, if it cannot be allocated.
    pub fn take_emptied_gib(&self, gib: EmptyingGib) -> Result<Frame, EmptyingGib> {
        let frame = super::allocator().take_emptied_gib(gib, Mobility::Movable)?;
        self.count_allocated(frame, Order::GIB);
        poison::allocated_known(frame, Order::GIB.frames(), Contents::Unknown);
        Ok(frame)
    }

    /// Frees the pageblocks that begin with the frames in `blocks`.
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

    /// Allocates exactly the frames of `range`, as single frames. Returns `true` if it did. Returns
    /// `false`, and allocates none, if they cannot all be allocated.
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

    /// Frees the frames of `range`, which were allocated as single frames or are parts of split
    /// blocks.
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

    /// Frees the single frame `frame` through this CPU's cache, together with the other frames of
    /// `batch`. `allocator` is the kernel's allocator. The caller adds the frame to
    /// [`Count::Freed`], and ends the batch with [`Self::finish`].
    #[inline]
    pub fn free_in(&self, allocator: &Allocator<'_>, batch: &mut FreeBatch, frame: Frame) {
        poison::freed(frame, 1);
        self.free_unfilled(allocator, batch, frame);
    }

    /// Does what [`Self::free_in`] does with `allocator`, `batch` and `frame`, for a caller that
    /// has checked that freed pages are not filled ([`poison::is_filling`]).
    #[inline]
    pub fn free_unfilled(&self, allocator: &Allocator<'_>, batch: &mut FreeBatch, frame: Frame) {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        batch.free(allocator, cache, frame);
    }

    /// Frees the frames that are still in `batch`, through this CPU's cache. Call this after the
    /// last [`Self::free_in`] with `batch`.
    pub fn finish(&self, batch: FreeBatch) {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *self.cache.get() };
        batch.finish(super::allocator(), cache);
    }
}

/// Adds `by` to this CPU's counter `count`.
#[inline]
pub fn add(count: Count, by: u64) {
    this().add(count, by);
}

/// Subtracts `by` from this CPU's counter `count`.
#[inline]
pub fn subtract(count: Count, by: u64) {
    this().subtract(count, by);
}

/// Returns the size in bytes of the data of all online CPUs, for `Percpu` of `/proc/meminfo`.
pub fn bytes() -> u64 {
    (cpu_count() * size_of::<Local>()) as u64
}

/// Returns the value of the counter `count`, which is the sum over all CPUs. Returns 0 if the sum
/// is negative: one CPU may add and another one subtract while the sum is made.
pub fn sum(count: Count) -> u64 {
    // A CPU counts nothing before it is online; before the first one is, only that one runs.
    online_cpus()
        .iter()
        .chain((cpu_count() == 0).then_some(0))
        .fold(0_u64, |sum, cpu| {
            sum.wrapping_add(LOCALS[cpu].counts[count as usize].load(Ordering::Relaxed))
        })
        .cast_signed()
        .max(0)
        .cast_unsigned()
}

/// Publishes the addresses of the counters that are not in the allocator's metadata, so that the
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
    // Release: pairs with the host's Acquire. If the host sees an address, the two values above are
    // valid.
    HEADER
        .file_counts
        .store(first(Count::FileFrames), Ordering::Release);
    HEADER
        .fault_counts
        .store(first(Count::Faults), Ordering::Release);
}

/// Allocates a block for `request` through this CPU's cache, and returns its first frame. Does not
/// wait.
///
/// # Errors
/// [`AllocError`] if no block is free that the request may use.
#[inline]
pub fn allocate(request: Request) -> Result<Frame, AllocError> {
    this().allocate(request)
}

/// Frees the block of `order` that begins with `frame`, through this CPU's cache.
#[inline]
pub fn free(frame: Frame, order: Order) {
    let this = this();
    this.add(Count::Freed, order.frames());
    poison::freed(frame, order.frames());
    // SAFETY: as in `Local::allocate`.
    let cache = unsafe { &mut *this.cache.get() };
    super::allocator().free(cache, frame, order);
}

/// Counts `frames` as allocated single frames, for a caller that has allocated them without this
/// CPU's cache. Checks or clears the frames if a boot option requests that (`hardening`).
pub(super) fn count_taken(frames: &[Frame]) {
    let this = this();
    for &frame in frames {
        this.count_allocated(frame, Order::BASE);
        poison::allocated(frame, 1);
    }
}

/// Returns all frames of this CPU's cache to the allocator.
pub fn drain() {
    // SAFETY: as in `Local::allocate`.
    let cache = unsafe { &mut *this().cache.get() };
    super::allocator().drain(cache);
}

/// Drains this CPU's cache, and requests that the other CPUs drain theirs. They do so when they
/// next return to a program or serve their interrupts, which may be after this function returns.
pub fn drain_all() {
    drain();
    super::allocator().request_drain();
    let this = cpu_id();
    for cpu in online_cpus().iter().filter(|&cpu| cpu != this) {
        ipi::resched(cpu);
    }
}

/// Drains this CPU's cache if another CPU has requested a drain of all caches. Called on each
/// request to check the run queue.
#[inline]
pub fn drain_if_asked() {
    // SAFETY: as in `Local::allocate`.
    let cache = unsafe { &mut *this().cache.get() };
    if super::allocator().drain_requested(cache) {
        super::allocator().drain(cache);
    }
}

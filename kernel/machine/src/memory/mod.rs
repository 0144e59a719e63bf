//! The kernel's memory: frames, their descriptors, the heap, huge pages, low memory, and counters.

mod allocator;
pub mod ballooned;
mod boot;
mod boot_archive;
mod clear;
pub mod file_block;
pub mod frame;
mod frame_batch;
mod hardening;
mod heap;
mod helpers;
pub mod huge;
pub mod hugetlb;
pub mod isolated;
pub mod knobs;
pub mod memmap;
mod page_buffer;
pub mod page_tables;
pub mod percpu;
pub mod poison;
pub mod pressure;
pub mod reporting;
mod stack;
pub mod stats;
mod tables;
pub mod targets;
mod vmemmap;
pub mod zero_block;

pub use crate::arch::layout::PAGE_SIZE;
pub use allocator::allocator;
pub use boot_archive::BootArchive;
pub use clear::{clear_page, copy_page};
pub use ebb_mm::Mobility;
pub use frame::FrameRef;
pub use frame_batch::FrameBatch;
pub use helpers::Helpers;
pub use page_buffer::PageBuffer;
pub use percpu::own_of;
pub use stack::{KernelStack, stack_for_cpu};
pub use tables::kernel_root;

use crate::arch::BootInfo;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{Events, Frame, Order, Reserve};
use logic::errno::Errno;
use memmap::Kind;

/// The number of the frame that [`zero_frame`] returns.
static ZERO_FRAME: AtomicU64 = AtomicU64::new(0);

/// Builds the frame allocator, the memmap and the heap from the ranges of RAM in `boot`. Called
/// once, before any other code allocates memory. The allocator notifies `events` of free memory to
/// report to the host.
///
/// # Panics
/// If the RAM is too small or cannot be managed.
pub fn init(boot: &'static BootInfo, events: &'static dyn Events) {
    clear::init();
    allocator::set_events(events);
    boot::build(boot, events);
    hugetlb::show_counts();
    hardening::configure(boot);
    if let Some(name) = boot.option("transparent_hugepage")
        && huge::set_policy(name).is_err()
    {
        crate::console!("transparent_hugepage={name}: not always, madvise or never");
    }
    match FrameRef::try_new(Kind::Kernel, Mobility::Unmovable, Reserve::Use) {
        Ok(zeros) => {
            // SAFETY: the frame has no other user.
            unsafe { clear_page(zeros.as_ptr()) };
            // Never freed: the reference goes with the static.
            ZERO_FRAME.store(zeros.into_counted().number(), Ordering::Relaxed);
        }
        Err(error) => panic!("no frame is left after boot: {error}"),
    }
}

/// Returns the frame of zeros. Page tables map it for all private memory that is read before it is
/// written.
#[inline]
pub fn zero_frame() -> Frame {
    // Relaxed: set once before anything is mapped.
    Frame::new(ZERO_FRAME.load(Ordering::Relaxed))
}

/// Allocates a frame with any contents. Waits for memory if necessary, which may take pages from
/// the balloon or kill a process, so the caller must not hold a spin lock. The frame counts as
/// kernel memory if `mobility` is `Unmovable`, and as a page of a file otherwise.
///
/// # Errors
/// `ENOMEM` if no memory could be freed, or the current task is being killed.
pub fn alloc_frame(mobility: Mobility) -> Result<FrameRef, Errno> {
    let kind = if mobility == Mobility::Unmovable {
        Kind::Kernel
    } else {
        Kind::File
    };
    let mut relief = pressure::Relief::new(Order::BASE);
    loop {
        match FrameRef::try_new(kind, mobility, Reserve::Keep) {
            Ok(frame) => return Ok(frame),
            Err(error) => relief.step(error)?,
        }
    }
}

/// Allocates a frame of zeros. Otherwise like [`alloc_frame`] with this `mobility`.
///
/// # Errors
/// `ENOMEM` if no memory could be freed, or the current task is being killed.
pub fn alloc_zeroed(mobility: Mobility) -> Result<FrameRef, Errno> {
    let frame = alloc_frame(mobility)?;
    // SAFETY: the new frame has no other user.
    unsafe { clear_page(frame.as_ptr()) };
    Ok(frame)
}

/// Returns whether caches should free frames instead of allocating `wanted` more. This is so if no
/// more frames are free than twice the high watermark and `wanted`.
pub fn is_short(wanted: u64) -> bool {
    let stats = allocator().stats();
    stats.free_frames
        <= stats
            .watermarks
            .high
            .saturating_mul(2)
            .saturating_add(wanted)
}

/// Returns whether no more frames are free than the low watermark, so that allocations under a spin
/// lock would soon use the reserve.
pub fn is_scarce() -> bool {
    let stats = allocator().stats();
    stats.free_frames <= stats.watermarks.low
}

/// Allocates a frame for a page of a file. Returns `None` if no frame is free above the reserve.
/// Does not wait.
pub fn spare_file_frame() -> Option<FrameRef> {
    FrameRef::try_new(Kind::File, Mobility::Movable, Reserve::Keep).ok()
}

/// Adds `change` to the counter [`percpu::Count::SharedFrames`]. Tmpfs, shared memory and host
/// files call this when they add frames (`change` is positive) or remove frames (negative).
pub fn count_file_frames(change: i64) {
    percpu::add(percpu::Count::SharedFrames, change.cast_unsigned());
}

/// Counts a process that the OOM killer has killed.
pub fn count_oom_kill() {
    percpu::add(percpu::Count::OomKills, 1);
}

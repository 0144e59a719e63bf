//! The kernel's memory: frames, their descriptors, the heap, low memory, reporting.

mod allocator;
mod boot;
mod clear;
pub mod file_block;
pub mod frame;
mod hardening;
mod heap;
mod helpers;
pub mod huge;
pub mod hugetlb;
pub mod knobs;
pub mod memmap;
pub mod percpu;
pub mod poison;
pub mod pressure;
mod stack;
pub mod stats;
mod tables;
mod vmemmap;
pub mod zero_block;

pub use crate::arch::layout::PAGE_SIZE;
pub use allocator::allocator;
pub use clear::{clear_page, copy_page};
pub use ebb_mm::Mobility;
pub use frame::FrameRef;
pub use helpers::Helpers;
pub use percpu::own_of;
pub use stack::{KernelStack, stack_for_cpu};
pub use tables::kernel_root;

use crate::arch::{BootInfo, PhysRange};
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{Events, Frame, FrameRange, Order, Reserve};
use logic::errno::Errno;
use memmap::{Descriptor, Kind};

/// The frame of zeros that all untouched anonymous memory shows when it is read.
static ZERO_FRAME: AtomicU64 = AtomicU64::new(0);

/// Builds the allocator, the memmap and the heap from what the machine has. Called once, before
/// anything allocates. The allocator tells `events` what reporting needs to know.
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
            // SAFETY: the frame is ours alone.
            unsafe { clear_page(zeros.as_ptr()) };
            // Never freed: the reference goes with the static.
            ZERO_FRAME.store(zeros.into_counted().number(), Ordering::Relaxed);
        }
        Err(error) => panic!("no frame is left after boot: {error}"),
    }
}

/// The frame of zeros that all untouched anonymous memory shows when it is read.
#[inline]
pub fn zero_frame() -> Frame {
    // Relaxed: set once before anything is mapped.
    Frame::new(ZERO_FRAME.load(Ordering::Relaxed))
}

/// A frame with any contents. May wait for memory (balloon, OOM killer): not under a spin lock.
/// Unmovable frames count as kernel memory, others as pages of files.
///
/// # Errors
/// `ENOMEM` when nothing could be freed, or the current task is being killed.
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

/// A frame of zeros; otherwise as [`alloc_frame`].
///
/// # Errors
/// As [`alloc_frame`].
pub fn alloc_zeroed(mobility: Mobility) -> Result<FrameRef, Errno> {
    let frame = alloc_frame(mobility)?;
    // SAFETY: the new frame has no other user.
    unsafe { clear_page(frame.as_ptr()) };
    Ok(frame)
}

/// Returns a spare frame for the balloon, or `None` if memory is short. Does not wait.
pub fn spare_frame() -> Option<FrameRef> {
    let stats = allocator().stats();
    // Inflating must not be what makes allocations wait.
    if stats.free_frames <= stats.watermarks.high.saturating_mul(2) {
        return None;
    }
    FrameRef::try_new(Kind::Kernel, Mobility::Movable, Reserve::Keep).ok()
}

/// Returns whether caches should give up frames rather than take `wanted` more.
pub fn is_short(wanted: u64) -> bool {
    let stats = allocator().stats();
    stats.free_frames
        <= stats
            .watermarks
            .high
            .saturating_mul(2)
            .saturating_add(wanted)
}

/// Returns whether allocations under a lock would soon use the reserve.
pub fn is_scarce() -> bool {
    let stats = allocator().stats();
    stats.free_frames <= stats.watermarks.low
}

/// Returns a spare frame for a page of a file, or `None` if memory is short. Does not wait.
pub fn spare_file_frame() -> Option<FrameRef> {
    FrameRef::try_new(Kind::File, Mobility::Movable, Reserve::Keep).ok()
}

/// Takes the frame at `address` (page-aligned, inside the initrd) over as an ordinary frame of a
/// file: it is freed when the reference and its clones are gone. At most once for each frame.
pub fn adopt(address: u64) -> FrameRef {
    let frame = Frame::containing(address);
    let descriptor = Descriptor::get(frame);
    assert!(
        descriptor.kind().is_none(),
        "boot memory at {address:#x} is adopted twice"
    );
    descriptor.take(Kind::File, Order::BASE);
    percpu::add(Kind::File.count(), 1);
    // SAFETY: `take` counted one reference, for this.
    unsafe { FrameRef::from_counted(frame) }
}

/// Gives boot memory that is not needed any more (parts of the initrd) to the allocator: the whole
/// frames inside of the range.
pub fn release_boot(range: PhysRange) {
    let frames = FrameRange::inside(range.start, range.bytes());
    for offset in 0..frames.frames {
        percpu::free(frames.start.offset(offset), Order::BASE);
    }
}

/// Counts frames that back files (`Cached` in /proc/meminfo); tmpfs calls it when it takes (+) or
/// drops (-) frames.
pub fn count_file_frames(change: i64) {
    percpu::add(percpu::Count::SharedFrames, change.cast_unsigned());
}

/// Counts a process that was killed for its memory.
pub fn count_oom_kill() {
    percpu::add(percpu::Count::OomKills, 1);
}

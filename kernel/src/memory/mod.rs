//! The kernel's memory: frames, their descriptors, the heap, low memory, reporting.

mod clear;
pub mod frame;

pub use clear::{clear_page, copy_page};
pub use frame::FrameRef;

use crate::arch::{BootInfo, PhysRange};
use crate::errno::Errno;

/// (landing) re-export of `ebb_mm::Mobility`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mobility {
    /// Stays where it is until it is freed: page tables, kernel memory, memory for devices.
    Unmovable = 0,
    /// Can be copied elsewhere: user memory.
    Movable = 1,
    /// Can be dropped and got back: caches.
    Reclaimable = 2,
}

/// Bytes in a frame and a page.
pub const PAGE_SIZE: usize = 4096;

/// Builds the allocator, the memmap and the heap from what the machine has. Called once, before
/// anything allocates.
pub fn init(boot: &'static BootInfo) {
    let _ = boot;
}

/// A frame with any contents. May wait for memory (balloon, OOM killer): not under a spin lock.
///
/// # Errors
/// `ENOMEM` when nothing could be freed, or the current task is being killed.
pub fn alloc_frame(mobility: Mobility) -> Result<FrameRef, Errno> {
    let _ = mobility;
    Err(Errno::ENOMEM)
}

/// A frame of zeros; otherwise as [`alloc_frame`].
pub fn alloc_zeroed(mobility: Mobility) -> Result<FrameRef, Errno> {
    let frame = alloc_frame(mobility)?;
    // SAFETY: nobody else knows the new frame.
    unsafe { clear_page(frame.as_ptr()) };
    Ok(frame)
}

/// Takes the frame at `address` (page-aligned, inside the initrd) over as an ordinary frame: it is
/// freed when the reference and its clones are gone. At most once for each frame.
pub fn adopt(address: u64) -> FrameRef {
    let _ = address;
    unimplemented!()
}

/// Gives boot memory that nobody needs any more (parts of the initrd) to the allocator. Only whole
/// frames inside the range are given.
pub fn release_boot(range: PhysRange) {
    let _ = range;
}

/// Gives back what this CPU holds in reserve; called by the idle loop before it halts.
pub fn on_idle() {}

/// Counts frames that back files (`Cached` in /proc/meminfo); tmpfs calls it when it takes (+) or
/// drops (-) frames.
pub fn count_file_frames(change: i64) {
    let _ = change;
}

/// A task's kernel stack.
#[derive(Debug)]
pub struct KernelStack(());

impl KernelStack {
    /// Its size in bytes.
    pub const BYTES: usize = 32 << 10;

    /// A new stack. Does not wait.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        Err(Errno::ENOMEM)
    }

    /// The address after its highest byte, a multiple of 16.
    pub fn top(&self) -> *mut u8 {
        core::ptr::null_mut()
    }

    /// Whether the guard words at its low end are intact; looked at on context switches.
    pub fn is_intact(&self) -> bool {
        true
    }
}

/// Stands in until the heap lands.
struct NoHeap;
// SAFETY: never returns memory.
unsafe impl core::alloc::GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}
#[global_allocator]
static HEAP: NoHeap = NoHeap;

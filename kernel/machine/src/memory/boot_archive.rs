//! The archive that the boot loader left in memory, the initramfs, and its frames.

use super::frame::FrameRef;
use super::memmap::{Descriptor, Kind};
use super::percpu;
use crate::arch::layout::PAGE_SIZE;
use crate::arch::once::Once;
use crate::arch::{PhysRange, phys_to_virt};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_mm::{Frame, FrameRange, Order};
use logic::errno::Errno;

/// The memory of the archive, whose frames are in use from the start.
static RANGE: Once<PhysRange> = Once::new();
/// Whether [`BootArchive::claim`] has returned the archive.
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// Sets the memory of the archive. The caller has claimed its frames for it.
pub(super) fn set(range: PhysRange) {
    let first = RANGE.set(range).is_ok();
    assert!(first, "the boot loader left one archive");
}

/// The archive that the boot loader left, with its frames. Lends its bytes, and gives frames away.
/// Dropping it frees all frames that it still has.
#[derive(Debug)]
pub struct BootArchive {
    range: PhysRange,
    /// The bytes whose frames were taken, as ranges of offsets in rising order.
    taken: Vec<Range<usize>>,
}

impl BootArchive {
    /// Returns the archive. Returns `None` if there is none, or from the second call on.
    pub fn claim() -> Option<Self> {
        let range = *RANGE.get()?;
        // Relaxed: the range was published by the `Once`, and only the first call gets it.
        if CLAIMED.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(Self {
            range,
            taken: Vec::new(),
        })
    }

    /// Returns the length of the archive in bytes.
    #[expect(clippy::cast_possible_truncation, reason = "usize is 64 bits wide")]
    pub fn length(&self) -> usize {
        self.range.bytes() as usize
    }

    /// Returns the bytes at the offsets `bytes`. Returns `None` if they do not lie in the archive,
    /// or if a frame with one of them was taken.
    pub fn get(&self, bytes: Range<usize>) -> Option<&[u8]> {
        if bytes.start > bytes.end || bytes.end > self.length() {
            return None;
        }
        let after = self.taken.partition_point(|taken| taken.end <= bytes.start);
        if self.taken.get(after).is_some_and(|t| t.start < bytes.end) {
            return None;
        }
        let start = phys_to_virt(self.range.start + bytes.start as u64);
        // SAFETY: the archive is in RAM, which the physmap covers, and the bytes lie in it. Their
        // frames were not taken, so they are this value's until it is dropped, and nothing writes
        // to them. `take_pages` needs the value alone, so these bytes are not lent then.
        Some(unsafe { core::slice::from_raw_parts(start, bytes.len()) })
    }

    /// Returns whether the byte at `offset` is the first of a frame.
    pub fn starts_frame(&self, offset: usize) -> bool {
        (self.range.start + offset as u64).is_multiple_of(PAGE_SIZE as u64)
    }

    /// Returns the offset of the first byte behind all frames that were taken.
    pub fn taken_end(&self) -> usize {
        self.taken.last().map_or(0, |taken| taken.end)
    }

    /// Takes the frames of `pages` pages from `offset` on out of the archive, and adds them to
    /// `frames` as frames of a file. A frame is freed when its last reference is dropped.
    ///
    /// # Errors
    /// Fails with `ENOMEM`. No frame was taken then.
    ///
    /// # Panics
    /// If the pages are not whole frames of the archive, or do not lie behind all frames that were
    /// taken before.
    pub fn take_pages(
        &mut self,
        offset: usize,
        pages: usize,
        frames: &mut Vec<FrameRef>,
    ) -> Result<(), Errno> {
        let bytes = pages.checked_mul(PAGE_SIZE);
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        let end = end.expect("the pages end within the address space");
        assert!(self.starts_frame(offset) && self.taken_end() <= offset && end <= self.length());
        frames.try_reserve(pages).map_err(|_| Errno::ENOMEM)?;
        self.taken.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.taken.push(offset..end);
        let first = Frame::containing(self.range.start + offset as u64);
        let frame = |page| {
            let frame = first.offset(page);
            Descriptor::get(frame).take(Kind::File, Order::BASE);
            percpu::add(Kind::File.count(), 1);
            // SAFETY: `take` counted one reference, for this. The frame was the archive's, which
            // gives it away once.
            unsafe { FrameRef::from_counted(frame) }
        };
        frames.extend((0..pages as u64).map(frame));
        Ok(())
    }
}

impl Drop for BootArchive {
    fn drop(&mut self) {
        let mut free_from = self.range.start;
        for taken in &self.taken {
            free(free_from, self.range.start + taken.start as u64);
            free_from = self.range.start + taken.end as u64;
        }
        // It was claimed in whole frames.
        free(free_from, self.range.end.next_multiple_of(PAGE_SIZE as u64));
    }
}

/// Frees the frames that lie completely between the addresses `start` and `end`.
fn free(start: u64, end: u64) {
    let frames = FrameRange::inside(start, end.saturating_sub(start));
    for offset in 0..frames.frames {
        percpu::free(frames.start.offset(offset), Order::BASE);
    }
}

//! The owners of pages that compaction can move, other than private memory and page tables.

use core::ops::Range;
use ebb_mm::Frame;
use machine::memory::FrameRef;

/// The owner of pages that can be moved to other frames: a file of tmpfs, of a volume or of a disk,
/// or shared memory. [`Name`](super::Name) makes its pages known.
pub trait PageOwner: Send + Sync {
    /// Unmaps `pages` from all page tables, although they stay with the owner. Faults map them
    /// again. The caller holds no spin lock. An owner that may drop clean pages leaves those of
    /// locked memory mapped, so that they do not go; these cannot be moved.
    fn unmap(&self, pages: Range<u64>);

    /// Replaces the frame `from` of page `index` by `to`, and copies its bytes, if the owner has
    /// the only reference to `from`. Returns whether the frame was replaced.
    fn relocate(&self, index: u64, from: Frame, to: FrameRef) -> bool;
}

/// Implements [`PageOwner::relocate`]: copies the bytes of the frame `from` to `to`, and stores
/// `to` in `place`, the owner's slot for the page. The caller holds the lock under which the owner
/// looks up the page. Returns the old frame, which the caller drops after it has released the lock.
/// Returns `None` and drops `to` if `place` is `None` or holds another frame, or if `from` has
/// further references.
pub fn relocate_in(place: Option<&mut FrameRef>, from: Frame, to: FrameRef) -> Option<FrameRef> {
    // With the lock held, new references to the frame come from existing ones alone.
    let place = place.filter(|place| place.frame() == from && place.references() == 1)?;
    to.copy_from(place);
    Some(core::mem::replace(place, to))
}

//! Drops the free frames of partly used and of isolated pageblocks of a guest that `ebb pause` has
//! stopped.
//!
//! A running guest could use such a frame at any moment, so the host takes only whole blocks from
//! it. In huge pages of the host, a guest that has freed its memory then keeps up to 2 MiB for each
//! block with a used frame. A stopped guest uses no free frame, and its bitmap shows which frames
//! are free. A block that the guest has isolated, such as for a report that it has not sent yet, is
//! free too.
//!
//! The descriptors of the dropped frames go with them, where they fill whole pages.
//!
//! Dropping a part of a huge page splits the page. When the guest resumes, each base page that it
//! touches in the block costs a fault of the host, including the pages that the host kept.

use super::descriptors::drop_descriptors;
use super::error::ReclaimError;
use crate::guest::Guest;
use crate::qemu::{GuestAddress, GuestRam, Hold};
use ebb_mm::attach::{Attached, BlockView, Usage};
use ebb_mm::{FRAME_SIZE, FrameRange, PAGEBLOCK_FRAMES};

const FRAME: u64 = FRAME_SIZE as u64;
/// The smallest number of free frames for which a huge page is split.
const WORTH_A_SPLIT: u64 = 32;

/// How far a pass over the partly used blocks of a stopped guest came.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    /// It examined all memory.
    Complete,
    /// It dropped the wanted number of bytes.
    Enough,
    /// It stopped because the CPUs should resume, or the guest has ended.
    Unwanted,
}

/// The amount that a pass over the partly used blocks dropped, and how it ended.
#[derive(Debug)]
pub(super) struct Dropped {
    /// The number of bytes that were dropped from the host's memory.
    pub(super) bytes: u64,
    /// The number of ranges that were dropped.
    pub(super) ranges: u64,
    /// How far the pass came, or [`ReclaimError::Drop`] with the range that the host could not
    /// drop.
    pub(super) end: Result<Pass, ReclaimError>,
}

/// Drops the free frames of partly used and of isolated blocks of `ram`, the memory of `guest`,
/// which the allocator `attached` manages, and the descriptors of these frames. `still` keeps the
/// CPUs stopped. Leaves out a partly used block in one huge page if fewer than 32 of its frames are
/// free. Stops when about `most` bytes have been dropped, when the CPUs should resume, or at the
/// first range that the host cannot drop. Returns the amount and how the pass ended.
pub(super) fn drop_free_frames(
    ram: &GuestRam,
    guest: &dyn Guest,
    attached: &Attached<'_>,
    still: &Hold<'_>,
    most: u64,
) -> Dropped {
    // If the host cannot tell the resident size, nothing counts as dropped.
    let resident = || ram.resident_bytes().unwrap_or(0);
    let before = resident();
    let left = || before.saturating_sub(resident());
    let mut ranges = 0;
    let mut end = Ok(Pass::Complete);
    // The metadata may describe more memory than there is, so the number of blocks is limited.
    let blocks = ram.frames().div_ceil(PAGEBLOCK_FRAMES) + 2;
    let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
    for block in attached.blocks().take(blocks) {
        if still.is_unwanted() {
            end = Ok(Pass::Unwanted);
            break;
        }
        if !is_worth_it(ram, &block) {
            continue;
        }
        if left() >= most {
            end = Ok(Pass::Enough);
            break;
        }
        match drop_pieces(ram, attached.free_runs(&block)) {
            Ok(dropped) => {
                ranges += dropped;
                drop_descriptors(ram, guest, attached.free_runs(&block));
            }
            Err(error) => {
                end = Err(error);
                break;
            }
        }
    }
    let bytes = left();
    Dropped {
        bytes,
        ranges: if bytes == 0 { 0 } else { ranges },
        end,
    }
}

/// Returns whether `block` is isolated, or is partly used and has enough free frames to justify
/// splitting its huge page.
fn is_worth_it(ram: &GuestRam, block: &BlockView) -> bool {
    let used = match block.usage {
        Usage::Partial(used) => used,
        Usage::Isolated => return true,
        _ => return false,
    };
    let free = PAGEBLOCK_FRAMES.saturating_sub(used.into());
    free >= WORTH_A_SPLIT || !ram.is_one_page(GuestAddress(block.start.address()))
}

/// Drops `pieces`, ranges of free frames. Returns the number of ranges.
///
/// # Errors
/// [`ReclaimError::Drop`] with the range that the host could not drop.
fn drop_pieces(
    ram: &GuestRam,
    pieces: impl Iterator<Item = FrameRange>,
) -> Result<u64, ReclaimError> {
    let mut dropped = 0;
    for piece in pieces.map(|piece| without_kept(ram, piece)) {
        if piece.frames > 0 {
            let bytes = piece.frames * FRAME;
            ram.punch(GuestAddress(piece.start.address()), bytes)
                .map_err(|errno| ReclaimError::Drop(piece, errno))?;
            dropped += 1;
        }
    }
    Ok(dropped)
}

/// Returns `piece` without its first frame, if that frame is the one that keeps its block in base
/// pages of the host. Otherwise returns `piece`.
fn without_kept(ram: &GuestRam, piece: FrameRange) -> FrameRange {
    let offset = ram.file_offset(GuestAddress(piece.start.address()), FRAME);
    let kept = offset.is_some_and(|offset| ram.is_first_of_kept(offset));
    let skipped = u64::from(kept);
    FrameRange::new(piece.start.offset(skipped), piece.frames - skipped)
}

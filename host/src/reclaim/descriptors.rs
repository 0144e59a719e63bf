//! Drops the page descriptors of free memory, together with the memory.
//!
//! The descriptors of free frames are zero, and a hole reads as zero, so nothing is lost. A page of
//! descriptors describes 64 frames. Only pages whose frames are all in the dropped ranges go.
//!
//! Most pages of descriptors are in the memory that the guest set aside for them at boot. The host
//! keeps it in base pages, except for the first 2 MiB, which stay: every program that grows needs
//! them. The other pages came from the guest's allocator when huge pages left a pool, 64 blocks'
//! descriptors in 2 MiB. They may be in huge pages of the host. These are split, so that all 2 MiB
//! go with the last of the 64 blocks.

use crate::guest::Guest;
use crate::qemu::GuestRam;
use ebb_mm::{Frame, FrameRange};
use ebb_wire::header::memmap::{PAGE, PAGE_FRAMES};

/// Punches holes in `ram` for the pages of `guest` that contain only descriptors of frames in
/// `ranges`. These frames are free, and the guest cannot allocate them during the call: the caller
/// has taken their pageblocks, or the guest's CPUs are stopped.
///
/// Leaves pages that the guest has had since boot if the host would have to split a huge page for
/// them. Errors are ignored, because keeping descriptors costs little.
pub(super) fn drop_descriptors(
    ram: &GuestRam,
    guest: &dyn Guest,
    ranges: impl IntoIterator<Item = FrameRange>,
) {
    let frames = ranges.into_iter().flat_map(first_frames);
    let pages = frames.filter_map(|frame| guest.descriptor_page(frame));
    let mut pages: Vec<_> = pages
        .filter(|page| page.restored || !ram.is_one_page(page.address))
        .map(|page| page.address)
        .collect();
    pages.sort_unstable();
    // The sum cannot overflow: the guest's entries have 52 bits of an address.
    for run in pages.chunk_by(|a, b| a.0 + PAGE == b.0) {
        let bytes = run.len() as u64 * PAGE;
        let _ = ram.punch(run[0], bytes);
    }
}

/// Returns the first frame of each aligned 64 frames in `range`.
fn first_frames(range: FrameRange) -> impl Iterator<Item = Frame> {
    let first = range.start.number().div_ceil(PAGE_FRAMES);
    let end = range.end().number() / PAGE_FRAMES;
    (first..end).map(|page| Frame::new(page * PAGE_FRAMES))
}

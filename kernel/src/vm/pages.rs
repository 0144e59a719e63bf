//! The pages of a file in memory, and which of them are huge blocks.

use super::entry::REGION;
use core::ops::Range;
use ebb_mm::Frame;
use logic::radix::{NoMemory, RadixTree};
use machine::memory::FrameRef;
use machine::memory::file_block::{self, FileBlock, SharedPolicy};
use machine::memory::huge::FRAMES;
use machine::memory::percpu::{self, Count};

/// The wish of a mapping for huge blocks where a page is missing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// The mapping wants none (`MADV_NOHUGEPAGE`).
    Declined,
    /// The mapping has no wish, or there is no mapping.
    None,
    /// The mapping asks for huge blocks (`MADV_HUGEPAGE`).
    Asked,
}

/// Returns whether a file of `size` pages gets a huge block for the region that begins with page
/// `first`, by the `policy` for huge pages of files and the mapping's `wish`.
pub fn wants_block(policy: SharedPolicy, wish: Wish, first: u64, size: u64) -> bool {
    let asked = wish == Wish::Asked;
    wish != Wish::Declined
        && match policy {
            SharedPolicy::Always | SharedPolicy::Force => true,
            SharedPolicy::WithinSize => asked || first + FRAMES <= size,
            SharedPolicy::Advise => asked,
            SharedPolicy::Never | SharedPolicy::Deny => false,
        }
}

/// Returns the index of the first page of the region that contains page `index`.
pub const fn region_of(index: u64) -> u64 {
    index & !(FRAMES - 1)
}

/// The pages of a file, by their numbers.
#[derive(Debug, Default)]
pub struct Pages {
    frames: RadixTree<FrameRef>,
    /// Regions of 2 MiB whose pages are the frames of one block.
    whole: RadixTree<()>,
}

const _: () = assert!(REGION / 4096 == FRAMES);

impl Pages {
    /// Returns an empty set of pages.
    pub const fn new() -> Self {
        Self {
            frames: RadixTree::new(),
            whole: RadixTree::new(),
        }
    }

    /// Returns the number of pages.
    pub const fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the page `index`, or `None` if it is not in memory.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&FrameRef> {
        self.frames.get(index)
    }

    /// Calls `each` with the index of each page in memory from `range`, and the page, in rising
    /// order.
    #[inline]
    pub fn for_each_in(&self, range: Range<u64>, each: impl FnMut(u64, &FrameRef)) {
        self.frames.for_each_in(range, each);
    }

    /// Returns the index of the first page in memory that is not before `index`. Returns `None` if
    /// there is none.
    pub fn next_from(&self, index: u64) -> Option<u64> {
        self.frames.next_from(index).map(|(index, _)| index)
    }

    /// Inserts `frame` as the page `index`. Returns the frame that the page had before, or `None`
    /// if it had none.
    ///
    /// # Errors
    /// Fails with [`NoMemory`] if memory is short. Nothing is changed then.
    #[inline]
    pub fn insert(&mut self, index: u64, frame: FrameRef) -> Result<Option<FrameRef>, NoMemory> {
        self.frames.insert(index, frame)
    }

    /// Returns whether no page of the region (2 MiB) that begins with page `first` is in memory.
    pub fn has_room_for_block(&self, first: u64) -> bool {
        self.next_from(first)
            .is_none_or(|next| next - first >= FRAMES)
    }

    /// Inserts `block` as the pages from `first` on. These pages must not be in memory. Calls `own`
    /// with each frame and the index of its page.
    ///
    /// # Errors
    /// Fails if memory is short. Nothing is changed then, and the block is freed.
    pub fn insert_block(
        &mut self,
        first: u64,
        block: FileBlock,
        own: impl Fn(&FrameRef, u64),
    ) -> Result<(), NoMemory> {
        debug_assert!(self.has_room_for_block(first));
        self.whole.insert(first / FRAMES, ())?;
        let mut result = Ok(());
        for (index, frame) in (first..).zip(block.into_frames()) {
            own(&frame, index);
            // A frame without a place is freed.
            result = result.and_then(|()| self.frames.insert(index, frame).map(|_| ()));
        }
        file_block::count_whole(FRAMES.cast_signed());
        if result.is_err() {
            let mut from = first;
            loop {
                let mut batch = [const { None }; 64];
                let (taken, next) = self.take_batch(from, first + FRAMES, &mut batch);
                from = next;
                if taken < batch.len() {
                    break;
                }
            }
            self.part(first / FRAMES..first / FRAMES + 1);
        }
        result
    }

    /// Returns the huge block that holds the region of page `first`, with one more reference to
    /// each of its frames. Returns `None` if no block holds the region.
    pub fn share_block(&self, first: u64) -> Option<Frame> {
        self.whole.get(first / FRAMES)?;
        let block = self.frames.get(first)?.frame();
        file_block::share(block);
        Some(block)
    }

    /// Returns whether a huge block holds the region of page `index`.
    pub fn is_whole(&self, index: u64) -> bool {
        self.whole.get(index / FRAMES).is_some()
    }

    /// Returns the slot of page `index`, so that the caller can replace the frame. Returns `None`
    /// unless the page's frame is `frame` and has no other reference. Splits a huge block around
    /// the page to single pages.
    pub fn replaceable(&mut self, index: u64, frame: Frame) -> Option<&mut FrameRef> {
        let found = self.frames.get(index)?;
        if found.frame() != frame || found.references() != 1 {
            return None;
        }
        if self.part(index / FRAMES..index / FRAMES + 1) {
            percpu::add(Count::HugeParted, 1);
        }
        self.frames.get_mut(index)
    }

    /// Takes the first pages in `from..end` that `batch` has room for out of the set. Returns their
    /// number and the first index that was not visited.
    pub fn take_batch(
        &mut self,
        from: u64,
        end: u64,
        batch: &mut [Option<FrameRef>],
    ) -> (usize, u64) {
        let (taken, next) = self.frames.take_batch(from, end, batch);
        if taken != 0 && !self.whole.is_empty() {
            // Of those at the ends a part may stay.
            for cut in [from, end] {
                let region = cut / FRAMES;
                let reached = region_of(cut) < next && !cut.is_multiple_of(FRAMES);
                if reached && self.part(region..region + 1) {
                    percpu::add(Count::HugeParted, 1);
                }
            }
            self.part(from / FRAMES..next.div_ceil(FRAMES));
        }
        (taken, next)
    }

    /// Marks the pages of `regions` as single pages, no longer huge blocks. Returns whether any
    /// region was a huge block.
    fn part(&mut self, regions: Range<u64>) -> bool {
        let mut any = false;
        let mut from = regions.start;
        loop {
            let mut gone = [None; 4];
            let (parted, next) = self.whole.take_batch(from, regions.end, &mut gone);
            from = next;
            file_block::count_whole(-((parted as u64 * FRAMES).cast_signed()));
            any |= parted != 0;
            if parted < gone.len() {
                return any;
            }
        }
    }
}

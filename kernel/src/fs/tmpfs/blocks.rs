//! Huge blocks of regular files.

use super::regular::{Content, PAGE, Pace, Place, Regular};
use super::{TmpNode, Tmpfs, tails};
use crate::vm::pages::{Wish, region_of, wants_block};
use crate::vm::{Block, new_block};
use machine::memory::huge::FRAMES;
use machine::memory::percpu::{self, Count};

impl Regular {
    /// Returns whether the policy allows a huge block for the pages from `first` on,
    /// which are not present. `content` is that of this file.
    fn wants_block(fs: &Tmpfs, content: &Content, first: u64, wish: Wish) -> bool {
        let pages = content.size.div_ceil(PAGE);
        wants_block(fs.block_policy(), wish, first, pages)
            && content.below_bytes == 0
            && content.pages.has_room_for_block(first)
    }

    /// Makes a huge block for the 2 MiB around page `index`, if the policy and `wish` allow it and
    /// the file has no page there. `place` says whether `index` must lie in the file.
    pub(super) fn make_block(&self, node: &TmpNode, index: u64, wish: Wish, place: Place) {
        let (fs, first) = (&*node.fs, region_of(index));
        if !fs.may_have_blocks() {
            return;
        }
        let wanted = {
            let content = self.content.lock();
            Self::wants_block(fs, &content, first, wish)
        };
        if !wanted || fs.charge_pages(FRAMES).is_err() {
            return;
        }
        let Some(block) = new_block(wish) else {
            fs.discharge_pages(FRAMES);
            return;
        };
        node.let_move(self);
        let mut content = self.content.lock();
        let wanted = (place == Place::Any || content.holds(index))
            && Self::wants_block(fs, &content, first, wish);
        let cut = content.size < (first + FRAMES) * PAGE;
        // A listed file gives up the pages behind its end when memory is short.
        let entered = wanted
            && (!cut || content.has_tail || tails::note(node))
            && content
                .pages
                .insert_block(first, block, |frame, index| self.mappings.own(frame, index))
                .is_ok();
        content.has_tail |= cut && entered;
        drop(content);
        if entered {
            percpu::add(Count::SharedHugeAllocs, 1);
        } else {
            fs.discharge_pages(FRAMES);
        }
    }

    /// Returns the block of pages from `first` on, for an entry that maps all of it. Returns
    /// [`Block::None`] if the block reaches behind the end of the file.
    pub(super) fn share_block(&self, fs: &Tmpfs, first: u64, wish: Wish) -> Block {
        let content = self.content.lock();
        if content.size.div_ceil(PAGE) < first + FRAMES {
            return Block::None;
        }
        match content.pages.share_block(first) {
            Some(block) => Block::Shared(block),
            None if Self::wants_block(fs, &content, first, wish) => Block::Possible,
            None => Block::None,
        }
    }

    /// Frees the pages behind the end of the file that belong to a huge block of the file. Returns
    /// whether there were any, or `None` if a task is writing the file.
    pub(super) fn trim(&self, fs: &Tmpfs) -> Option<bool> {
        let _writing = self.writing.try_lock()?;
        let end = {
            let mut content = self.content.lock();
            content.has_tail = false;
            let end = content.size.div_ceil(PAGE);
            if content.reaches_beyond || !content.pages.is_whole(end) {
                return Some(false);
            }
            end
        };
        // Pages behind the end are not mapped.
        self.free_pages(fs, end..region_of(end) + FRAMES, Pace::Straight);
        Some(true)
    }
}

//! Huge blocks of regular files.

use super::regular::{Content, PAGE, Pace, Place, Regular};
use super::{TmpNode, Tmpfs, tails};
use crate::vm::pages::{Wish, region_of, wants_block};
use crate::vm::{Block, new_block};
use machine::memory::huge::FRAMES;
use machine::memory::percpu::{self, Count};

impl Regular {
    /// The policy's answer for the block of pages from `first` on, which is not there; `content` is this file's.
    fn wants_block(fs: &Tmpfs, content: &Content, first: u64, wish: Wish) -> bool {
        let pages = content.size.div_ceil(PAGE);
        wants_block(fs.block_policy(), wish, first, pages)
            && content.below_bytes == 0
            && content.pages.has_room_for_block(first)
    }

    /// Has a huge block be the 2 MiB around a page, if the file may have such and has nothing there.
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
        // Who is short of memory must find what its end cuts off.
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

    /// The block of pages from `first` on, for an entry that maps all of it: none of it is behind the end.
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

    /// Frees what a huge block has behind the end of the file; whether there was any. `None`: somebody writes just now.
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
        // Nobody maps what is behind the end.
        self.free_pages(fs, end..region_of(end) + FRAMES, Pace::Straight);
        Some(true)
    }
}

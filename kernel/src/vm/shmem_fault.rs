//! Huge pages of files in memory: faults that are served by an entry of 2 MiB.

use super::VmaFlags;
use super::compaction::{self, daemon, proactive};
use super::entry::{FILE, PAGE, REGION, SHMEM};
use super::leaf::TableFrame;
use super::pages::Wish;
use super::pagetable::PageTables;
use super::serve::{Asked, FilePage, Step, Supplies};
use super::source::{Block, MappedFile};
use super::thp::{HugeTry, pin_huge};
use super::want::{entry_flags, store_flags};
use alloc::sync::Arc;
use machine::memory::file_block::{self, FileBlock};
use machine::memory::huge::{self, Effort, FRAMES};
use machine::memory::percpu::{self, Count};

/// Allocates a huge block for a file if one is free, or can be made as far as `defrag` and `wish`
/// allow. May wait. Returns `None` if there is no block.
pub fn new_block(wish: Wish) -> Option<FileBlock> {
    let mut block = FileBlock::try_new();
    if block.is_err() {
        match huge::defrag().effort(wish == Wish::Asked) {
            Effort::Direct => {
                if compaction::make_block() {
                    block = FileBlock::try_new();
                }
            }
            Effort::Background => daemon::want_block(),
            Effort::None => {}
        }
    }
    match block {
        Ok(_) => proactive::note_block_taken(),
        Err(_) => percpu::add(Count::SharedHugeFallbacks, 1),
    }
    block.ok()
}

impl Asked<'_> {
    /// Returns the area's wish for huge blocks.
    pub(super) fn wish(&self) -> Wish {
        let flags = self.area.flags;
        if flags.contains(VmaFlags::NO_HUGE_PAGES) || self.space.declines_huge_pages() {
            Wish::Declined
        } else if flags.contains(VmaFlags::HUGE_PAGES) {
            Wish::Asked
        } else {
            Wish::None
        }
    }

    /// Serves a fault in a mapping of `file`, in a region without a table, by one entry for a huge
    /// block of the file. `offset` is the byte of the file at the start of the area. `mapped` is
    /// the space's `State::mapped`, which counts the pages of the block. Returns `None` if the
    /// fault needs a base page. The caller passes no stores to private mappings.
    #[cold]
    pub(super) fn block(
        &self,
        tables: &PageTables,
        mapped: &mut [u64; 3],
        supplies: &Supplies,
        file: &Arc<MappedFile>,
        offset: u64,
    ) -> Option<Step> {
        let region = self.page & !(REGION - 1);
        let start = offset + (region - self.area.start);
        let wish = self.wish();
        if !start.is_multiple_of(REGION) || wish == Wish::Declined {
            return None;
        }
        let first = start / PAGE;
        let block = match file.source.share_block(first, wish) {
            Block::Shared(block) => block,
            Block::Possible if !matches!(supplies.huge, HugeTry::Failed) => {
                return Some(Step::NeedsPage(FilePage {
                    file: file.clone(),
                    index: first,
                    wish,
                    whole: true,
                }));
            }
            Block::Possible | Block::None => return None,
        };
        let slot = TableFrame::try_new()
            .and_then(|table| Ok((table, tables.region_slot_or_new(self.page)?)));
        let (table, slot) = match slot {
            Ok(got) => got,
            Err(error) => {
                file_block::release(block);
                return Some(error.into());
            }
        };
        let (kind, count) = if file.shmem { (SHMEM, 2) } else { (FILE, 1) };
        let flags = self.area.flags;
        let store = if flags.contains(VmaFlags::SHARED) {
            store_flags(flags)
        } else {
            0
        };
        let entry = block.address() | kind | entry_flags(flags) | store;
        tables.set_huge(slot, entry, table);
        mapped[count] += FRAMES;
        percpu::add(Count::MappedFile, FRAMES);
        file_block::map(block);
        Some(Step::Done(pin_huge(slot, self.page, self.want)))
    }
}

//! Shared memory: the nameless files of anonymous mappings and of System V shared memory.

use super::page_owner::{PageOwner, relocate_in};
use super::pages::{Pages, Wish, region_of, wants_block};
use super::shmem_fault::new_block;
use super::source::{Block, MappedFile, Mappings, PageSource};
use alloc::sync::{Arc, Weak};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::Frame;
use logic::errno::Errno;
use machine::memory::file_block::{self, SHARED, SharedPolicy};
use machine::memory::huge::FRAMES;
use machine::memory::{FrameRef, Mobility, alloc_zeroed, count_file_frames, percpu};
use machine::sync::SpinLock;

const PAGE: u64 = 4096;
/// Device number of the kernel's own memory files, as on Linux.
pub const DEVICE: u64 = 1;

/// The inode number of the next of the kernel's own memory files.
static NEXT_INODE: AtomicU64 = AtomicU64::new(1);

/// Shared anonymous memory, or a segment of System V shared memory.
#[derive(Debug)]
pub struct SharedMemory {
    pages: SpinLock<Pages>,
    /// The size of the memory in pages.
    room: u64,
    mappings: Mappings,
}

/// Returns new shared memory of `bytes` bytes, all zero.
pub(super) fn file(bytes: u64) -> MappedFile {
    let source = SharedMemory::new(bytes);
    let path = Arc::from(&b"/dev/zero (deleted)"[..]);
    // Relaxed: only has to be different each time.
    let inode = NEXT_INODE.fetch_add(1, Ordering::Relaxed);
    let mut file = MappedFile::new(source, path, inode, DEVICE);
    file.shmem = true;
    file
}

impl SharedMemory {
    /// Returns new memory of `bytes` bytes, all zero. Pages are allocated at their first use.
    pub fn new(bytes: u64) -> Arc<Self> {
        let memory = Arc::new(Self {
            pages: SpinLock::new(Pages::new()),
            room: bytes.div_ceil(PAGE),
            mappings: Mappings::new(),
        });
        memory.mappings.let_move(|| {
            let this: Weak<Self> = Arc::downgrade(&memory);
            this
        });
        memory
    }

    /// Returns whether a block may hold the pages from `first` on. The memory never grows, so a
    /// block beyond its end is useless.
    fn wants_block(&self, first: u64, wish: Wish) -> bool {
        let policy = file_block::in_effect(SHARED.get());
        first + FRAMES <= self.room && wants_block(policy, wish, first, self.room)
    }

    /// Drops the pages, a few at a time so that the lock is held for moments.
    fn drop_pages(&self, pages: Range<u64>) {
        const BATCH: usize = 32;
        let mut from = pages.start;
        loop {
            let mut batch = [const { None }; BATCH];
            let (taken, next) = self.pages.lock().take_batch(from, pages.end, &mut batch);
            from = next;
            file_block::drop_pages(&mut batch[..taken]);
            count_file_frames(-(taken as i64));
            if taken < BATCH {
                return;
            }
        }
    }
}

impl PageSource for SharedMemory {
    fn page(&self, index: u64, wish: Wish) -> Result<Option<FrameRef>, Errno> {
        if index >= self.room {
            return Ok(None);
        }
        if let Some(page) = self.pages.lock().get(index) {
            return Ok(Some(page.clone()));
        }
        if self.has_blocks() {
            self.make_block(index, wish);
            if let Some(page) = self.pages.lock().get(index) {
                return Ok(Some(page.clone()));
            }
        }
        let new = alloc_zeroed(Mobility::Movable)?;
        self.mappings.own(&new, index);
        let mut pages = self.pages.lock();
        // Another task may have added the page in between.
        if let Some(page) = pages.get(index) {
            return Ok(Some(page.clone()));
        }
        pages
            .insert(index, new.clone())
            .map_err(|_| Errno::ENOMEM)?;
        drop(pages);
        count_file_frames(1);
        Ok(Some(new))
    }

    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        let known = self.pages.lock();
        for (index, page) in (first..self.room).zip(pages) {
            *page = known.get(index).map(FrameRef::clone_of_base);
        }
    }

    fn has_blocks(&self) -> bool {
        !matches!(SHARED.get(), SharedPolicy::Never | SharedPolicy::Deny)
    }

    fn make_block(&self, index: u64, wish: Wish) {
        let first = region_of(index);
        if !self.wants_block(first, wish) || !self.pages.lock().has_room_for_block(first) {
            return;
        }
        let Some(block) = new_block(wish) else {
            return;
        };
        let mut pages = self.pages.lock();
        // Another task may have added the page in between.
        if pages.has_room_for_block(first)
            && pages
                .insert_block(first, block, |frame, index| self.mappings.own(frame, index))
                .is_ok()
        {
            drop(pages);
            count_file_frames(FRAMES.cast_signed());
            percpu::add(percpu::Count::SharedHugeAllocs, 1);
        }
    }

    fn share_block(&self, first: u64, wish: Wish) -> Block {
        let pages = self.pages.lock();
        match pages.share_block(first) {
            Some(block) => Block::Shared(block),
            None if self.wants_block(first, wish) && pages.has_room_for_block(first) => {
                Block::Possible
            }
            None => Block::None,
        }
    }

    fn punch(&self, range: Range<u64>) -> Result<(), Errno> {
        let pages = range.start.div_ceil(PAGE)..range.end / PAGE;
        self.drop_pages(pages.clone());
        self.mappings.invalidate(self, pages);
        Ok(())
    }

    fn resident(&self) -> u64 {
        self.pages.lock().len() as u64
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }
}

impl PageOwner for SharedMemory {
    fn unmap(&self, pages: Range<u64>) {
        self.mappings.invalidate(self, pages);
    }

    fn relocate(&self, index: u64, from: Frame, to: FrameRef) -> bool {
        let mut pages = self.pages.lock();
        let old = relocate_in(pages.replaceable(index, from), from, to);
        drop(pages);
        old.is_some()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        self.drop_pages(0..u64::MAX);
    }
}

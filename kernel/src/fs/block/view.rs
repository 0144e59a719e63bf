//! A disk as mappings see it.
//!
//! The kernel does not use the dirty bits of page tables. Mappings that may be stored to have their
//! own view of the disk instead. Pages that are requested from this view count as dirty, and they
//! are unmapped before they are written.

use super::cache::Cache;
use super::writeback;
use crate::vm::pages::Wish;
use crate::vm::{self, Mappings, PageOwner, PageSource};
use alloc::sync::Arc;
use core::ops::Range;
use ebb_mm::Frame;
use logic::errno::Errno;
use machine::memory::FrameRef;

/// Attempts to mark a page that other tasks drop or replace again and again.
const TRIES: u32 = 64;

/// The page source for mappings of a disk.
pub(super) struct View {
    cache: &'static Cache,
    /// Whether requested pages may be changed without another request.
    changes: bool,
    mappings: Mappings,
}

impl View {
    /// Returns a page source for mappings of the disk of `cache`. If `changes` is `true`, the
    /// mappings may store to a page after they have requested it, so each requested page becomes
    /// dirty.
    pub(super) fn new(cache: &'static Cache, changes: bool) -> Arc<Self> {
        Arc::new(Self {
            cache,
            changes,
            mappings: Mappings::new(),
        })
    }
}

impl PageSource for View {
    fn page(&self, index: u64, _: Wish) -> Result<Option<FrameRef>, Errno> {
        /// The number of pages that are read together, as a fault maps them together.
        const AROUND: u64 = 16;
        /// The number of dirty pages of the disk up to which a fault does not wait for writes, even
        /// if other files have many. To write a page unmaps it, so a store would never end if each
        /// of its faults had the page of the one before written.
        const FEW: u64 = 16;
        for _ in 0..TRIES {
            if index >= self.cache.pages() {
                return Ok(None);
            }
            if self.changes && self.cache.unwritten().0 > FEW {
                writeback::throttle(self.cache);
            }
            let is_read = self.cache.ready(index, true).is_none();
            let frame = self.cache.page(index, AROUND)?;
            if is_read {
                vm::count_major_fault();
            }
            if !self.changes {
                return Ok(Some(frame));
            }
            match self.cache.enter_dirty(index, &frame) {
                Ok(None) => return Ok(Some(frame)),
                // Another page has taken its place.
                Ok(Some(_)) | Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO)
    }

    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        if self.changes {
            // Pages count as changed only if they are requested one by one.
            return;
        }
        self.cache.ready_row(first, pages);
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }
}

/// The pages belong to the cache, not to one of its views. A view stands for it where a reference
/// is counted.
impl PageOwner for View {
    fn unmap(&self, pages: Range<u64>) {
        self.cache.ask_again(&pages);
    }

    fn relocate(&self, index: u64, from: Frame, to: FrameRef) -> bool {
        self.cache.relocate(index, from, to)
    }
}

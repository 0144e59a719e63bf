//! A disk as mappings see it.
//!
//! Page tables have no dirty bits that anybody looks at. So a mapping that may be stored to has a
//! view of its own: what is asked of that one counts as dirty, and leaves the page tables before it
//! is written.

use super::cache::Cache;
use super::writeback;
use crate::vm::pages::Wish;
use crate::vm::{self, Mappings, PageSource};
use alloc::sync::Arc;
use logic::errno::Errno;
use machine::memory::FrameRef;

/// Attempts to mark a page that others drop or replace again and again.
const TRIES: u32 = 64;

/// The disk as mappings see it.
pub(super) struct View {
    cache: &'static Cache,
    /// Pages that are asked for may be changed without a word.
    changes: bool,
    mappings: Mappings,
}

impl View {
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
        /// Pages that are read together, as the fault maps them together.
        const AROUND: u64 = 16;
        for _ in 0..TRIES {
            if index >= self.cache.pages() {
                return Ok(None);
            }
            if self.changes {
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
                // Another has taken its place.
                Ok(Some(_)) | Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO)
    }

    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        if self.changes {
            // Only what is asked for counts as changed.
            return;
        }
        self.cache.ready_row(first, pages);
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }
}

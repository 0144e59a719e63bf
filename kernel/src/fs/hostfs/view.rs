//! A file of a volume as mappings see it.
//!
//! As with disks, a mapping that may be stored to has a separate view. A page that this view hands
//! out counts as changed, and is unmapped before it is written to the host.

use super::failures::Seen;
use super::node::HostNode;
use super::writeback;
use crate::vm::pages::Wish;
use crate::vm::{self, Mappings, PageSource};
use alloc::sync::{Arc, Weak};
use core::ops::Range;
use logic::errno::Errno;
use machine::memory::FrameRef;
use machine::sync::SpinLock;

/// The most attempts to mark a page that other tasks drop or replace again and again.
const TRIES: u32 = 64;
/// Pages that are read together, because a fault maps them together.
const AROUND: usize = 16;

/// The page source of a file's mappings.
pub(super) struct View {
    node: Arc<HostNode>,
    /// Whether pages that the view hands out may be changed without notice.
    changes: bool,
    mappings: Mappings,
    seen: Seen,
}

impl Drop for View {
    fn drop(&mut self) {
        if self.changes {
            // Its changes must still be written, and the file must be closed on the host.
            let _ = writeback::note(&self.node);
        }
    }
}

/// The views of a file in use: that of mappings that do not store, and that of mappings that may.
pub(super) struct Views(SpinLock<[Weak<View>; 2]>);

impl Views {
    /// Returns a record without views.
    pub(super) const fn none() -> Self {
        Self(SpinLock::new([const { Weak::new() }; 2]))
    }

    /// Returns the view of `node` for mappings that may store if `changes` is `true`, else the view
    /// for mappings that do not store. Creates the view if it is not in use.
    pub(super) fn get(&self, node: &Arc<HostNode>, changes: bool) -> Arc<View> {
        let new = Arc::new(View {
            node: node.clone(),
            changes,
            mappings: Mappings::new(),
            seen: node.failures.begin(),
        });
        let mut views = self.0.lock();
        let view = &mut views[usize::from(changes)];
        if let Some(view) = view.upgrade() {
            drop(views);
            return view;
        }
        let old = core::mem::replace(view, Arc::downgrade(&new));
        drop(views);
        drop(old);
        new
    }

    fn there(&self, changes: bool) -> Option<Arc<View>> {
        self.0.lock()[usize::from(changes)].upgrade()
    }

    /// Returns whether a mapping may change pages of the file.
    pub(super) fn may_change(&self) -> bool {
        self.0.lock()[1].strong_count() > 0
    }

    /// Unmaps `pages` from mappings that may store, which request them again.
    pub(super) fn take_stores(&self, pages: Range<u64>) {
        if let Some(view) = self.there(true) {
            view.mappings.invalidate(&*view, pages);
        }
    }

    /// Unmaps `pages` from all mappings, which request them again.
    pub(super) fn invalidate(&self, pages: &Range<u64>) {
        for view in [false, true].into_iter().filter_map(|is| self.there(is)) {
            view.mappings.invalidate(&*view, pages.clone());
        }
    }

    /// Unmaps `pages`, except from locked memory. The mappings request them again.
    pub(super) fn ask_again(&self, pages: &Range<u64>) {
        for view in [false, true].into_iter().filter_map(|is| self.there(is)) {
            view.mappings.ask_again(&*view, pages.clone());
        }
    }

    /// Unmaps `pages` from all mappings, private copies included, because the file was cut.
    pub(super) fn truncate(&self, pages: &Range<u64>) {
        for view in [false, true].into_iter().filter_map(|is| self.there(is)) {
            view.mappings.truncate(&*view, pages.clone());
        }
    }
}

impl PageSource for View {
    fn page(&self, index: u64, _: Wish) -> Result<Option<FrameRef>, Errno> {
        let node = &self.node;
        for _ in 0..TRIES {
            if self.changes {
                writeback::throttle(node);
                if !writeback::note(node) {
                    return Err(Errno::ENOMEM);
                }
            }
            if node.ready(index).is_none() {
                vm::count_major_fault();
            }
            let Some(frame) = node.fetch(index, AROUND)? else {
                return Ok(None);
            };
            if !self.changes || node.mark_dirty(index, &frame) {
                return Ok(Some(frame));
            }
        }
        Err(Errno::EIO)
    }

    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        // A page that may be changed counts as changed, so it is handed out on request only.
        if !self.changes {
            self.node.ready_row(first, pages);
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        self.node.sync(&self.seen)
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }
}

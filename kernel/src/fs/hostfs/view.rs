//! A file of a volume as mappings see it.
//!
//! As with disks, a mapping that may be stored to has a view of its own: what is asked of that one counts as changed, and leaves
//! the page tables before it is written.

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

/// Attempts to mark a page that others drop or replace again and again.
const TRIES: u32 = 64;
/// Pages that are read together, as the fault maps them together.
const AROUND: usize = 16;

/// A file as mappings see it.
pub(super) struct View {
    node: Arc<HostNode>,
    /// Pages that are asked for may be changed without a word.
    changes: bool,
    mappings: Mappings,
    seen: Seen,
}

impl Drop for View {
    fn drop(&mut self) {
        if self.changes {
            // What it changed is still to be written, and the file to be closed on the host.
            let _ = writeback::note(&self.node);
        }
    }
}

/// The views of a file that somebody has: of who changes nothing, and of who may.
pub(super) struct Views(SpinLock<[Weak<View>; 2]>);

impl Views {
    pub(super) const fn none() -> Self {
        Self(SpinLock::new([const { Weak::new() }; 2]))
    }

    /// The one that changes nothing, or may.
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

    /// Whether somebody may change pages.
    pub(super) fn may_change(&self) -> bool {
        self.0.lock()[1].strong_count() > 0
    }

    /// Has who may change these pages ask for them again.
    pub(super) fn take_stores(&self, pages: Range<u64>) {
        if let Some(view) = self.there(true) {
            view.mappings.invalidate(&*view, pages);
        }
    }

    /// Has all ask for these pages again.
    pub(super) fn invalidate(&self, pages: &Range<u64>) {
        for view in [false, true].into_iter().filter_map(|is| self.there(is)) {
            view.mappings.invalidate(&*view, pages.clone());
        }
    }

    /// The same, but for locked memory.
    pub(super) fn ask_again(&self) {
        for view in [false, true].into_iter().filter_map(|is| self.there(is)) {
            view.mappings.ask_again(&*view, 0..u64::MAX);
        }
    }

    /// The same where the file was cut.
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
        // Only what is asked for counts as changed.
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

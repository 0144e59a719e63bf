//! Who maps a file: so that pages which the file drops leave the page tables too.

use super::backing::Bytes;
use super::space::{PAGE, ZapExtent};
use super::{AddressSpace, PageSource};
use crate::errno::Errno;
use crate::sync::SpinLock;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// The address spaces that map (or have mapped) a file.
#[derive(Debug, Default)]
pub struct Mappings {
    /// A place once taken keeps its number; one whose space is gone is taken again.
    spaces: SpinLock<Vec<Weak<AddressSpace>>>,
    /// Goes up with each invalidation: a fault that got its page before one looks again.
    sequence: AtomicU64,
}

impl Mappings {
    /// Nobody maps it.
    pub const fn new() -> Self {
        Self {
            spaces: SpinLock::new(Vec::new()),
            sequence: AtomicU64::new(0),
        }
    }

    /// Notes that a space is about to map the file.
    pub(super) fn register(&self, space: &Arc<AddressSpace>) -> Result<(), Errno> {
        let mut spaces = self.spaces.lock();
        let mut vacant = None;
        for (index, known) in spaces.iter().enumerate() {
            if core::ptr::eq(known.as_ptr(), Arc::as_ptr(space)) {
                return Ok(());
            }
            if known.strong_count() == 0 {
                vacant = Some(index);
            }
        }
        let space = Arc::downgrade(space);
        match vacant {
            Some(index) => spaces[index] = space,
            None => {
                spaces.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                spaces.push(space);
            }
        }
        Ok(())
    }

    /// Whether any space maps the file, or has mapped it and still exists.
    pub fn is_used(&self) -> bool {
        let spaces = self.spaces.lock();
        spaces.iter().any(|space| space.strong_count() > 0)
    }

    /// The number of invalidations so far.
    pub(super) fn sequence(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `invalidate`.
        self.sequence.load(Ordering::Acquire)
    }

    /// Takes the pages with these numbers out of every page table that maps them from `source`,
    /// the file that this belongs to. Call it after the file has dropped them, without a spin lock
    /// held. Private copies that programs made stay, as for a hole that was punched.
    pub fn invalidate(&self, source: &dyn PageSource, pages: Range<u64>) {
        self.take_out(source, pages, ZapExtent::FilePages);
    }

    /// As [`Self::invalidate`], for a file that was cut: private copies go too.
    pub fn truncate(&self, source: &dyn PageSource, pages: Range<u64>) {
        self.take_out(source, pages, ZapExtent::PagesOnly);
    }

    fn take_out(&self, source: &dyn PageSource, pages: Range<u64>, extent: ZapExtent) {
        // Before the zaps: a fault that got a page earlier either puts it in before the zap of its
        // space, or sees the new number under that space's lock and looks again.
        self.sequence.fetch_add(1, Ordering::AcqRel);
        let source: *const () = core::ptr::from_ref(source).cast();
        let mut index = 0;
        loop {
            let space = {
                let spaces = self.spaces.lock();
                let Some(space) = spaces.get(index) else {
                    return;
                };
                space.upgrade()
            };
            if let Some(space) = space {
                space.zap_source(source, pages.clone(), extent);
            }
            index += 1;
        }
    }
}

impl AddressSpace {
    /// Takes out the pages that come from these pages of a file.
    fn zap_source(&self, source: *const (), pages: Range<u64>, extent: ZapExtent) {
        let mut at = 0;
        loop {
            let state = self.state.lock();
            let Some(area) = state.areas.next_from(at) else {
                return;
            };
            at = area.end;
            let Bytes::File(file, offset) = &area.backing else {
                continue;
            };
            if !file.same_source(source) {
                continue;
            }
            // In pages from the start of the area.
            let first = pages.start.max(offset / PAGE) - offset / PAGE;
            let end = pages
                .end
                .saturating_sub(offset / PAGE)
                .min(area.bytes() / PAGE);
            let range = area.start + first.min(end) * PAGE..area.start + end * PAGE;
            drop(state);
            if !range.is_empty() {
                self.zap(range, extent);
            }
        }
    }
}

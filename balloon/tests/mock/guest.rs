//! A guest's pages, each in exactly one set.

use ebb_balloon::{PageSource, Pfn};
use std::collections::BTreeSet;

/// The guest's pages. At the start, the pages `1000..1000 + pages` are spare.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    pub(crate) spare: BTreeSet<Pfn>,
    pub(crate) moving: BTreeSet<Pfn>,
    pub(crate) ballooned: BTreeSet<Pfn>,
    /// Number of spare pages that the guest keeps for itself.
    pub(crate) reserve: usize,
}

impl Guest {
    /// Returns a guest with this number of spare pages.
    pub(crate) fn with_pages(pages: u32) -> Self {
        // Page numbers begin above zero, so that a forgotten number is noticed.
        let spare = (1000..1000 + pages).map(Pfn::new).collect();
        Self {
            spare,
            ..Self::default()
        }
    }

    /// Returns the numbers of the pages in the balloon.
    pub(crate) fn ballooned_numbers(&self) -> BTreeSet<u32> {
        self.ballooned.iter().map(|page| page.number()).collect()
    }
}

// SAFETY: the pages are numbers only, without memory.
unsafe impl PageSource for Guest {
    fn take_spare(&mut self) -> Option<Pfn> {
        if self.spare.len() <= self.reserve {
            return None;
        }
        let page = self.spare.pop_first()?;
        assert!(self.moving.insert(page));
        Some(page)
    }

    fn give_back(&mut self, page: Pfn) {
        assert!(self.moving.remove(&page), "{page:?} was not on its way");
        assert!(self.spare.insert(page));
    }

    fn remember(&mut self, page: Pfn) {
        assert!(self.moving.remove(&page), "{page:?} was not on its way");
        assert!(self.ballooned.insert(page));
    }

    fn recall(&mut self) -> Option<Pfn> {
        let page = self.ballooned.pop_last()?;
        assert!(self.moving.insert(page));
        Some(page)
    }
}

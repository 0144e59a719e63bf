//! A guest's pages, each in exactly one set.

use ebb_balloon::{Ballooned, OwnedPage, PageSource, Pfn};
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

/// A page of the guest on its way into the balloon or out of it.
pub(crate) struct Page(pub(crate) Pfn);

// SAFETY: the pages are numbers only, without memory.
unsafe impl OwnedPage for Page {
    fn number(&self) -> Pfn {
        self.0
    }
}

impl PageSource for Guest {
    type Page = Page;

    fn take_spare(&mut self) -> Option<Page> {
        if self.spare.len() <= self.reserve {
            return None;
        }
        let page = self.spare.pop_first()?;
        assert!(self.moving.insert(page));
        Some(Page(page))
    }

    fn give_back(&mut self, Page(page): Page) {
        assert!(self.moving.remove(&page), "{page:?} was not on its way");
        assert!(self.spare.insert(page));
    }

    fn remember(&mut self, page: Ballooned<Page>) {
        let page = page.number();
        assert!(self.moving.remove(&page), "{page:?} was not on its way");
        assert!(self.ballooned.insert(page));
    }

    fn recall(&mut self) -> Option<Ballooned<Page>> {
        let page = self.ballooned.pop_last()?;
        assert!(self.moving.insert(page));
        Some(Ballooned::new(Page(page)))
    }
}

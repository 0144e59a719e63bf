//! A guest's pages, each in exactly one place.

use ebb_balloon::{PageSource, Pfn};
use std::collections::BTreeSet;

/// Pages `first..first + spare` are free.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    pub(crate) spare: BTreeSet<Pfn>,
    pub(crate) moving: BTreeSet<Pfn>,
    pub(crate) ballooned: BTreeSet<Pfn>,
    /// How many pages it keeps for itself.
    pub(crate) reserve: usize,
}

impl Guest {
    pub(crate) fn with_pages(pages: u32) -> Self {
        // Not from zero, so that a forgotten number shows.
        let spare = (1000..1000 + pages).map(Pfn::new).collect();
        Self {
            spare,
            ..Self::default()
        }
    }

    pub(crate) fn ballooned_numbers(&self) -> BTreeSet<u32> {
        self.ballooned.iter().map(|page| page.number()).collect()
    }
}

// SAFETY: the pages are numbers only; there is no memory behind them.
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

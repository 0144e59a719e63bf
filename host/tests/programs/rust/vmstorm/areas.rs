//! The mappings of one thread: a naive model of its part of the address space.

use crate::guard;
use crate::sys::{self, PAGE, PAGE_WORDS, ZEROES};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;

/// The source of an area's bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Anonymous memory, which begins as zeroes.
    Nothing,
    /// A shared mapping of a file, from the page `first` on.
    Shared { file: usize, first: u64 },
    /// A private mapping of a file, from the page `first` on.
    Private { file: usize, first: u64 },
}

impl Source {
    /// Returns the source of an area that begins `pages` pages further on.
    fn advanced(self, pages: u64) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Shared { file, first } => Self::Shared {
                file,
                first: first + pages,
            },
            Self::Private { file, first } => Self::Private {
                file,
                first: first + pages,
            },
        }
    }
}

/// Consecutive pages that were mapped together.
#[derive(Clone, Debug)]
pub struct Area {
    pub start: u64,
    pub source: Source,
    pub prot: c_int,
    /// The first word of each page that the program has filled. Each following word is one more
    /// than the one before. 0 if the program has stored nothing to the page.
    pub own: Vec<u64>,
}

impl Area {
    pub fn new(start: u64, pages: u64, source: Source, prot: c_int) -> Self {
        Self {
            start,
            source,
            prot,
            own: vec![0; pages as usize],
        }
    }

    pub fn pages(&self) -> u64 {
        self.own.len() as u64
    }

    pub fn end(&self) -> u64 {
        self.start + self.pages() * PAGE
    }

    pub fn is_readable(&self) -> bool {
        self.prot != sys::PROT_NONE
    }

    pub fn is_writable(&self) -> bool {
        self.prot == sys::PROT_BOTH
    }

    /// Cuts the area at `at` and returns the part after it.
    fn split_off(&mut self, at: u64) -> Self {
        let pages = (at - self.start) / PAGE;
        Self {
            start: at,
            source: self.source.advanced(pages),
            prot: self.prot,
            own: self.own.split_off(pages as usize),
        }
    }
}

/// All areas of a thread.
#[derive(Clone, Debug, Default)]
pub struct Areas(BTreeMap<u64, Area>);

impl Areas {
    pub fn iter(&self) -> impl Iterator<Item = &Area> {
        self.0.values()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an area that overlaps no other.
    pub fn put(&mut self, area: Area) {
        self.0.insert(area.start, area);
    }

    /// Splits the area that contains the address `at`.
    fn split(&mut self, at: u64) {
        if let Some((_, area)) = self.0.range_mut(..at).next_back()
            && area.end() > at
        {
            let rest = area.split_off(at);
            self.put(rest);
        }
    }

    /// Splits areas at the ends of `range` and returns the areas in it.
    pub fn cut_out(&mut self, range: Range<u64>) -> impl Iterator<Item = &mut Area> {
        self.split(range.start);
        self.split(range.end);
        self.0.range_mut(range).map(|(_, area)| area)
    }

    /// Removes all areas in a range.
    pub fn remove(&mut self, range: Range<u64>) {
        let starts: Vec<u64> = self.cut_out(range).map(|area| area.start).collect();
        for start in starts {
            self.0.remove(&start);
        }
    }

    /// Returns the first word that was stored to the page at an address. Returns `None` if the page
    /// is in no area.
    pub fn own(&mut self, at: u64) -> Option<&mut u64> {
        let (_, area) = self.0.range_mut(..=at).next_back()?;
        let page = (at - area.start) / PAGE;
        area.own.get_mut(page as usize)
    }

    /// Returns the area that contains an address, or `None`.
    pub fn find(&self, at: u64) -> Option<&Area> {
        let (_, area) = self.0.range(..=at).next_back()?;
        (area.end() > at).then_some(area)
    }
}

/// A bit in the first word of a page: only [`BRIEF_WORDS`] words were stored, and the others are
/// zero.
pub const BRIEF: u64 = 1 << 62;
/// The number of stored words in such a page.
pub const BRIEF_WORDS: usize = 4;

/// Returns how many words of a page are `first`, `first` + 1 and so on. The others are zero.
fn stored_words(first: u64) -> usize {
    match first {
        0 => 0,
        _ if first & BRIEF != 0 => BRIEF_WORDS,
        _ => PAGE_WORDS,
    }
}

/// Checks that the words of a page are the stored ones. Fails with a description of the first wrong
/// word.
pub fn check_words(words: &[u64], first: u64) -> Result<(), String> {
    let stored = stored_words(first);
    for (number, &found) in words.iter().enumerate() {
        let expected = if number < stored {
            first + number as u64
        } else {
            0
        };
        if found != expected {
            return Err(format!(
                "word {number} is {found:#x} instead of {expected:#x}"
            ));
        }
    }
    Ok(())
}

/// Checks that a page has the stored words, completely or only a few words at its beginning. Fails
/// with a description of the first wrong word.
pub fn check_page(at: u64, first: u64, wholly: bool) -> Result<(), String> {
    let stored = stored_words(first);
    let length = if wholly || stored == PAGE_WORDS {
        PAGE_WORDS
    } else {
        BRIEF_WORDS
    };
    if stored == 0 && guard::compare(at, &ZEROES[..length]) == length {
        return Ok(());
    }
    let mut words = [0; PAGE_WORDS];
    let got = guard::read(at, &mut words[..length]);
    if got < length {
        return Err(format!("it faults at word {got}"));
    }
    check_words(&words[..length], first)
}

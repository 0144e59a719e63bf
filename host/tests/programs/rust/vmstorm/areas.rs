//! What one thread has mapped: a naive model of its part of the address space.

use crate::guard;
use crate::sys::{self, PAGE, PAGE_WORDS, ZEROES};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;

/// Where an area's bytes come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeroes.
    Nothing,
    /// A file, from this page on, shared.
    Shared { file: usize, first: u64 },
    /// A file, from this page on, but for pages of its own.
    Private { file: usize, first: u64 },
}

impl Source {
    /// That of what begins so many pages further on.
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

/// Pages in a row that were mapped together.
#[derive(Clone, Debug)]
pub struct Area {
    pub start: u64,
    pub source: Source,
    pub prot: c_int,
    /// For each page the first of its words, which each are one more than that before; 0 where the
    /// program has stored nothing of its own.
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

    /// Shortens it, and gives what is behind `at`.
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

    /// Adds what does not overlap anything.
    pub fn put(&mut self, area: Area) {
        self.0.insert(area.start, area);
    }

    /// Makes an address the border of areas.
    fn split(&mut self, at: u64) {
        if let Some((_, area)) = self.0.range_mut(..at).next_back()
            && area.end() > at
        {
            let rest = area.split_off(at);
            self.put(rest);
        }
    }

    /// The areas in a range, made to end where it does.
    pub fn cut_out(&mut self, range: Range<u64>) -> impl Iterator<Item = &mut Area> {
        self.split(range.start);
        self.split(range.end);
        self.0.range_mut(range).map(|(_, area)| area)
    }

    /// Takes out all that is in a range.
    pub fn remove(&mut self, range: Range<u64>) {
        let starts: Vec<u64> = self.cut_out(range).map(|area| area.start).collect();
        for start in starts {
            self.0.remove(&start);
        }
    }

    /// What was stored to the page of an address.
    pub fn own(&mut self, at: u64) -> Option<&mut u64> {
        let (_, area) = self.0.range_mut(..=at).next_back()?;
        let page = (at - area.start) / PAGE;
        area.own.get_mut(page as usize)
    }

    /// The area of an address.
    pub fn find(&self, at: u64) -> Option<&Area> {
        let (_, area) = self.0.range(..=at).next_back()?;
        (area.end() > at).then_some(area)
    }
}

/// In the first word of a page: only a few words were stored, the others are zero.
pub const BRIEF: u64 = 1 << 62;
/// So few.
pub const BRIEF_WORDS: usize = 4;

/// How many words of a page are `first`, `first` + 1 …; the others are zero.
fn stored_words(first: u64) -> usize {
    match first {
        0 => 0,
        _ if first & BRIEF != 0 => BRIEF_WORDS,
        _ => PAGE_WORDS,
    }
}

/// Whether the words of a page are what was stored to it.
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

/// Whether a page has what was stored to it: all of it, or a few words at its beginning.
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

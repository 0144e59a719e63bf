//! Recipes for races: each actor prepares its part, all wait for each other, and then all act on
//! the same file at once. So it is more likely that an operation happens between two steps of the
//! kernel.

use crate::actor::{Actor, WINDOW_PAGES, window};
use crate::areas::{Area, Source};
use crate::control;
use crate::files::{File, Nature};
use crate::guard;
use crate::log;
use crate::sys::{self, PAGE};
use std::ops::Range;

/// The number of mappings of the file between the old and the new range of a moving mapping.
const BETWEEN: u64 = 6;
/// The largest number of pages of a file that are mapped there.
const BETWEEN_PAGES: u64 = 64;
/// The number of pages that are touched or written while the file is cut.
const TOUCHES: u64 = 24;

/// The part of an actor when all strike.
#[derive(Clone, Debug, Default)]
pub enum Part {
    /// The actor cuts or clears the file.
    #[default]
    Cuts,
    /// The actor has this range of the file mapped and replaces it by private memory.
    Replaces(Range<u64>),
    /// The actor has this range of the file mapped and moves it to the address and back.
    Moves(Range<u64>, u64),
    /// The actor forks. The child checks the file at the end of the round.
    Forks,
    /// The actor stores to the file and writes to it.
    Writes,
    /// The actor has stored to these words, and its child stores to them again.
    Inherits(Range<u64>),
    /// The actor syncs the file.
    Syncs,
}

impl Actor {
    /// Returns the file at which all strike in this round.
    pub fn struck(&self, numbers: &[usize]) -> &'static File {
        let number = control::random_of_round(1).below(numbers.len() as u64);
        self.file_number(numbers[number as usize])
    }

    /// Returns whether this actor is one of those that change the file. There is at least one, and
    /// most others are not.
    pub fn cuts(&self) -> bool {
        (self.id as u64 + control::round()).is_multiple_of(self.actors.clamp(2, 3) as u64)
    }

    /// Makes all pages of a file present, so that a cut has something to remove.
    pub fn make_present(&mut self, file: &File) {
        if control::round() % self.actors as u64 == self.id as u64 {
            log!("populate file {}", file.number);
            let outcome = sys::advise(file.view, file.bytes(), sys::MADV_POPULATE_WRITE);
            self.must("MADV_POPULATE_WRITE", outcome);
        }
    }

    fn touch(&mut self, range: &Range<u64>) {
        log!("touch {range:x?}");
        for at in range.clone().step_by(PAGE as usize) {
            let _ = guard::word(at);
        }
    }

    /// Maps the file at a range that will be replaced by private memory.
    pub fn prepare_to_replace(&mut self, file: &File) -> Part {
        let pages = file.pages.min(WINDOW_PAGES / 2);
        let page = self.random.below(WINDOW_PAGES - pages + 1);
        let at = window(self.thread).start + page * PAGE;
        self.map_at(Some(file.number), true, 0, Some(at), pages);
        let range = at..at + pages * PAGE;
        self.touch(&range);
        Part::Replaces(range)
    }

    /// Maps the file at a range that will move, and several times in between.
    pub fn prepare_to_move(&mut self, file: &File) -> Part {
        let pages = file.pages.min(WINDOW_PAGES / 4);
        let window = window(self.thread);
        let low = window.start..window.start + pages * PAGE;
        let high = window.end - pages * PAGE;
        let between = pages.min(BETWEEN_PAGES);
        for number in 0..BETWEEN {
            let at = low.end + number * between * PAGE;
            self.map_at(Some(file.number), true, 0, Some(at), between);
            self.touch(&(at..at + between * PAGE));
        }
        self.map_at(Some(file.number), true, 0, Some(low.start), pages);
        self.touch(&low);
        if self.random.once_in(2) {
            self.move_to(low.clone(), high);
            return Part::Moves(high..high + pages * PAGE, low.start);
        }
        Part::Moves(low, high)
    }

    /// Stores to words to which a child stores again after this process's stores have been written.
    pub fn prepare_to_inherit(&mut self, file: &File) -> Part {
        let (id, actors) = (self.id, self.actors);
        let Some(words) = file.own_words(&mut self.random, id, actors) else {
            return Part::Syncs;
        };
        let stored = self.store_words(file, words);
        Part::Inherits(stored)
    }

    /// Performs the actor's part.
    pub fn strike_at(&mut self, file: &File, part: Part) {
        self.random.dawdle();
        match part {
            Part::Cuts => self.cut_or_clear(file),
            Part::Replaces(range) => self.replace(file, range),
            Part::Moves(from, to) => {
                let bytes = from.end - from.start;
                self.move_to(from.clone(), to);
                if self.random.once_in(2) {
                    self.random.dawdle();
                    self.move_to(to..to + bytes, from.start);
                }
            }
            Part::Forks => self.fork_that_stays(),
            Part::Inherits(words) => self.fork_that_stores(file, words),
            Part::Syncs => self.sync_disk(file),
            Part::Writes => {
                self.store(file);
                self.write(file, false);
            }
        }
    }

    /// Cuts the file and mostly extends it again, or clears it.
    fn cut_or_clear(&mut self, file: &File) {
        if file.nature == Nature::Anonymous || self.random.once_in(3) {
            let pages = if self.random.once_in(2) {
                0..file.pages
            } else {
                self.random.range(file.pages)
            };
            self.clear_pages(file, pages);
            return;
        }
        if self.random.once_in(2) {
            self.cut_to(file, 0);
        } else {
            self.cut(file);
        }
        if !self.random.once_in(4) {
            self.extend(file);
        }
    }

    /// Maps private memory over a mapping of the file.
    fn replace(&mut self, file: &File, range: Range<u64>) {
        let pages = (range.end - range.start) / PAGE;
        let is_mapped = |area: &Area| matches!(area.source, Source::Shared { .. });
        if !self.areas.find(range.start).is_some_and(is_mapped) {
            // It was replaced in an earlier strike.
            self.map_at(Some(file.number), true, 0, Some(range.start), pages);
            self.touch(&range);
            self.random.dawdle();
        }
        if self.random.once_in(2) {
            self.unmap(range.clone());
        }
        self.map_at(None, false, 0, Some(range.start), pages);
        self.fill_briefly(range);
    }

    /// Makes system calls that end in the middle of a page while other actors store to the same
    /// page. The actors take turns page by page.
    pub fn strike_at_pages(&mut self, file: &File) {
        let turn = control::random_of_round(2).next() % self.actors as u64;
        for page in 0..file.pages {
            let [first, rest] = file.parts(page);
            if !self.may_do() {
                return;
            }
            let owner = (2 * page + turn) % self.actors as u64;
            if owner == self.id as u64 {
                self.write_words(file, first, true);
            } else if (owner + 1) % self.actors as u64 == self.id as u64 {
                self.store_words(file, rest);
            }
        }
    }

    /// Writes to a file that another actor has just cut, while its pages are touched.
    pub fn strike_again(&mut self, file: &File) {
        if self.cuts() {
            // No other actor chooses this size.
            let size = 8 * (1 + self.random.below(file.bytes() / 16));
            self.cut_to(file, size);
        } else if self.random.once_in(2) {
            self.revive(file);
        } else {
            log!("touch file {}", file.number);
            for _ in 0..TOUCHES {
                let page = self.random.below(file.pages);
                let _ = guard::word(file.view + page * PAGE);
            }
            self.write(file, false);
        }
    }
}

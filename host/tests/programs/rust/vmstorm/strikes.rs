//! Recipes: something is prepared, all wait for each other, and then they strike at once at the same
//! file. What a kernel does in two steps then has somebody between them sooner.

use crate::actor::{Actor, WINDOW_PAGES, window};
use crate::areas::{Area, Source};
use crate::control;
use crate::files::{File, Nature};
use crate::guard;
use crate::log;
use crate::sys::{self, PAGE};
use std::ops::Range;

/// Mappings of the file between the two places of one that moves.
const BETWEEN: u64 = 6;
/// Pages of a file that are mapped there at most.
const BETWEEN_PAGES: u64 = 64;
/// Pages that are touched or written where a file is cut.
const TOUCHES: u64 = 24;

/// What an actor does when all strike.
#[derive(Clone, Debug, Default)]
pub enum Part {
    /// It changes the file.
    #[default]
    Cuts,
    /// It has this part of the file mapped, and puts private memory there.
    Replaces(Range<u64>),
    /// It has this part of the file mapped, and moves it there and back.
    Moves(Range<u64>, u64),
    /// It forks; the child sees at the end of the round what the file shows.
    Forks,
    /// It stores to the file and writes to it.
    Writes,
    /// It has stored to these words; its child does so again.
    Inherits(Range<u64>),
    /// It has all written that was stored.
    Syncs,
}

impl Actor {
    /// The file that all strike at in this round.
    pub fn struck(&self, numbers: &[usize]) -> &'static File {
        let number = control::random_of_round(1).below(numbers.len() as u64);
        self.file_number(numbers[number as usize])
    }

    /// Whether it is one of those who change the file: one does, and mostly one does not.
    pub fn cuts(&self) -> bool {
        (self.id as u64 + control::round()).is_multiple_of(self.actors.clamp(2, 3) as u64)
    }

    /// All pages of a file are there, so that who cuts it has something to do.
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

    /// Maps the file where private memory comes soon.
    pub fn prepare_to_replace(&mut self, file: &File) -> Part {
        let pages = file.pages.min(WINDOW_PAGES / 2);
        let page = self.random.below(WINDOW_PAGES - pages + 1);
        let at = window(self.thread).start + page * PAGE;
        self.map_at(Some(file.number), true, 0, Some(at), pages);
        let range = at..at + pages * PAGE;
        self.touch(&range);
        Part::Replaces(range)
    }

    /// Maps the file where it moves to and fro soon, and often in between.
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

    /// Stores where a child does so again after this process's stores have been written.
    pub fn prepare_to_inherit(&mut self, file: &File) -> Part {
        let (id, actors) = (self.id, self.actors);
        let Some(words) = file.own_words(&mut self.random, id, actors) else {
            return Part::Syncs;
        };
        let stored = self.store_words(file, words);
        Part::Inherits(stored)
    }

    /// Does its part.
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

    /// Ends the file, and mostly makes it long again, or empties it.
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

    /// Private memory comes where a file was mapped.
    fn replace(&mut self, file: &File, range: Range<u64>) {
        let pages = (range.end - range.start) / PAGE;
        let is_mapped = |area: &Area| matches!(area.source, Source::Shared { .. });
        if !self.areas.find(range.start).is_some_and(is_mapped) {
            // It was struck at before.
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

    /// Calls that end midway in pages to which others store at the same moment: page by page, by
    /// those whose turn it is.
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

    /// Writes to a file that another has just cut, while its pages are touched.
    pub fn strike_again(&mut self, file: &File) {
        if self.cuts() {
            // A size that nobody else chooses.
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

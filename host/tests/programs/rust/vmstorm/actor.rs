//! One thread of the storm, and its operations on its own memory.

use crate::areas::{Area, Areas, BRIEF, BRIEF_WORDS, Source};
use crate::control;
use crate::files::File;
use crate::guard;
use crate::log;
use crate::random::Random;
use crate::strikes::Part;
use crate::sys::{self, PAGE, PAGE_WORDS};
use std::ffi::c_int;
use std::ops::Range;

/// The number of pages in a thread's own window of addresses.
pub const WINDOW_PAGES: u64 = 2048;
/// The largest number of areas outside of the window, and the largest number of pages of each.
const LOOSE: usize = 8;
const LOOSE_PAGES: u64 = 128;
/// The number of pages of the buffer for writes to files. The page after it is not mapped.
pub const BUFFER_PAGES: u64 = 64;

/// Returns the window of addresses of a thread in its process.
pub fn window(thread: usize) -> Range<u64> {
    let start = 0x2000_0000_0000 + thread as u64 * (256 << 20);
    start..start + WINDOW_PAGES * PAGE
}

/// One thread of the storm.
#[derive(Debug)]
pub struct Actor {
    /// The number of the thread among all threads of all processes.
    pub id: usize,
    pub actors: usize,
    pub thread: usize,
    pub files: &'static [File],
    pub random: Random,
    pub areas: Areas,
    /// The address of the buffer for writes.
    pub buffer: u64,
    /// Children that wait for the end of the round.
    pub children: Vec<c_int>,
    /// The part of this actor when all strike at once.
    pub part: Part,
    /// The number of pages without a file that may be mapped.
    budget_pages: u64,
    /// The number of pages filled so far.
    fills: u64,
}

impl Actor {
    pub fn new(
        id: usize,
        actors: usize,
        thread: usize,
        files: &'static [File],
        budget_pages: u64,
    ) -> Self {
        control::become_actor(id);
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
        let bytes = BUFFER_PAGES * PAGE;
        let buffer = sys::map(0, bytes + PAGE, sys::PROT_BOTH, flags, -1, 0).expect("a buffer");
        sys::protect(buffer + bytes, PAGE, sys::PROT_NONE).expect("a hole behind the buffer");
        Self {
            id,
            actors,
            thread,
            files,
            random: Random::new(&[]),
            areas: Areas::default(),
            buffer,
            children: Vec::new(),
            part: Part::default(),
            budget_pages,
            fills: 0,
        }
    }

    /// Reports a failure and ends the storm.
    pub fn fail(&self, text: &str) -> ! {
        control::fail(text)
    }

    /// Returns the value of a call that must not fail.
    pub fn must<T>(&self, what: &str, outcome: sys::Outcome<T>) -> T {
        outcome.unwrap_or_else(|e| self.fail(&format!("{what} failed with error {e}")))
    }

    /// Returns a random range of the window.
    pub fn place(&mut self) -> Range<u64> {
        let window = window(self.thread);
        let mut pages = self.random.range(WINDOW_PAGES);
        if self.random.once_in(6) {
            // A range for huge pages.
            let region = self.random.below(WINDOW_PAGES / 512) * 512;
            pages = region..region + 512;
        }
        window.start + pages.start * PAGE..window.start + pages.end * PAGE
    }

    /// Returns a random area, or `None` if there is none.
    pub fn some_area(&mut self) -> Option<Area> {
        let count = self.areas.len() as u64;
        if count == 0 {
            return None;
        }
        let number = self.random.below(count) as usize;
        self.areas.iter().nth(number).cloned()
    }

    /// Returns a random range of an area's pages.
    pub fn some_part(&mut self, area: &Area) -> Range<u64> {
        let pages = self.random.range(area.pages());
        area.start + pages.start * PAGE..area.start + pages.end * PAGE
    }

    /// Returns the first word for the next page that is filled.
    fn next_fill(&mut self) -> u64 {
        self.fills += 1;
        1 << 63 | (self.id as u64) << 48 | self.fills << 10
    }

    /// Maps memory or a file, in the window over existing areas or at an address that the kernel
    /// chooses.
    pub fn map(&mut self, source: Option<usize>, shared: bool) {
        let mut range = self.place();
        let mut pages = (range.end - range.start) / PAGE;
        let loose = self.random.once_in(4);
        let mut first = 0;
        if let Some(file) = source {
            let limit = self.files[file].pages;
            first = if self.random.once_in(2) {
                0
            } else {
                self.random.below(limit)
            };
            pages = pages.min(limit - first);
            if self.random.once_in(3) {
                // The whole file.
                (first, pages) = (0, limit);
                range.start = range.start.min(window(self.thread).end - pages * PAGE);
            }
            range.end = range.start + pages * PAGE;
        }
        self.map_at(
            source,
            shared,
            first,
            if loose { None } else { Some(range.start) },
            pages,
        );
    }

    /// Maps pages of a file or anonymous memory, at an address in the window or one that the kernel
    /// chooses.
    pub fn map_at(
        &mut self,
        file: Option<usize>,
        shared: bool,
        first: u64,
        at: Option<u64>,
        mut pages: u64,
    ) -> u64 {
        self.keep_within_bounds();
        if at.is_none() {
            pages = pages.min(LOOSE_PAGES);
        }
        let source = match file {
            None => Source::Nothing,
            Some(file) if shared => Source::Shared { file, first },
            Some(file) => Source::Private { file, first },
        };
        let mut flags = if shared && file.is_some() {
            sys::MAP_SHARED
        } else {
            sys::MAP_PRIVATE
        };
        let fd = match file {
            None => {
                flags |= sys::MAP_ANONYMOUS;
                if self.random.once_in(2) {
                    flags |= sys::MAP_NORESERVE;
                }
                -1
            }
            Some(file) => self.files[file].fd,
        };
        let populate = self.random.once_in(if pages > 256 { 6 } else { 3 });
        // Pages of a private mapping would be copied at an unknown time.
        if populate && if file.is_some() { shared } else { pages <= 512 } {
            flags |= sys::MAP_POPULATE;
        }
        let fixed = if at.is_some() { sys::MAP_FIXED } else { 0 };
        let wish = at.unwrap_or(0);
        let bytes = pages * PAGE;
        if at.is_some() {
            self.sometimes_check(wish..wish + bytes);
        }
        log!(
            "map {source:?} {pages} pages at {wish:#x} flags {:#x}",
            flags | fixed
        );
        let got = sys::map(wish, bytes, sys::PROT_BOTH, flags | fixed, fd, first * PAGE);
        let got = self.must("mmap", got);
        if at.is_some() && got != wish {
            self.fail(&format!("mmap with MAP_FIXED at {wish:#x} gives {got:#x}"));
        }
        self.areas.remove(got..got + bytes);
        self.areas
            .put(Area::new(got, pages, source, sys::PROT_BOTH));
        got
    }

    /// Unmaps areas until one more fits, by their number outside of the window and by memory.
    fn keep_within_bounds(&mut self) {
        let window = window(self.thread);
        let loose = |areas: &Areas| areas.iter().filter(|a| !window.contains(&a.start)).count();
        let pages = |areas: &Areas| {
            let private = areas
                .iter()
                .filter(|a| !matches!(a.source, Source::Shared { .. }));
            private.map(Area::pages).sum::<u64>()
        };
        while loose(&self.areas) >= LOOSE || pages(&self.areas) > self.budget_pages {
            let area = self.some_area().expect("there is one, or it would fit");
            self.unmap(area.start..area.end());
        }
    }

    /// Unmaps a part of an area, or a range of the window.
    pub fn unmap_some(&mut self) {
        let place = self.place();
        let range = match self.some_area() {
            Some(area) if self.random.once_in(2) => self.some_part(&area),
            _ => place,
        };
        self.unmap(range);
    }

    pub fn unmap(&mut self, range: Range<u64>) {
        self.sometimes_check(range.clone());
        log!("unmap {range:x?}");
        let unmapped = sys::unmap(range.start, range.end - range.start);
        self.must("munmap", unmapped);
        self.areas.remove(range);
    }

    /// Fills pages of a private area, or checks that they cannot be written.
    pub fn fill(&mut self) {
        let Some(area) = self.some_area() else { return };
        if matches!(area.source, Source::Shared { .. }) {
            return;
        }
        let range = self.some_part(&area);
        self.fill_range(range);
    }

    /// Stores a few words to each page of an area that was zero before.
    pub fn fill_briefly(&mut self, range: Range<u64>) {
        log!("fill {range:x?} briefly");
        for at in range.clone().step_by(PAGE as usize) {
            let first = self.next_fill() | BRIEF;
            if guard::fill(at, first, BRIEF_WORDS) < BRIEF_WORDS {
                self.fail(&format!("a store to {at:#x} faults"));
            }
            *self.areas.own(at).expect("it fills what is mapped") = first;
        }
    }

    pub fn fill_range(&mut self, range: Range<u64>) {
        log!("fill {range:x?}");
        let mut at = range.start;
        while at < range.end {
            let first = self.next_fill();
            let area = self.areas.find(at).expect("it fills what is mapped");
            let (writable, source) = (area.is_writable(), area.source);
            let stored = guard::fill(at, first, PAGE_WORDS);
            if !writable && stored > 0 {
                self.fail(&format!(
                    "a store to {at:#x} of protection {} worked",
                    area.prot
                ));
            }
            if writable && source == Source::Nothing && stored < PAGE_WORDS {
                self.fail(&format!("a store to {:#x} faults", at + stored as u64 * 8));
            }
            if writable {
                if stored == PAGE_WORDS {
                    *self.areas.own(at).expect("found above") = first;
                } else if stored > 0 {
                    // The file was cut in between, so the content of the page is unknown.
                    let range = at..at + PAGE;
                    self.replace_with_nothing(range);
                }
            }
            at += PAGE;
        }
    }

    /// Maps zeroes over a page whose content is unknown.
    pub fn replace_with_nothing(&mut self, range: Range<u64>) {
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
        let pages = (range.end - range.start) / PAGE;
        let mapped = sys::map(range.start, pages * PAGE, sys::PROT_BOTH, flags, -1, 0);
        self.must("mmap over a page", mapped);
        self.areas.remove(range.clone());
        self.areas.put(Area::new(
            range.start,
            pages,
            Source::Nothing,
            sys::PROT_BOTH,
        ));
    }

    /// Moves, lengthens or shortens an area.
    pub fn remap(&mut self) {
        self.keep_within_bounds();
        let Some(area) = self.some_area() else {
            return;
        };
        let from = self.some_part(&area);
        let pages = (from.end - from.start) / PAGE;
        match self.random.below(5) {
            0 => self.remap_keeping(&area, from),
            1 => self.resize(from, pages),
            _ => self.move_to_window(from, pages),
        }
    }

    /// Uses `MREMAP_DONTUNMAP`: the old range stays mapped and is empty.
    fn remap_keeping(&mut self, area: &Area, from: Range<u64>) {
        if area.source != Source::Nothing {
            return;
        }
        log!("remap {from:x?}, keeping it");
        let bytes = from.end - from.start;
        if bytes / PAGE > LOOSE_PAGES {
            return;
        }
        let flags = sys::MREMAP_MAYMOVE | sys::MREMAP_DONTUNMAP;
        let outcome = sys::remap(from.start, bytes, bytes, flags, 0);
        let to = self.must("mremap with MREMAP_DONTUNMAP", outcome);
        let mut moved = self
            .areas
            .cut_out(from.clone())
            .next()
            .expect("of an area")
            .clone();
        for area in self.areas.cut_out(from) {
            area.own.fill(0);
        }
        moved.start = to;
        self.areas.put(moved);
    }

    fn resize(&mut self, from: Range<u64>, pages: u64) {
        let new = 1 + self.random.below((2 * pages).min(LOOSE_PAGES));
        let may_move = self.random.once_in(2);
        log!("remap {from:x?} to {new} pages, may move: {may_move}");
        let flags = if may_move { sys::MREMAP_MAYMOVE } else { 0 };
        match sys::remap(from.start, pages * PAGE, new * PAGE, flags, 0) {
            Ok(to) => self.moved(from, to, new),
            Err(sys::ENOMEM) if !may_move && new > pages => {}
            Err(e) => self.fail(&format!("mremap to another size failed with error {e}")),
        }
    }

    fn move_to_window(&mut self, from: Range<u64>, pages: u64) {
        let window = window(self.thread);
        let page = self.random.below(WINDOW_PAGES - pages + 1);
        let to = window.start + page * PAGE;
        if to < from.end && from.start < to + pages * PAGE {
            return;
        }
        self.move_to(from, to);
    }

    /// Moves a part of an area to the address `to`, over existing areas.
    pub fn move_to(&mut self, from: Range<u64>, to: u64) {
        let bytes = from.end - from.start;
        self.sometimes_check(to..to + bytes);
        log!("remap {from:x?} to {to:#x}");
        let flags = sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED;
        let outcome = sys::remap(from.start, bytes, bytes, flags, to);
        if self.must("mremap", outcome) != to {
            self.fail(&format!("mremap with MREMAP_FIXED did not go to {to:#x}"));
        }
        self.moved(from, to, bytes / PAGE);
    }

    /// Records that the content of `from` is now at `to` and has `pages` pages.
    fn moved(&mut self, from: Range<u64>, to: u64, pages: u64) {
        let mut area = self
            .areas
            .cut_out(from.clone())
            .next()
            .expect("of an area")
            .clone();
        self.areas.remove(from);
        self.areas.remove(to..to + pages * PAGE);
        area.start = to;
        area.own.resize(pages as usize, 0);
        self.areas.put(area);
    }

    pub fn protect(&mut self) {
        let Some(area) = self.some_area() else { return };
        let range = self.some_part(&area);
        let kinds = [
            sys::PROT_NONE,
            sys::PROT_READ,
            sys::PROT_BOTH,
            sys::PROT_BOTH,
        ];
        let prot = kinds[self.random.below(4) as usize];
        log!("protect {range:x?} {prot}");
        let outcome = sys::protect(range.start, range.end - range.start, prot);
        self.must("mprotect", outcome);
        for area in self.areas.cut_out(range) {
            area.prot = prot;
        }
    }

    /// Gives advice on a part of an area.
    pub fn advise(&mut self) {
        let Some(area) = self.some_area() else { return };
        let range = self.some_part(&area);
        let bytes = range.end - range.start;
        match self.random.below(4) {
            0 | 1 => {
                log!("drop {range:x?}");
                let outcome = sys::advise(range.start, bytes, sys::MADV_DONTNEED);
                self.must("MADV_DONTNEED", outcome);
                for area in self.areas.cut_out(range) {
                    area.own.fill(0);
                }
            }
            2 => {
                log!("huge pages for {range:x?}");
                // A kernel without huge pages returns EINVAL. The advice splits areas.
                if sys::advise(range.start, bytes, sys::MADV_HUGEPAGE).is_ok() {
                    let _ = self.areas.cut_out(range).count();
                }
            }
            _ => {
                log!("populate {range:x?} for writing");
                match sys::advise(range.start, bytes, sys::MADV_POPULATE_WRITE) {
                    Ok(()) => {}
                    // The pages are not writable, or beyond the end of a file.
                    Err(_) if !area.is_writable() || area.source != Source::Nothing => {}
                    Err(e) => self.fail(&format!("MADV_POPULATE_WRITE failed with error {e}")),
                }
                // The pages of a private file mapping are copied at an unknown time.
                if matches!(area.source, Source::Private { .. }) && area.is_writable() {
                    self.replace_with_nothing(range);
                }
            }
        }
    }
}

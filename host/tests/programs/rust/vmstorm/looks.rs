//! The checks of a thread on its own memory during the race.

use crate::actor::Actor;
use crate::areas::{Area, Source, check_page, check_words};
use crate::control;
use crate::log;
use crate::sys::{self, PAGE, PAGE_WORDS};
use std::ffi::c_int;
use std::ops::Range;

/// The number of pages that `process_vm_readv` reads at once.
const PEEK_PAGES: u64 = 8;
/// Pages whose first words are known are checked completely once in this number of times.
const WHOLLY: u64 = 8;

impl Actor {
    /// Sometimes checks a range that is about to be removed, because later checks cannot see it.
    pub fn sometimes_check(&mut self, range: Range<u64>) {
        if self.random.once_in(2) {
            return;
        }
        let starts: Vec<u64> = self.areas.cut_out(range).map(|area| area.start).collect();
        for start in starts {
            let area = self.areas.find(start).expect("it was just listed").clone();
            self.check_own_pages(&area);
        }
    }

    /// Checks that private anonymous memory has the words that this thread stored.
    pub fn check_own_pages(&self, area: &Area) {
        if area.source != Source::Nothing || !area.is_readable() {
            return;
        }
        let round = control::round();
        for (number, &first) in area.own.iter().enumerate() {
            let at = area.start + number as u64 * PAGE;
            let wholly = (number as u64 + round).is_multiple_of(WHOLLY);
            if let Err(text) = check_page(at, first, wholly) {
                let (start, end) = (area.start, area.end());
                self.fail(&format!(
                    "private page {at:#x} (of {start:#x}..{end:#x}): {text}"
                ));
            }
        }
    }

    /// Checks a random part of memory in a way that changes nothing.
    pub fn look(&mut self) {
        let Some(area) = self.some_area() else { return };
        let range = self.some_part(&area);
        match self.random.below(4) {
            0 => {
                log!("mincore {range:x?}");
                let mut bytes = vec![0; ((range.end - range.start) / PAGE) as usize];
                let outcome = sys::in_core(range.start, &mut bytes);
                self.must("mincore", outcome);
            }
            1 => {
                log!("msync {range:x?}");
                let flags = if self.random.once_in(2) {
                    sys::MS_SYNC
                } else {
                    sys::MS_ASYNC
                };
                let outcome = sys::sync_map(range.start, range.end - range.start, flags);
                self.must("msync", outcome);
            }
            2 => self.peek(&area, range),
            _ => {
                log!("check {:#x}..{:#x}", area.start, area.end());
                self.check_own_pages(&area);
            }
        }
    }

    /// Checks that `process_vm_readv` returns the same as a load.
    fn peek(&mut self, area: &Area, range: Range<u64>) {
        if area.source != Source::Nothing || !area.is_readable() {
            return;
        }
        log!("process_vm_readv {range:x?}");
        let mut words = [0_u64; PAGE_WORDS];
        let pid = std::process::id() as c_int;
        for at in (range.start..range.end)
            .step_by(PAGE as usize)
            .take(PEEK_PAGES as usize)
        {
            let got = sys::read_process(pid, at, words.as_mut_ptr() as u64, PAGE);
            if self.must("process_vm_readv", got) != PAGE {
                self.fail(&format!("process_vm_readv of {at:#x} is short"));
            }
            let first = area.own[((at - area.start) / PAGE) as usize];
            if let Err(text) = check_words(&words, first) {
                self.fail(&format!("process_vm_readv of {at:#x}: {text}"));
            }
        }
    }
}

//! What is said to people, on stderr. It may be closed, and a front-end that misbehaves may do so as
//! often as it likes: neither must cost a disk its thread, or the host its journal.

use crate::failure::Failure;
use crate::time::{Clock, Micros};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

/// Lines that one disk's front-end may cause at once.
pub const BURST: u32 = 8;
/// Beyond that, one in this time.
pub const PAUSE: Duration = Duration::from_secs(10);

/// Says one line, if there is somebody to hear it.
pub fn say(line: fmt::Arguments<'_>) {
    // In one piece, so that lines of several threads do not mix.
    let _ =
        io::stderr().write_all(format!("ebb blk: {}\n", printable(&line.to_string())).as_bytes());
}

/// Returns a line without what would steer a terminal: control characters and Unicode's controls of direction are shown
/// by number. Names and paths in it are others'.
fn printable(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                text.extend(c.escape_unicode());
            }
            c if c.is_control() => text.extend(c.escape_unicode()),
            c => text.push(c),
        }
    }
    text
}

/// What a disk says of its front-end: the first [`BURST`] lines, then one each [`PAUSE`], which tells
/// how many were left out. Of its image it says one of each kind of error, then one each [`PAUSE`].
#[derive(Debug)]
pub struct Complaints {
    disk: String,
    clock: Clock,
    budget: Budget,
    /// By error number: there are not many of them.
    failures: BTreeMap<i32, Budget>,
}

#[derive(Debug)]
struct Budget {
    /// Lines to be said at once.
    burst: u32,
    left: u32,
    /// When there is one more to spend.
    next: Micros,
    unsaid: u64,
}

impl Budget {
    fn new(burst: u32) -> Self {
        Self {
            burst,
            left: burst,
            next: Micros(0),
            unsaid: 0,
        }
    }

    /// Whether a line may be said at `now`; then how many were not since the last one.
    fn spend(&mut self, now: Micros) -> Option<u64> {
        if self.left < self.burst && now >= self.next {
            let more = 1 + self.next.until(now).as_micros() / PAUSE.as_micros();
            let more = u32::try_from(more).unwrap_or(self.burst);
            self.left = self.left.saturating_add(more).min(self.burst);
            self.next = now + PAUSE;
        }
        if self.left == 0 {
            self.unsaid += 1;
            return None;
        }
        if self.left == self.burst {
            self.next = now + PAUSE;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

impl Complaints {
    /// None yet, of the disk of this name.
    pub fn new(disk: &str, clock: Clock) -> Self {
        Self {
            disk: disk.to_owned(),
            clock,
            budget: Budget::new(BURST),
            failures: BTreeMap::new(),
        }
    }

    /// Says what the front-end did, unless it did too much lately.
    pub fn tell(&mut self, what: fmt::Arguments<'_>) {
        let disk = &self.disk;
        match self.budget.spend(self.clock.now()) {
            Some(0) => say(format_args!("disk {disk}: {what}")),
            Some(unsaid) => say(format_args!(
                "disk {disk}: {what} (and {unsaid} times something that was not told)"
            )),
            None => {}
        }
    }

    /// Says what the image did not do, unless that was said lately.
    pub fn tell_failure(&mut self, failure: &Failure) {
        let disk = &self.disk;
        let budget = self.failures.entry(failure.errno);
        let budget = budget.or_insert_with(|| Budget::new(1));
        match budget.spend(self.clock.now()) {
            Some(0) => say(format_args!("disk {disk}: {failure}")),
            Some(unsaid) => say(format_args!(
                "disk {disk}: {failure} (and {unsaid} times since this was last told)"
            )),
            None => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_steers_no_terminal() {
        let said = printable("disk a\x1b]0;t\x07\n\u{9b}2J\u{202e}ß");
        assert_eq!(said, "disk a\\u{1b}]0;t\\u{7}\\u{a}\\u{9b}2J\\u{202e}ß");
    }

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let mut budget = Budget::new(BURST);
        let mut said = Vec::new();
        // Two minutes of a line each millisecond.
        for now in 0..120_000 {
            said.extend(budget.spend(Micros(now * 1000)));
        }
        assert_eq!(said.len(), 8 + 11);
        assert_eq!(said.iter().sum::<u64>() + budget.unsaid, 120_000 - 19);
        assert_eq!((said[0], said[8]), (0, 9_992));
    }

    #[test]
    fn a_kind_of_failure_is_told_once_and_then_now_and_then() {
        let mut budget = Budget::new(1);
        let said = (0..25_000).filter_map(|now| budget.spend(Micros(now * 1000)));
        assert_eq!(said.collect::<Vec<_>>(), [0, 9_999, 9_999]);
    }

    #[test]
    fn after_a_rest_there_is_as_much_to_say_as_at_first() {
        let mut budget = Budget::new(BURST);
        let later = Micros(0) + PAUSE * 100;
        for start in [Micros(0), later] {
            let said = (0..20).filter(|_| budget.spend(start).is_some()).count();
            assert_eq!(said, 8);
        }
    }
}

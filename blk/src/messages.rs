//! Messages for people, on stderr. stderr may be closed, and a hostile front-end can cause messages
//! without end. Neither may stop a disk's thread or fill the host's journal.

use crate::failure::Failure;
use crate::time::{Clock, Micros};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

/// Number of messages about one disk's front-end that are written without a delay.
pub const BURST: u32 = 8;
/// After [`BURST`] messages about a front-end, one more is written in each interval of this length.
pub const PAUSE: Duration = Duration::from_secs(10);

/// Writes one line to stderr, behind `ebb blk: `. Escapes control characters and Unicode's
/// bidirectional controls, so a line end inside `line` begins no new line. Ignores errors of the
/// write.
pub fn print(line: fmt::Arguments<'_>) {
    // One write, so that lines of several threads do not mix.
    let _ =
        io::stderr().write_all(format!("ebb blk: {}\n", printable(&line.to_string())).as_bytes());
}

/// Escapes control characters and Unicode's bidirectional controls, so that `line` cannot control a
/// terminal. Names and paths in it come from others.
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

/// Writes the messages about one disk to stderr at a limited rate. Of the front-end, the first
/// [`BURST`] messages are written, then one each [`PAUSE`] with the number of those left out. Of
/// the image, one message for each error number is written, then one each [`PAUSE`].
#[derive(Debug)]
pub struct RateLimitedLog {
    disk: String,
    clock: Clock,
    budget: Budget,
    /// The limits by error number.
    failures: BTreeMap<i32, Budget>,
}

/// A rate limit.
#[derive(Debug)]
struct Budget {
    /// Maximum number of messages at once.
    burst: u32,
    /// Number of messages that may be written now.
    left: u32,
    /// Time at which `left` grows by one.
    next: Micros,
    /// Number of messages left out since the last one was written.
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

    /// Returns `None` if no message may be written at `now`. Otherwise counts one message as
    /// written and returns the number of those left out before it.
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

impl RateLimitedLog {
    /// Makes the limits for the disk called `disk`. Writes nothing. `clock` measures the pauses.
    pub fn new(disk: &str, clock: Clock) -> Self {
        Self {
            disk: disk.to_owned(),
            clock,
            budget: Budget::new(BURST),
            failures: BTreeMap::new(),
        }
    }

    /// Writes the message `what` about the front-end to stderr, behind the disk's name and with the
    /// number of messages left out before it. If the limit is reached, only counts it.
    pub fn log(&mut self, what: fmt::Arguments<'_>) {
        let disk = &self.disk;
        match self.budget.spend(self.clock.now()) {
            Some(0) => print(format_args!("disk {disk}: {what}")),
            Some(unsaid) => print(format_args!(
                "disk {disk}: {what} (messages left out before this one: {unsaid})"
            )),
            None => {}
        }
    }

    /// Writes a message about `failure`, of the image, to stderr, with the number of those left out
    /// before it. If the limit for its error number is reached, only counts it.
    pub fn log_failure(&mut self, failure: &Failure) {
        let disk = &self.disk;
        let budget = self.failures.entry(failure.errno);
        let budget = budget.or_insert_with(|| Budget::new(1));
        match budget.spend(self.clock.now()) {
            Some(0) => print(format_args!("disk {disk}: {failure}")),
            Some(unsaid) => print(format_args!(
                "disk {disk}: {failure} (and {unsaid} times since this was last told)"
            )),
            None => {}
        }
    }
}

#[cfg(test)]
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
        // One message each millisecond for two minutes.
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

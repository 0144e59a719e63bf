//! What is sent on the port for files: a tar archive.
//!
//! What was asked for by the n-th path (from 0) is the entry `n`, a file or a folder, and what is in that folder `n/NAME` and
//! so on, each folder before what it holds. There are files, folders and symbolic links. The last entry is [`END`]: without it
//! something is missing. It holds lines of what was not sent:
//!
//! | line                 | meaning                                                       |
//! |----------------------|---------------------------------------------------------------|
//! | `missing <n> <why>`  | there is nothing at that path that could be sent              |
//! | `unread <n> <what>`  | part of it could not be read                                  |
//! | `left-out <n> <what>`| something in it is neither file, folder nor symbolic link     |
//! | `over <n>`           | it, and what would have come after it, is more than is taken  |
//! | `more <n> <m>`       | n more lines `unread` and m more lines `left-out` would follow |

use core::fmt;

/// The name of the last entry.
pub const END: &str = "end";
/// The longest that it may be.
pub const END_BYTES_MAX: u64 = 64 << 10;
/// Lines of a kind beyond these are only counted.
pub const NOTES_MAX: usize = 40;
/// The longest `what` or `why`, in bytes.
pub const TEXT_MAX: usize = 500;
/// The longest path of an entry.
pub const PATH_MAX: usize = 4096;

/// What an entry with so many bytes costs of what may be sent in all: about what it takes on a disk.
pub const fn cost(bytes: u64) -> u64 {
    const BLOCK: u64 = 4096;
    match bytes.checked_next_multiple_of(BLOCK) {
        Some(0) => BLOCK,
        Some(bytes) => bytes,
        None => u64::MAX,
    }
}

/// What was not sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Note<'a> {
    /// There is nothing at the path of this number that could be sent.
    Missing(usize, &'a str),
    /// Part of what is there could not be read.
    Unread(usize, &'a str),
    /// Something there is neither file, folder nor symbolic link.
    LeftOut(usize, &'a str),
    /// It and what would have come after it is more than is taken.
    Over(usize),
    /// How many more could not be read, and were left out.
    More(u64, u64),
}

impl<'a> Note<'a> {
    /// Reads a line without its end.
    pub fn parse(line: &'a str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "missing" => Some(Self::Missing(number.parse().ok()?, text)),
            "unread" => Some(Self::Unread(number.parse().ok()?, text)),
            "left-out" => Some(Self::LeftOut(number.parse().ok()?, text)),
            "over" => Some(Self::Over(rest.parse().ok()?)),
            "more" => Some(Self::More(number.parse().ok()?, text.parse().ok()?)),
            _ => None,
        }
    }
}

/// The line, without its end.
impl fmt::Display for Note<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(number, why) => write!(to, "missing {number} {why}"),
            Self::Unread(number, what) => write!(to, "unread {number} {what}"),
            Self::LeftOut(number, what) => write!(to, "left-out {number} {what}"),
            Self::Over(number) => write!(to, "over {number}"),
            Self::More(unread, left_out) => write!(to, "more {unread} {left_out}"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn lines_are_what_the_host_knows() {
        for (note, line) in [
            (Note::Missing(0, "No such file"), "missing 0 No such file"),
            (Note::Unread(1, "a b: I/O error"), "unread 1 a b: I/O error"),
            (
                Note::LeftOut(2, "a/s: a socket"),
                "left-out 2 a/s: a socket",
            ),
            (Note::Over(3), "over 3"),
            (Note::More(4, 5), "more 4 5"),
        ] {
            assert_eq!(note.to_string(), line);
            assert_eq!(Note::parse(line), Some(note));
        }
        for line in [
            "",
            "missing",
            "missing x y",
            "over 1 2",
            "more 1",
            "less 1 2",
        ] {
            assert_eq!(Note::parse(line), None, "{line}");
        }
    }

    #[test]
    fn whatever_is_sent_costs_something() {
        assert_eq!(cost(0), 4096);
        assert_eq!(cost(4096), 4096);
        assert_eq!(cost(4097), 8192);
        assert_eq!(cost(u64::MAX), u64::MAX);
    }
}

//! The files that a guest sends to the host on the port [`crate::port::OUT`]: a tar archive.
//!
//! Entry `n` of the archive is the file or folder at the n-th requested path, counted from 0. The
//! contents of a folder are `n/NAME` and so on, each folder before its contents. Entries are files,
//! folders and symbolic links. The last entry is [`END`]; without it the archive is incomplete. It
//! consists of lines about everything that was not sent:
//!
//! | line                  | meaning                                                             |
//! |-----------------------|---------------------------------------------------------------------|
//! | `missing <n> <why>`   | path n has nothing that could be sent                               |
//! | `unread <n> <what>`   | part of path n could not be read                                    |
//! | `left-out <n> <what>` | something at path n is neither file, folder nor symbolic link       |
//! | `over <n>`            | path n was cut off at the size limit, and later paths were not sent |
//! | `more <n> <m>`        | n more `unread` lines and m more `left-out` lines were omitted      |

use core::fmt;

/// The name of the archive's last entry, which lists everything that was not sent. An archive
/// without it is incomplete.
pub const END: &str = "end";
/// The largest size in bytes of the entry [`END`].
pub const END_BYTES_MAX: u64 = 64 << 10;
/// The largest number of `unread` lines in the entry [`END`], and also of its `left-out` lines.
/// Further ones are only counted, in a `more` line.
pub const NOTES_MAX: usize = 40;
/// The largest length in bytes of the text (`what` or `why`) in a line of the entry [`END`].
pub const TEXT_MAX: usize = 500;
/// The largest length in bytes of the path of an entry in the archive.
pub const PATH_MAX: usize = 4096;

/// Returns the number of bytes that an entry with `bytes` bytes of contents counts towards the size
/// limit: `bytes` rounded up to blocks of 4096, one block at least. This is about its size on a
/// disk. Returns `u64::MAX` if the rounded number exceeds 64 bits.
pub const fn cost(bytes: u64) -> u64 {
    const BLOCK: u64 = 4096;
    match bytes.checked_next_multiple_of(BLOCK) {
        Some(0) => BLOCK,
        Some(bytes) => bytes,
        None => u64::MAX,
    }
}

/// One line of the entry [`END`], about something that was not sent. In all variants but
/// [`Note::More`] the number is the index of a requested path, from 0.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Note<'a> {
    /// The path has nothing that could be sent, for the given reason.
    Missing(usize, &'a str),
    /// The named part of the path could not be read.
    Unread(usize, &'a str),
    /// The named thing at the path is neither file, folder nor symbolic link.
    LeftOut(usize, &'a str),
    /// The path was cut off at the size limit, and later paths were not sent.
    Over(usize),
    /// The numbers of further `unread` and `left-out` lines that were omitted.
    More(u64, u64),
}

impl<'a> Note<'a> {
    /// Reads a line of the entry [`END`], without its line end. Returns `None` if its first word is
    /// unknown or a number is missing or malformed. A missing text reads as an empty one.
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

/// Writes the line without its line end.
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

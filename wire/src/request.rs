//! Lines from the host to the guest, on the control port.
//!
//! | line                     | meaning                                                         |
//! |--------------------------|-----------------------------------------------------------------|
//! | `signal <n>`             | send signal n to the program's process group                    |
//! | `eof <total>`            | stdin ends after exactly `total` bytes since boot               |
//! | `window <port> <total>`  | the guest may send `total` bytes since boot on an output port   |
//! | `closed <port>`          | an output port has no reader any more: writes to it get SIGPIPE |
//! | `give-back <mode>`       | memory goes back to the host in this mode from now on           |
//! | `reclaim <n> <step>`     | carry out this step of reclaim; it is request n                 |
//! | `size <rows>x<columns>`  | the program's terminal has a new size                           |
//! | `pressure <some> <full>` | the host's memory stalls so far, in microseconds                |
//! | `end`                    | all output has arrived: the machine may end                     |
//!
//! Linux's first process acts on `signal`, `eof`, `closed`, `size` and `end`. Ebb's kernel acts on
//! all lines but `end`. It needs `window`, since its console ports do not wait for their reader. A
//! guest ignores lines that it does not know, so that later versions may add some.

use crate::{GiveBack, Reclaim, port::OutputPort, terminal::Size};
use core::fmt;

/// The largest length in bytes of a line with its line end. A longer line is not a request.
pub const BYTES_MAX: usize = 80;
/// The largest signal number of Linux.
const SIGNAL_MAX: i32 = 64;

/// A request from the host to the guest: one line on the control port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Send the program's process group this signal, 1 to 64.
    Signal(i32),
    /// Stdin ends after this number of bytes since boot.
    EndOfInput(u64),
    /// The guest may send this number of bytes since boot on this port.
    Window(OutputPort, u64),
    /// This port has no reader any more.
    Closed(OutputPort),
    /// Memory goes back to the host in this mode from now on.
    GiveBack(GiveBack),
    /// Carry out this step of reclaim. The guest's header shows the number of the request when it
    /// is done.
    Reclaim(u32, Reclaim),
    /// The program's terminal has this size.
    Size(Size),
    /// The host's memory stalls that `ebb` has counted in this run, in microseconds.
    Pressure {
        /// Time in which at least one task of the host was stalled.
        some: u64,
        /// Time in which all tasks of the host were stalled.
        full: u64,
    },
    /// All output has arrived, so the machine may end.
    End,
}

impl Request {
    /// Reads a line, with or without its line end. Returns `None` if the first word is not a known
    /// request, or a value is missing, malformed or out of range. Ignores further words.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let word = words.next()?;
        let mut next = || words.next();
        let port = |text: &str| OutputPort::from_number(text.parse().ok()?);
        match word {
            "signal" => {
                let number = next()?.parse().ok()?;
                (1..=SIGNAL_MAX)
                    .contains(&number)
                    .then_some(Self::Signal(number))
            }
            "eof" => Some(Self::EndOfInput(next()?.parse().ok()?)),
            "window" => Some(Self::Window(port(next()?)?, next()?.parse().ok()?)),
            "closed" => Some(Self::Closed(port(next()?)?)),
            "give-back" => Some(Self::GiveBack(GiveBack::from_name(next()?)?)),
            "reclaim" => Some(Self::Reclaim(
                next()?.parse().ok()?,
                Reclaim::from_name(next()?)?,
            )),
            "size" => Some(Self::Size(Size::parse(next()?)?)),
            "pressure" => Some(Self::Pressure {
                some: next()?.parse().ok()?,
                full: next()?.parse().ok()?,
            }),
            "end" => Some(Self::End),
            _ => None,
        }
    }
}

/// Writes the line without its line end.
impl fmt::Display for Request {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(number) => write!(to, "signal {number}"),
            Self::EndOfInput(total) => write!(to, "eof {total}"),
            Self::Window(port, total) => write!(to, "window {} {total}", port.number()),
            Self::Closed(port) => write!(to, "closed {}", port.number()),
            Self::GiveBack(way) => write!(to, "give-back {}", way.name()),
            Self::Reclaim(number, step) => write!(to, "reclaim {number} {}", step.name()),
            Self::Size(size) => write!(to, "size {size}"),
            Self::Pressure { some, full } => write!(to, "pressure {some} {full}"),
            Self::End => to.write_str("end"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn lines_are_what_guests_know() {
        for (request, line) in [
            (Request::Signal(15), "signal 15"),
            (Request::EndOfInput(u64::MAX), "eof 18446744073709551615"),
            (
                Request::Window(OutputPort::Stderr, u64::MAX),
                "window 1 18446744073709551615",
            ),
            (Request::Closed(OutputPort::Stdout), "closed 0"),
            (Request::GiveBack(GiveBack::Hinting), "give-back hinting"),
            (
                Request::Reclaim(u32::MAX, Reclaim::Compact),
                "reclaim 4294967295 compact",
            ),
            (
                Request::Size(Size {
                    rows: 24,
                    columns: 80,
                }),
                "size 24x80",
            ),
            (
                Request::Pressure {
                    some: u64::MAX,
                    full: u64::MAX,
                },
                "pressure 18446744073709551615 18446744073709551615",
            ),
            (Request::End, "end"),
        ] {
            assert_eq!(request.to_string(), line);
            assert!(line.len() < BYTES_MAX);
            assert_eq!(Request::parse(line), Some(request));
            assert_eq!(Request::parse(&format!("{line}\n")), Some(request));
        }
    }

    #[test]
    fn other_lines_ask_for_nothing() {
        for line in [
            "",
            "\n",
            "signal",
            "signal 0",
            "signal 65",
            "signal x",
            "eof",
            "eof -1",
            "window 0",
            "window 2 5",
            "closed",
            "closed 2",
            "give-back",
            "give-back sometimes",
            "reclaim",
            "reclaim 1",
            "reclaim 4294967296 free",
            "reclaim 1 everything",
            "size",
            "size 24",
            "pressure",
            "pressure 1",
            "pressure 1 -1",
            "later 1",
        ] {
            assert_eq!(Request::parse(line), None, "{line}");
        }
    }
}

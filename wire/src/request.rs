//! Lines from the host to the guest, on the control port.
//!
//! | line                    | meaning                                                          |
//! |-------------------------|------------------------------------------------------------------|
//! | `signal <n>`            | send signal n to the program's process group                     |
//! | `eof <total>`           | stdin ends after exactly that many bytes                         |
//! | `window <port> <total>` | so many bytes may have been sent on an output port since boot    |
//! | `closed <port>`         | nobody reads an output port any more: writes to it get SIGPIPE   |
//! | `give-back <mode>`      | memory goes back to the host in this way from here on            |
//! | `reclaim <n> <step>`     | memory is given back by hand, and request n is then done           |
//! | `size <rows>x<columns>`  | the program's terminal has another size                           |
//! | `pressure <some> <full>`  | the host's memory stalls so far, in microseconds                  |
//! | `end`                   | all output has arrived: the machine may end                      |
//!
//! Only Ebb's kernel knows ways to give memory back and can be asked for it, and goes by windows, since only its ports are
//! consoles, which do not wait for their reader; only Linux's first process waits for the end. Lines that are not known are for later
//! guests, and passed over.

use crate::{GiveBack, Reclaim, port::OutputPort, terminal::Size};
use core::fmt;

/// The longest line, with its end. A longer one is none of ours.
pub const BYTES_MAX: usize = 80;
/// Linux's highest signal number.
const SIGNAL_MAX: i32 = 64;

/// What the host asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The program gets a signal, 1 to 64.
    Signal(i32),
    /// Stdin ends after so many bytes since boot.
    EndOfInput(u64),
    /// So many bytes may have been sent on a port since boot.
    Window(OutputPort, u64),
    /// Nobody reads what is sent on a port.
    Closed(OutputPort),
    /// Memory goes back to the host in this way.
    GiveBack(GiveBack),
    /// A step is taken to give memory back; the guest's header shows the number when it is through.
    Reclaim(u32, Reclaim),
    /// The program's terminal has this size.
    Size(Size),
    /// Memory stalls of the host that `ebb` has counted in this run, in microseconds.
    Pressure {
        /// In which at least one task of the host stalled.
        some: u64,
        /// In which all tasks of the host stalled.
        full: u64,
    },
    /// The machine may end.
    End,
}

impl Request {
    /// Reads a line, with or without its end.
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

/// The line, without its end.
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

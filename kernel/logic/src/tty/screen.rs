//! What becomes of a byte on its way to the screen, and where the cursor stands.

use super::characters::{is_continuation, is_control, to_upper};
use super::termios::{Input, Output, Termios};

/// The most bytes that one becomes: a tab's blanks.
pub(super) const LONGEST: usize = 8;

/// One byte, as it is shown.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Shown {
    const NOTHING: Self = Self {
        bytes: [b' '; LONGEST],
        len: 0,
    };

    fn one(c: u8) -> Self {
        let mut shown = Self::NOTHING;
        shown.bytes[0] = c;
        shown.len = 1;
        shown
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Where the cursor stands.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Screen {
    /// Its column.
    column: u32,
    /// Where the line that is typed begins.
    line_begin: u32,
}

impl Screen {
    pub(super) fn line_begin(&self) -> u32 {
        self.line_begin
    }

    /// A line begins to be typed here.
    pub(super) fn begin_line(&mut self) {
        self.line_begin = self.column;
    }

    /// The cursor moves without a byte that says so.
    pub(super) fn advance(&mut self, columns: u32) {
        self.column = self.column.wrapping_add(columns);
    }

    pub(super) fn go_back(&mut self) {
        self.column = self.column.saturating_sub(1);
    }

    /// What a byte becomes; without `OPOST` callers pass it on as it is.
    pub(super) fn process(&mut self, c: u8, termios: &Termios) -> Shown {
        let flags = termios.output;
        match c {
            b'\n' => {
                if flags.contains(Output::ONLRET) {
                    self.column = 0;
                }
                if flags.contains(Output::ONLCR) {
                    (self.column, self.line_begin) = (0, 0);
                    let mut shown = Shown::NOTHING;
                    shown.bytes[..2].copy_from_slice(b"\r\n");
                    shown.len = 2;
                    return shown;
                }
                self.line_begin = self.column;
            }
            b'\r' => {
                if flags.contains(Output::ONOCR) && self.column == 0 {
                    return Shown::NOTHING;
                }
                if flags.contains(Output::OCRNL) {
                    if flags.contains(Output::ONLRET) {
                        (self.column, self.line_begin) = (0, 0);
                    }
                    return Shown::one(b'\n');
                }
                (self.column, self.line_begin) = (0, 0);
            }
            b'\t' => {
                let blanks = 8 - (self.column & 7);
                self.advance(blanks);
                if flags.contains(Output::XTABS) {
                    let mut shown = Shown::NOTHING;
                    // At most `LONGEST`.
                    shown.len = blanks as usize;
                    return shown;
                }
            }
            0o10 => self.go_back(),
            _ if is_control(c) => {}
            _ => {
                let utf8 = termios.input.contains(Input::IUTF8);
                let shown = if flags.contains(Output::OLCUC) {
                    to_upper(c)
                } else {
                    c
                };
                if !(utf8 && is_continuation(shown)) {
                    self.advance(1);
                }
                return Shown::one(shown);
            }
        }
        Shown::one(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn shown(flags: Output, text: &[u8]) -> Vec<u8> {
        let mut termios = Termios::usual();
        termios.output = flags;
        let mut screen = Screen::default();
        text.iter()
            .flat_map(|&c| screen.process(c, &termios).as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn flags_change_bytes() {
        let post = Output::OPOST;
        for (flags, text, want) in [
            (post | Output::ONLCR, &b"a\nb"[..], &b"a\r\nb"[..]),
            (post, b"a\nb", b"a\nb"),
            (post | Output::OCRNL, b"a\rb", b"a\nb"),
            (post | Output::ONOCR, b"\ra\r\r", b"a\r"),
            (post | Output::OLCUC, b"aBc\xe4", b"ABC\xc4"),
            (post | Output::XTABS, b"ab\tc", b"ab      c"),
            (post, b"ab\tc", b"ab\tc"),
            (
                post | Output::XTABS | Output::ONLRET,
                b"ab\n\t",
                b"ab\n        ",
            ),
            (post | Output::XTABS, b"ab\n\t", b"ab\n      "),
            (post | Output::XTABS, b"ab\x08\t", b"ab\x08       "),
        ] {
            assert_eq!(shown(flags, text), want, "{flags:?} {text:?}");
        }
    }

    #[test]
    fn bytes_of_one_character_take_one_column() {
        let mut termios = Termios::usual();
        let mut screen = Screen::default();
        termios.input |= Input::IUTF8;
        for c in "äö".bytes() {
            screen.process(c, &termios);
        }
        assert_eq!(screen.column, 2);
    }
}

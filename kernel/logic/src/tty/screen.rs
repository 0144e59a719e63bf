//! Processes bytes on their way to the screen, and tracks the cursor.

use super::characters::{is_continuation, is_control, to_upper};
use super::termios::{Input, Output, Termios};

/// The most bytes that one byte becomes: the blanks of a tab.
pub(super) const LONGEST: usize = 8;

/// The position of the cursor.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Screen {
    /// Column of the cursor.
    column: u32,
    /// Column where the line being typed begins.
    line_begin: u32,
}

impl Screen {
    /// Returns the column where the line being typed begins.
    pub(super) fn line_begin(&self) -> u32 {
        self.line_begin
    }

    /// Notes that a typed line begins at the cursor.
    pub(super) fn begin_line(&mut self) {
        self.line_begin = self.column;
    }

    /// Moves the cursor `columns` to the right, for bytes that are shown without [`Self::process`].
    pub(super) fn advance(&mut self, columns: u32) {
        self.column = self.column.wrapping_add(columns);
    }

    /// Moves the cursor one column to the left, unless it is in column 0.
    pub(super) fn go_back(&mut self) {
        self.column = self.column.saturating_sub(1);
    }

    /// Writes the bytes to show for the byte `c` of output under the settings `termios` to `shown`,
    /// and returns their number. Moves the cursor accordingly. Without `OPOST`, callers show `c`
    /// unchanged instead.
    #[inline]
    pub(super) fn process(&mut self, c: u8, termios: &Termios, shown: &mut [u8; LONGEST]) -> usize {
        if is_control(c) {
            return self.control(c, termios.output, shown);
        }
        shown[0] = if termios.output.contains(Output::OLCUC) {
            to_upper(c)
        } else {
            c
        };
        if !(termios.input.contains(Input::IUTF8) && is_continuation(shown[0])) {
            self.advance(1);
        }
        1
    }

    /// Writes the bytes to show for the control character `c` of output to `shown`, and returns
    /// their number. Moves the cursor accordingly. `flags` are the settings of `c_oflag`.
    fn control(&mut self, c: u8, flags: Output, shown: &mut [u8; LONGEST]) -> usize {
        shown[0] = c;
        match c {
            b'\n' => {
                if flags.contains(Output::ONLRET) {
                    self.column = 0;
                }
                if flags.contains(Output::ONLCR) {
                    (self.column, self.line_begin) = (0, 0);
                    shown[..2].copy_from_slice(b"\r\n");
                    return 2;
                }
                self.line_begin = self.column;
            }
            b'\r' => {
                if flags.contains(Output::ONOCR) && self.column == 0 {
                    return 0;
                }
                if flags.contains(Output::OCRNL) {
                    if flags.contains(Output::ONLRET) {
                        (self.column, self.line_begin) = (0, 0);
                    }
                    shown[0] = b'\n';
                    return 1;
                }
                (self.column, self.line_begin) = (0, 0);
            }
            b'\t' => {
                let blanks = 8 - (self.column & 7);
                self.advance(blanks);
                if flags.contains(Output::XTABS) {
                    *shown = [b' '; LONGEST];
                    // At most `LONGEST`.
                    return blanks as usize;
                }
            }
            0o10 => self.go_back(),
            _ => {}
        }
        1
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
        let mut all = Vec::new();
        for &c in text {
            let mut shown = [0; LONGEST];
            let len = screen.process(c, &termios, &mut shown);
            all.extend_from_slice(&shown[..len]);
        }
        all
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
            screen.process(c, &termios, &mut [0; LONGEST]);
        }
        assert_eq!(screen.column, 2);
    }
}

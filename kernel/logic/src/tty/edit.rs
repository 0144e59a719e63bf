//! Erases a character, a word or a line, and shows that.

use super::characters::{is_alphanumeric, is_continuation, is_control};
use super::discipline::Discipline;
use super::termios::{Characters, Input, Local};

/// The amount of text to erase.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Erased {
    Character,
    Word,
    Line,
}

const BACKSPACE: u8 = 0o10;

impl Discipline {
    /// Returns whether the byte `c` belongs to the character before it (`IUTF8`).
    fn belongs(&self, c: u8) -> bool {
        self.termios.input.contains(Input::IUTF8) && is_continuation(c)
    }

    /// Erases the last character of the line being typed, its last word, or all of it, because `c`
    /// was typed. `c` is ERASE, WERASE or KILL. Shows the erasure if echo is enabled.
    pub(super) fn erase(&mut self, c: u8) {
        if self.buffer.line_is_empty() {
            return;
        }
        let local = self.termios.local;
        let echo = local.contains(Local::ECHO);
        let what = if self.termios.is(c, Characters::Erase) {
            Erased::Character
        } else if self.termios.is(c, Characters::Werase) {
            Erased::Word
        } else {
            let each_by_itself = Local::ECHOK | Local::ECHOKE | Local::ECHOE;
            if !echo || !local.contains(each_by_itself) {
                self.buffer.clear_line();
                if echo {
                    self.finish_erasing();
                    self.echo(self.termios.character(Characters::Kill));
                    // As on Linux, the rest of the line is not removed from the screen.
                    if local.contains(Local::ECHOK) {
                        self.show(b'\n');
                    }
                }
                return;
            }
            Erased::Line
        };
        let mut in_word = false;
        while let Some((c, bytes)) = self.last_character() {
            if what == Erased::Word {
                if is_alphanumeric(c) || c == b'_' {
                    in_word = true;
                } else if in_word {
                    break;
                }
            }
            let continued = self.buffer.line().rev().take(bytes - 1);
            // Shown in the order of typing. A UTF-8 character has few continuation bytes, but an
            // invalid one may have any number.
            let mut tail = [0; 8];
            let shown = continued
                .zip(&mut tail)
                .map(|(c, place)| *place = c)
                .count();
            for _ in 0..bytes {
                self.buffer.pop();
            }
            if echo {
                self.show_erased(c, &tail[..shown], what);
            }
            if what == Erased::Character {
                break;
            }
        }
        if echo && self.buffer.line_is_empty() {
            self.finish_erasing();
        }
    }

    /// Returns the first byte of the last character of the line being typed, and the number of
    /// bytes of that character. Returns `None` if the line is empty or has only continuation bytes.
    fn last_character(&self) -> Option<(u8, usize)> {
        let mut line = self.buffer.line().rev().enumerate();
        let found = line.find(|&(_, c)| !self.belongs(c));
        found.map(|(behind, c)| (c, behind + 1))
    }

    /// Shows that a character is erased. `c` is its first byte, and `tail` has its further bytes,
    /// last first. The line no longer contains it. `what` says whether only this character, a word
    /// or the line is being erased.
    fn show_erased(&mut self, c: u8, tail: &[u8], what: Erased) {
        let local = self.termios.local;
        if local.contains(Local::ECHOPRT) {
            if !self.erasing {
                self.show(b'\\');
                self.erasing = true;
            }
            self.echo(c);
            for &c in tail.iter().rev() {
                self.show(c);
                self.screen.go_back();
            }
        } else if what == Erased::Character && !local.contains(Local::ECHOE) {
            self.echo(self.termios.character(Characters::Erase));
        } else if c == b'\t' {
            self.take_tab_back();
        } else {
            let control = is_control(c);
            if control && local.contains(Local::ECHOCTL) {
                self.take_back();
            }
            if !control || local.contains(Local::ECHOCTL) {
                self.take_back();
            }
        }
    }

    fn take_back(&mut self) {
        for c in [BACKSPACE, b' ', BACKSPACE] {
            self.show(c);
        }
    }

    /// Moves the cursor to its column before a tab. That column is computed from the tab before it,
    /// or from the beginning of the line.
    fn take_tab_back(&mut self) {
        let controls_show = self.termios.local.contains(Local::ECHOCTL);
        let mut columns = 0u32;
        let mut behind_tab = false;
        for c in self.buffer.line().rev() {
            if c == b'\t' {
                behind_tab = true;
                break;
            }
            if is_control(c) {
                columns += if controls_show { 2 } else { 0 };
            } else if !self.belongs(c) {
                columns += 1;
            }
        }
        if !behind_tab {
            columns = columns.wrapping_add(self.screen.line_begin());
        }
        for _ in 0..8 - (columns & 7) {
            self.show_bytes(&[BACKSPACE]);
            self.screen.go_back();
        }
    }
}

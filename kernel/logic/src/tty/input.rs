//! The effects of a typed byte.

use super::characters::{is_control, to_lower};
use super::discipline::Discipline;
use super::termios::{Characters, Input, Local};

/// Byte 0377, which `PARMRK` doubles.
const ALL_BITS: u8 = 0xff;
/// The character shown before a control's letter.
const CARET: u8 = b'^';
/// The bit by which a control differs from its letter.
const CONTROL_BIT: u8 = 0o100;

impl Discipline {
    fn has(&self, flag: Local) -> bool {
        self.termios.local.contains(flag)
    }

    fn changes(&self, flag: Input) -> bool {
        self.termios.input.contains(flag)
    }

    /// Returns whether the typed byte `c` has a special meaning under the current settings.
    fn is_special(&self, c: u8) -> bool {
        let is = |which| self.termios.is(c, which);
        let extended = self.has(Local::IEXTEN);
        let translated = c == b'\r' && self.termios.input.intersects(Input::IGNCR | Input::ICRNL)
            || c == b'\n' && self.changes(Input::INLCR);
        let edits = || {
            c == b'\n'
                || is(Characters::Erase)
                || is(Characters::Kill)
                || is(Characters::Eof)
                || is(Characters::Eol)
                || extended
                    && (is(Characters::Werase)
                        || is(Characters::Lnext)
                        || is(Characters::Eol2)
                        || self.has(Local::ECHO) && is(Characters::Reprint))
        };
        translated
            || self.has(Local::ICANON) && edits()
            || self.changes(Input::IXON) && (is(Characters::Start) || is(Characters::Stop))
            || self.has(Local::ISIG)
                && (is(Characters::Intr) || is(Characters::Quit) || is(Characters::Susp))
    }

    /// Processes the typed byte `c` under the current settings. The buffer must have room for it.
    pub(super) fn take(&mut self, c: u8) {
        let literal = core::mem::take(&mut self.next_is_literal);
        let mut c = c;
        if self.changes(Input::ISTRIP) {
            c &= 0x7f;
        }
        if self.changes(Input::IUCLC) && self.has(Local::IEXTEN) {
            c = to_lower(c);
        }
        if literal {
            self.plain(c);
        } else if self.has(Local::EXTPROC) {
            self.buffer.push(c);
        } else if self.is_special(c) {
            self.special(c);
        } else {
            self.plain(c);
        }
    }

    /// Processes the typed byte `c`, which has no special meaning: shows it if echo is enabled, and
    /// adds it to the buffer.
    fn plain(&mut self, c: u8) {
        if self.starts_with_any() {
            self.start();
        }
        if self.has(Local::ECHO) {
            self.finish_erasing();
            self.note_line_begin();
            self.echo(c);
        }
        self.store(c);
    }

    fn store(&mut self, c: u8) {
        if c == ALL_BITS && self.changes(Input::PARMRK) {
            self.buffer.push(c);
        }
        self.buffer.push(c);
    }

    fn special(&mut self, c: u8) {
        if self.changes(Input::IXON) {
            if self.termios.is(c, Characters::Start) {
                self.start();
                return;
            }
            if self.termios.is(c, Characters::Stop) {
                self.stop();
                return;
            }
        }
        if self.has(Local::ISIG) {
            let pressed = [
                (Characters::Intr, &mut self.keys.interrupt),
                (Characters::Quit, &mut self.keys.quit),
                (Characters::Susp, &mut self.keys.suspend),
            ]
            .into_iter()
            .find(|(which, _)| self.termios.is(c, *which))
            .map(|(_, key)| *key = true);
            if pressed.is_some() {
                self.signal_key(c);
                return;
            }
        }
        if self.starts_with_any() {
            self.start();
        }
        let mut c = c;
        if c == b'\r' {
            if self.changes(Input::IGNCR) {
                return;
            }
            if self.changes(Input::ICRNL) {
                c = b'\n';
            }
        } else if c == b'\n' && self.changes(Input::INLCR) {
            c = b'\r';
        }
        if self.has(Local::ICANON) && self.edit(c) {
            return;
        }
        if self.has(Local::ECHO) {
            self.finish_erasing();
            if c == b'\n' {
                self.show(c);
            } else {
                self.note_line_begin();
                self.echo(c);
            }
        }
        self.store(c);
    }

    fn signal_key(&mut self, c: u8) {
        if !self.has(Local::NOFLSH) {
            self.flush_for_signal();
        }
        if self.changes(Input::IXON) {
            self.start();
        }
        if self.has(Local::ECHO) {
            self.echo(c);
        }
    }

    /// Processes the typed byte `c` if it edits, ends or reprints the line being typed, and returns
    /// `true`. Otherwise returns `false` and does nothing.
    fn edit(&mut self, c: u8) -> bool {
        let is = |which| self.termios.is(c, which);
        let extended = self.has(Local::IEXTEN);
        if is(Characters::Erase) || is(Characters::Kill) || extended && is(Characters::Werase) {
            self.erase(c);
            return true;
        }
        if extended && is(Characters::Lnext) {
            self.next_is_literal = true;
            if self.has(Local::ECHO) {
                self.finish_erasing();
                if self.has(Local::ECHOCTL) {
                    self.show(CARET);
                    self.show(0o10);
                }
            }
            return true;
        }
        if extended && self.has(Local::ECHO) && is(Characters::Reprint) {
            self.reprint(c);
            return true;
        }
        if c == b'\n' {
            if self.termios.local.intersects(Local::ECHO | Local::ECHONL) {
                self.show(c);
            }
            self.buffer.end_line(c);
            return true;
        }
        if is(Characters::Eof) {
            self.buffer.end_line(0);
            return true;
        }
        if is(Characters::Eol) || extended && is(Characters::Eol2) {
            if self.has(Local::ECHO) {
                self.note_line_begin();
                self.echo(c);
            }
            if c == ALL_BITS && self.changes(Input::PARMRK) {
                self.buffer.push(c);
            }
            self.buffer.end_line(c);
            return true;
        }
        false
    }

    /// Shows `c`, the REPRINT character that was typed. Then shows the line being typed once more.
    fn reprint(&mut self, c: u8) {
        self.finish_erasing();
        self.echo(c);
        self.show(b'\n');
        let mut n = 0;
        // The number of iterations is at most the buffer's capacity.
        while let Some(c) = self.buffer.nth_of_line(n) {
            if self.is_screen_full() {
                break;
            }
            self.echo(c);
            n += 1;
        }
    }

    fn note_line_begin(&mut self) {
        if self.buffer.line_is_empty() {
            self.screen.begin_line();
        }
    }

    /// Shows the typed byte `c` on the screen. Shows a control character other than a tab as `^X`
    /// if `ECHOCTL` is set. The caller has checked whether echo is enabled.
    pub(super) fn echo(&mut self, c: u8) {
        if self.has(Local::ECHOCTL) && is_control(c) && c != b'\t' {
            self.show_bytes(&[CARET, c ^ CONTROL_BIT]);
            self.screen.advance(2);
        } else {
            self.show(c);
        }
    }

    /// Ends the list of erased characters that `ECHOPRT` shows.
    pub(super) fn finish_erasing(&mut self) {
        if self.erasing {
            self.show(b'/');
            self.erasing = false;
        }
    }
}

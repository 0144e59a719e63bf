//! The user's terminal, shared by the program's output, messages, and a status line at the bottom.
//!
//! The status line is drawn only where the cursor stands at the start of a line, and is wiped
//! before anything else is written, so that it never mixes with what the program prints.

use super::stderr::{self, write_retrying};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::termios;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Taken where a terminal does not tell its width.
const COLUMNS_DEFAULT: usize = 80;

/// Where ebb itself writes: stderr.
#[derive(Debug)]
pub(crate) struct Terminal {
    interactive: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    drawn: bool,
    /// The user types here, so there is no status line any more.
    given_up: bool,
    line_start: bool,
    /// It is the guest's, and shows a newline as nothing but that.
    raw: bool,
}

impl Terminal {
    /// Stderr, with a status line if that is a terminal.
    pub(crate) fn new() -> Self {
        Self {
            interactive: stderr::is_terminal(),
            state: Mutex::new(State {
                drawn: false,
                given_up: false,
                line_start: true,
                raw: false,
            }),
        }
    }

    /// Whether somebody watches.
    pub(crate) fn interactive(&self) -> bool {
        self.interactive
    }

    /// Whether somebody watches ebb: a shell's job in the background has no say about the terminal.
    pub(crate) fn in_foreground(&self) -> bool {
        // A terminal that does not control this process knows no foreground.
        self.interactive
            && termios::tcgetpgrp(rustix::stdio::stderr())
                .map_or(true, |group| group == rustix::process::getpgrp())
    }

    /// Takes the status line away for good: the user types here.
    pub(crate) fn give_up_line(&self) {
        let mut state = self.lock();
        wipe(&mut state);
        state.given_up = true;
    }

    /// The terminal is raw from now on, or is not any more.
    pub(crate) fn set_raw(&self, raw: bool) {
        self.lock().raw = raw;
    }

    /// Columns of a line.
    pub(crate) fn columns(&self) -> usize {
        match termios::tcgetwinsize(rustix::stdio::stderr()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
            _ => COLUMNS_DEFAULT,
        }
    }

    /// Writes some of the program's output to `fd`; `shared` says that it is this terminal.
    /// Returns how much was taken.
    pub(crate) fn write(
        &self,
        fd: BorrowedFd<'_>,
        bytes: &[u8],
        shared: bool,
    ) -> Result<usize, Errno> {
        if !shared {
            return write_retrying(fd, bytes);
        }
        let mut state = self.lock();
        wipe(&mut state);
        let written = write_retrying(fd, bytes)?;
        if let Some(last) = bytes[..written].last() {
            state.line_start = *last == b'\n';
        }
        Ok(written)
    }

    /// Writes a line of ebb's own, or some. Nothing in `text` steers the terminal.
    pub(crate) fn message(&self, text: &str) {
        let mut state = self.lock();
        wipe(&mut state);
        stderr::write(&said(text, &state, self.interactive));
        state.line_start = true;
    }

    /// Draws the status line, unless the program is in the middle of a line or of a write. Nothing
    /// in `line` steers the terminal.
    pub(crate) fn draw(&self, line: &str) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if state.line_start && !state.given_up && self.in_foreground() {
            stderr::show(line);
            state.drawn = true;
        }
    }

    /// Takes the status line away.
    pub(crate) fn clear(&self) {
        wipe(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wipe(state: &mut State) {
    if std::mem::take(&mut state.drawn) {
        stderr::wipe();
    }
}

/// Returns a message as the terminal gets it.
fn said(text: &str, state: &State, interactive: bool) -> String {
    let start = if state.line_start || !interactive {
        ""
    } else {
        "\n"
    };
    let line = format!("{start}{}", stderr::line(text));
    if state.raw {
        line.replace('\n', "\r\n")
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::super::printable::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn messages_steer_no_terminal() {
        let mut state = State {
            drawn: false,
            given_up: false,
            line_start: false,
            raw: false,
        };
        let text = format!("ebb: {HOSTILE}\nb");
        assert_harmless(&said(&text, &state, true));
        assert_eq!(said("a\nb", &state, true), "\na\nb\n");
        state.raw = true;
        let raw = said(&text, &state, false);
        assert_eq!(raw.matches("\r\n").count(), 2);
        assert_harmless(&raw.replace("\r\n", "\n"));
    }
}

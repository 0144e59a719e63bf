//! The user's terminal, shared by the program's output, ebb's messages, and a status line at the
//! bottom.
//!
//! The status line is drawn only while the cursor is at the start of a line. It is erased before
//! any other output, so it never mixes with the program's output.

use super::stderr::{self, write_retrying};
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::termios;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The width in columns if a terminal does not report one.
const COLUMNS_DEFAULT: usize = 80;

/// The terminal on stderr, or another stderr, to which ebb writes its own messages and a status
/// line. The program's output may go to the same terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    interactive: bool,
    /// Whether there may be a status line. A program at the other end of a pipe could write to the
    /// same terminal.
    has_line: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    drawn: bool,
    /// The user types here, so the status line is never drawn again.
    given_up: bool,
    line_start: bool,
    /// The terminal is in raw mode for the guest. A newline then does not return to the first
    /// column.
    raw: bool,
}

impl Terminal {
    /// Returns the terminal on stderr. It gets a status line only if stderr is a terminal and
    /// stdout is no pipe and no socket. Writes nothing.
    pub(crate) fn new() -> Self {
        Self {
            interactive: stderr::is_terminal(),
            has_line: !stdout_is_pipe(),
            state: Mutex::new(State {
                drawn: false,
                given_up: false,
                line_start: true,
                raw: false,
            }),
        }
    }

    /// Returns whether stderr was a terminal when this was created.
    pub(crate) fn interactive(&self) -> bool {
        self.interactive
    }

    /// Returns whether stderr is a terminal and ebb's process group is in its foreground. A shell's
    /// background job must not draw on the terminal. Returns `true` for a terminal that does not
    /// control this process.
    pub(crate) fn in_foreground(&self) -> bool {
        // A terminal that does not control this process has no foreground group.
        self.interactive
            && termios::tcgetpgrp(rustix::stdio::stderr())
                .map_or(true, |group| group == rustix::process::getpgrp())
    }

    /// Erases the status line, and makes [`Self::draw`] do nothing from now on. Call this when the
    /// user types on this terminal.
    pub(crate) fn give_up_line(&self) {
        let mut state = self.lock();
        wipe(&mut state);
        state.given_up = true;
    }

    /// Records whether the terminal is in raw mode; does not change the mode. In raw mode, messages
    /// end lines with a carriage return and a newline.
    pub(crate) fn set_raw(&self, raw: bool) {
        self.lock().raw = raw;
    }

    /// Returns the width of the terminal in columns, or 80 if it is unknown.
    pub(crate) fn columns(&self) -> usize {
        match termios::tcgetwinsize(rustix::stdio::stderr()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
            _ => COLUMNS_DEFAULT,
        }
    }

    /// Writes `bytes` of the program's output to `fd`, once. If `shared`, `fd` is this terminal,
    /// and the status line is erased first. Waits if `fd` is non-blocking and full. Returns the
    /// number of bytes written, which may be less than all. Fails as write(2).
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

    /// Writes one or more lines of ebb's own to stderr, with a newline after them. Erases the
    /// status line first, and begins a new line if the program's output ended within one. Control
    /// characters in `text` are made printable. Ignores errors.
    pub(crate) fn message(&self, text: &str) {
        let mut state = self.lock();
        wipe(&mut state);
        stderr::write(&said(text, &state, self.interactive));
        state.line_start = true;
    }

    /// Draws the status line with the text `line`. Does nothing while the program is in the middle
    /// of a line or of a write, after [`Self::give_up_line`], in the background, if stderr is no
    /// terminal, or if stdout is a pipe or a socket. Control characters in `line` are made
    /// printable.
    pub(crate) fn draw(&self, line: &str) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if self.has_line && state.line_start && !state.given_up && self.in_foreground() {
            stderr::show(line);
            state.drawn = true;
        }
    }

    /// Erases the status line if it is drawn. A later [`Self::draw`] draws it again.
    pub(crate) fn clear(&self) {
        wipe(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether stdout is a pipe or a socket, whose other end may write to the terminal.
fn stdout_is_pipe() -> bool {
    rustix::fs::fstat(rustix::stdio::stdout()).is_ok_and(|facts| {
        let kind = FileType::from_raw_mode(facts.st_mode);
        matches!(kind, FileType::Fifo | FileType::Socket)
    })
}

fn wipe(state: &mut State) {
    if std::mem::take(&mut state.drawn) {
        stderr::wipe();
    }
}

/// Returns the bytes that are written to the terminal for a message.
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

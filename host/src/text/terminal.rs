//! The user's terminal, shared by the program's output, messages, and a status line at the bottom.
//!
//! The status line is drawn only where the cursor stands at the start of a line, and is wiped
//! before anything else is written, so that it never mixes with what the program prints.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::termios;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

const WIPE: &[u8] = b"\r\x1b[K";
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
            interactive: termios::isatty(rustix::stdio::stderr()),
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

    /// Writes a line of ebb's own.
    pub(crate) fn message(&self, text: &str) {
        let mut state = self.lock();
        wipe(&mut state);
        let start = if state.line_start || !self.interactive {
            ""
        } else {
            "\n"
        };
        let mut line = format!("{start}{text}\n");
        if state.raw {
            line = line.replace('\n', "\r\n");
        }
        // There is nobody left to tell if stderr is gone.
        let _ = write_all(rustix::stdio::stderr(), line.as_bytes());
        state.line_start = true;
    }

    /// Draws the status line, unless the program is in the middle of a line or of a write.
    pub(crate) fn draw(&self, line: &str) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if state.line_start && !state.given_up && self.in_foreground() {
            let _ = write_all(
                rustix::stdio::stderr(),
                format!("\r{line}\x1b[K").as_bytes(),
            );
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
        let _ = write_all(rustix::stdio::stderr(), WIPE);
    }
}

fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = write_retrying(fd.as_fd(), bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// One write that waits even where the file is set to non-blocking by whoever shares it.
fn write_retrying(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        match rustix::io::write(fd, bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            },
            result => return result,
        }
    }
}

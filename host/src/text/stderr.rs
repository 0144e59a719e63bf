//! Writes ebb's own messages to stderr. Only sequences that this file adds can control the
//! terminal.

use super::printable::{printable, printable_lines};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

/// The escape sequence that erases the line of the cursor and moves the cursor to its start.
pub(super) const WIPE: &str = "\r\x1b[K";

/// Returns whether stderr is a terminal.
pub(crate) fn is_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stderr())
}

/// Writes one or more lines of message to stderr, with a newline after them. Control characters in
/// `text` are made printable. Ignores errors.
pub(crate) fn say(text: &str) {
    write(&line(text));
}

/// Replaces the line of the cursor on stderr by `text`. The cursor stays on this line. Control
/// characters in `text`, also newlines, are made printable. Ignores errors.
pub(crate) fn show(text: &str) {
    write(&status(text));
}

/// Erases the line of the cursor on stderr, which [`show`] wrote. Ignores errors.
pub(crate) fn wipe() {
    write(WIPE);
}

/// Returns the text that [`say`] writes for `text`: printable and with a newline after it.
pub(super) fn line(text: &str) -> String {
    printable_lines(text) + "\n"
}

/// Returns the text that [`show`] writes for `text`: printable, between the escape sequences that
/// replace the line of the cursor.
pub(super) fn status(text: &str) -> String {
    format!("\r{}\x1b[K", printable(text))
}

/// Writes all of `text` unchanged to stderr. Ignores errors, because a closed stderr has no reader.
pub(super) fn write(text: &str) {
    let _ = write_all(rustix::stdio::stderr(), text.as_bytes());
}

fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = write_retrying(fd.as_fd(), bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Writes `bytes` to `fd` once and returns the number of bytes written, which may be less than all.
/// Waits if another process has set the shared file to non-blocking. Fails as write(2) and poll(2),
/// but not with `EINTR` or `EAGAIN`.
pub(super) fn write_retrying(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
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

#[cfg(test)]
mod tests {
    use super::super::printable::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn what_is_said_steers_no_terminal() {
        assert_harmless(&line(&format!("ebb: {HOSTILE}\n  help: {HOSTILE}")));
        assert_eq!(line("a\n  b"), "a\n  b\n");
    }

    #[test]
    fn what_is_shown_stays_on_its_line() {
        let shown = status(&format!("{HOSTILE}\nb"));
        let inner = shown
            .strip_prefix('\r')
            .unwrap()
            .strip_suffix("\x1b[K")
            .unwrap();
        assert_harmless(inner);
        assert!(!inner.contains('\n'), "{inner}");
    }
}

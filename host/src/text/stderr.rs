//! What ebb itself says on stderr. Nothing in it steers the terminal but what this file adds.

use super::printable::{printable, printable_lines};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

/// Takes the line away in which the cursor stands.
pub(super) const WIPE: &str = "\r\x1b[K";

/// Returns whether stderr is a terminal.
pub(crate) fn is_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stderr())
}

/// Says a line, or some.
pub(crate) fn say(text: &str) {
    write(&line(text));
}

/// Shows a line in the place of the one in which the cursor stands, which stays there.
pub(crate) fn show(text: &str) {
    write(&status(text));
}

/// Takes away what [`show`] showed.
pub(crate) fn wipe() {
    write(WIPE);
}

/// Returns a text as [`say`] writes it.
pub(super) fn line(text: &str) -> String {
    printable_lines(text) + "\n"
}

/// Returns a line as [`show`] writes it.
pub(super) fn status(text: &str) -> String {
    format!("\r{}\x1b[K", printable(text))
}

/// Writes a text as it is. A stderr that is closed is no failure: no reader is left.
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

/// Writes once. Waits even where another process has set the shared file to non-blocking.
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

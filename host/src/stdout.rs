//! Writes to ebb's own stdout. Only ebb's own styles can control the terminal.

use crate::failure::Failure;
use crate::text::{Styled, printable_lines};
use std::io::{self, Write};

/// Writes `text` to stdout and flushes it. Adds no newline. Control characters are made printable;
/// newlines stay. Fails with [`Failure::Output`] if stdout cannot be written to, also if its reader
/// has closed the pipe.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(&printable_lines(text)).map_err(failed)
}

/// Writes a styled text to stdout with its escape sequences, and flushes it. Adds no newline. Fails
/// as [`print()`].
pub(crate) fn print_styled(text: &Styled) -> Result<(), Failure> {
    write(text.as_str()).map_err(failed)
}

/// Writes `text` to stdout as [`print()`] does, but returns `Ok` if the reader has closed the pipe.
/// Fails with [`Failure::Output`] for other errors.
pub(crate) fn offer(text: &str) -> Result<(), Failure> {
    match write(&printable_lines(text)) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(()),
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn failed(source: io::Error) -> Failure {
    Failure::Output {
        stream: "stdout",
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::hostile::{HOSTILE, assert_harmless};

    #[test]
    fn what_is_printed_steers_no_terminal() {
        assert_harmless(&printable_lines(&format!("NAME\n{HOSTILE}\n")));
        assert_eq!(printable_lines("a\tb\nc\n"), "a\tb\nc\n");
    }
}

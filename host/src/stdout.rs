//! Our own stdout. Nothing that is printed steers the terminal, but for ebb's own styles.

use crate::failure::Failure;
use crate::text::{Styled, printable_lines};
use std::io::{self, Write};

/// Writes `text`.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(&printable_lines(text)).map_err(failed)
}

/// Writes a text with styles.
pub(crate) fn print_styled(text: &Styled) -> Result<(), Failure> {
    write(text.as_str()).map_err(failed)
}

/// Writes `text`; a reader who has had enough is no failure.
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

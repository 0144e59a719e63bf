//! Our own stdout.

use crate::failure::Failure;
use std::io::{self, Write};

/// Writes `text`.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(text).map_err(failed)
}

/// Writes `text`; a reader who has had enough is no failure.
pub(crate) fn offer(text: &str) -> Result<(), Failure> {
    match write(text) {
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

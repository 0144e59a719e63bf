//! Errors that come with a signal.

use crate::process::signal::{Signal, raise};
use logic::errno::Errno;

/// Raises the signal of an error that comes with one. Returns the error that the program gets.
pub(super) fn signalled(error: Errno) -> Errno {
    match error {
        Errno::BROKEN_PIPE => {
            raise(Signal::SIGPIPE);
            Errno::EPIPE
        }
        Errno::FILE_SIZE_LIMIT => {
            raise(Signal::SIGXFSZ);
            Errno::EFBIG
        }
        other => other,
    }
}

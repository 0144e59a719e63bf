//! Errors that come with a signal.
//!
//! Files do not know signals. They return an [`Errno`] that no program sees, and the end of the
//! system call raises the signal.

use crate::process::signal::{Signal, raise};
use logic::errno::Errno;

/// Raises the signal that belongs to `error`, if there is one. Returns the error for the program.
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

//! Failures of an image.

use std::fmt;
use std::io;

/// A failed operation on an image. Its request was answered with
/// [`Status::IoError`](crate::request::Status::IoError).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The operation that failed, for messages.
    pub(crate) what: &'static str,
    /// First byte of the operation in the image.
    pub(crate) offset: u64,
    /// The system's error number, or 0 if the image is shorter than the disk.
    pub errno: i32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            offset,
            errno,
        } = self;
        write!(f, "{what} at byte {offset} failed: ")?;
        match errno {
            0 => f.write_str("the image ends before the disk does"),
            errno => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

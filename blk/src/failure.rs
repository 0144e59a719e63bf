//! What goes wrong with an image.

use std::fmt;
use std::io;

/// What the image did not do. The request was answered with [`Status::IoError`](crate::request::Status::IoError).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What was asked for.
    pub(crate) what: &'static str,
    /// First byte.
    pub(crate) offset: u64,
    /// The system's error number; 0 where the image ends before the disk.
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

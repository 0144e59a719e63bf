//! What answers a guest's questions about files.

use ebb_wire::root::{Answer, Frames, Question};
use rustix::io::Errno;
use std::fs::File;

/// Answers a guest's questions about its root, in this process or by asking another.
pub(crate) trait Answers: Send {
    /// Returns the answer to `question`, whose bytes are `asked`, in `buffer`. `place` says where in `ram` a
    /// frame stands.
    fn reply<'a>(
        &mut self,
        question: &Question<'_>,
        asked: &[u8],
        ram: &File,
        place: &dyn Fn(u64) -> Option<u64>,
        buffer: &'a mut [u8],
    ) -> &'a [u8];
}

/// Files that a guest sees below its own.
pub(crate) trait Source: Send {
    /// What stands at a path.
    fn look(&mut self, path: &[u8], follow: bool, answer: &mut Answer<'_>) -> Result<(), Errno>;
    /// Entries of a folder from a number on, as far as there is room; the number with which to go on, 0 at the end. A folder of more
    /// than `most` entries is `EOVERFLOW`.
    fn list(
        &mut self,
        path: &[u8],
        from: u64,
        most: usize,
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno>;
    /// Reads a file into frames of the guest's, whose places in `ram` are told by `place`; how many bytes there were.
    fn read(
        &mut self,
        path: &[u8],
        version: u64,
        from: u64,
        frames: &Frames<'_>,
        ram: &File,
        place: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<u64, Errno>;
}

//! Traits of the objects that answer a guest's questions about files.

use ebb_wire::root::{Answer, Frames, Question};
use rustix::io::Errno;
use std::fs::File;

/// Answers a guest's questions about its root, in this process or by asking a confined one.
pub(crate) trait Answers: Send {
    /// Writes the answer to `question` into `buffer` and returns it, with an error's number inside
    /// if it failed.
    ///
    /// `asked` has the bytes of `question`. `frame_offset` returns the offset in `ram` of the frame
    /// with a guest-physical address, and `None` for an address outside of the guest's memory.
    fn reply<'a>(
        &mut self,
        question: &Question<'_>,
        asked: &[u8],
        ram: &File,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
        buffer: &'a mut [u8],
    ) -> &'a [u8];
}

/// A read-only tree of files that shows through where the guest has no file of its own. Paths have
/// no slash at their beginning.
pub(crate) trait Source: Send {
    /// Adds the attributes of the file at `path` to `answer`. A symbolic link at the end of `path`
    /// is followed only if `follow`.
    ///
    /// # Errors
    /// Fails with `ENOENT` if nothing is there or shown, and with other numbers of the host.
    fn look(&mut self, path: &[u8], follow: bool, answer: &mut Answer<'_>) -> Result<(), Errno>;
    /// Adds the entries of the directory at `path` to `answer`, from position `from` on, as far as
    /// they fit. Returns the position of the next entry, 0 after the last one.
    ///
    /// # Errors
    /// Fails with `EOVERFLOW` if the directory has more than `most` entries, and with `ENOTDIR`.
    fn list(
        &mut self,
        path: &[u8],
        from: u64,
        most: usize,
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno>;
    /// Reads the file at `path` from byte `from` on into `frames` of the guest. Returns the number
    /// of bytes, which is smaller at the file's end.
    ///
    /// `frame_offset` returns the offset of a frame in `ram`.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the file is not of this `version` any more, and with `EFAULT` if a
    /// frame is outside of the guest's memory.
    fn read(
        &mut self,
        path: &[u8],
        version: u64,
        from: u64,
        frames: &Frames<'_>,
        ram: &File,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<u64, Errno>;
}

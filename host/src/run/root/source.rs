//! Traits of the objects that answer a guest's questions about files.

use ebb_wire::root::{Answer, Frames, Question};
use rustix::io::Errno;
use std::fs::File;

/// Answers a guest's questions about its read-only root ([`ebb_wire::root`]), in this process or by
/// asking a confined one.
pub(crate) trait Answers: Send {
    /// Writes the complete answer to `question` into `buffer` and returns it. If the question
    /// fails, the answer has the error's number. `buffer` must have the size of the longest answer.
    ///
    /// `asked` has the encoded bytes of `question`. File contents are written to `ram`, the guest's
    /// memory. `frame_offset` returns the offset in `ram` of the frame with a guest-physical
    /// address, and `None` for an address that is not aligned or outside of the guest's memory.
    fn reply<'a>(
        &mut self,
        question: &Question<'_>,
        asked: &[u8],
        ram: &File,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
        buffer: &'a mut [u8],
    ) -> &'a [u8];
}

/// A read-only tree of files, which the guest sees where it has no file of its own. Paths have no
/// slash at their beginning.
pub(crate) trait Source: Send {
    /// Adds the attributes of the file at `path` to `answer`, with the target if it is a symbolic
    /// link. A link at the end of `path` is followed only if `follow`.
    ///
    /// # Errors
    /// Fails with `ENOENT` if no file is there or shown, with `EOVERFLOW` if the answer has no
    /// space, or with another error number such as `EACCES` or `ELOOP`.
    fn look(&mut self, path: &[u8], follow: bool, answer: &mut Answer<'_>) -> Result<(), Errno>;
    /// Adds the entries of the directory at `path` to `answer`, from position `from` on, as far as
    /// they fit. Returns the position to continue from, or 0 after the last entry.
    ///
    /// # Errors
    /// Fails with `EOVERFLOW` if the directory has more than `most` entries or not even one entry
    /// fits, with `ENOTDIR` for another file, or as [`Self::look`]. Entries may have been added to
    /// `answer` before.
    fn list(
        &mut self,
        path: &[u8],
        from: u64,
        most: usize,
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno>;
    /// Reads the regular file at `path` from the byte offset `from` on into `frames` of the guest,
    /// 4096 bytes each. Returns the number of bytes, which is smaller than asked for only at the
    /// file's end.
    ///
    /// `ram` is the guest's memory. `frame_offset` returns the offset of a frame in it, and `None`
    /// if there is no such frame.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the file does not have this `version` any more, with `EFAULT` if
    /// there is no such frame, with `EINVAL` if the file is not regular, with `EACCES` if the guest
    /// may not read it, or with another error number.
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

//! Transfers from one file to another that do not pass through the program. They move whole frames
//! at a time.

use crate::fs::io::{ByteSink, ByteSource, FrameSource, SliceSource};
use crate::fs::watch::Events;
use crate::fs::{FileKind, OpenFile, OpenFlags};
use crate::process::caller;
use logic::errno::{Errno, SysResult};
use machine::memory::FrameRef;
use machine::sched::{self, work};

/// A sink of bytes that writes to a file.
pub(super) struct FileSink<'a> {
    to: &'a OpenFile,
    offset: &'a mut u64,
    room: usize,
    /// Whether the sink has written some bytes.
    began: bool,
}

impl<'a> FileSink<'a> {
    /// Returns a sink that writes up to `count` bytes to `to`, from `offset` on. Advances `offset`.
    pub(super) fn new(to: &'a OpenFile, offset: &'a mut u64, count: usize) -> Self {
        Self {
            to,
            offset,
            room: count,
            began: false,
        }
    }

    fn write(&mut self, from: &mut dyn ByteSource) -> SysResult {
        // The bytes go to the offset. Calls have refused `O_APPEND`.
        let mut flags = self.to.flags() - OpenFlags::APPEND;
        if self.to.node().kind() == FileKind::Fifo {
            // As on Linux, these bytes are no packets.
            flags -= OpenFlags::DIRECT;
        }
        let result = self.to.file().write(from, self.offset, flags);
        if self.began && result == Err(Errno::BROKEN_PIPE) {
            // As on Linux the signal comes, although the call returns the bytes written before.
            sched::current().add_work(work::BROKEN_PIPE);
            return Err(Errno::EPIPE);
        }
        let moved = result?;
        self.began |= moved > 0;
        self.room -= moved.min(self.room);
        Ok(moved)
    }
}

impl ByteSink for FileSink<'_> {
    fn room(&self) -> usize {
        self.room
    }
    fn put(&mut self, bytes: &[u8]) -> SysResult {
        let count = bytes.len().min(self.room);
        self.write(&mut SliceSource::new(
            &bytes[..count],
            caller::file_size_limit,
        ))
    }
    fn put_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult {
        let count = count.min(self.room);
        self.write(&mut FrameSource::new(
            frame,
            offset,
            count,
            caller::file_size_limit,
        ))
    }
}

/// Moves up to `count` bytes from the offset `read_at` of `from` to the offset `write_at` of `to`,
/// and advances both offsets. Returns the number of bytes.
///
/// # Errors
/// Fails with the errors of reading `from` and of writing `to`.
pub(super) fn at_offsets(
    from: &OpenFile,
    read_at: &mut u64,
    to: &OpenFile,
    write_at: &mut u64,
    count: usize,
) -> SysResult {
    let mut sink = FileSink::new(to, write_at, count);
    let moved = from.file().read(&mut sink, read_at, from.flags())?;
    if moved > 0 {
        // As on Linux, where the write itself reports an event, too.
        to.tell(Events::MODIFY);
        from.tell(Events::ACCESS);
        to.tell(Events::MODIFY);
    }
    Ok(moved)
}

/// Moves up to `count` bytes from the offset `read_at` of `from` to the shared offset of `to`, and
/// advances both offsets. Returns the number of bytes.
///
/// # Errors
/// Fails as [`at_offsets`] does.
pub(super) fn to_shared_offset(
    from: &OpenFile,
    read_at: &mut u64,
    to: &OpenFile,
    count: usize,
) -> SysResult {
    to.with_offset(|write_at| at_offsets(from, read_at, to, write_at, count))
}

//! Calls that move bytes through pipes without copying them to the program: `splice(2)`, `tee(2)`
//! and `vmsplice(2)`.

use super::{Args, transfer};
use crate::fs::io::{MAX_RW_COUNT, UserSink, UserSource, read_segments};
use crate::fs::pipe::pages::Pages;
use crate::fs::pipe::splice::Carry;
use crate::fs::pipe::{Pipe, PipeEnd};
use crate::fs::watch::Events;
use crate::fs::{FileKind, OpenFile, OpenFlags};
use crate::process::caller;
use logic::errno::{Errno, SysResult};
use machine::uaccess::UserPtr;

/// `SPLICE_F_NONBLOCK`: do not wait for the pipe.
const NONBLOCK: u32 = 2;
/// `SPLICE_F_MOVE`, `NONBLOCK`, `MORE` and `GIFT`; the others are only hints.
const KNOWN: u32 = 0xf;

fn pipe_of(file: &OpenFile) -> Option<&Pipe> {
    file.file().downcast::<PipeEnd>().map(PipeEnd::pipe)
}

/// Checks the flags of a call, and returns whether it must not wait. Fails with `EINVAL` for
/// unknown flags.
fn waits_not(flags: u32) -> Result<bool, Errno> {
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(flags & NONBLOCK != 0)
}

/// Checks that a file has bytes that can be spliced. Fails with `EINVAL` for directories, and for
/// files such as eventfds, whose bytes are records.
fn has_bytes(file: &OpenFile) -> Result<(), Errno> {
    match file.node().kind() {
        FileKind::Directory | FileKind::Anonymous => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// The offset at which a file is read or written: the shared one, or one that the program passes
/// and gets back.
struct Position<'a> {
    file: &'a OpenFile,
    /// The address of the offset that the program passed, and its value. `None` for the shared
    /// offset.
    named: Option<(UserPtr<u64>, u64)>,
}

impl<'a> Position<'a> {
    fn new(file: &'a OpenFile, address: u64, count: usize) -> Result<Self, Errno> {
        let mut named = None;
        if address != 0 {
            let at = UserPtr::<u64>::new(address).read()?;
            if !file.is_seekable() {
                return Err(Errno::EINVAL);
            }
            named = Some((UserPtr::new(address), at));
        }
        let at = named.as_ref().map_or(0, |(_, at)| *at);
        let end = at.checked_add(count as u64);
        if at > i64::MAX as u64 || end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::EINVAL);
        }
        Ok(Self { file, named })
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut u64) -> R) -> R {
        match &mut self.named {
            Some((_, at)) => call(at),
            None => self.file.with_offset(call),
        }
    }

    fn write_back(self) -> Result<(), Errno> {
        match self.named {
            Some((place, at)) => place.write(&at),
            None => Ok(()),
        }
    }
}

/// `splice(2)`.
pub fn splice(a: &Args) -> SysResult {
    let count = a.size(4);
    if count == 0 {
        return Ok(0);
    }
    let nonblocking = waits_not(a.uint(5))?;
    let (from, to) = (caller::file(a.int(0))?, caller::file(a.int(2))?);
    let (read_at, write_at) = (a.addr(1), a.addr(3));
    let (source, sink) = (pipe_of(&from), pipe_of(&to));
    if source.is_some() && read_at != 0 || sink.is_some() && write_at != 0 {
        return Err(Errno::ESPIPE);
    }
    for address in [write_at, read_at] {
        if address != 0 {
            UserPtr::<u64>::new(address).read()?;
        }
    }
    if !from.flags().readable() || !to.flags().writable() {
        return Err(Errno::EBADF);
    }
    if a.long(4) < 0 && sink.is_none() {
        return Err(Errno::EINVAL);
    }
    if sink.is_none() {
        super::file::forget_set_ids(&to);
    }
    let count = count.min(MAX_RW_COUNT);
    match (source, sink) {
        (Some(source), Some(sink)) => {
            carry(&from, source, &to, sink, count, Carry::Move, nonblocking)
        }
        (Some(source), None) => {
            let mut position = Position::new(&to, write_at, count)?;
            let nonblocking = nonblocking || from.flags().nonblocking();
            let moved = to_file(source, &mut position, count, nonblocking)?;
            position.write_back()?;
            Ok(moved)
        }
        (None, Some(sink)) => {
            let mut position = Position::new(&from, read_at, count)?;
            let never_waits = nonblocking || to.flags().nonblocking();
            let moved = from_file(&mut position, sink, count, nonblocking, never_waits)?;
            position.write_back()?;
            Ok(moved)
        }
        (None, None) => Err(Errno::EINVAL),
    }
}

fn carry(
    from: &OpenFile,
    source: &Pipe,
    to: &OpenFile,
    sink: &Pipe,
    count: usize,
    how: Carry,
    nonblocking: bool,
) -> SysResult {
    if core::ptr::eq(source, sink) {
        return Err(Errno::EINVAL);
    }
    let either = from.flags().nonblocking() || to.flags().nonblocking();
    source.carry(sink, count, how, nonblocking || either)
}

/// Waits for bytes in the pipe `source` and moves up to `count` of them to a file. Returns the
/// number of bytes; 0 if no writer is left. Fails with `EINVAL` for a file in append mode, with
/// `EAGAIN` instead of waiting if `nonblocking`, with `ERESTARTSYS` at a signal, and with the error
/// of the file.
fn to_file(
    source: &Pipe,
    position: &mut Position<'_>,
    count: usize,
    nonblocking: bool,
) -> SysResult {
    let to = position.file;
    if to.flags().contains(OpenFlags::APPEND) {
        return Err(Errno::EINVAL);
    }
    has_bytes(to)?;
    loop {
        // The shared offset is not locked during the wait, since other calls need it.
        if !source.wait_for_bytes(nonblocking)? {
            return Ok(0);
        }
        let moved = position.with(|at| {
            let mut sink = transfer::FileSink::new(to, at, count);
            source.drain_to(&mut sink)
        })?;
        if moved > 0 {
            to.tell(Events::MODIFY);
            return Ok(moved);
        }
        // Another reader was faster.
    }
}

/// Moves up to `count` bytes of a file to the pipe `sink`, at most the room in the pipe. Waits for
/// room unless `pipe_waits_not`, and for bytes of a socket unless `nonblocking`. Returns the number
/// of bytes. Fails as `Pipe::reserve`, and with the error of the file.
fn from_file(
    position: &mut Position<'_>,
    sink: &Pipe,
    count: usize,
    nonblocking: bool,
    pipe_waits_not: bool,
) -> SysResult {
    let from = position.file;
    // Reserved before the read, since bytes of a stream cannot be put back.
    let room = sink.reserve(count, pipe_waits_not)?;
    has_bytes(from)?;
    let mut flags = from.flags();
    if nonblocking && from.node().kind() == FileKind::Socket {
        flags |= OpenFlags::NONBLOCK;
    }
    let mut pages = Pages::new(room.bytes());
    let read = position.with(|at| from.file().read(&mut pages, at, flags));
    let moved = pages.left();
    if moved == 0 || read.is_err() && from.is_seekable() {
        // The bytes can be read again from a seekable file.
        return read;
    }
    room.fill(&mut pages);
    Ok(moved)
}

/// `tee(2)`.
pub fn tee(a: &Args) -> SysResult {
    let nonblocking = waits_not(a.uint(3))?;
    let count = a.size(2);
    if count == 0 {
        return Ok(0);
    }
    let (from, to) = (caller::file(a.int(0))?, caller::file(a.int(1))?);
    if !from.flags().readable() || !to.flags().writable() {
        return Err(Errno::EBADF);
    }
    let (Some(source), Some(sink)) = (pipe_of(&from), pipe_of(&to)) else {
        return Err(Errno::EINVAL);
    };
    carry(&from, source, &to, sink, count, Carry::Copy, nonblocking)
}

/// `vmsplice(2)`. Copies the bytes, so that the program may reuse its memory at once.
pub fn vmsplice(a: &Args) -> SysResult {
    let nonblocking = waits_not(a.uint(3))?;
    let file = caller::file(a.int(0))?;
    let flags = file.flags();
    if !flags.readable() && !flags.writable() {
        return Err(Errno::EBADF);
    }
    let segments = read_segments(a.addr(1), a.0[2])?;
    if segments.iter().all(|segment| segment.length == 0) {
        return Ok(0);
    }
    let pipe = pipe_of(&file).ok_or(Errno::EBADF)?;
    if flags.writable() {
        return pipe.take_some(
            &mut UserSource::new(&segments, caller::file_size_limit),
            nonblocking,
        );
    }
    // As on Linux, packets are bytes like others here.
    pipe.read(&mut UserSink::new(&segments), nonblocking, false)
}

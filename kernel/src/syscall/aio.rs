//! Linux's native asynchronous input and output (`io_setup(2)` and its family).
//!
//! A context's number is the address of a page in the program's memory, as on Linux. libaio looks
//! there for a ring of events that it may read by itself; the page has zeros, so it always asks the
//! kernel.

use super::Args;
use super::failure::signalled;
use super::file::{rwf, source};
use super::poll::{deadline, read_timespec};
use super::record::{ControlBlock, IoEvent};
use crate::fs::aio::{self, Context, Event, Room};
use crate::fs::eventfd::EventFile;
use crate::fs::io::{MAX_RW_COUNT, Segment, UserSink, check_range, check_segments, read_segments};
use crate::fs::{FileKind, OpenFile, OpenFlags, PollMask};
use crate::process::{self, caller, signal};
use crate::vm::{AddressSpace, Backing, MapFlags, Prot};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::arch::clock::Nanos;
use machine::memory::PAGE_SIZE;
use machine::uaccess::UserPtr;

const PAGE: u64 = PAGE_SIZE as u64;

/// Operations of a control block (`IOCB_CMD_*`).
mod operation {
    /// `IOCB_CMD_PREAD`.
    pub(super) const READ: u16 = 0;
    /// `IOCB_CMD_PWRITE`.
    pub(super) const WRITE: u16 = 1;
    /// `IOCB_CMD_FSYNC`.
    pub(super) const SYNC: u16 = 2;
    /// `IOCB_CMD_FDSYNC`.
    pub(super) const DATA_SYNC: u16 = 3;
    /// `IOCB_CMD_POLL`.
    pub(super) const POLL: u16 = 5;
    /// `IOCB_CMD_PREADV`.
    pub(super) const READ_VECTOR: u16 = 7;
    /// `IOCB_CMD_PWRITEV`.
    pub(super) const WRITE_VECTOR: u16 = 8;
}

/// `IOCB_FLAG_RESFD`: the end of the request signals an eventfd.
const SIGNALS: u32 = 1;
/// `IOCB_FLAG_IOPRIO`: the request has a priority.
const HAS_PRIORITY: u32 = 2;

fn space() -> Result<Arc<AddressSpace>, Errno> {
    process::current().vm().ok_or(Errno::EINVAL)
}

/// Returns the context whose number is in argument 0. Fails with `EINVAL` if there is none.
fn context(a: &Args) -> Result<Arc<Context>, Errno> {
    aio::find(&*space()?, a.addr(0))
}

/// Returns the most requests that a context for `asked` requests may have outstanding: as on Linux,
/// twice that number, and 2 more. Linux has still more room, up to the end of a page of its ring,
/// which would make the memory of all contexts a multiple of `fs.aio-max-nr`.
const fn most_outstanding(asked: u64) -> u64 {
    asked * 2 + 2
}

/// `io_setup(2)`.
pub fn io_setup(a: &Args) -> SysResult {
    /// More would not fit in Linux's ring.
    const TOO_MANY: u64 = 0x1000_0000 / 32;
    let (asked, place) = (u64::from(a.uint(0)), UserPtr::<u64>::new(a.addr(1)));
    if place.read()? != 0 || asked == 0 || asked > TOO_MANY {
        return Err(Errno::EINVAL);
    }
    if asked > aio::LIMIT.load(Ordering::Relaxed).saturating_mul(2) {
        return Err(Errno::EAGAIN);
    }
    let most = usize::try_from(most_outstanding(asked)).map_err(|_| Errno::EINVAL)?;
    let space = space()?;
    let (prot, flags) = (Prot::READ | Prot::WRITE, MapFlags::empty());
    let number = space.map(None, PAGE, prot, flags, Backing::Anonymous)?;
    let made = aio::make(&space, number, asked, most);
    if let Err(error) = made {
        space.unmap(number, PAGE)?;
        return Err(error);
    }
    if let Err(error) = place.write(&number) {
        aio::destroy(&space, number)?;
        space.unmap(number, PAGE)?;
        return Err(error);
    }
    Ok(0)
}

/// `io_destroy(2)`.
pub fn io_destroy(a: &Args) -> SysResult {
    let space = space()?;
    aio::destroy(&space, a.addr(0))?;
    space.unmap(a.addr(0), PAGE)?;
    Ok(0)
}

/// `io_submit(2)`.
pub fn io_submit(a: &Args) -> SysResult {
    let count = usize::try_from(a.long(1)).map_err(|_| Errno::EINVAL)?;
    let context = context(a)?;
    let count = count.min(context.most());
    for done in 0..count {
        let at = a.addr(2).wrapping_add(done as u64 * 8);
        let submitted = UserPtr::<u64>::new(at)
            .read()
            .and_then(|block| submit(&context, block));
        match submitted {
            Ok(()) => machine::sched::cond_resched(),
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
        }
    }
    Ok(count)
}

/// Submits the request whose control block is at `address`. Fails as `io_submit(2)` does for one
/// request.
fn submit(context: &Arc<Context>, address: u64) -> Result<(), Errno> {
    let block = UserPtr::<ControlBlock>::new(address).read()?;
    if block.reserved != 0 || block.count > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let room = context.room()?;
    let file = caller::file(block.fd)?;
    let signal = if block.flags & SIGNALS != 0 {
        let event = caller::file(block.signal_fd)?;
        event.file().downcast::<EventFile>().ok_or(Errno::EINVAL)?;
        Some(event)
    } else {
        None
    };
    // As on Linux, the kernel writes a key here, which `io_cancel` checks.
    UserPtr::<u32>::new(address.wrapping_add(8)).write(&0)?;
    let request = Request {
        block: &block,
        file,
        signal,
        address,
    };
    match block.opcode {
        operation::READ | operation::READ_VECTOR => request.read(room),
        operation::WRITE | operation::WRITE_VECTOR => request.write(room),
        operation::SYNC | operation::DATA_SYNC => request.sync(room),
        operation::POLL => request.poll(room),
        _ => Err(Errno::EINVAL),
    }
}

/// A request that is being submitted.
struct Request<'a> {
    block: &'a ControlBlock,
    file: Arc<OpenFile>,
    signal: Option<Arc<OpenFile>>,
    /// The address of the control block.
    address: u64,
}

impl Request<'_> {
    /// Returns the program's memory that the request reads from or writes to. Fails with `EFAULT`
    /// for a bad address, with `EINVAL` for a bad number of segments or a bad length, and with
    /// `ENOMEM`.
    fn segments(&self) -> Result<Vec<Segment>, Errno> {
        let block = self.block;
        if matches!(
            block.opcode,
            operation::READ_VECTOR | operation::WRITE_VECTOR
        ) {
            let segments = read_segments(block.buffer, block.count)?;
            check_segments(&segments)?;
            return Ok(segments);
        }
        let segment = Segment {
            address: block.buffer,
            length: usize::try_from(block.count).map_err(|_| Errno::EINVAL)?,
        };
        check_segments(&[segment])?;
        Ok(vec![Segment {
            length: segment.length.min(MAX_RW_COUNT),
            ..segment
        }])
    }

    /// Returns the offset in the file, or `None` if the file has no offsets.
    fn offset(&self) -> Option<u64> {
        self.file
            .is_seekable()
            .then_some(self.block.offset.cast_unsigned())
    }

    /// Checks the priority and the flags of the request. `writing` says whether the request writes.
    /// Returns the flags that it adds to those of the file. Fails with `EPERM` or `EINVAL` for the
    /// priority, and with `EOPNOTSUPP` for flags that are unknown or that the file cannot respect.
    fn more(&self, writing: bool) -> Result<OpenFlags, Errno> {
        /// The class that needs a capability. The classes are 1 to 3.
        const REAL_TIME: u16 = 1;
        let class = self.block.priority >> 13;
        if self.block.flags & HAS_PRIORITY != 0 {
            match class {
                REAL_TIME if !caller::can(Capabilities::SYS_ADMIN) => {
                    caller::need(Capabilities::SYS_NICE)?;
                }
                0 if self.block.priority & 0x1fff != 0 => return Err(Errno::EINVAL),
                0..=3 => {}
                _ => return Err(Errno::EINVAL),
            }
        }
        let flags = self.block.rw_flags;
        let waits = flags & rwf::NOWAIT != 0 && !self.file.file().never_waits(writing);
        if flags & !rwf::KNOWN != 0 || waits {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut more = OpenFlags::empty();
        more.set(OpenFlags::NONBLOCK, flags & rwf::NOWAIT != 0);
        more.set(OpenFlags::APPEND, flags & rwf::APPEND != 0);
        Ok(more)
    }

    /// Checks that a file can have the range of the request. This holds for files without offsets,
    /// too. Fails with `EINVAL` otherwise.
    fn check_range(&self, segments: &[Segment]) -> Result<(), Errno> {
        let offset = u64::try_from(self.block.offset).map_err(|_| Errno::EINVAL)?;
        let count = segments
            .iter()
            .fold(0_usize, |sum, piece| sum.saturating_add(piece.length));
        check_range(offset, count.min(MAX_RW_COUNT))
    }

    /// Checks that the file has bytes to read or write. Fails with `EINVAL` for a directory.
    fn check_kind(&self) -> Result<(), Errno> {
        if self.file.is_directory() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    fn read(self, room: Room<'_>) -> Result<(), Errno> {
        let more = self.more(false)?;
        if !self.file.flags().readable() {
            return Err(Errno::EBADF);
        }
        self.check_kind()?;
        let segments = self.segments()?;
        self.check_range(&segments)?;
        let mut to = UserSink::new(&segments);
        let result = self.file.read_as(self.offset(), &mut to, more);
        self.complete(room, result);
        Ok(())
    }

    fn write(self, room: Room<'_>) -> Result<(), Errno> {
        let more = self.more(true)?;
        if !self.file.flags().writable() {
            return Err(Errno::EBADF);
        }
        self.check_kind()?;
        let segments = self.segments()?;
        self.check_range(&segments)?;
        let mut from = source(&self.file, &segments);
        let mut result = self.file.write_as(self.offset(), &mut from, more);
        if result.is_ok()
            && self.block.rw_flags & (rwf::DSYNC | rwf::SYNC) != 0
            && let Err(error) = self.file.file().sync()
        {
            result = Err(error);
        }
        self.complete(room, result);
        Ok(())
    }

    fn sync(self, room: Room<'_>) -> Result<(), Errno> {
        let block = self.block;
        if block.buffer != 0 || block.offset != 0 || block.count != 0 || block.rw_flags != 0 {
            return Err(Errno::EINVAL);
        }
        match self.file.node().kind() {
            FileKind::Regular | FileKind::Directory | FileKind::Block => {}
            _ => return Err(Errno::EINVAL),
        }
        let result = self.file.file().sync().map(|()| 0);
        self.complete(room, result);
        Ok(())
    }

    fn poll(self, room: Room<'_>) -> Result<(), Errno> {
        let block = self.block;
        let events = u16::try_from(block.buffer).map_err(|_| Errno::EINVAL)?;
        if block.offset != 0 || block.count != 0 || block.rw_flags != 0 {
            return Err(Errno::EINVAL);
        }
        let wanted = PollMask::from_bits_truncate(events.into()) | PollMask::ALWAYS;
        room.poll(self.file, wanted, [self.address, block.data], self.signal)
    }

    /// Adds the event of the ended request to the context, and signals the eventfd of the request.
    fn complete(self, room: Room<'_>, result: SysResult) {
        let result = match result {
            Ok(count) => i64::try_from(count).unwrap_or(i64::MAX),
            // The kernel does not make the request again.
            Err(
                Errno::ERESTARTSYS
                | Errno::ERESTARTNOINTR
                | Errno::ERESTARTNOHAND
                | Errno::ERESTART_RESTARTBLOCK,
            ) => Errno::EINTR.to_return().cast_signed(),
            Err(error) => signalled(error).to_return().cast_signed(),
        };
        room.complete(Event {
            data: self.block.data,
            object: self.address,
            result,
        });
        aio::tell(self.signal.as_deref());
    }
}

/// `io_cancel(2)`. Ends a waiting poll, whose event then has the result 0. Other requests cannot be
/// cancelled, since they complete in `io_submit`.
///
/// # Errors
/// Fails with `EINPROGRESS` if the poll was cancelled, as on Linux. Fails with `EINVAL` if the
/// control block has no waiting poll or there is no such context, and with `EFAULT`.
pub fn io_cancel(a: &Args) -> SysResult {
    let key = UserPtr::<u32>::new(a.addr(1).wrapping_add(8)).read()?;
    if key != 0 {
        return Err(Errno::EINVAL);
    }
    context(a)?.cancel(a.addr(1))?;
    Err(Errno::EINPROGRESS)
}

/// Waits for events until `until` and writes them to the program. Returns their number. `None`
/// waits without a deadline. Fails with `EINVAL` for bad arguments, with `EFAULT` for a bad
/// address, and with the error of the wait.
fn take(a: &Args, until: Option<Nanos>) -> SysResult {
    let context = context(a)?;
    let [least, most] = [a.long(1), a.long(2)];
    let (Ok(least), Ok(most)) = (usize::try_from(least), usize::try_from(most)) else {
        return Err(Errno::EINVAL);
    };
    if least > most {
        return Err(Errno::EINVAL);
    }
    context.take([least, most], until, &mut |before, events| {
        for (at, event) in (before as u64..).zip(events) {
            let address = a.addr(3).wrapping_add(at * size_of::<IoEvent>() as u64);
            UserPtr::new(address).write(&IoEvent {
                data: event.data,
                object: event.object,
                result: event.result,
                second_result: 0,
            })?;
        }
        Ok(())
    })
}

/// `io_getevents(2)`.
pub fn io_getevents(a: &Args) -> SysResult {
    let until = read_timespec(a.addr(4))?.map(deadline);
    take(a, until)
}

/// `io_pgetevents(2)`.
pub fn io_pgetevents(a: &Args) -> SysResult {
    let until = read_timespec(a.addr(4))?.map(deadline);
    if a.addr(5) != 0 {
        let [mask, size] = UserPtr::<[u64; 2]>::new(a.addr(5)).read()?;
        if mask != 0 {
            let size = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
            signal::block_for_call(mask, size)?;
        }
    }
    take(a, until).map_err(|error| match error {
        Errno::EINTR => Errno::ERESTARTNOHAND,
        other => other,
    })
}

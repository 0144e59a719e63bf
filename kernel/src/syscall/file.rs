//! Calls on open files and their data.

use super::at;
use super::record::OpenHow;
use super::{Args, extensible, transfer};
use crate::fs::file::Seeks;
use crate::fs::io::{
    MAX_RW_COUNT, Segment, UserSink, UserSource, check_range, check_segments, read_segments,
};
use crate::fs::lookup::{self, LastLink};
use crate::fs::node::{Node, NodeRef};
use crate::fs::walk_rules::Rules;
use crate::fs::watch::Events;
use crate::fs::{self, FileKind, OpenFile, OpenFlags, Place, devices, permission};
use crate::process::{self, caller};
use crate::vm::hugetlb;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{
    AT_FDCWD, FALLOC_FL_PUNCH_HOLE, MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC, MFD_HUGE_MASK,
    MFD_HUGE_SHIFT, MFD_HUGETLB, MFD_NOEXEC_SEAL, SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE,
    SEEK_SET, SYNC_FILE_RANGE_WRITE_AND_WAIT,
};
use logic::credentials::Wanted;
use logic::credentials::attributes::Beginning;
use logic::errno::{Errno, SysResult};
use machine::uaccess::{self, UserPtr};

/// Returns the file behind the descriptor in argument 0. The most frequent calls use
/// [`caller::file`] themselves, so that it is inlined there. Fails as [`caller::file`] does.
#[inline(never)]
fn file(a: &Args) -> Result<Arc<OpenFile>, Errno> {
    caller::file(a.int(0))
}

/// Returns a source of the bytes in the program's `segments`, to be written to `file`. Before that,
/// removes the file's rights as [`forget_set_ids`] does, unless all segments are empty or the file
/// is not open for writing.
#[inline]
pub(super) fn source<'a>(file: &OpenFile, segments: &'a [Segment]) -> UserSource<'a> {
    // A file without offsets is not a regular file, and only those have such rights.
    if file.is_seekable()
        && file.flags().writable()
        && segments.iter().any(|segment| segment.length != 0)
    {
        forget_set_ids(file);
    }
    UserSource::new(segments, caller::file_size_limit)
}

/// Removes the file capabilities of a regular file that is about to be written, and clears its
/// set-id bits unless the caller has `CAP_FSETID`. Does nothing for other files.
#[inline(never)]
pub(super) fn forget_set_ids(file: &OpenFile) {
    caller::with_credentials(|who| lookup::forget_set_ids(who, &**file.node()));
}

/// The direction of a transfer.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

/// Checks that the file is open for `way`. Fails with `EBADF` otherwise.
fn check_way(file: &OpenFile, way: Way) -> Result<(), Errno> {
    let flags = file.flags();
    let allowed = match way {
        Way::Read => flags.readable(),
        Way::Write => flags.writable(),
    };
    if allowed { Ok(()) } else { Err(Errno::EBADF) }
}

/// Returns the buffer in arguments 1 and 2, cut to the most bytes of a call. Fails with `EFAULT` if
/// no program can have it.
fn buffer(a: &Args, file: &OpenFile, way: Way) -> Result<[Segment; 1], Errno> {
    let segment = Segment {
        address: a.addr(1),
        length: a.size(2),
    };
    if a.long(2) < 0 || check_segments(&[segment]).is_err() {
        return Err(bad_buffer(file, way));
    }
    Ok([Segment {
        length: segment.length.min(MAX_RW_COUNT),
        ..segment
    }])
}

/// Returns the error for a buffer that no program can have: `EFAULT`, or `EBADF` if the file is not
/// open for `way`.
#[cold]
fn bad_buffer(file: &OpenFile, way: Way) -> Errno {
    check_way(file, way).err().unwrap_or(Errno::EFAULT)
}

/// Returns the segments of memory that arguments 1 and 2 name. Fails as [`read_segments`] and
/// [`check_segments`] do.
fn pieces(a: &Args) -> Result<Vec<Segment>, Errno> {
    let segments = read_segments(a.addr(1), a.0[2])?;
    check_segments(&segments)?;
    Ok(segments)
}

/// Returns the file offset in argument `i`. Fails with `EINVAL` if it is negative.
fn offset(a: &Args, i: usize) -> Result<u64, Errno> {
    u64::try_from(a.long(i)).map_err(|_| Errno::EINVAL)
}

/// Counts a call that reads for `/proc/PID/io`, also if it failed, and returns `result`, the call's
/// result.
#[inline]
fn counted_read(result: SysResult) -> SysResult {
    let bytes = result.unwrap_or(0);
    process::current().transfers().count_read(bytes);
    result
}

/// Counts a call that writes for `/proc/PID/io`, also if it failed, and returns `result`, the
/// call's result.
#[inline]
fn counted_write(result: SysResult) -> SysResult {
    let bytes = result.unwrap_or(0);
    process::current().transfers().count_write(bytes);
    result
}

/// `read(2)`.
pub fn read(a: &Args) -> SysResult {
    let file = caller::file(a.int(0))?;
    counted_read(file.read(&mut UserSink::new(&buffer(a, &file, Way::Read)?)))
}

/// `write(2)`.
pub fn write(a: &Args) -> SysResult {
    let file = caller::file(a.int(0))?;
    let segments = buffer(a, &file, Way::Write)?;
    counted_write(file.write(&mut source(&file, &segments)))
}

/// `pread64(2)`.
pub fn pread64(a: &Args) -> SysResult {
    let file = caller::file(a.int(0))?;
    let offset = offset(a, 3)?;
    counted_read(file.read_at(offset, &mut UserSink::new(&buffer(a, &file, Way::Read)?)))
}

/// `pwrite64(2)`.
pub fn pwrite64(a: &Args) -> SysResult {
    let file = caller::file(a.int(0))?;
    let offset = offset(a, 3)?;
    let segments = buffer(a, &file, Way::Write)?;
    counted_write(file.write_at(offset, &mut source(&file, &segments)))
}

/// `readv(2)`.
pub fn readv(a: &Args) -> SysResult {
    let file = file(a)?;
    counted_read(file.read(&mut UserSink::new(&pieces(a)?)))
}

/// `writev(2)`.
pub fn writev(a: &Args) -> SysResult {
    let file = file(a)?;
    let segments = pieces(a)?;
    counted_write(file.write(&mut source(&file, &segments)))
}

/// `preadv(2)`.
pub fn preadv(a: &Args) -> SysResult {
    let file = file(a)?;
    let segments = pieces(a)?;
    counted_read(file.read_at(offset(a, 3)?, &mut UserSink::new(&segments)))
}

/// `pwritev(2)`.
pub fn pwritev(a: &Args) -> SysResult {
    let file = file(a)?;
    let segments = pieces(a)?;
    counted_write(file.write_at(offset(a, 3)?, &mut source(&file, &segments)))
}

/// Flags of `preadv2` and `pwritev2`.
pub(super) mod rwf {
    /// `RWF_HIPRI`: has no effect.
    pub const HIPRI: u32 = 1;
    /// `RWF_DSYNC`: makes the written bytes stable.
    pub const DSYNC: u32 = 1 << 1;
    /// `RWF_SYNC`: makes the written bytes and the attributes stable.
    pub const SYNC: u32 = 1 << 2;
    /// `RWF_NOWAIT`: fails instead of waiting.
    pub const NOWAIT: u32 = 1 << 3;
    /// `RWF_APPEND`: writes at the end of the file.
    pub const APPEND: u32 = 1 << 4;
    /// The supported flags.
    pub const KNOWN: u32 = HIPRI | DSYNC | SYNC | NOWAIT | APPEND;
}

/// The arguments of `preadv2` and `pwritev2`.
struct Vectors {
    file: Arc<OpenFile>,
    segments: Vec<Segment>,
    /// The offset of the transfer. `None` for the shared offset.
    offset: Option<u64>,
    /// The flags that the call adds to those of the file.
    more: OpenFlags,
}

/// Reads the arguments of `preadv2` or, if `writing`, of `pwritev2`, and checks them in Linux's
/// order. Returns `None` if there are no bytes to transfer. Fails as `preadv2(2)` and `pwritev2(2)`
/// do.
fn vectors(a: &Args, writing: bool) -> Result<Option<Vectors>, Errno> {
    let offset = match a.long(3) {
        -1 => None,
        at => Some(u64::try_from(at).map_err(|_| Errno::EINVAL)?),
    };
    let file = file(a)?;
    if offset.is_some() && !file.is_seekable() {
        return Err(Errno::ESPIPE);
    }
    let segments = pieces(a)?;
    check_way(&file, if writing { Way::Write } else { Way::Read })?;
    if segments.iter().all(|segment| segment.length == 0) {
        return Ok(None);
    }
    let flags = a.uint(5);
    let waits = flags & rwf::NOWAIT != 0 && !file.file().never_waits(writing);
    if flags & !rwf::KNOWN != 0 || waits {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut more = OpenFlags::empty();
    more.set(OpenFlags::NONBLOCK, flags & rwf::NOWAIT != 0);
    more.set(OpenFlags::APPEND, flags & rwf::APPEND != 0);
    Ok(Some(Vectors {
        file,
        segments,
        offset,
        more,
    }))
}

/// `preadv2(2)`.
pub fn preadv2(a: &Args) -> SysResult {
    let Some(told) = vectors(a, false)? else {
        return Ok(0);
    };
    let mut to = UserSink::new(&told.segments);
    counted_read(told.file.read_as(told.offset, &mut to, told.more))
}

/// `pwritev2(2)`.
pub fn pwritev2(a: &Args) -> SysResult {
    let Some(told) = vectors(a, true)? else {
        return Ok(0);
    };
    let mut from = source(&told.file, &told.segments);
    let written = counted_write(told.file.write_as(told.offset, &mut from, told.more))?;
    if a.uint(5) & (rwf::DSYNC | rwf::SYNC) != 0 {
        told.file.file().sync()?;
    }
    Ok(written)
}

fn open_common(fd: i32, path: u64, flags: u64, mode: u32) -> SysResult {
    let flags = OpenFlags::from_user(flags).completed();
    let path = at::read_full_path(path)?;
    // Checked before the file is created: a call that fails must not leave a file behind.
    caller::with_files(|files| files.check_room(caller::descriptor_limit()))?;
    let start = at::start(fd, &path)?;
    let context = caller::context();
    let file =
        caller::with_credentials(|who| lookup::open_at(&context, who, start, &path, flags, mode))?;
    caller::install(file, flags.contains(OpenFlags::CLOSE_ON_EXEC))
}

/// `open(2)`.
pub fn open(a: &Args) -> SysResult {
    open_common(AT_FDCWD, a.addr(0), a.0[1], a.uint(2))
}

/// `openat(2)`.
pub fn openat(a: &Args) -> SysResult {
    open_common(a.int(0), a.addr(1), a.0[2], a.uint(3))
}

/// Bits of `openat2`'s `resolve`.
mod resolve {
    /// `RESOLVE_NO_XDEV`: cross no mount.
    pub(super) const NO_XDEV: u64 = 1;
    /// `RESOLVE_NO_MAGICLINKS`: follow no magic link of `/proc`, such as `/proc/self/exe`.
    pub(super) const NO_MAGICLINKS: u64 = 2;
    /// `RESOLVE_NO_SYMLINKS`: follow no symbolic link.
    pub(super) const NO_SYMLINKS: u64 = 4;
    /// `RESOLVE_BENEATH`: stay below the start of the walk.
    pub(super) const BENEATH: u64 = 8;
    /// `RESOLVE_IN_ROOT`: take the start of the walk for the root.
    pub(super) const IN_ROOT: u64 = 16;
    /// `RESOLVE_CACHED`: refused for a call that creates or truncates, and without effect
    /// otherwise.
    pub(super) const CACHED: u64 = 32;
    /// The supported bits.
    pub(super) const KNOWN: u64 =
        NO_XDEV | NO_MAGICLINKS | NO_SYMLINKS | BENEATH | IN_ROOT | CACHED;
}

/// Returns the flags, the mode and the rules of the walk in `openat2`'s structure.
///
/// # Errors
/// Fails with `EINVAL` if bits are unknown or contradict each other, and with `EAGAIN` if
/// `RESOLVE_CACHED` is set for a call that creates or truncates a file.
fn rules(how: &OpenHow) -> Result<(OpenFlags, u32, Rules), Errno> {
    let bits = u32::try_from(how.flags).map_err(|_| Errno::EINVAL)?;
    let flags = OpenFlags::from_bits(bits).ok_or(Errno::EINVAL)?;
    let has = |bit: u64| how.resolve & bit != 0;
    let makes = flags.contains(OpenFlags::CREATE) || flags.contains(OpenFlags::TEMPORARY);
    let modes = if makes { 0o7777 } else { 0 };
    if how.resolve & !resolve::KNOWN != 0
        || has(resolve::BENEATH) && has(resolve::IN_ROOT)
        || how.mode & !modes != 0
        || flags.contains(OpenFlags::PATH) && !OpenFlags::OF_PLACE.contains(flags)
    {
        return Err(Errno::EINVAL);
    }
    if has(resolve::CACHED) && (makes || flags.contains(OpenFlags::TRUNCATE)) {
        return Err(Errno::EAGAIN);
    }
    let rules = Rules {
        beneath: has(resolve::BENEATH),
        in_root: has(resolve::IN_ROOT),
        no_links: has(resolve::NO_SYMLINKS),
        no_jumps: has(resolve::NO_MAGICLINKS) || has(resolve::NO_SYMLINKS),
        no_crossing: has(resolve::NO_XDEV),
    };
    let mode = u32::try_from(how.mode).map_err(|_| Errno::EINVAL)?;
    Ok((flags, mode, rules))
}

/// `openat2(2)`.
pub fn openat2(a: &Args) -> SysResult {
    let how: OpenHow = extensible::read(a.addr(2), a.size(3), size_of::<OpenHow>())?;
    let (flags, mode, rules) = rules(&how)?;
    let path = at::read_full_path(a.addr(1))?;
    caller::with_files(|files| files.check_room(caller::descriptor_limit()))?;
    let start = if rules.in_root {
        // An absolute path starts at the descriptor's directory, too.
        at::start(a.int(0), b"")?
    } else {
        at::start(a.int(0), &path)?
    };
    let context = caller::context();
    let flags = flags.completed();
    let file = caller::with_credentials(|who| {
        lookup::open_by(&context, who, start, &path, flags, mode, Some(&rules))
    })?;
    caller::install(file, flags.contains(OpenFlags::CLOSE_ON_EXEC))
}

/// `creat(2)`.
pub fn creat(a: &Args) -> SysResult {
    let flags = OpenFlags::CREATE | OpenFlags::WRITE_ONLY | OpenFlags::TRUNCATE;
    open_common(AT_FDCWD, a.addr(0), flags.bits().into(), a.uint(1))
}

/// `lseek(2)`.
pub fn lseek(a: &Args) -> SysResult {
    let file = file(a)?;
    if !file.is_seekable() {
        return Err(Errno::ESPIPE);
    }
    let (distance, whence) = (a.long(1), a.uint(2));
    let position = file.with_offset(|offset| {
        if whence <= SEEK_HOLE && file.seeks() == Seeks::ToStart {
            *offset = 0;
            return Ok(0);
        }
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CUR => *offset,
            // As on Linux: directories that the kernel makes end at their beginning.
            SEEK_END if file.is_directory() => match file.node().id().device {
                devices::PROC | devices::SYS => 0,
                _ => return Err(Errno::EINVAL),
            },
            SEEK_END if !file.file().has_end() => return Err(Errno::EINVAL),
            SEEK_END => file.file().size().unwrap_or_else(|| file.metadata().size),
            SEEK_DATA | SEEK_HOLE => {
                let from = u64::try_from(distance).map_err(|_| Errno::ENXIO)?;
                *offset = file.file().seek_data(from, whence == SEEK_HOLE)?;
                return Ok(*offset);
            }
            _ => return Err(Errno::EINVAL),
        };
        let to = from.checked_add_signed(distance).ok_or(Errno::EINVAL)?;
        if to > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        *offset = to;
        Ok(to)
    })?;
    usize::try_from(position).map_err(|_| Errno::EOVERFLOW)
}

/// `sendfile(2)`.
pub fn sendfile(a: &Args) -> SysResult {
    let (to, from) = (caller::file(a.int(0))?, caller::file(a.int(1))?);
    if !to.flags().writable() || !from.flags().readable() {
        return Err(Errno::EBADF);
    }
    let kind = from.node().kind();
    if to.flags().contains(OpenFlags::APPEND)
        || !matches!(kind, FileKind::Regular | FileKind::Block)
    {
        return Err(Errno::EINVAL);
    }
    let mut given = None;
    if a.addr(2) != 0 {
        given = Some(UserPtr::<u64>::new(a.addr(2)).read()?);
    }
    // Checked before the count is cut to the most bytes of a call.
    check_range(given.unwrap_or_else(|| from.offset()), a.size(3))?;
    check_range(to.offset(), a.size(3))?;
    let count = a.size(3).min(MAX_RW_COUNT);
    if count != 0 {
        forget_set_ids(&to);
    }
    let Some(mut offset) = given else {
        if Arc::ptr_eq(&to, &from) {
            return Err(Errno::EINVAL);
        }
        // The source's shared offset is read and set, but not locked in between: two calls in
        // opposite directions would deadlock.
        let mut offset = from.offset();
        let moved = transfer::to_shared_offset(&from, &mut offset, &to, count)?;
        from.with_offset(|shared| *shared = offset);
        count_both(moved);
        return Ok(moved);
    };
    let moved = transfer::to_shared_offset(&from, &mut offset, &to, count)?;
    count_both(moved);
    UserPtr::new(a.addr(2)).write(&offset)?;
    Ok(moved)
}

/// Counts a call that moves bytes from file to file, as a read and as a write.
fn count_both(bytes: usize) {
    let current = process::current();
    current.transfers().count_read(bytes);
    current.transfers().count_write(bytes);
}

/// `copy_file_range(2)`.
pub fn copy_file_range(a: &Args) -> SysResult {
    /// The first offset at which no file has a byte.
    const END: u64 = i64::MAX as u64;
    let (from, to) = (caller::file(a.int(0))?, caller::file(a.int(2))?);
    let read_offset = |address: u64, file: &OpenFile| -> Result<u64, Errno> {
        match address {
            0 => Ok(file.offset()),
            address => UserPtr::new(address).read(),
        }
    };
    let (mut read_at, mut write_at) =
        (read_offset(a.addr(1), &from)?, read_offset(a.addr(3), &to)?);
    if a.uint(5) != 0 {
        return Err(Errno::EINVAL);
    }
    let kinds = [&from, &to].map(|file| file.node().kind());
    if kinds.contains(&FileKind::Directory) {
        return Err(Errno::EISDIR);
    }
    if kinds != [FileKind::Regular; 2] {
        return Err(Errno::EINVAL);
    }
    if !to.flags().writable() || !from.flags().readable() || to.flags().contains(OpenFlags::APPEND)
    {
        return Err(Errno::EBADF);
    }
    if from.node().id().device != to.node().id().device {
        return Err(Errno::EXDEV);
    }
    let asked = a.size(4) as u64;
    if read_at.checked_add(asked).is_none() || write_at.checked_add(asked).is_none() {
        return Err(Errno::EOVERFLOW);
    }
    if read_at > END || write_at > END {
        return Err(Errno::EINVAL);
    }
    let limit = caller::file_size_limit().unwrap_or(u64::MAX);
    if write_at >= limit {
        return Err(Errno::FILE_SIZE_LIMIT);
    }
    if write_at == END {
        return Err(Errno::EFBIG);
    }
    let in_file = from.metadata().size.saturating_sub(read_at);
    let count = asked.min(in_file).min(limit.min(END) - write_at);
    // Only the bytes that are there count as a range of the file.
    let overlaps = read_at < write_at + count && write_at < read_at + count;
    if overlaps && lookup::same(from.node(), to.node()) {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(0);
    }
    forget_set_ids(&to);
    let count = usize::try_from(count).map_or(MAX_RW_COUNT, |count| count.min(MAX_RW_COUNT));
    let moved = transfer::at_offsets(&from, &mut read_at, &to, &mut write_at, count)?;
    count_both(moved);
    for (address, file, offset) in [(a.addr(1), &from, read_at), (a.addr(3), &to, write_at)] {
        if address == 0 {
            file.with_offset(|shared| *shared = offset);
        } else {
            UserPtr::new(address).write(&offset)?;
        }
    }
    Ok(moved)
}

/// Checks that the caller may set the size of `node` to `size`.
///
/// # Errors
/// Fails with `FILE_SIZE_LIMIT` if `size` is above the process's limit and the present size.
fn check_size_limit(node: &NodeRef, size: u64) -> Result<(), Errno> {
    match caller::file_size_limit() {
        Some(limit) if size > limit && size > node.metadata().size => Err(Errno::FILE_SIZE_LIMIT),
        _ => Ok(()),
    }
}

/// `truncate(2)`.
pub fn truncate(a: &Args) -> SysResult {
    let size = offset(a, 1)?;
    let found = at::find(AT_FDCWD, a.addr(0), LastLink::Follow)?;
    let node = found.node.as_ref().ok_or(Errno::ENOENT)?;
    if node.kind() == FileKind::Regular {
        caller::with_credentials(|who| permission::check(who, &**node, Wanted::WRITE))?;
        check_size_limit(node, size)?;
    }
    node.set_size(size)?;
    caller::with_credentials(|who| lookup::forget_set_ids(who, &**node));
    found.tell(Events::MODIFY);
    Ok(0)
}

/// `ftruncate(2)`.
pub fn ftruncate(a: &Args) -> SysResult {
    let size = offset(a, 1)?;
    let file = file(a)?;
    if !file.flags().writable() || file.node().kind() != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    check_size_limit(file.node(), size)?;
    file.node().set_size(size)?;
    caller::with_credentials(|who| lookup::forget_set_ids(who, &**file.node()));
    file.tell(Events::MODIFY);
    Ok(0)
}

/// `fallocate(2)`.
pub fn fallocate(a: &Args) -> SysResult {
    let (offset, length) = (offset(a, 2)?, offset(a, 3)?);
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    let file = file(a)?;
    if !file.flags().writable() {
        return Err(Errno::EBADF);
    }
    match file.node().kind() {
        FileKind::Fifo => return Err(Errno::ESPIPE),
        FileKind::Directory => return Err(Errno::EISDIR),
        FileKind::Regular if a.uint(1) & FALLOC_FL_PUNCH_HOLE == 0 => {
            check_size_limit(file.node(), offset.saturating_add(length))?;
        }
        _ => {}
    }
    file.file().allocate(a.uint(1), offset, length)?;
    forget_set_ids(&file);
    file.tell(Events::MODIFY);
    Ok(0)
}

/// Writes the changes of a file to its disk or to the host (`fsync`). Files in memory have no more
/// stable place. Fails with `EINVAL` for files that have no such place, such as pipes.
fn synchronize(a: &Args) -> SysResult {
    let file = file(a)?;
    match file.node().kind() {
        FileKind::Regular | FileKind::Directory | FileKind::Block => {
            file.file().sync()?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `fsync(2)`.
pub fn fsync(a: &Args) -> SysResult {
    synchronize(a)
}

/// `fdatasync(2)`.
pub fn fdatasync(a: &Args) -> SysResult {
    synchronize(a)
}

/// `sync(2)`.
pub fn sync(_a: &Args) -> SysResult {
    // The program that wrote a file learns of errors by its `fsync`.
    let _ = fs::hostfs::sync_all();
    fs::block::sync_all();
    Ok(0)
}

/// `syncfs(2)`. Writes the changes of all the host's files, whichever file system the descriptor is
/// in. No file system is on a disk.
pub fn syncfs(a: &Args) -> SysResult {
    file(a)?;
    fs::hostfs::sync_all()?;
    Ok(0)
}

/// `sync_file_range(2)`. Writes all changes of the file and waits until that is done, regardless of
/// the range and the flags.
pub fn sync_file_range(a: &Args) -> SysResult {
    let file = file(a)?;
    if a.uint(3) & !(SYNC_FILE_RANGE_WRITE_AND_WAIT) != 0
        || offset(a, 1)?
            .checked_add(offset(a, 2)?)
            .is_none_or(|end| end > i64::MAX as u64)
    {
        return Err(Errno::EINVAL);
    }
    match file.node().kind() {
        FileKind::Regular | FileKind::Directory | FileKind::Block => {
            file.file().sync()?;
            Ok(0)
        }
        _ => Err(Errno::ESPIPE),
    }
}

/// `fadvise64(2)`. Only checks its arguments: advice has no effect.
pub fn fadvise64(a: &Args) -> SysResult {
    const LAST_ADVICE: i32 = 5;
    let file = file(a)?;
    if file.node().kind() == FileKind::Fifo {
        return Err(Errno::ESPIPE);
    }
    if a.long(2) < 0 || !(0..=LAST_ADVICE).contains(&a.int(3)) {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// `readahead(2)`. Only checks its arguments, and reads nothing.
pub fn readahead(a: &Args) -> SysResult {
    let file = file(a)?;
    if !file.flags().readable() {
        return Err(Errno::EBADF);
    }
    if file.node().kind() != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// `memfd_create(2)`.
pub fn memfd_create(a: &Args) -> SysResult {
    /// `NAME_MAX` minus the length of the prefix `memfd:`.
    const LONGEST_NAME: usize = 249;
    let flags = a.uint(1);
    let huge = flags & MFD_HUGETLB != 0;
    let known = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC | MFD_NOEXEC_SEAL | MFD_HUGETLB;
    let size = flags >> MFD_HUGE_SHIFT & MFD_HUGE_MASK;
    let of_size = if huge {
        MFD_HUGE_MASK << MFD_HUGE_SHIFT
    } else {
        0
    };
    if flags & !(known | of_size) != 0 {
        return Err(Errno::EINVAL);
    }
    let size = hugetlb::named_size(size).map_err(|_| Errno::ENODEV)?;
    let name = uaccess::read_cstr(a.addr(0), LONGEST_NAME + 1).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        other => other,
    })?;
    let permissions = if flags & MFD_NOEXEC_SEAL != 0 {
        0o666
    } else {
        0o777
    };
    let [uid, gid] = caller::file_owner();
    let beginning = Beginning {
        permissions,
        mask: 0,
        uid,
        gid,
    };
    let home = if huge {
        fs::huge_memfd(size)?
    } else {
        fs::memfd()?
    };
    let node = home.make_nameless(beginning)?;
    if flags & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL) != 0 {
        node.allow_seals();
    }
    let label = [b"memfd:", name.as_slice()].concat().into_boxed_slice();
    let place = Place {
        parent: fs::root(),
        name: label,
    };
    let file = if huge {
        node.clone().open(OpenFlags::READ_WRITE)?
    } else {
        node.open_memfd()
    };
    let file = OpenFile::new(
        node,
        file,
        Some(place),
        OpenFlags::READ_WRITE | OpenFlags::LARGE,
    );
    caller::install(file, flags & MFD_CLOEXEC != 0)
}

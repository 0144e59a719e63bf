//! Where bytes come from and go to: user memory in one or many pieces, or a kernel buffer.
//!
//! A file never sees a user address. It puts bytes into a [`ByteSink`] or takes them from a
//! [`ByteSource`]. It must hold no spin lock then, because user memory may fault and the fault may
//! need the file.

use crate::vm;
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::memory::{FrameRef, PAGE_SIZE};
use machine::uaccess;

/// The most bytes that one call moves (Linux's `MAX_RW_COUNT`).
pub const MAX_RW_COUNT: usize = 0x7fff_f000;
/// The most pieces of a vector call (`UIO_MAXIOV`).
pub const MAX_SEGMENTS: usize = 1024;

static ZEROS: [u8; 4096] = [0; 4096];

/// Receives the bytes that a file reads.
pub trait ByteSink {
    /// Returns the number of bytes that still fit.
    fn room(&self) -> usize;
    /// Stores the bytes of `bytes` that fit. Returns their number. Fails only if no byte was
    /// stored.
    fn put(&mut self, bytes: &[u8]) -> SysResult;
    /// Stores up to `count` zero bytes. Returns their number. Fails only if no byte was stored.
    fn put_zeros(&mut self, count: usize) -> SysResult {
        self.put(&ZEROS[..count.min(ZEROS.len())])
    }
    /// Stores up to `count` bytes of `frame`, from `offset` on. The range must lie within the
    /// frame. Returns the number of bytes stored. Fails only if no byte was stored.
    fn put_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult;
    /// Returns the frame of the next page of user memory, for a caller that stores to the frame
    /// instead of calling [`Self::put`]. The caller must fill the whole frame, because its bytes
    /// count as stored. Returns `None` if the next bytes are no whole page of user memory, or if
    /// the page belongs to a file.
    fn pin_page(&mut self) -> Option<FrameRef> {
        None
    }
}

/// A function that returns the largest size in bytes that a file may get, or `None` if there is no
/// limit. A write calls it only when it needs the limit.
pub type SizeLimit = fn() -> Option<u64>;

/// A [`SizeLimit`] without a limit.
pub const NO_LIMIT: SizeLimit = || None;

/// Supplies the bytes that a file writes.
pub trait ByteSource {
    /// Returns the number of bytes that are left.
    fn left(&self) -> usize;
    /// Fills the front of `into`. Returns the number of bytes supplied. Fails only if no byte was
    /// supplied.
    fn take(&mut self, into: &mut [u8]) -> SysResult;
    /// Fills all of `into`.
    ///
    /// # Errors
    /// Fails with `EFAULT` if there are fewer bytes.
    fn fill(&mut self, into: &mut [u8]) -> Result<(), Errno> {
        let mut filled = 0;
        while filled < into.len() {
            match self.take(&mut into[filled..])? {
                0 => return Err(Errno::EFAULT),
                more => filled += more,
            }
        }
        Ok(())
    }
    /// Fills up to `count` bytes of `frame`, from `offset` on. The range must lie within the frame.
    /// Returns the number of bytes supplied. Fails only if no byte was supplied.
    fn take_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult;
    /// Skips up to `count` bytes without reading them. Returns their number.
    fn skip(&mut self, count: usize) -> usize;
    /// Returns the largest size in bytes that these bytes may give a file, which is the limit of
    /// the writing process. Returns `None` if there is no limit.
    fn size_limit(&self) -> Option<u64> {
        None
    }
    /// Returns the frame of the next page of user memory, for a caller that reads the frame instead
    /// of calling [`Self::take`]. All bytes of the frame count as supplied. Returns `None` if the
    /// next bytes are no whole page of user memory.
    fn pin_page(&mut self) -> Option<FrameRef> {
        None
    }
}

/// One piece of user memory that a program named. The addresses are checked when bytes are moved.
#[derive(Copy, Clone, Debug, Default)]
pub struct Segment {
    /// The first address.
    pub address: u64,
    /// The length in bytes.
    pub length: usize,
}

/// A list of user memory pieces with a position in it.
#[derive(Debug)]
struct Cursor<'a> {
    segments: &'a [Segment],
    left: usize,
}

impl<'a> Cursor<'a> {
    fn new(segments: &'a [Segment]) -> Self {
        let left = segments
            .iter()
            .fold(0_usize, |sum, s| sum.saturating_add(s.length));
        Self {
            segments,
            left: left.min(MAX_RW_COUNT),
        }
    }
}

/// User memory that a call writes to.
#[derive(Debug)]
pub struct UserSink<'a> {
    cursor: Cursor<'a>,
    done: usize,
}

/// User memory that a call reads from.
#[derive(Debug)]
pub struct UserSource<'a> {
    cursor: Cursor<'a>,
    done: usize,
    limit: SizeLimit,
}

impl<'a> UserSink<'a> {
    /// Returns a sink that fills `segments` one after the other.
    pub fn new(segments: &'a [Segment]) -> Self {
        Self {
            cursor: Cursor::new(segments),
            done: 0,
        }
    }
}

impl<'a> UserSource<'a> {
    /// Returns a source that reads `segments` one after the other.
    pub fn new(segments: &'a [Segment], limit: SizeLimit) -> Self {
        Self {
            cursor: Cursor::new(segments),
            done: 0,
            limit,
        }
    }
}

/// Walks up to `count` bytes of the pieces, from the position `done` in the first piece on. `copy`
/// gets the address of each run, its offset among the `count` bytes and its length. It returns the
/// number of bytes that it copied before a bad address. Returns the number of bytes copied.
///
/// # Errors
/// Fails with `EFAULT` if the first byte is at a bad address.
#[inline]
fn walk(
    cursor: &mut Cursor<'_>,
    done: &mut usize,
    count: usize,
    mut copy: impl FnMut(u64, usize, usize) -> usize,
) -> SysResult {
    // Most calls name one piece.
    match cursor.segments {
        [piece] => {
            let run = count.min(cursor.left);
            let copied = copy(piece.address.wrapping_add(*done as u64), 0, run);
            *done += copied;
            cursor.left -= copied;
            if copied == 0 && run > 0 {
                return Err(Errno::EFAULT);
            }
            Ok(copied)
        }
        _ => walk_pieces(cursor, done, count, &mut copy),
    }
}

/// Walks bytes as [`walk`] does, from one piece to the next. Returns the number of bytes copied.
/// Fails as [`walk`] does.
#[inline(never)]
fn walk_pieces(
    cursor: &mut Cursor<'_>,
    done: &mut usize,
    count: usize,
    copy: &mut dyn FnMut(u64, usize, usize) -> usize,
) -> SysResult {
    let count = count.min(cursor.left);
    let mut moved = 0;
    while moved < count {
        let Some(segment) = cursor.segments.first() else {
            break;
        };
        let run = (segment.length - *done).min(count - moved);
        if run > 0 {
            let copied = copy(segment.address.wrapping_add(*done as u64), moved, run);
            moved += copied;
            *done += copied;
            cursor.left -= copied;
            if copied < run {
                return if moved > 0 {
                    Ok(moved)
                } else {
                    Err(Errno::EFAULT)
                };
            }
        }
        if *done == segment.length {
            cursor.segments = &cursor.segments[1..];
            *done = 0;
        }
    }
    Ok(moved)
}

/// Returns the frame of the next page and skips the page. Returns `None` if the page is not whole
/// in one piece. `done` is the position in the first piece, and `write` says that the caller will
/// store to the frame.
fn pin_page(cursor: &mut Cursor<'_>, done: &mut usize, write: bool) -> Option<FrameRef> {
    let segment = cursor.segments.first()?;
    let address = segment.address.wrapping_add(*done as u64);
    let fits = cursor.left >= PAGE_SIZE && segment.length - *done >= PAGE_SIZE;
    if !fits || !address.is_multiple_of(PAGE_SIZE as u64) {
        return None;
    }
    // A bad address is reported when bytes are moved.
    let frame = vm::current_space()?.pin_page(address, write).ok()?;
    if write && !frame.is_private() {
        // The page belongs to a file. Only a store through the user address marks it as dirty.
        return None;
    }
    walk(cursor, done, PAGE_SIZE, |_, _, run| run).ok()?;
    Some(frame)
}

impl ByteSink for UserSink<'_> {
    fn pin_page(&mut self) -> Option<FrameRef> {
        pin_page(&mut self.cursor, &mut self.done, true)
    }
    fn room(&self) -> usize {
        self.cursor.left
    }
    fn put(&mut self, bytes: &[u8]) -> SysResult {
        walk(
            &mut self.cursor,
            &mut self.done,
            bytes.len(),
            |address, at, run| uaccess::copy_out_partial(address, &bytes[at..at + run]),
        )
    }
    fn put_zeros(&mut self, count: usize) -> SysResult {
        walk(
            &mut self.cursor,
            &mut self.done,
            count,
            |address, _, run| {
                if uaccess::zero(address, run).is_ok() {
                    run
                } else {
                    0
                }
            },
        )
    }
    fn put_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult {
        walk(
            &mut self.cursor,
            &mut self.done,
            count,
            |address, at, run| uaccess::copy_out_of_frame(address, frame, offset + at, run),
        )
    }
}

impl ByteSource for UserSource<'_> {
    fn size_limit(&self) -> Option<u64> {
        (self.limit)()
    }
    fn pin_page(&mut self) -> Option<FrameRef> {
        pin_page(&mut self.cursor, &mut self.done, false)
    }
    fn left(&self) -> usize {
        self.cursor.left
    }
    fn take(&mut self, into: &mut [u8]) -> SysResult {
        walk(
            &mut self.cursor,
            &mut self.done,
            into.len(),
            |address, at, run| uaccess::copy_in_partial(&mut into[at..at + run], address),
        )
    }
    fn take_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult {
        walk(
            &mut self.cursor,
            &mut self.done,
            count,
            |address, at, run| uaccess::copy_into_frame(frame, offset + at, address, run),
        )
    }
    fn skip(&mut self, count: usize) -> usize {
        walk(&mut self.cursor, &mut self.done, count, |_, _, run| run).unwrap_or(0)
    }
}

/// Checks that the `count` bytes from `offset` on are at offsets that a file can have.
///
/// # Errors
/// Fails with `EINVAL` if they are not.
#[inline]
pub fn check_range(offset: u64, count: usize) -> Result<(), Errno> {
    match offset.checked_add(count as u64) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Checks that all `segments` lie in the address range of programs. Unmapped memory is found only
/// when bytes are moved.
///
/// # Errors
/// Fails with `EFAULT` if one of them does not.
#[inline]
pub fn check_segments(segments: &[Segment]) -> Result<(), Errno> {
    let is_user = |segment: &Segment| uaccess::is_user(segment.address, segment.length);
    if segments.iter().all(is_user) {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Reads a user's `struct iovec` array and checks it as Linux does.
///
/// # Errors
/// Fails with `EINVAL` for more than [`MAX_SEGMENTS`] pieces or a negative length, with `EFAULT`
/// for a bad address, and with `ENOMEM`.
pub fn read_segments(address: u64, count: u64) -> Result<Vec<Segment>, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count > MAX_SEGMENTS {
        return Err(Errno::EINVAL);
    }
    let mut segments = Vec::new();
    segments
        .try_reserve_exact(count)
        .map_err(|_| Errno::ENOMEM)?;
    for n in 0..count {
        let mut raw = [0; 16];
        uaccess::copy_in(&mut raw, address.wrapping_add(n as u64 * 16))?;
        let [address, length] = halves(&raw);
        if length > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
        segments.push(Segment { address, length });
    }
    Ok(segments)
}

fn halves(raw: &[u8; 16]) -> [u64; 2] {
    let value = u128::from_le_bytes(*raw);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "splits the value into its two halves"
    )]
    [value as u64, (value >> 64) as u64]
}

/// A sink that fills a kernel buffer of fixed size.
#[derive(Debug)]
pub struct SliceSink<'a> {
    buffer: &'a mut [u8],
    filled: usize,
}

impl<'a> SliceSink<'a> {
    /// Returns a sink that fills `buffer` from its front.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, filled: 0 }
    }
}

impl ByteSink for SliceSink<'_> {
    fn room(&self) -> usize {
        self.buffer.len() - self.filled
    }
    fn put(&mut self, bytes: &[u8]) -> SysResult {
        let count = bytes.len().min(self.room());
        self.buffer[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        Ok(count)
    }
    fn put_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult {
        let count = count.min(self.room());
        frame.read(offset, &mut self.buffer[self.filled..self.filled + count]);
        self.filled += count;
        Ok(count)
    }
}

/// A source that supplies kernel bytes.
#[derive(Debug)]
pub struct SliceSource<'a> {
    bytes: &'a [u8],
    limit: SizeLimit,
}

impl<'a> SliceSource<'a> {
    /// Returns a source that supplies `bytes` from their front.
    pub fn new(bytes: &'a [u8], limit: SizeLimit) -> Self {
        Self { bytes, limit }
    }
}

impl ByteSource for SliceSource<'_> {
    fn size_limit(&self) -> Option<u64> {
        (self.limit)()
    }
    fn left(&self) -> usize {
        self.bytes.len()
    }
    fn take(&mut self, into: &mut [u8]) -> SysResult {
        let count = into.len().min(self.bytes.len());
        let (now, later) = self.bytes.split_at(count);
        into[..count].copy_from_slice(now);
        self.bytes = later;
        Ok(count)
    }
    fn take_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult {
        let (now, later) = self.bytes.split_at(count.min(self.bytes.len()));
        frame.write(offset, now);
        self.bytes = later;
        Ok(now.len())
    }
    fn skip(&mut self, count: usize) -> usize {
        let count = count.min(self.bytes.len());
        self.bytes = &self.bytes[count..];
        count
    }
}

/// A source that supplies bytes of a frame.
#[derive(Debug)]
pub struct FrameSource<'a> {
    frame: &'a FrameRef,
    offset: usize,
    left: usize,
    limit: SizeLimit,
}

impl<'a> FrameSource<'a> {
    /// Returns a source of `count` bytes of `frame` from `offset` on. Both must lie within the
    /// frame.
    pub fn new(frame: &'a FrameRef, offset: usize, count: usize, limit: SizeLimit) -> Self {
        assert!(offset <= PAGE_SIZE && count <= PAGE_SIZE - offset);
        Self {
            frame,
            offset,
            left: count,
            limit,
        }
    }
}

impl ByteSource for FrameSource<'_> {
    fn size_limit(&self) -> Option<u64> {
        (self.limit)()
    }
    fn left(&self) -> usize {
        self.left
    }
    fn take(&mut self, into: &mut [u8]) -> SysResult {
        let count = into.len().min(self.left);
        self.frame.read(self.offset, &mut into[..count]);
        Ok(self.skip(count))
    }
    fn take_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult {
        let count = count.min(self.left);
        frame.copy_part(offset, self.frame, self.offset, count);
        Ok(self.skip(count))
    }
    fn skip(&mut self, count: usize) -> usize {
        let count = count.min(self.left);
        self.offset += count;
        self.left -= count;
        count
    }
}

/// Copies the `count` bytes from offset `at` of a frame to the same offset of another frame.
pub(super) fn copy_within_frames(from: &FrameRef, to: &FrameRef, at: usize, count: usize) {
    let mut source = FrameSource::new(from, at, count, NO_LIMIT);
    // Accesses to frames never fault.
    let _ = source.take_frame(to, at, count);
}

/// Lets other tasks run if the transfer has just passed a multiple of 64 KiB. `done` is the number
/// of bytes moved so far. The caller holds no lock.
pub(super) fn breathe(done: usize) {
    const EVERY: usize = 64 << 10;
    if done % EVERY < PAGE_SIZE && done >= EVERY && machine::sched::started() {
        machine::sched::cond_resched();
    }
}

//! Where bytes go to and come from: user memory in one or many pieces, or a kernel buffer.
//!
//! A file never sees a user address. It puts into a [`ByteSink`] or takes from a [`ByteSource`],
//! and must hold no spin lock then: user memory may fault, and the fault may need the file.

#![expect(unsafe_code, reason = "bytes move between frames")]

use crate::vm::{self, uaccess};
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::memory::{FrameRef, PAGE_SIZE};

/// The most bytes that one call moves (Linux's `MAX_RW_COUNT`).
pub const MAX_RW_COUNT: usize = 0x7fff_f000;
/// The most pieces of a vector call (`UIO_MAXIOV`).
pub const MAX_SEGMENTS: usize = 1024;

static ZEROS: [u8; 4096] = [0; 4096];

/// Takes what a file gives.
pub trait ByteSink {
    /// How many more bytes fit.
    fn room(&self) -> usize;
    /// Takes as many of `bytes` as fit and tells how many. An error only if it took none.
    fn put(&mut self, bytes: &[u8]) -> SysResult;
    /// Takes up to `count` zero bytes.
    fn put_zeros(&mut self, count: usize) -> SysResult {
        self.put(&ZEROS[..count.min(ZEROS.len())])
    }
    /// Takes up to `count` bytes of a frame, from `offset` on; both must lie within it.
    fn put_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult;
    /// The frame that the next bytes are to stand in, if they fill a page of a program's memory;
    /// they count as taken then, and who asked puts them there.
    fn pin_page(&mut self) -> Option<FrameRef> {
        None
    }
}

/// How large files may become, asked when it matters.
pub type SizeLimit = fn() -> Option<u64>;

/// Files may become as large as they can.
pub const NO_LIMIT: SizeLimit = || None;

/// Gives what a file takes.
pub trait ByteSource {
    /// How many bytes are left.
    fn left(&self) -> usize;
    /// Fills the front of `into` and tells how much. An error only if it gave nothing.
    fn take(&mut self, into: &mut [u8]) -> SysResult;
    /// Fills all of `into`.
    ///
    /// # Errors
    /// `EFAULT` if there is less.
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
    /// Fills up to `count` bytes of a frame, from `offset` on; both must lie within it.
    fn take_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult;
    /// Passes over up to `count` bytes without looking at them.
    fn skip(&mut self, count: usize) -> usize;
    /// How large a file may become by them: whose bytes they are has a limit.
    fn size_limit(&self) -> Option<u64> {
        None
    }
    /// The frame that the next bytes stand in, if they fill a page of a program's memory; they
    /// count as given then.
    fn pin_page(&mut self) -> Option<FrameRef> {
        None
    }
}

/// One piece of user memory: an allegation, checked when it is used.
#[derive(Copy, Clone, Debug, Default)]
pub struct Segment {
    /// Its first address.
    pub address: u64,
    /// Its length in bytes.
    pub length: usize,
}

/// A run of user memory pieces with a position in it.
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
    /// Writes to `segments`, one after the other.
    pub fn new(segments: &'a [Segment]) -> Self {
        Self {
            cursor: Cursor::new(segments),
            done: 0,
        }
    }
}

impl<'a> UserSource<'a> {
    /// Reads from `segments`, one after the other.
    pub fn new(segments: &'a [Segment], limit: SizeLimit) -> Self {
        Self {
            cursor: Cursor::new(segments),
            done: 0,
            limit,
        }
    }
}

/// Walks up to `count` bytes of the pieces. `copy` gets each run's address, its place among the
/// `count` bytes and its length, and says how much it copied before it met a bad address.
fn walk(
    cursor: &mut Cursor<'_>,
    done: &mut usize,
    count: usize,
    mut copy: impl FnMut(u64, usize, usize) -> usize,
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

/// The frame of the page that comes next, if it lies in one piece; it is passed over then. `done`
/// is where the first piece stands.
fn pin_page(cursor: &mut Cursor<'_>, done: &mut usize, write: bool) -> Option<FrameRef> {
    let segment = cursor.segments.first()?;
    let address = segment.address.wrapping_add(*done as u64);
    let fits = cursor.left >= PAGE_SIZE && segment.length - *done >= PAGE_SIZE;
    if !fits || !address.is_multiple_of(PAGE_SIZE as u64) {
        return None;
    }
    // What is wrong with the address shows when bytes are moved.
    let frame = vm::current_space()?.pin_page(address, write).ok()?;
    if write && !frame.is_private() {
        // A file's page has to know that it changes: the program stores to it.
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
        assert!(offset <= PAGE_SIZE && count <= PAGE_SIZE - offset);
        walk(
            &mut self.cursor,
            &mut self.done,
            count,
            |address, at, run| {
                // SAFETY: the run lies in the frame (asserted), which lives as long as the reference.
                unsafe { uaccess::copy_out_raw(address, frame.as_ptr().add(offset + at), run) }
            },
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
        assert!(offset <= PAGE_SIZE && count <= PAGE_SIZE - offset);
        walk(
            &mut self.cursor,
            &mut self.done,
            count,
            |address, at, run| {
                // SAFETY: the run lies in the frame (asserted), which lives as long as the reference,
                // and whose bytes are never behind a Rust reference.
                unsafe { uaccess::copy_in_raw(frame.as_ptr().add(offset + at), address, run) }
            },
        )
    }
    fn skip(&mut self, count: usize) -> usize {
        walk(&mut self.cursor, &mut self.done, count, |_, _, run| run).unwrap_or(0)
    }
}

/// Checks that `count` bytes from `offset` on lie where a file can have bytes.
///
/// # Errors
/// Fails with `EINVAL` if they do not.
#[inline]
pub fn check_range(offset: u64, count: usize) -> Result<(), Errno> {
    match offset.checked_add(count as u64) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Checks that pieces of memory lie where a program can have memory. Whether there is any shows when bytes are moved.
///
/// # Errors
/// Fails with `EFAULT` if one does not.
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

/// A kernel buffer of fixed size to fill.
#[derive(Debug)]
pub struct SliceSink<'a> {
    buffer: &'a mut [u8],
    filled: usize,
}

impl<'a> SliceSink<'a> {
    /// Fills `buffer` from its front.
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

/// Kernel bytes to write.
#[derive(Debug)]
pub struct SliceSource<'a> {
    bytes: &'a [u8],
    limit: SizeLimit,
}

impl<'a> SliceSource<'a> {
    /// Gives `bytes` from their front.
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

/// Bytes of a frame to write elsewhere.
#[derive(Debug)]
pub struct FrameSource<'a> {
    frame: &'a FrameRef,
    offset: usize,
    left: usize,
    limit: SizeLimit,
}

impl<'a> FrameSource<'a> {
    /// Gives `count` bytes of `frame` from `offset` on; both must lie within it.
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
        assert!(offset <= PAGE_SIZE && count <= PAGE_SIZE - offset);
        // SAFETY: both runs lie in their frames (asserted here and by the constructor), which live
        // as long as the references; `copy` allows that both are one frame.
        unsafe {
            let from = self.frame.as_ptr().add(self.offset);
            core::ptr::copy(from, frame.as_ptr().add(offset), count);
        }
        Ok(self.skip(count))
    }
    fn skip(&mut self, count: usize) -> usize {
        let count = count.min(self.left);
        self.offset += count;
        self.left -= count;
        count
    }
}

/// Copies `count` bytes from `at` on to the same place of another frame.
pub(super) fn copy_within_frames(from: &FrameRef, to: &FrameRef, at: usize, count: usize) {
    let mut source = FrameSource::new(from, at, count, NO_LIMIT);
    // Frames never fault.
    let _ = source.take_frame(to, at, count);
}

/// Lets others run between two pieces of long work, once every 64 KiB of it; `done` counts bytes.
/// No lock may be held.
pub(super) fn breathe(done: usize) {
    const EVERY: usize = 64 << 10;
    if done % EVERY < PAGE_SIZE && done >= EVERY && machine::sched::started() {
        machine::sched::cond_resched();
    }
}

//! `/dev/vda` as an open file.

use super::super::file::{File, Seeks};
use super::super::flags::OpenFlags;
use super::super::io::{ByteSink, ByteSource, MAX_RW_COUNT, copy_within_frames};
use super::cache::{Cache, PAGE};
use super::direct::bytes;
use super::{direct, ioctl, writeback};
use crate::vm::PageSource;
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};
use logic::errno::{Errno, SysResult};
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE, pressure};
use machine::sched;
use machine::sync::SpinLock;

/// The most pages that are read ahead for a sequential reader: 128 KiB, as on Linux.
const MOST_AHEAD: u64 = 32;
/// The number of pages that are read ahead at first.
const FIRST_AHEAD: u64 = 4;
/// The number of written pages after which the dirty limits are checked.
const THROTTLE_EVERY: u64 = 32;
/// Attempts to change a page that other tasks read again and again.
const TRIES: u32 = 64;

/// The last read-ahead.
#[derive(Debug, Default)]
struct Ahead {
    /// The page that a sequential reader wants next.
    next: u64,
    /// The pages that were last requested.
    window: Range<u64>,
}

/// An open file of a disk.
pub(super) struct OpenDisk {
    cache: &'static Cache,
    ahead: SpinLock<Ahead>,
    /// The number of the disk's write errors that this open file has reported, or that happened
    /// before it was opened.
    errors_told: AtomicU64,
}

impl OpenDisk {
    /// Opens the disk of `cache`, and counts the open file in the cache. Write errors that happened
    /// before are not reported to this open file.
    pub(super) fn new(cache: &'static Cache) -> Self {
        // AcqRel: pairs with the Acquire in `writeback::close`.
        cache.opens.fetch_add(1, Ordering::AcqRel);
        Self {
            cache,
            ahead: SpinLock::new(Ahead::default()),
            errors_told: AtomicU64::new(cache.write_errors()),
        }
    }

    /// Returns the page `index`, and reads pages ahead. The present call will read `want` pages
    /// from `index` on. Fails as `Cache::page` does.
    fn page(&self, index: u64, want: u64) -> Result<FrameRef, Errno> {
        let (ready, window, more) = {
            let mut ahead = self.ahead.lock();
            let again = index + 1 == ahead.next;
            let goes_on = index == ahead.next || again;
            let ready = self.cache.ready(index, again);
            ahead.next = index + 1;
            if ready.is_none() {
                let last = ahead.window.end - ahead.window.start;
                let pages = if goes_on && last > 0 {
                    (last * 2).clamp(FIRST_AHEAD, MOST_AHEAD)
                } else if index == 0 {
                    FIRST_AHEAD
                } else {
                    1
                };
                let pages = pages.max(want.min(MOST_AHEAD));
                ahead.window = index..index + pages;
                (ready, pages, None)
            } else if goes_on && index == ahead.window.start + 1 && ahead.window.end > index + 1 {
                // The reader has reached the last window, so reading of the next one begins.
                let last = ahead.window.end - ahead.window.start;
                let start = ahead.window.end;
                ahead.window = start..start + (last * 2).clamp(FIRST_AHEAD, MOST_AHEAD);
                (ready, 0, Some(ahead.window.clone()))
            } else {
                (ready, 0, None)
            }
        };
        if let Some(more) = more
            && more.start < self.cache.pages()
            && self.cache.ready(more.start, true).is_none()
        {
            // If memory is short, the reader will read these pages itself.
            let _ = self.cache.read_in(more.start, more.end - more.start);
        }
        match ready {
            Some(frame) => Ok(frame),
            None => self.cache.page(index, window),
        }
    }

    /// Writes up to `count` bytes at `offset`, all within one page. Returns the number of bytes
    /// written. Fails with `EIO` if the disk could not read the page or the page could not be
    /// entered, with `ENOMEM`, with `EINTR` if the task is being killed, and with the error of
    /// `from`.
    fn write_page(&self, from: &mut dyn ByteSource, offset: u64, count: usize) -> SysResult {
        let (index, within) = (offset / PAGE, in_page(offset));
        let last = bytes(self.cache.bytes().saturating_sub(index * PAGE)).min(PAGE_SIZE);
        let whole = within == 0 && count == last;
        let (frame, taken) = match self.cache.ready(index, within > 0) {
            Some(frame) => {
                let taken = from.take_frame(&frame, within, count)?;
                (frame, taken)
            }
            None if !whole => {
                let frame = self.cache.page(index, 1)?;
                let taken = from.take_frame(&frame, within, count)?;
                (frame, taken)
            }
            None => {
                // A whole page, which is filled before another task sees it, so it need not be read
                // first.
                (self.cache.make_room)(1);
                let frame = memory::alloc_frame(Mobility::Movable)?;
                let taken = from.take_frame(&frame, 0, count)?;
                if taken < count {
                    // The program's memory ended. The rest of the page keeps the content of the
                    // disk.
                    let old = self.cache.page(index, 1)?;
                    copy_within_frames(&frame, &old, 0, taken);
                    (old, taken)
                } else {
                    frame.zero(count, PAGE_SIZE - count);
                    (frame, taken)
                }
            }
        };
        for _ in 0..TRIES {
            match self.cache.enter_dirty(index, &frame) {
                Ok(None) => return Ok(taken),
                Ok(Some(other)) => {
                    // Another task has read the page in between. The page may be on its way to the
                    // disk already, so it is marked again once it has the bytes. If it was dropped
                    // and read once more, the new page lacks the bytes.
                    copy_within_frames(&frame, &other, within, taken);
                    match self.cache.enter_dirty(index, &other) {
                        Ok(None) => return Ok(taken),
                        Ok(Some(_)) | Err(Errno::EAGAIN) => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(Errno::EAGAIN) => self.cache.wait_loaded(index)?,
                // The tree may have lacked memory for its own nodes, which it must not wait for.
                Err(Errno::ENOMEM) if pressure::shrink_caches() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO)
    }

    /// Writes up to `total` bytes through the cache, and waits if too many pages are dirty. Returns
    /// the number of bytes written. Fails as [`Self::write_page`] does, if no byte was written
    /// before.
    fn write_cached(&self, from: &mut dyn ByteSource, offset: &mut u64, total: usize) -> SysResult {
        let written = by_pages(offset, total, |at, count, _| {
            let moved = self.write_page(from, at, count)?;
            if ((at + moved as u64) / PAGE).is_multiple_of(THROTTLE_EVERY) {
                writeback::throttle(self.cache);
            }
            Ok(moved)
        })?;
        writeback::throttle(self.cache);
        Ok(written)
    }

    fn read_cached(&self, to: &mut dyn ByteSink, offset: &mut u64, total: usize) -> SysResult {
        by_pages(offset, total, |at, count, left| {
            let within = in_page(at);
            let want = (within + left).div_ceil(PAGE_SIZE) as u64;
            let frame = self.page(at / PAGE, want)?;
            to.put_frame(&frame, within, count)
        })
    }

    /// Makes a range stable. Fails with `EIO` if a page could not be written since the last report.
    fn sync_range(&self, range: Range<u64>) -> Result<(), Errno> {
        self.cache.write_back(range);
        self.cache.disk.flush()?;
        let errors = self.cache.write_errors();
        // Relaxed: the first caller reports the errors.
        if self.errors_told.swap(errors, Ordering::Relaxed) == errors {
            Ok(())
        } else {
            Err(Errno::EIO)
        }
    }
}

/// Returns the position of the byte at `offset` within its page.
pub(super) fn in_page(offset: u64) -> usize {
    bytes(offset % PAGE)
}

impl File for OpenDisk {
    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, flags: OpenFlags) -> SysResult {
        let left = bytes(self.cache.bytes().saturating_sub(*offset));
        let total = to.room().min(MAX_RW_COUNT).min(left);
        if total == 0 {
            return Ok(0);
        }
        if flags.contains(OpenFlags::DIRECT) {
            return direct::read(self.cache, to, offset, total);
        }
        self.read_cached(to, offset, total)
    }

    fn write(&self, from: &mut dyn ByteSource, offset: &mut u64, flags: OpenFlags) -> SysResult {
        if self.cache.disk.limits().read_only {
            return Err(Errno::EPERM);
        }
        if from.left() == 0 {
            return Ok(0);
        }
        if flags.contains(OpenFlags::APPEND) {
            *offset = self.cache.bytes();
        }
        let left = bytes(self.cache.bytes().saturating_sub(*offset));
        let total = from.left().min(MAX_RW_COUNT).min(left);
        if total == 0 {
            return Err(Errno::ENOSPC);
        }
        let start = *offset;
        let done = if flags.contains(OpenFlags::DIRECT) {
            direct::write(self.cache, from, offset, total)?
        } else {
            self.write_cached(from, offset, total)?
        };
        // `SYNC` includes `DSYNC`.
        if flags.contains(OpenFlags::DSYNC) {
            self.sync_range(start / PAGE..offset.div_ceil(PAGE))?;
        }
        Ok(done)
    }

    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }

    fn size(&self) -> Option<u64> {
        Some(self.cache.bytes())
    }

    fn sync(&self) -> Result<(), Errno> {
        self.sync_range(super::cache::ALL)
    }

    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        ioctl::call(self.cache, command, argument)
    }

    fn page_source(&self) -> Option<Arc<dyn PageSource>> {
        self.cache.readers.get().cloned()
    }

    fn shared_page_source(&self, writable: bool) -> Option<Arc<dyn PageSource>> {
        if writable && !self.cache.disk.limits().read_only {
            self.cache.writers.get().cloned()
        } else {
            self.page_source()
        }
    }

    fn maps_read_only(&self) -> bool {
        self.cache.disk.limits().read_only
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
        const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        const ZERO: u32 = FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEPING: u32 = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
        let unmap = match mode {
            PUNCH => true,
            ZERO | ZERO_KEEPING => false,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        ioctl::write_zeroes(self.cache, offset, length, unmap)
    }

    fn last_close(&self) {
        // Acquire: pairs with the AcqRel of the counts.
        if self.cache.opens.load(Ordering::Acquire) == 1 {
            self.cache.write_back(super::cache::ALL);
        }
    }
}

impl Drop for OpenDisk {
    fn drop(&mut self) {
        // AcqRel: pairs with the Acquire in `writeback::close`.
        if self.cache.opens.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The pages of the disk must be dropped. This drop may run under locks, so the thread
            // does it.
            writeback::wake();
        }
    }
}

/// Moves up to `total` bytes and advances `offset`. `part` moves bytes of one page. It gets their
/// offset, their number, and the number of bytes left. The loop stops after a short part, and while
/// the task is being killed. Returns the number of bytes moved. Fails with the error of `part` only
/// if no byte was moved before.
fn by_pages(
    offset: &mut u64,
    total: usize,
    mut part: impl FnMut(u64, usize, usize) -> SysResult,
) -> SysResult {
    let mut done = 0;
    while done < total {
        let count = (PAGE_SIZE - in_page(*offset)).min(total - done);
        match part(*offset, count, total - done) {
            Ok(moved) => {
                done += moved;
                *offset += moved as u64;
                if moved < count {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        super::super::io::breathe(done);
        if sched::current().killed() {
            break;
        }
    }
    Ok(done)
}

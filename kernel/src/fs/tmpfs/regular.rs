//! Regular files of tmpfs.
//!
//! There are two locks. `writing` (a mutex) keeps writers, truncation and appends apart, and may be
//! held while user memory faults. `content` (a spin lock) guards the page tree for moments. A page
//! fault on a mapping takes `content` alone, so a write whose source is a mapping of the same file
//! is served.

use super::super::file::{File, Seeks};
use super::super::flags::OpenFlags;
use super::super::io::{ByteSink, ByteSource, MAX_RW_COUNT, copy_within_frames};
use super::super::node::Hold;
use super::below::{self, FileBelow};
use super::seals::Seals;
use super::{TmpNode, Tmpfs, tails};
use crate::vm::compaction::daemon;
use crate::vm::pages::{Pages, Wish};
use crate::vm::{Block, Mappings, PageOwner, PageSource, relocate_in};
use alloc::sync::{Arc, Weak};
use core::ops::Range;
use core::sync::atomic::{AtomicI32, Ordering};
use ebb_mm::Frame;
use linux_raw_sys::general::{
    F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_WRITE, FALLOC_FL_KEEP_SIZE,
    FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE,
};
use logic::errno::{Errno, SysResult};
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE, file_block};
use machine::sched;
use machine::sync::{Mutex, SpinLock};

/// The largest file: what the page index can hold, as Linux's `MAX_LFS_FILESIZE`.
const MAX_SIZE: u64 = i64::MAX as u64;
/// The size of a page in bytes.
pub(super) const PAGE: u64 = PAGE_SIZE as u64;
/// Pages that are freed before other tasks may run.
const FREE_BATCH: usize = 64;

/// Whether a long release of memory lets other tasks run.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Pace {
    /// Other tasks may run. The caller holds no spin lock.
    Breathing,
    /// No other task runs. The caller may hold a spin lock.
    Straight,
}

/// The number of pages that a search for a hole examines under one hold of the lock.
const HOLE_PAGES: u64 = 1024;

/// The pages and the size of a regular file.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The pages in memory, by their index in the file.
    pub(super) pages: Pages,
    /// The size of the file in bytes.
    pub(super) size: u64,
    /// Whether a program has allocated pages behind the end (`FALLOC_FL_KEEP_SIZE`).
    pub(super) reaches_beyond: bool,
    /// Whether the file is in the list of files with a huge block that reaches behind the end
    /// (`tails`).
    pub(super) has_tail: bool,
    /// The number of bytes from the start on that are read from the host if their page is not in
    /// memory.
    pub(super) below_bytes: u64,
    /// For a copy of a host file: whether it was ever opened for writing or resized, so that its
    /// pages must stay in memory. Always `false` for other files.
    pub(super) changes: bool,
    /// The number of pages that were read from the host and are unchanged. 0 if `changes` is set.
    pub(super) clean: u64,
}

impl Content {
    /// Returns whether some byte of the page at `index` is in the file.
    pub(super) fn holds(&self, index: u64) -> bool {
        index < self.size.div_ceil(PAGE)
    }
}

/// The pages that may be entered into a file.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Any page. The caller holds `writing`, so the file is not cut in the meantime.
    Any,
    /// Pages of the file only. The file may have been cut since the caller looked, and a page
    /// behind its end would never be freed.
    InFile,
}

/// The result of entering a page.
enum Entered {
    /// The frame is now the page of the file.
    Own,
    /// The file has this frame as the page already.
    Other(FrameRef),
    /// The file ends before the page.
    Beyond,
}

/// The content of a regular file.
#[derive(Debug)]
pub struct Regular {
    /// The pages and the size.
    pub(super) content: SpinLock<Content>,
    /// Held while a call changes the size or the pages. Taken before `content`.
    pub(super) writing: Mutex<()>,
    /// The address spaces that map the file.
    pub(super) mappings: Mappings,
    seals: Seals,
    /// The host's file of which this one is a copy. `None` if the guest created the file.
    pub(super) below: Option<FileBelow>,
    /// If positive, the number of open files that may write. If negative, the number of running
    /// programs that forbid writing.
    writers: AtomicI32,
}

impl Regular {
    /// Returns the offset of the first hole from `offset` on, or the size of the file if there is
    /// none.
    ///
    /// # Errors
    /// Fails with `ENXIO` if `offset` is at or behind the end.
    fn seek_hole(&self, offset: u64) -> Result<u64, Errno> {
        let mut index = offset / PAGE;
        // Ends at the latest behind the last page.
        loop {
            let content = self.content.lock();
            if offset >= content.size {
                return Err(Errno::ENXIO);
            }
            index = index.max(content.below_bytes.div_ceil(PAGE));
            let end = index + HOLE_PAGES;
            while index < end && content.pages.get(index).is_some() {
                index += 1;
            }
            if index < end {
                return Ok((index * PAGE).max(offset).min(content.size));
            }
            drop(content);
            sched::cond_resched();
        }
    }

    /// Makes the content of an empty file.
    pub(super) fn new() -> Self {
        Self {
            content: SpinLock::new(Content::default()),
            writing: Mutex::new(()),
            mappings: Mappings::new(),
            seals: Seals::new(),
            below: None,
            writers: AtomicI32::new(0),
        }
    }

    /// Counts a writer (`by` 1) or a running program (`by` -1). Fails with `ETXTBSY` if there are
    /// some of the other kind.
    fn claim(&self, by: i32) -> Result<(), Errno> {
        // Relaxed: the count itself is all that matters.
        let step = |count: i32| {
            let compatible = if by > 0 { count >= 0 } else { count <= 0 };
            if compatible {
                count.checked_add(by)
            } else {
                None
            }
        };
        match self
            .writers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step)
        {
            Ok(_) => Ok(()),
            Err(_) => Err(Errno::ETXTBSY),
        }
    }

    fn release(&self, by: i32) {
        self.writers.fetch_sub(by, Ordering::Relaxed);
    }

    /// Forbids that the file is written while it runs as a program. [`Self::permit_writing`] ends
    /// this.
    ///
    /// # Errors
    /// Fails with `ETXTBSY` if the file is open for writing.
    pub(super) fn forbid_writing(&self) -> Result<(), Errno> {
        self.claim(-1)
    }

    /// Ends what one call of [`Self::forbid_writing`] began.
    pub(super) fn permit_writing(&self) {
        self.release(-1);
    }

    /// Returns the size in bytes, and the number of pages. If the file is a copy of a host file,
    /// pages that only the host has count too.
    pub(super) fn extent(&self) -> (u64, u64) {
        let content = self.content.lock();
        let below = content.below_bytes.div_ceil(PAGE);
        (content.size, below.max(content.pages.len() as u64))
    }

    /// Returns the seals of the file.
    pub(super) fn seals(&self) -> &Seals {
        &self.seals
    }

    /// Adds the seals in `seals` to the file.
    ///
    /// # Errors
    /// Fails with `EPERM` if the file is sealed against more seals, and with `EBUSY` for
    /// `F_SEAL_WRITE` while a mapping may store.
    pub(super) fn add_seals(&self, seals: u32) -> Result<(), Errno> {
        let _writing = self.writing.lock();
        self.seals.add(seals, &self.mappings)
    }

    /// Makes `frame`, which holds the content already, the page `index` of the file. Used when the
    /// archive is unpacked.
    ///
    /// # Errors
    /// Fails with `ENOSPC` if the file system is full, and with `ENOMEM`.
    pub(super) fn adopt(&self, fs: &Tmpfs, index: u64, frame: FrameRef) -> Result<(), Errno> {
        fs.charge_page()?;
        self.mappings.own(&frame, index);
        let result = self.content.lock().pages.insert(index, frame);
        match result {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => {
                fs.discharge_pages(1);
                Err(Errno::ENOMEM)
            }
        }
    }

    fn set_size_field(&self, size: u64) {
        let mut content = self.content.lock();
        content.size = size;
        content.below_bytes = content.below_bytes.min(size);
    }

    /// Returns the page at `index`. Fills a hole with a page of zeros. The caller holds `writing`.
    /// Fails with `ENOSPC` if the file system is full, with `ENOMEM`, and with an error of reading
    /// the host's file.
    fn page_or_new(&self, node: &TmpNode, index: u64) -> Result<FrameRef, Errno> {
        let fs = &*node.fs;
        if let Some(frame) = self.content.lock().pages.get(index) {
            return Ok(frame.clone());
        }
        if let Some(frame) = self.fetch(node, index)? {
            return Ok(frame);
        }
        let frame = charged(fs, || memory::alloc_zeroed(Mobility::Movable))?;
        match self.enter(node, index, &frame, Place::Any)? {
            Entered::Other(first) => Ok(first),
            Entered::Own | Entered::Beyond => Ok(frame),
        }
    }

    /// Returns the page at `index` for a mapping. Fills a hole with a page of zeros. Returns `None`
    /// if the file ends before it. Fails as [`Self::page_or_new`] does.
    fn mapped_page(
        &self,
        node: &TmpNode,
        index: u64,
        wish: Wish,
    ) -> Result<Option<FrameRef>, Errno> {
        let fs = &*node.fs;
        {
            let content = self.content.lock();
            if !content.holds(index) {
                return Ok(None);
            }
            if let Some(frame) = content.pages.get(index) {
                let frame = frame.clone();
                drop(content);
                self.renew();
                return Ok(Some(frame));
            }
        }
        if let Some(frame) = self.fetch(node, index)? {
            return Ok(Some(frame));
        }
        if fs.may_have_blocks() {
            self.make_block(node, index, wish, Place::InFile);
            if let Some(frame) = self.content.lock().pages.get(index) {
                return Ok(Some(frame.clone()));
            }
        }
        let frame = charged(fs, || memory::alloc_zeroed(Mobility::Movable))?;
        Ok(match self.enter(node, index, &frame, Place::InFile)? {
            Entered::Own => Some(frame),
            Entered::Other(first) => Some(first),
            Entered::Beyond => None,
        })
    }

    /// Enters a charged page. If the file has another page at `index`, returns that page. If
    /// `place` is `InFile` and the file ends before `index`, enters nothing. Fails with `ENOMEM`.
    /// In all these cases the page is no longer charged.
    fn enter(
        &self,
        node: &TmpNode,
        index: u64,
        frame: &FrameRef,
        place: Place,
    ) -> Result<Entered, Errno> {
        // Done with the first page, because many files never get one.
        node.let_move(self);
        self.mappings.own(frame, index);
        let outcome = {
            let mut content = self.content.lock();
            if place == Place::InFile && !content.holds(index) {
                Ok(Entered::Beyond)
            } else if let Some(first) = content.pages.get(index) {
                Ok(Entered::Other(first.clone()))
            } else {
                match content.pages.insert(index, frame.clone()) {
                    Ok(_) => return Ok(Entered::Own),
                    Err(_) => Err(Errno::ENOMEM),
                }
            }
        };
        node.fs.discharge_pages(1);
        outcome
    }

    /// Frees the pages in `range`, in batches.
    pub(super) fn free_pages(&self, fs: &Tmpfs, range: Range<u64>, pace: Pace) {
        let mut from = range.start;
        if self.content.lock().pages.next_from(range.start).is_none() {
            return;
        }
        loop {
            let mut batch: [Option<FrameRef>; FREE_BATCH] = [const { None }; FREE_BATCH];
            let mut content = self.content.lock();
            let (taken, next) = content.pages.take_batch(from, range.end, &mut batch);
            from = next;
            content.forget_clean(taken as u64);
            drop(content);
            file_block::drop_pages(&mut batch[..taken]);
            fs.discharge_pages(taken as u64);
            if taken < FREE_BATCH {
                daemon::memory_freed();
                return;
            }
            if pace == Pace::Breathing {
                super::super::io::breathe(FREE_BATCH * PAGE_SIZE);
            }
        }
    }

    /// Frees all pages. Called when the file has no user left.
    pub(super) fn free_all(&self, fs: &Tmpfs, pace: Pace) {
        self.free_pages(fs, 0..u64::MAX, pace);
    }

    /// Zeroes the bytes of `range`, which lies within one page, if the page is there.
    fn zero_within_page(&self, range: Range<u64>) {
        let frame = self.content.lock().pages.get(range.start / PAGE).cloned();
        if let Some(frame) = frame {
            frame.zero(in_page(range.start), bytes(range.end - range.start));
        }
    }

    /// Makes the bytes of `range` zero, and frees whole pages. The caller holds `writing`. Fails
    /// with an error of reading the host's file.
    fn punch(&self, node: &TmpNode, range: Range<u64>) -> Result<(), Errno> {
        let fs = &*node.fs;
        self.fetch_whole(node)?;
        let first_whole = range.start.div_ceil(PAGE);
        let end_whole = range.end / PAGE;
        if first_whole > end_whole {
            self.zero_within_page(range);
            return Ok(());
        }
        if range.start < first_whole * PAGE {
            self.zero_within_page(range.start..first_whole * PAGE);
        }
        if range.end > end_whole * PAGE {
            self.zero_within_page(end_whole * PAGE..range.end);
        }
        if first_whole < end_whole {
            self.free_pages(fs, first_whole..end_whole, Pace::Breathing);
            self.mappings.invalidate(node, first_whole..end_whole);
        }
        Ok(())
    }
}

/// Returns the page that `make` allocates, charged to the limit of `fs`. If `fs` is full, frees
/// pages first. Fails with `ENOSPC` if none could be freed, and with the error of `make`.
fn charged(fs: &Tmpfs, make: impl FnOnce() -> Result<FrameRef, Errno>) -> Result<FrameRef, Errno> {
    while let Err(error) = fs.charge_page() {
        // Bounded by the number of files with pages to free.
        if !tails::trim_of(fs) && !below::make_page_room(fs) {
            return Err(error);
        }
    }
    make().inspect_err(|_| fs.discharge_pages(1))
}

/// Returns the offset within a page.
fn in_page(offset: u64) -> usize {
    bytes(offset % PAGE)
}

/// Converts a count of bytes that is known to be small.
fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Cuts or extends the file `node` to `size` bytes.
///
/// # Errors
/// Fails with `EINVAL` if `node` is no regular file, with `EFBIG` if `size` is too large, and with
/// `ETXTBSY` if the file runs as a program. Fails with the errors of changing the pages, such as
/// `EPERM` for a seal.
pub(super) fn set_size(node: &TmpNode, size: u64) -> Result<(), Errno> {
    let regular = node.regular().ok_or(Errno::EINVAL)?;
    if size > MAX_SIZE {
        return Err(Errno::EFBIG);
    }
    // Fails for a running program. A caller that has the file open for writing is counted already.
    regular.claim(1)?;
    let result = resize(node, regular, size);
    regular.release(1);
    result
}

fn resize(node: &TmpNode, regular: &Regular, size: u64) -> Result<(), Errno> {
    let _writing = regular.writing.lock();
    let old = regular.extent().0;
    regular.will_change();
    if size < old {
        regular.seals.check(F_SEAL_SHRINK)?;
        if !size.is_multiple_of(PAGE) {
            // Fetched now: a later fetch would find more bytes in the host's page than are left,
            // and take the file for another one.
            regular.fetch(node, size / PAGE)?;
        }
        regular.set_size_field(size);
        let first_gone = size.div_ceil(PAGE);
        if !size.is_multiple_of(PAGE) {
            // Bytes behind the end must read as zero if the file grows again.
            regular.zero_within_page(size..first_gone * PAGE);
        }
        regular.free_pages(&node.fs, first_gone..u64::MAX, Pace::Breathing);
        // Page tables must not map a page behind the end.
        if first_gone < old.div_ceil(PAGE) {
            regular.mappings.truncate(node, first_gone..u64::MAX);
        }
    } else if size > old {
        regular.seals.check(F_SEAL_GROW)?;
        regular.set_size_field(size);
    }
    node.touch_modified();
    Ok(())
}

/// Fills the empty file `node` with frames that hold its content, and sets its size to `size`
/// bytes.
///
/// # Errors
/// Fails with `EINVAL` if `node` is no regular file, and with `ENOSPC` or `ENOMEM`.
pub(super) fn fill(
    node: &TmpNode,
    frames: impl Iterator<Item = FrameRef>,
    size: u64,
) -> Result<(), Errno> {
    let regular = node.regular().ok_or(Errno::EINVAL)?;
    node.let_move(regular);
    for (index, frame) in (0..).zip(frames) {
        regular.adopt(&node.fs, index, frame)?;
    }
    regular.set_size_field(size);
    Ok(())
}

impl TmpNode {
    /// Fills an empty regular file with frames that hold its content, and sets its size to `size`
    /// bytes.
    ///
    /// # Errors
    /// Fails with `EINVAL` if this is no regular file, and with `ENOSPC` or `ENOMEM`.
    pub fn fill(&self, frames: impl Iterator<Item = FrameRef>, size: u64) -> Result<(), Errno> {
        fill(self, frames, size)
    }
}

impl PageOwner for TmpNode {
    fn unmap(&self, pages: Range<u64>) {
        if let Some(regular) = self.regular() {
            regular.unmap_to_move(self, pages);
        }
    }

    fn relocate(&self, index: u64, from: Frame, to: FrameRef) -> bool {
        let Some(regular) = self.regular() else {
            return false;
        };
        let mut content = regular.content.lock();
        let old = relocate_in(content.pages.replaceable(index, from), from, to);
        drop(content);
        old.is_some()
    }
}

impl PageSource for TmpNode {
    fn page(&self, index: u64, wish: Wish) -> Result<Option<FrameRef>, Errno> {
        let regular = self.regular().ok_or(Errno::ENODEV)?;
        regular.mapped_page(self, index, wish)
    }

    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        let Some(regular) = self.regular() else {
            return;
        };
        let content = regular.content.lock();
        let end = content.size.div_ceil(PAGE);
        // One page is found sooner without the loop over a row.
        if let [only] = pages {
            let page = content.pages.get(first).filter(|_| first < end);
            *only = page.map(FrameRef::clone_of_base);
        } else {
            let behind = end.min(first.saturating_add(pages.len() as u64));
            content.pages.for_each_in(first..behind, |index, page| {
                pages[bytes(index - first)] = Some(page.clone_of_base());
            });
        }
        drop(content);
        regular.renew();
    }

    fn has_blocks(&self) -> bool {
        self.fs.may_have_blocks()
    }

    fn make_block(&self, index: u64, wish: Wish) {
        if let Some(regular) = self.regular() {
            regular.make_block(self, index, wish, Place::InFile);
        }
    }

    fn share_block(&self, first: u64, wish: Wish) -> Block {
        self.regular().map_or(Block::None, |regular| {
            regular.share_block(&self.fs, first, wish)
        })
    }

    fn punch(&self, range: Range<u64>) -> Result<(), Errno> {
        let regular = self.regular().ok_or(Errno::EOPNOTSUPP)?;
        let _writing = regular.writing.lock();
        regular.seals.check(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)?;
        regular.punch(self, range)
    }

    fn mappings(&self) -> &Mappings {
        static EMPTY: Mappings = Mappings::new();
        self.regular().map_or(&EMPTY, |regular| &regular.mappings)
    }
}

/// An open regular file.
enum OpenRegular {
    /// The open file does not count as a writer.
    Reads(Reader),
    /// The open file counts as a writer.
    Writes(Arc<Writer>),
}

/// A reader of a file: an open file.
struct Reader(Arc<TmpNode>);

impl Reader {
    fn of(node: Arc<TmpNode>) -> Self {
        if let Some(regular) = node.regular() {
            regular.count_reader(1);
        }
        Self(node)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(regular) = self.0.regular() {
            regular.count_reader(-1);
        }
    }
}

/// A writer of a file: an open file, and the mappings that were made of it.
struct Writer(Arc<TmpNode>);

impl Writer {
    fn of(node: Arc<TmpNode>) -> Result<Arc<Self>, Errno> {
        let regular = node.regular().ok_or(Errno::EINVAL)?;
        node.fs.volume.open_writer()?;
        if let Err(error) = regular.claim(1) {
            node.fs.volume.close_writer();
            return Err(error);
        }
        regular.will_change();
        node.keep();
        Ok(Arc::new(Self(node)))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(regular) = self.0.regular() {
            regular.release(1);
        }
        self.0.fs.volume.close_writer();
    }
}

/// Opens the regular file `node`, for writing if `flags` say so. Returns the open file.
///
/// # Errors
/// If `flags` ask to write, fails with `EROFS` if the mount is read-only and with `ETXTBSY` if the
/// file runs as a program.
pub(super) fn open(node: Arc<TmpNode>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
    Ok(Arc::new(if flags.writable() {
        OpenRegular::Writes(Writer::of(node)?)
    } else {
        OpenRegular::Reads(Reader::of(node))
    }))
}

impl TmpNode {
    /// Lets the kernel move the pages that the file gets from now on.
    pub(super) fn let_move(&self, regular: &Regular) {
        regular.mappings.let_move(|| {
            let this: Weak<Self> = self.this.clone();
            this
        });
    }

    /// Opens a new memfd and returns the object that reads and writes. Unlike other writers, it
    /// does not keep the file from being executed.
    pub fn open_memfd(self: &Arc<Self>) -> Arc<dyn File> {
        Arc::new(OpenRegular::Reads(Reader::of(self.clone())))
    }
}

impl OpenRegular {
    fn node(&self) -> &Arc<TmpNode> {
        match self {
            Self::Reads(reader) => &reader.0,
            Self::Writes(writer) => &writer.0,
        }
    }

    fn regular(&self) -> Result<&Regular, Errno> {
        self.node().regular().ok_or(Errno::EINVAL)
    }

    /// Writes the next `count` bytes of `from`, which lie within one page, at the file offset
    /// `offset`. Returns how many bytes were written. Fails with the error of `from`, with `ENOSPC`
    /// or `ENOMEM`, and with an error of reading the host's file.
    fn write_page(
        &self,
        regular: &Regular,
        from: &mut dyn ByteSource,
        offset: u64,
        count: usize,
    ) -> SysResult {
        let fs = &self.node().fs;
        let index = offset / PAGE;
        let existing = regular.content.lock().pages.get(index).cloned();
        if let Some(frame) = existing {
            return from.take_frame(&frame, in_page(offset), count);
        }
        if fs.may_have_blocks() {
            regular.make_block(self.node(), index, Wish::None, Place::Any);
            let existing = regular.content.lock().pages.get(index).cloned();
            if let Some(frame) = existing {
                return from.take_frame(&frame, in_page(offset), count);
            }
        }
        if count < PAGE_SIZE || regular.content.lock().comes_from_below(index) {
            let frame = regular.page_or_new(self.node(), index)?;
            return from.take_frame(&frame, in_page(offset), count);
        }
        // A whole new page is filled before any task sees it, so it need not be cleared first.
        let mut taken = 0;
        let filled = charged(fs, || {
            let frame = memory::alloc_frame(Mobility::Movable)?;
            taken = from.take_frame(&frame, 0, PAGE_SIZE)?;
            frame.zero(taken, PAGE_SIZE - taken);
            Ok(frame)
        })?;
        if let Entered::Other(first) = regular.enter(self.node(), index, &filled, Place::Any)? {
            // A page fault has made the page since. It gets the bytes that were taken, and keeps
            // those that were stored behind them.
            copy_within_frames(&filled, &first, 0, taken);
        }
        Ok(taken)
    }
}

impl File for OpenRegular {
    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, _: OpenFlags) -> SysResult {
        let regular = self.regular()?;
        let mut done = 0;
        while to.room() > 0 && done < MAX_RW_COUNT {
            let content = regular.content.lock();
            if *offset >= content.size {
                break;
            }
            let in_file = bytes(content.size - *offset);
            let frame = content.pages.get(*offset / PAGE).cloned();
            drop(content);
            let count = (PAGE_SIZE - in_page(*offset)).min(in_file).min(to.room());
            let frame = match frame {
                Some(frame) => Ok(Some(frame)),
                None => regular.fetch(self.node(), *offset / PAGE),
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            let moved = match &frame {
                Some(frame) => to.put_frame(frame, in_page(*offset), count),
                None => to.put_zeros(count),
            };
            match moved {
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
        }
        if done > 0 {
            self.node().touch_accessed();
            regular.renew();
        }
        Ok(done)
    }

    fn write(&self, from: &mut dyn ByteSource, offset: &mut u64, flags: OpenFlags) -> SysResult {
        let regular = self.regular()?;
        if from.left() == 0 {
            return Ok(0);
        }
        let _writing = regular.writing.lock();
        regular.seals.check(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)?;
        let old_size = regular.extent().0;
        if flags.contains(OpenFlags::APPEND) {
            *offset = old_size;
        }
        if *offset >= MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let mut room = MAX_SIZE - *offset;
        if let Some(limit) = from.size_limit() {
            if *offset >= limit {
                return Err(Errno::FILE_SIZE_LIMIT);
            }
            room = room.min(limit - *offset);
        }
        if regular.seals.get() & F_SEAL_GROW != 0 {
            let end = *offset + (from.left() as u64).min(room);
            if end > old_size {
                // As on Linux, the page that holds the end is written as a whole or not at all.
                room = (old_size / PAGE * PAGE).saturating_sub(*offset);
                if room == 0 {
                    return Err(Errno::EPERM);
                }
            }
        }
        let total = from.left().min(MAX_RW_COUNT).min(bytes(room));
        let mut done = 0;
        while done < total {
            let count = (PAGE_SIZE - in_page(*offset)).min(total - done);
            match self.write_page(regular, from, *offset, count) {
                Ok(moved) => {
                    done += moved;
                    *offset += moved as u64;
                    let mut content = regular.content.lock();
                    content.size = content.size.max(*offset);
                    drop(content);
                    if moved < count {
                        break;
                    }
                }
                Err(error) if done == 0 => {
                    // A page that was made for the failed write, behind the end, must not stay.
                    let index = *offset / PAGE;
                    let stays = regular.content.lock().pages.is_whole(index);
                    if !stays && index >= regular.extent().0.div_ceil(PAGE) {
                        regular.free_pages(&self.node().fs, index..index + 1, Pace::Breathing);
                    }
                    return Err(error);
                }
                Err(_) => break,
            }
            super::super::io::breathe(done);
        }
        self.node().touch_modified();
        Ok(done)
    }

    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }

    fn hold(&self) -> Option<Hold> {
        match self {
            Self::Reads(_) => None,
            Self::Writes(writer) => Some(writer.clone()),
        }
    }

    fn seek_data(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let regular = self.regular()?;
        if hole {
            return regular.seek_hole(offset);
        }
        let content = regular.content.lock();
        if offset >= content.size {
            return Err(Errno::ENXIO);
        }
        if offset < content.below_bytes {
            return Ok(offset);
        }
        let next = content.pages.next_from(offset / PAGE);
        let index = next.ok_or(Errno::ENXIO)?;
        let at = (index * PAGE).max(offset);
        if at < content.size {
            Ok(at)
        } else {
            Err(Errno::ENXIO)
        }
    }

    fn page_source(&self) -> Option<Arc<dyn PageSource>> {
        Some(self.node().clone())
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
        let regular = self.regular()?;
        let end = offset
            .checked_add(length)
            .filter(|&end| end <= MAX_SIZE)
            .ok_or(Errno::EFBIG)?;
        let keep_size = mode & FALLOC_FL_KEEP_SIZE != 0;
        let known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
        if mode & !known != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let _writing = regular.writing.lock();
        if mode & FALLOC_FL_PUNCH_HOLE != 0 {
            if !keep_size || mode & FALLOC_FL_ZERO_RANGE != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            regular.seals.check(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)?;
            regular.punch(self.node(), offset..end)?;
            self.node().touch_modified();
            return Ok(());
        }
        let old_size = regular.extent().0;
        if !keep_size && end > old_size {
            regular.seals.check(F_SEAL_GROW)?;
        }
        if mode & FALLOC_FL_ZERO_RANGE != 0 {
            regular.seals.check(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)?;
            regular.punch(self.node(), offset..end)?;
        }
        let pages = offset / PAGE..end.div_ceil(PAGE);
        let limit = self.node().fs.page_limit.load(Ordering::Relaxed);
        if limit != 0 && pages.end - pages.start > limit {
            return Err(Errno::ENOSPC);
        }
        if keep_size && end > old_size {
            regular.content.lock().reaches_beyond = true;
        }
        for index in pages {
            // As on Linux, because the call may be using up all memory.
            let allocated = if sched::current().signal_pending() {
                Err(Errno::EINTR)
            } else {
                regular.make_block(self.node(), index, Wish::None, Place::Any);
                regular.page_or_new(self.node(), index).map(drop)
            };
            if let Err(error) = allocated {
                // As on Linux, the pages behind the old end are freed.
                let beyond = old_size.div_ceil(PAGE)..u64::MAX;
                regular.free_pages(&self.node().fs, beyond, Pace::Breathing);
                return Err(error);
            }
            super::super::io::breathe(bytes(index % 4096 * PAGE));
        }
        if !keep_size {
            let mut content = regular.content.lock();
            content.size = content.size.max(end);
        }
        self.node().touch_modified();
        Ok(())
    }
}

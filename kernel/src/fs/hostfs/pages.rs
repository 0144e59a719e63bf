//! Pages of files in memory, and which of them the host does not have yet.
//!
//! `moving` is held while bytes of a file go to the host or come from it. It is never held while a
//! program's memory is accessed, which may be a mapping of the same file. `content` is held for
//! moments.
//!
//! Compaction replaces the frame of a page whose only reference is that of the file. So code that
//! uses a frame holds a reference to it from the lookup to the last access.

use super::super::used;
use super::node::HostNode;
use super::writeback;
use crate::drivers::volume::{self, FRAMES_MAX, Opcode, Outgoing, Request, change};
use crate::vm::{PageOwner, relocate_in};
use alloc::sync::Weak;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use ebb_mm::Frame;
use logic::errno::Errno;
use logic::radix::RadixTree;
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE, spare_file_frame, stats};
use machine::sched;

/// The size of a page in bytes.
pub(super) const PAGE: u64 = PAGE_SIZE as u64;
/// Pages that are dropped in one hold of the lock.
const BATCH: usize = 32;
/// Pages that are examined in one hold of the lock.
const LOOKS: usize = 512;

/// Frames that are being written to the host.
type Row = [Option<FrameRef>; FRAMES_MAX];

#[derive(Debug)]
struct Page {
    frame: FrameRef,
    /// Whether a mapping may have changed the page.
    dirty: bool,
}

/// The pages of a file in memory.
#[derive(Debug)]
pub(super) struct Content {
    pages: RadixTree<Page>,
    dirty: u64,
}

/// Selects the pages of a file that are dropped.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// Clean pages without other references.
    Unused,
    /// All clean pages. A task that uses one keeps its old content.
    Clean,
    /// All pages.
    All,
}

impl Content {
    /// Returns a content without pages.
    pub(super) const fn new() -> Self {
        Self {
            pages: RadixTree::new(),
            dirty: 0,
        }
    }
}

impl HostNode {
    /// Returns the frame of the page at `index`, or `None` if the page is not in memory.
    pub(super) fn ready(&self, index: u64) -> Option<FrameRef> {
        let content = self.content.lock();
        content.pages.get(index).map(|page| page.frame.clone())
    }

    /// Stores the frames of the pages from `first` on in `row`. The page `first + n` goes to
    /// `row[n]`, which does not change if the page is not in memory or behind the end of the file.
    pub(super) fn ready_row(&self, first: u64, row: &mut [Option<FrameRef>]) {
        let end = self.size().div_ceil(PAGE);
        let content = self.content.lock();
        let behind = end.min(first.saturating_add(row.len() as u64));
        content.pages.for_each_in(first..behind, |index, page| {
            let at = usize::try_from(index - first).unwrap_or(usize::MAX);
            row[at] = Some(page.frame.clone_of_base());
        });
        drop(content);
        self.used.renew();
    }

    /// Returns the page at `index`. If the page is not in memory, reads it and pages behind it, up
    /// to `ahead` in all. Returns `None` if the file ends before the page.
    ///
    /// # Errors
    /// Fails with `ENOMEM`, and with the host's error.
    pub(super) fn fetch(&self, index: u64, ahead: usize) -> Result<Option<FrameRef>, Errno> {
        self.settle();
        self.used.renew();
        if index >= self.size().div_ceil(PAGE) {
            return Ok(None);
        }
        if let Some(frame) = self.ready(index) {
            return Ok(Some(frame));
        }
        let moving = self.moving.lock();
        let (there, next) = {
            let content = self.content.lock();
            let there = content.pages.get(index).map(|page| page.frame.clone());
            (there, content.pages.next_from(index).map(|(at, _)| at))
        };
        if there.is_some() {
            return Ok(there);
        }
        let end = self.size().div_ceil(PAGE);
        let room = next.unwrap_or(end).min(end).saturating_sub(index);
        let most = usize::try_from(room)
            .unwrap_or(usize::MAX)
            .clamp(1, ahead.clamp(1, FRAMES_MAX));
        self.name.give(|| {
            let this: Weak<Self> = self.this.clone();
            this
        });
        let mut frames = Vec::new();
        frames.try_reserve_exact(most).map_err(|_| Errno::ENOMEM)?;
        frames.push(memory::alloc_zeroed(Mobility::Movable)?);
        // Pages behind it are only read while there is enough memory.
        while frames.len() < most
            && !memory::is_short(FRAMES_MAX as u64)
            && let Some(frame) = spare_file_frame()
        {
            frame.zero(0, PAGE_SIZE);
            frames.push(frame);
        }
        let count = volume::read(self.handle, index * PAGE, &frames, |attributes| {
            self.learn(attributes)
        })?;
        self.settle_held();
        // The attributes are older than the read, so the file may have been cut since.
        let (size, came) = (self.size(), index * PAGE + count as u64);
        let end = size.min(came).div_ceil(PAGE);
        let mut wanted = None;
        for (at, frame) in (index..end).zip(frames) {
            if at == index {
                wanted = Some(frame.clone());
            }
            if came < size && (at + 1) * PAGE > came {
                // The page is incomplete. It is read again next time.
                break;
            }
            self.name.own(&frame, at);
            let page = Page {
                frame,
                dirty: false,
            };
            let mut content = self.content.lock();
            if content.pages.get(at).is_none() {
                let entered = content.pages.insert(at, page).is_ok();
                drop(content);
                if entered {
                    memory::count_file_frames(1);
                    stats::count_host_pages(1);
                }
            }
        }
        drop(moving);
        used::pages_came();
        Ok(wanted)
    }

    /// Marks the page at `index` as dirty, because a mapping may store to it from now on. The file
    /// must be in the list of files with dirty pages. Returns `false` if `frame` is not the frame
    /// of that page any more.
    pub(super) fn mark_dirty(&self, index: u64, frame: &FrameRef) -> bool {
        let mut content = self.content.lock();
        let Some(page) = content.pages.get_mut(index) else {
            return false;
        };
        if page.frame.address() != frame.address() {
            return false;
        }
        let newly = !page.dirty;
        page.dirty = true;
        if newly {
            content.dirty += 1;
        }
        drop(content);
        if newly {
            writeback::count_dirty(1);
        }
        true
    }

    /// Returns whether any page is in memory.
    pub(super) fn has_pages(&self) -> bool {
        self.content.lock().pages.next_from(0).is_some()
    }

    /// Returns whether any page has changes that the host does not have.
    pub(super) fn is_dirty(&self) -> bool {
        self.content.lock().dirty > 0
    }

    /// Clears the dirty marks of the first run of dirty pages from `from` on. Puts their frames
    /// into `frames`. Returns the first index and the number of pages, or `None` if no page is
    /// dirty. Allocates nothing.
    fn take_dirty(&self, from: u64, frames: &mut Row) -> Option<(u64, usize)> {
        let mut len = 0;
        let mut at = from;
        // Ends: `at` grows.
        loop {
            let mut content = self.content.lock();
            if content.dirty == 0 {
                return None;
            }
            for _ in 0..LOOKS {
                let (index, page) = content.pages.next_from(at)?;
                let dirty = page.dirty;
                if dirty {
                    at = index;
                    break;
                }
                at = index + 1;
            }
            let mut next = at;
            while let Some(place) = frames.get_mut(len)
                && let Some(page) = content.pages.get_mut(next)
                && page.dirty
            {
                page.dirty = false;
                *place = Some(page.frame.clone());
                len += 1;
                next += 1;
            }
            if len > 0 {
                content.dirty -= len as u64;
                drop(content);
                writeback::count_dirty(-(len as i64));
                return Some((at, len));
            }
        }
    }

    /// Writes the pages that mappings have changed up to now to the host. Counts errors in
    /// `failures`.
    pub(super) fn write_back(&self) {
        let mut from = 0;
        // Each turn goes on behind the last one.
        loop {
            // Held until the host has the pages: no other task cuts the file or writes there.
            let moving = self.moving.lock();
            let mut frames = [const { None }; FRAMES_MAX];
            let Some((first, len)) = self.take_dirty(from, &mut frames) else {
                return;
            };
            from = first + len as u64;
            // A task that stores to them from now on requests them again, which marks them.
            self.views.take_stores(first..from);
            let left = self.size().saturating_sub(first * PAGE);
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let count = left.min(len * PAGE_SIZE);
            if count > 0 {
                let bytes = Outgoing {
                    frames: &frames[..len],
                    within: 0,
                    count,
                    offset: Some(first * PAGE),
                };
                let written =
                    volume::write(self.handle, &bytes, |attributes| self.learn(attributes));
                match written {
                    Ok((written, _)) if written == count => {}
                    Ok(_) => self.failures.note(Errno::ENOSPC),
                    Err(error) => self.failures.note(error),
                }
                self.settle_held();
            }
            drop(moving);
            sched::cond_resched();
        }
    }

    /// Drops up to `most` pages of `range` that `choice` selects. Returns their number.
    pub(super) fn drop_range(&self, range: Range<u64>, choice: Choice, most: usize) -> usize {
        let (mut at, mut dropped) = (range.start, 0);
        while dropped < most {
            let mut batch = [const { None }; BATCH];
            let (mut taken, mut dirty, mut over) = (0, 0, false);
            let mut content = self.content.lock();
            for _ in 0..LOOKS {
                if taken == BATCH || dropped + taken >= most {
                    break;
                }
                let next = content
                    .pages
                    .next_from(at)
                    .filter(|(index, _)| *index < range.end);
                let Some((index, page)) = next else {
                    over = true;
                    break;
                };
                at = index + 1;
                let goes = match choice {
                    Choice::Unused => !page.dirty && page.frame.references() == 1,
                    Choice::Clean => !page.dirty,
                    Choice::All => true,
                };
                if goes {
                    dirty += i64::from(page.dirty);
                    content
                        .pages
                        .take_batch(index, index + 1, &mut batch[taken..=taken]);
                    taken += 1;
                }
            }
            content.dirty -= dirty.cast_unsigned();
            drop(content);
            drop(batch);
            memory::count_file_frames(-(taken as i64));
            stats::count_host_pages(-(taken as i64));
            writeback::count_dirty(-dirty);
            dropped += taken;
            if over {
                break;
            }
            if most == usize::MAX && matches!(choice, Choice::Unused) {
                sched::give_way();
            }
        }
        dropped
    }

    /// Drops all pages. Called when the node has no user left.
    pub(super) fn drop_pages(&self) {
        self.drop_range(0..u64::MAX, Choice::All, usize::MAX);
    }

    /// If others have changed the file on the host, drops the pages of the file that no mapping has
    /// changed. Locks `moving`.
    pub(super) fn settle(&self) {
        if self.changed.load(Ordering::Relaxed) {
            let _moving = self.moving.lock();
            self.settle_held();
        }
    }

    /// Does the same as [`Self::settle`]. The caller already holds `moving`.
    pub(super) fn settle_held(&self) {
        // Relaxed: as in `learn`.
        if !self.changed.swap(false, Ordering::Relaxed) {
            return;
        }
        self.drop_range(0..u64::MAX, Choice::Clean, usize::MAX);
        self.views.invalidate(&(0..u64::MAX));
    }

    /// Cuts or extends the file to `size` bytes, on the host and in memory. If the file shrinks,
    /// its pages behind the new end are dropped and leave all mappings.
    ///
    /// # Errors
    /// Fails with the host's error. Nothing in memory is changed then.
    pub(super) fn resize(&self, size: u64) -> Result<(), Errno> {
        let _moving = self.moving.lock();
        let old = self.size();
        let mut request = Request::new(Opcode::SetAttributes, self.handle);
        request.numbers[..3].copy_from_slice(&[change::SIZE, 0, size]);
        volume::attributes(&request, |attributes| {
            self.learn(attributes);
            Ok(())
        })?;
        self.settle_held();
        let first_gone = size.div_ceil(PAGE);
        if size < old {
            self.drop_range(first_gone..u64::MAX, Choice::All, usize::MAX);
            let within = in_page(size);
            if within > 0
                && let Some(frame) = self.ready(size / PAGE)
            {
                // Bytes behind the end must read as zero if the file grows again.
                frame.zero(within, PAGE_SIZE - within);
            }
            self.views.truncate(&(first_gone..u64::MAX));
        }
        Ok(())
    }

    /// Writes `bytes` to the host, and to pages that are in memory. Returns the number of bytes
    /// written, and the offset of the first of them in the file.
    ///
    /// # Errors
    /// Fails with the host's error.
    pub(super) fn send(&self, bytes: &Outgoing<'_>) -> Result<(usize, u64), Errno> {
        let _moving = self.moving.lock();
        let result = volume::write(self.handle, bytes, |attributes| self.learn(attributes));
        self.settle_held();
        let (count, offset) = result?;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let from = bytes.within + done;
            let piece = (PAGE_SIZE - in_page(at)).min(PAGE_SIZE - from % PAGE_SIZE);
            let piece = piece.min(count - done);
            if let Some(page) = self.ready(at / PAGE)
                && let Some(Some(frame)) = bytes.frames.get(from / PAGE_SIZE)
            {
                copy(frame, from % PAGE_SIZE, &page, in_page(at), piece);
            }
            done += piece;
        }
        Ok((count, offset))
    }
}

impl PageOwner for HostNode {
    fn unmap(&self, pages: Range<u64>) {
        self.views.ask_again(&pages);
    }

    fn relocate(&self, index: u64, from: Frame, to: FrameRef) -> bool {
        let mut content = self.content.lock();
        let place = content.pages.get_mut(index).map(|page| &mut page.frame);
        let old = relocate_in(place, from, to);
        drop(content);
        old.is_some()
    }
}

/// Returns the position of the byte at `offset` within its page.
pub(super) fn in_page(offset: u64) -> usize {
    // Less than a page.
    usize::try_from(offset % PAGE).unwrap_or(0)
}

fn copy(from: &FrameRef, at: usize, to: &FrameRef, to_at: usize, count: usize) {
    let mut buffer = [0; 512];
    let mut done = 0;
    while done < count {
        let piece = (count - done).min(buffer.len());
        from.read(at + done, &mut buffer[..piece]);
        to.write(to_at + done, &buffer[..piece]);
        done += piece;
    }
}

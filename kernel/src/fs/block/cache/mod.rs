//! The page cache of a disk.
//!
//! A page is first *loading*: its number is taken and its frame is with the device, and whoever
//! wants it waits. Then it is *ready*, and as long as it is, *dirty* where the disk does not have
//! it yet and *writing* while the device takes it; both at once where it changed meanwhile.
//!
//! Who reads or changes a ready page holds a reference to its frame, taken under the lock. A page
//! is dropped only when the tree holds the one reference, so nobody's change is lost: it is noted
//! before the reference goes. Page tables count as holders too.
//!
//! The lock is a spin lock, taken from interrupts' ends of requests as well; no other lock is
//! taken under it. Nothing that writes pages allocates.

#![expect(unsafe_code, reason = "a cache is there for good")]

mod drop;
mod write;

pub(super) use drop::Choice;
pub(super) use write::Run;

use crate::drivers::disk::{
    Data, Disk, Finish, IoError, MAX_PAGES, Operation, Owner, Request, SECTOR_BYTES,
};
use crate::vm::PageSource;
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use logic::errno::Errno;
use logic::radix::RadixTree;
use machine::memory::stats;
use machine::memory::{FrameRef, Mobility, PAGE_SIZE, alloc_frame, pressure, spare_file_frame};
use machine::sched;
use machine::sync::{Once, SpinLock, WaitQueue};

pub(super) const PAGE: u64 = PAGE_SIZE as u64;
/// Sectors of a page, and the bytes of one.
const PAGE_SECTORS: u64 = PAGE / SECTOR_BYTES;
const LEAST_BYTES: usize = 512;
const _: () = assert!(LEAST_BYTES as u64 == SECTOR_BYTES);
/// Attempts to have a page that others drop again at once.
const TRIES: u32 = 64;
/// Pages that are looked at between two openings of the lock.
const LOOKS: u32 = 512;
/// Requests that fail before the log says no more about it.
const ERRORS_LOGGED: u64 = 16;

/// All pages of a disk.
pub(super) const ALL: Range<u64> = 0..u64::MAX;

struct Page {
    frame: FrameRef,
    loading: bool,
    dirty: bool,
    writing: bool,
    /// How often it was used since it came or reclaim passed by, up to [`OFTEN`]: what is read
    /// once, from end to end, goes first.
    uses: u8,
}

/// Uses that keep a page when reclaim comes by.
const OFTEN: u8 = 2;

impl Page {
    fn new(frame: FrameRef) -> Self {
        Self {
            frame,
            loading: false,
            dirty: false,
            writing: false,
            uses: 0,
        }
    }

    fn used(&mut self) {
        self.uses = (self.uses + 1).min(OFTEN);
    }

    fn is_clean(&self) -> bool {
        !self.loading && !self.dirty && !self.writing
    }
}

struct State {
    pages: RadixTree<Page>,
    dirty: u64,
    writing: u64,
    /// All dirty pages lie in here.
    dirty_within: Range<u64>,
    /// Where reclaim goes on.
    hand: u64,
    /// Pages that could not be read since boot, and written.
    read_errors: u64,
    write_errors: u64,
}

/// The pages of one disk.
pub(super) struct Cache {
    pub(super) disk: &'static Disk,
    /// Has all caches give up as many old pages, before this one takes new ones where memory is short.
    pub(super) make_room: fn(u64),
    state: SpinLock<State>,
    /// Pages have become ready, or were written.
    changed: WaitQueue,
    /// Who maps the disk without changing it, and who may change it.
    pub(super) readers: Once<Arc<dyn PageSource>>,
    pub(super) writers: Once<Arc<dyn PageSource>>,
    /// Open files.
    pub(super) opens: AtomicU32,
    /// Pages that were handed to the disk since boot, and those that it has taken or refused.
    handed: AtomicU64,
    written: AtomicU64,
}

/// Page numbers `first..first + count`.
fn run(first: u64, count: usize) -> Range<u64> {
    first..first + count as u64
}

impl Cache {
    pub(super) fn new(disk: &'static Disk, make_room: fn(u64)) -> Self {
        Self {
            disk,
            make_room,
            state: SpinLock::new(State {
                pages: RadixTree::new(),
                dirty: 0,
                writing: 0,
                dirty_within: 0..0,
                hand: 0,
                read_errors: 0,
                write_errors: 0,
            }),
            changed: WaitQueue::new(),
            readers: Once::new(),
            writers: Once::new(),
            opens: AtomicU32::new(0),
            handed: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Bytes of the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    /// Pages of the disk, the last perhaps in part.
    pub(super) fn pages(&self) -> u64 {
        self.bytes().div_ceil(PAGE)
    }

    /// Pages that a request may have.
    fn request_pages(&self) -> usize {
        self.disk.limits().segments.min(MAX_PAGES)
    }

    /// Pages dirty and under way.
    pub(super) fn unwritten(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.dirty, state.writing)
    }

    /// How often pages could not be written so far.
    pub(super) fn write_errors(&self) -> u64 {
        self.state.lock().write_errors
    }

    /// Pages that were handed to the disk since boot.
    pub(super) fn handed(&self) -> u64 {
        // Relaxed: as `written`.
        self.handed.load(Ordering::Relaxed)
    }

    /// Pages that were written, or failed to be, since boot.
    pub(super) fn written(&self) -> u64 {
        // Relaxed: a hint of progress.
        self.written.load(Ordering::Relaxed)
    }

    /// Where tasks wait for pages to be written.
    pub(super) fn changed(&self) -> &WaitQueue {
        &self.changed
    }

    /// The page with this number if it is ready; `again` if the caller used it just now.
    pub(super) fn ready(&self, index: u64, again: bool) -> Option<FrameRef> {
        let mut state = self.state.lock();
        let page = state.pages.get_mut(index).filter(|page| !page.loading)?;
        if !again {
            page.used();
        }
        Some(page.frame.clone())
    }

    /// Those pages of a row that are ready, each in its place.
    pub(super) fn ready_row(&self, first: u64, row: &mut [Option<FrameRef>]) {
        let mut state = self.state.lock();
        for (index, place) in (first..self.pages()).zip(row) {
            if let Some(page) = state.pages.get_mut(index)
                && !page.loading
            {
                page.used();
                *place = Some(page.frame.clone_of_base());
            }
        }
    }

    /// The page with this number, read if need be, and with it up to `ahead` pages in all. The page
    /// lies within the disk. May wait.
    ///
    /// # Errors
    /// `EIO` when the disk could not read it, `ENOMEM`, `EINTR` when the task is being killed.
    pub(super) fn page(&self, index: u64, ahead: u64) -> Result<FrameRef, Errno> {
        for _ in 0..TRIES {
            let (known, errors) = {
                let mut state = self.state.lock();
                let errors = state.read_errors;
                match state.pages.get_mut(index) {
                    Some(page) if !page.loading => {
                        page.used();
                        return Ok(page.frame.clone());
                    }
                    other => (other.is_some(), errors),
                }
            };
            if !known {
                match self.read_in(index, ahead) {
                    // The tree itself may have lacked memory, where it must not wait for it.
                    Err(Errno::ENOMEM) if pressure::shrink_caches() => continue,
                    other => other?,
                }
            }
            self.wait_loaded(index)?;
            let state = self.state.lock();
            if state.pages.get(index).is_none() && state.read_errors != errors {
                return Err(Errno::EIO);
            }
        }
        Err(Errno::EIO)
    }

    fn is(&self, index: u64, what: impl FnOnce(&Page) -> bool) -> bool {
        self.state.lock().pages.get(index).is_some_and(what)
    }

    /// Begins to read absent pages from `index` on, up to `ahead` of them and to the first that is
    /// there. Does not wait for them.
    ///
    /// # Errors
    /// `ENOMEM`; `ENXIO` behind the end of the disk.
    pub(super) fn read_in(&'_ self, index: u64, ahead: u64) -> Result<(), Errno> {
        let this = self.for_good();
        let left = self.pages().checked_sub(index).filter(|&left| left > 0);
        let most = left.ok_or(Errno::ENXIO)?.min(self.request_pages() as u64);
        let wanted = usize::try_from(ahead.clamp(1, most)).unwrap_or(1);
        (self.make_room)(wanted as u64);
        let mut data = Data::new();
        data.push(alloc_frame(Mobility::Movable)?);
        // More than the one that is needed only as far as nobody has to wait for it.
        while data.pages() < wanted
            && let Some(frame) = spare_file_frame()
        {
            data.push(frame);
        }
        let entered = {
            let mut state = self.state.lock();
            let mut entered = 0;
            for (at, frame) in (index..).zip(data.frames()) {
                if state.pages.get(at).is_some() {
                    break;
                }
                let mut page = Page::new(frame.clone());
                page.loading = true;
                if state.pages.insert(at, page).is_err() {
                    break;
                }
                entered += 1;
            }
            if entered == 0 && state.pages.get(index).is_none() {
                return Err(Errno::ENOMEM);
            }
            entered
        };
        stats::count_disk_pages(entered as i64);
        data.truncate(entered);
        if entered > 0 {
            data.cut(self.bytes_in(index, entered));
            sched::current().transfers().count_disk_read(data.bytes());
            this.disk.submit(Request {
                operation: Operation::Read {
                    sector: index * PAGE_SECTORS,
                },
                data,
                owner: Owner::Finish(this),
            });
        }
        Ok(())
    }

    /// Caches are made once and stay.
    fn for_good(&self) -> &'static Self {
        // SAFETY: every cache lies in the static of `super`, which is the only caller of `new`, and
        // is never moved or dropped there.
        unsafe { &*core::ptr::from_ref(self) }
    }

    /// Bytes of the disk that `pages` pages have, all within the disk when it was asked last; at
    /// least a sector of each, in case that the disk has shrunk.
    fn bytes_in(&self, index: u64, pages: usize) -> usize {
        let least = (pages - 1) * PAGE_SIZE + LEAST_BYTES;
        let left = self.bytes().saturating_sub(index * PAGE);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        left.clamp(least, pages * PAGE_SIZE)
    }

    /// Notes that a page was changed, whose frame the caller holds. One that was dropped meanwhile
    /// (the range was discarded, or written around the cache) comes back as the caller has it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn mark_dirty(&self, index: u64, frame: &FrameRef) -> Result<(), Errno> {
        self.enter_dirty(index, frame).map(drop)
    }

    /// Enters a page that the disk does not have yet; if another is there, that one is marked and
    /// given back, and holds what it held.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn enter_dirty(
        &self,
        index: u64,
        frame: &FrameRef,
    ) -> Result<Option<FrameRef>, Errno> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mut other = None;
        let mut entered = false;
        let page = match state.pages.get_mut(index) {
            Some(page) => {
                if page.loading {
                    // Somebody reads it; the caller waits and comes again.
                    return Err(Errno::EAGAIN);
                }
                if page.frame.address() != frame.address() {
                    other = Some(page.frame.clone());
                }
                page
            }
            None => {
                let page = Page::new(frame.clone());
                state.pages.insert(index, page).map_err(|_| Errno::ENOMEM)?;
                entered = true;
                state.pages.get_mut(index).ok_or(Errno::ENOMEM)?
            }
        };
        page.used();
        let newly = !page.dirty;
        page.dirty = true;
        if newly {
            state.dirty += 1;
            let within = &mut state.dirty_within;
            *within = if within.is_empty() {
                index..index + 1
            } else {
                within.start.min(index)..within.end.max(index + 1)
            };
        }
        drop(guard);
        if entered {
            stats::count_disk_pages(1);
        }
        if newly {
            stats::count_dirty_pages(1);
            sched::current().transfers().count_disk_write(PAGE_SIZE);
        }
        Ok(other)
    }

    /// Waits until no page of this number is being read.
    ///
    /// # Errors
    /// `EINTR` when the task is being killed.
    pub(super) fn wait_loaded(&self, index: u64) -> Result<(), Errno> {
        let loaded = || !self.is(index, |page| page.loading);
        if loaded() {
            return Ok(());
        }
        let _waits = sched::pressure::io_wait();
        self.changed.wait_killable(loaded).map_err(|_| Errno::EINTR)
    }

    /// Whether somebody may change pages through a mapping.
    pub(super) fn is_mapped(&self) -> bool {
        let mapped = |view: &Arc<dyn PageSource>| view.mappings().is_used();
        self.writers.get().is_some_and(mapped)
    }
}

impl Finish for Cache {
    fn done(&self, operation: Operation, data: Data, result: Result<(), IoError>) {
        let (first, reading) = match operation {
            Operation::Read { sector } => (sector / PAGE_SECTORS, true),
            Operation::Write { sector } => (sector / PAGE_SECTORS, false),
            _ => return,
        };
        if reading && !data.bytes().is_multiple_of(PAGE_SIZE) {
            // What lies behind the end of the disk reads as zero.
            let used = data.bytes() % PAGE_SIZE;
            if let Some(last) = data.frames().last() {
                last.zero(used, PAGE_SIZE - used);
            }
        }
        let mut gone = 0;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for index in run(first, data.pages()) {
            let Some(page) = state.pages.get_mut(index) else {
                continue;
            };
            if reading {
                page.loading = false;
            } else {
                page.writing = false;
            }
            if reading && result.is_err() {
                // `data` holds the frame, so it is not freed under the lock.
                state.pages.take_batch(index, index + 1, &mut [None]);
                gone += 1;
            }
        }
        match (reading, result.is_err()) {
            (true, true) => state.read_errors += 1,
            (false, true) => state.write_errors += 1,
            _ => {}
        }
        if !reading {
            state.writing -= data.pages() as u64;
        }
        let errors = state.read_errors + state.write_errors;
        drop(guard);
        stats::count_disk_pages(-gone);
        if !reading {
            stats::count_writing_pages(-(data.pages() as i64));
            // Relaxed: a hint of progress.
            self.written
                .fetch_add(data.pages() as u64, Ordering::Relaxed);
        }
        if let Err(error) = result
            && errors <= ERRORS_LOGGED
        {
            let what = if reading { "read" } else { "write" };
            let name = self.disk.name();
            machine::console!(
                "{name}: cannot {what} {} bytes at {}: {error:?}",
                data.bytes(),
                first * PAGE
            );
        }
        drop(data);
        self.changed.wake_all();
    }
}

//! The page cache of a disk.
//!
//! A page is first *loading*: its number is in the tree, the device fills its frame, and tasks that
//! want it wait. Then it is *ready*. A ready page is *dirty* while the disk lacks its content and
//! *writing* while the device writes it. It is both if it changed during the write.
//!
//! A task that reads or changes a ready page holds a reference to its frame, taken under the lock.
//! A page is dropped, or moved to another frame by compaction, only if the tree holds the only
//! reference. No change is lost, because the task marks the page before it drops its reference.
//! Page tables hold references too.
//!
//! The lock is a spin lock, which the completion of a request takes from an interrupt too. No other
//! lock is taken under it. Writing pages allocates nothing.

mod drop;
mod write;

pub(super) use drop::Choice;
pub(super) use write::Run;

use crate::drivers::disk::{
    Data, Disk, Finish, IoError, MAX_PAGES, Operation, Owner, Request, SECTOR_BYTES,
};
use crate::vm::{Name, PageOwner, PageSource, relocate_in};
use alloc::sync::{Arc, Weak};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ebb_mm::Frame;
use logic::errno::Errno;
use logic::radix::RadixTree;
use machine::memory::stats;
use machine::memory::{FrameRef, Mobility, PAGE_SIZE, alloc_frame, pressure, spare_file_frame};
use machine::sched;
use machine::sync::{Once, SpinLock, WaitQueue};

/// The size of a page in bytes.
pub(super) const PAGE: u64 = PAGE_SIZE as u64;
/// Sectors of a page, and the bytes of a sector.
const PAGE_SECTORS: u64 = PAGE / SECTOR_BYTES;
const LEAST_BYTES: usize = 512;
const _: () = assert!(LEAST_BYTES as u64 == SECTOR_BYTES);
/// Attempts to get a page that other tasks drop again at once.
const TRIES: u32 = 64;
/// The most pages that are looked at each time that the lock is held.
const LOOKS: u32 = 512;
/// The number of failed requests that are logged.
const ERRORS_LOGGED: u64 = 16;

/// The numbers of all pages of a disk.
pub(super) const ALL: Range<u64> = 0..u64::MAX;

struct Page {
    frame: FrameRef,
    loading: bool,
    dirty: bool,
    writing: bool,
    /// The number of uses since the page was read or reclaim last looked at it, up to [`OFTEN`].
    /// Pages that are read once, from end to end, are dropped first.
    uses: u8,
}

/// The number of uses from which on reclaim keeps a page.
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
    /// A range that contains all dirty pages.
    dirty_within: Range<u64>,
    /// The page number at which the next call of [`Cache::reclaim`] begins.
    hand: u64,
    /// The number of failed read requests since boot.
    read_errors: u64,
    /// The number of failed write requests since boot.
    write_errors: u64,
}

/// The page cache of one disk.
pub(super) struct Cache {
    /// The disk whose pages are cached.
    pub(super) disk: &'static Disk,
    /// The function that drops old pages of all caches if memory is short for the given number of
    /// new pages. Called before this cache allocates pages.
    pub(super) make_room: fn(u64),
    state: SpinLock<State>,
    /// The queue of tasks that wait for pages to be read or written.
    changed: WaitQueue,
    /// The page source of mappings that only read the disk. Set once, after the cache was made.
    pub(super) readers: Once<Arc<dyn PageSource>>,
    /// The page source of mappings that may store to the disk. Set once, after the cache was made.
    pub(super) writers: Once<Arc<dyn PageSource>>,
    /// Makes the pages known to compaction.
    name: Name,
    /// The number of open files.
    pub(super) opens: AtomicU32,
    /// The number of pages that were passed to the disk for writing since boot.
    handed: AtomicU64,
    /// The number of pages whose write has ended since boot, with success or not.
    written: AtomicU64,
}

/// Returns the page numbers `first..first + count`.
fn run(first: u64, count: usize) -> Range<u64> {
    first..first + count as u64
}

impl Cache {
    /// Returns an empty cache for `disk`. The cache calls `make_room` before it allocates pages, to
    /// drop old pages of all caches.
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
            name: Name::none(),
            opens: AtomicU32::new(0),
            handed: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Lets compaction move the pages that the cache gets from now on. `owner` calls
    /// [`Self::unmap`] and [`Self::relocate`], and exists as long as the cache. Without memory for
    /// that, the pages do not move.
    pub(super) fn let_move(&self, owner: Weak<dyn PageOwner>) {
        self.name.give(|| owner);
    }

    /// Unmaps `pages` from all page tables. The next access to one faults.
    pub(super) fn unmap(&self, pages: &Range<u64>) {
        for view in [&self.readers, &self.writers] {
            if let Some(view) = view.get() {
                view.mappings().invalidate(&**view, pages.clone());
            }
        }
    }

    /// Unmaps `pages`, except from locked memory. The next access to one faults.
    pub(super) fn ask_again(&self, pages: &Range<u64>) {
        for view in [&self.readers, &self.writers] {
            if let Some(view) = view.get() {
                view.mappings().ask_again(&**view, pages.clone());
            }
        }
    }

    /// Moves the page `index` from the frame `from` to `to`. Returns `false`, and drops `to`, if
    /// the page has another frame, or a task, a page table or a request uses it.
    pub(super) fn relocate(&self, index: u64, from: Frame, to: FrameRef) -> bool {
        let mut state = self.state.lock();
        let place = state.pages.get_mut(index).map(|page| &mut page.frame);
        let old = relocate_in(place, from, to);
        drop(state);
        old.is_some()
    }

    /// Returns the size of the disk in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    /// Returns the number of pages of the disk. The last may be partial.
    pub(super) fn pages(&self) -> u64 {
        self.bytes().div_ceil(PAGE)
    }

    /// Returns the most pages of a request.
    fn request_pages(&self) -> usize {
        self.disk.limits().segments.min(MAX_PAGES)
    }

    /// Returns two numbers of pages: the dirty pages that wait to be written, and the pages that
    /// are being written.
    pub(super) fn unwritten(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.dirty, state.writing)
    }

    /// Returns the number of failed write requests since boot.
    pub(super) fn write_errors(&self) -> u64 {
        self.state.lock().write_errors
    }

    /// Returns the number of pages that were passed to the disk for writing since boot. A page
    /// counts once for each write.
    pub(super) fn handed(&self) -> u64 {
        // Relaxed, as in `written`.
        self.handed.load(Ordering::Relaxed)
    }

    /// Returns the number of pages whose write has ended since boot, with success or not.
    pub(super) fn written(&self) -> u64 {
        // Relaxed: the counter is only a hint of progress.
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the queue of tasks that wait until pages have been read or written.
    pub(super) fn changed(&self) -> &WaitQueue {
        &self.changed
    }

    /// Returns the frame of the page `index`. Returns `None` if the page is absent or is still
    /// being read. If `again` is `false`, counts one use of the page, which makes reclaim keep it
    /// longer. Pass `true` if this use is counted already, or to check only whether the page is
    /// ready.
    pub(super) fn ready(&self, index: u64, again: bool) -> Option<FrameRef> {
        let mut state = self.state.lock();
        let page = state.pages.get_mut(index).filter(|page| !page.loading)?;
        if !again {
            page.used();
        }
        Some(page.frame.clone())
    }

    /// Stores the frames of the ready pages from `first` on in `row`. The page `first + n` goes to
    /// `row[n]`. Places of other pages do not change. Counts as a use of each stored page.
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

    /// Returns the frame of the page `index`, which must lie within the disk. If the page is
    /// absent, reads it and pages behind it, up to `ahead` pages in all. May wait.
    ///
    /// # Errors
    /// Fails with `EIO` if the disk could not read the page, with `ENOMEM`, and with `EINTR` if the
    /// task is being killed.
    pub(super) fn page(&'static self, index: u64, ahead: u64) -> Result<FrameRef, Errno> {
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
                    // The tree may have lacked memory for its own nodes, which it must not wait
                    // for.
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

    /// Begins to read up to `ahead` absent pages from `index` on, with one request. Stops before
    /// the first page that is present. Does not wait until the pages have been read.
    ///
    /// # Errors
    /// Fails with `ENOMEM`, and with `ENXIO` if `index` is behind the end of the disk.
    pub(super) fn read_in(&'static self, index: u64, ahead: u64) -> Result<(), Errno> {
        let left = self.pages().checked_sub(index).filter(|&left| left > 0);
        let most = left.ok_or(Errno::ENXIO)?.min(self.request_pages() as u64);
        let wanted = usize::try_from(ahead.clamp(1, most)).unwrap_or(1);
        (self.make_room)(wanted as u64);
        let mut data = Data::new();
        data.push(alloc_frame(Mobility::Movable)?);
        // Further frames are allocated only without waiting.
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
                self.name.own(frame, at);
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
            self.disk.submit(Request {
                operation: Operation::Read {
                    sector: index * PAGE_SECTORS,
                },
                data,
                owner: Owner::Finish(self),
            });
        }
        Ok(())
    }

    /// Returns the number of bytes of the disk in `pages` pages from `index` on. All of them were
    /// within the disk when its size was last read. If the disk has shrunk, the last page still has
    /// at least one sector.
    fn bytes_in(&self, index: u64, pages: usize) -> usize {
        let least = (pages - 1) * PAGE_SIZE + LEAST_BYTES;
        let left = self.bytes().saturating_sub(index * PAGE);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        left.clamp(least, pages * PAGE_SIZE)
    }

    /// Makes `frame` the page `index`, and marks the page as dirty because the disk lacks its
    /// content. Returns `None` then, also if the page had this frame before. If the page has
    /// another frame already, marks that page as dirty, leaves its content, and returns its frame.
    ///
    /// # Errors
    /// Fails with `ENOMEM`, and with `EAGAIN` if the page is being read.
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
                    // Another task reads the page. The caller waits and tries again.
                    return Err(Errno::EAGAIN);
                }
                if page.frame.address() != frame.address() {
                    other = Some(page.frame.clone());
                }
                page
            }
            None => {
                self.name.own(frame, index);
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

    /// Waits until the page `index` is not being read.
    ///
    /// # Errors
    /// Fails with `EINTR` if the task is being killed.
    pub(super) fn wait_loaded(&self, index: u64) -> Result<(), Errno> {
        let loaded = || !self.is(index, |page| page.loading);
        if loaded() {
            return Ok(());
        }
        let _waits = sched::pressure::io_wait();
        self.changed.wait_killable(loaded).map_err(|_| Errno::EINTR)
    }

    /// Returns whether any address space has a mapping that may store to the disk, or has had one
    /// and still exists.
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
            // Bytes behind the end of the disk read as zero.
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
            // Relaxed: the counter is only a hint of progress.
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

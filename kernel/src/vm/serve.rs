//! Serves a fault that its area allows, with the space's lock held. The result is a huge page or a
//! page, which is new, copied or a file's.

#![expect(unsafe_code, reason = "a new frame is filled")]

use super::entry::{ADDRESS, DIRTY, FILE, PAGE, SHMEM, WRITABLE, ZERO, frame_of, pages_in};
use super::pages::Wish;
use super::pagetable::{Leaf, PageTables};
use super::pool_fault::{PoolNeed, PoolSupply, Turn};
use super::source::MappedFile;
use super::space::Area;
use super::thp::HugeTry;
use super::want::{Want, entry_flags, store_flags};
use super::{AddressSpace, VmaFlags, backing::Bytes, tlb};
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Mobility, Reserve};
use logic::errno::Errno;
use machine::arch::cpu_id;
use machine::memory::frame::FrameRef;
use machine::memory::memmap::{Descriptor, Kind, frame_ptr};
use machine::memory::percpu::{self, Count, Local};
use machine::memory::{copy_page, zero_frame};

/// The number of pages of a file that are mapped together: an aligned group around the touched
/// page. Linux's `fault_around_bytes`.
const AROUND: usize = 16;
/// A page of a file that was obtained while the space was not locked.
struct Supply {
    file: Arc<MappedFile>,
    index: u64,
    sequence: u64,
    page: FrameRef,
}

/// A private copy of a file's page, which is made while the space is not locked.
pub(super) struct FileCopy {
    file: Arc<MappedFile>,
    index: u64,
    sequence: u64,
    /// The page to copy. Once the copy is made, the copy.
    page: FrameRef,
}

/// A page of a file that a fault needs.
pub(super) struct FilePage {
    /// The file.
    pub(super) file: Arc<MappedFile>,
    /// The index of the page in the file.
    pub(super) index: u64,
    /// The wish of the mapping for huge blocks: for, against, or none.
    pub(super) wish: Wish,
    /// Whether only a huge block that begins with this page is wanted, not the page itself.
    pub(super) whole: bool,
}

/// The result of one attempt to serve a fault: the fault is served, or needs something that can
/// only be obtained while the space is not locked.
pub(super) enum Step {
    /// The fault is served. The value is a reference to the page's frame if the caller wants one.
    Done(Option<FrameRef>),
    /// The stack above the page must grow first.
    NeedsGrowth,
    /// A frame must be allocated first. The last attempt failed with this error.
    NeedsFrame(AllocError),
    /// This page of a file must be obtained first.
    NeedsPage(FilePage),
    /// This page of a file must be copied first, while the space is not locked, because other CPUs
    /// wait for its lock.
    NeedsCopy(FileCopy),
    /// The huge page of zeros can serve the fault, and must be obtained first.
    NeedsZeros,
    /// A huge page can serve the fault, and must be allocated first. The value says whether the
    /// area asks for huge pages.
    NeedsHuge(bool),
    /// The space must be added to the list of `khugepaged` first, because its pages may be joined.
    NeedsListing,
    /// The trial of the huge page that contains the page must be decided first.
    NeedsVerdict,
    /// The lock with this index in `TURNS` must be taken first, to get a page of the pool.
    NeedsTurn(usize),
    /// This page of the pool must be obtained first.
    NeedsPool(PoolNeed),
    /// The page was given up to another process
    /// ([`Mappings::surrender`](super::mappings::Mappings)), so the fault fails.
    Lost,
}

/// The frames and pages that were obtained for a fault while the space was not locked.
#[derive(Default)]
pub(super) struct Supplies {
    page: Option<Supply>,
    copy: Option<FileCopy>,
    /// The huge page, or the state of the attempt to get one.
    pub(super) huge: HugeTry,
    /// The page of the pool of huge pages, if one was obtained.
    pub(super) pool: Option<PoolSupply>,
    /// Held from before a page of the pool is obtained until it is mapped.
    pub(super) turn: Option<Turn>,
    /// Whether an attempt to add the space to the list of `khugepaged` has failed.
    pub(super) unlisted: bool,
    /// The number of times that other processes were asked to give up a page of the pool.
    pub(super) surrenders: u32,
}

impl Supplies {
    /// Gets the page `wanted` of a file, or makes the file allocate a huge block if only that is
    /// wanted. May wait. Returns `false` if the file ends before the page. Fails with the error of
    /// the file.
    #[cold]
    pub(super) fn get_page(&mut self, wanted: FilePage) -> Result<bool, Errno> {
        let FilePage {
            file, index, wish, ..
        } = wanted;
        if wanted.whole {
            file.source.make_block(index, wish);
            // Whether there is one now, the file knows.
            self.huge = HugeTry::Failed;
            return Ok(true);
        }
        // Before the page: a task that takes it out of the file in between increments this.
        let sequence = file.source.mappings().sequence();
        let Some(page) = file.source.page(index, wish)? else {
            return Ok(false);
        };
        self.page = Some(Supply {
            file,
            index,
            sequence,
            page,
        });
        Ok(true)
    }

    /// Returns whether the page was obtained when the file had `sequence` invalidations.
    fn is_of(&self, sequence: u64) -> bool {
        self.page
            .as_ref()
            .is_some_and(|supply| supply.sequence == sequence)
    }

    /// Replaces the page in `wanted` by a private copy and keeps the copy for the next attempt.
    /// Does not wait. Fails if no frame is free.
    #[cold]
    pub(super) fn make_copy(&mut self, mut wanted: FileCopy) -> Result<(), AllocError> {
        wanted.page = copy_of(wanted.page.as_ptr())?;
        self.copy = Some(wanted);
        Ok(())
    }

    /// Returns the copy of page `index` of `file`, if it was made and the file has not changed
    /// since. Returns `None` otherwise.
    fn take_copy(&mut self, file: &Arc<MappedFile>, index: u64) -> Option<FrameRef> {
        let copy = self.copy.as_ref()?;
        let is_good = Arc::ptr_eq(file, &copy.file)
            && index == copy.index
            && copy.sequence == file.source.mappings().sequence();
        if !is_good {
            return None;
        }
        self.copy.take().map(|copy| copy.page)
    }

    /// Gets a huge page for an area of `space`, if one is free or can be made. `asks` says whether
    /// the area asks for huge pages. May wait.
    pub(super) fn get_huge(&mut self, asks: bool, space: &AddressSpace) {
        self.huge = HugeTry::get(asks, space);
    }

    /// Returns page `index` of `file`, if it was obtained and the file has not changed since.
    /// Returns `None` otherwise.
    fn of(&self, file: &Arc<MappedFile>, index: u64) -> Option<FrameRef> {
        let supply = self.page.as_ref()?;
        (Arc::ptr_eq(file, &supply.file)
            && index == supply.index
            && supply.sequence == file.source.mappings().sequence())
        .then(|| supply.page.clone())
    }
}

impl From<AllocError> for Step {
    fn from(error: AllocError) -> Self {
        Self::NeedsFrame(error)
    }
}

/// Allocates a zeroed frame of private memory. Does not wait. Fails if no frame is free.
#[cold]
pub(super) fn new_anonymous(this: &Local) -> Result<FrameRef, AllocError> {
    new_hot_anonymous(this)
}

/// Allocates a zeroed frame of private memory as [`new_anonymous`] does: without waiting, and with
/// an error if no frame is free. Always inlined, for a caller where each instruction counts.
#[inline(always)]
pub(super) fn new_hot_anonymous(this: &Local) -> Result<FrameRef, AllocError> {
    FrameRef::try_zeroed_on(this, Kind::Anonymous, Mobility::Movable, Reserve::Keep)
}

/// Allocates a private copy of the frame at `source`. Does not wait. Fails if memory is short.
fn copy_of(source: *const u8) -> Result<FrameRef, AllocError> {
    let frame = FrameRef::try_new(Kind::Anonymous, Mobility::Movable, Reserve::Keep)?;
    // SAFETY: the frame is ours alone; the source is a frame that the caller holds.
    unsafe { copy_page(frame.as_ptr(), source) };
    percpu::add(Count::CopiedPages, 1);
    Ok(frame)
}

/// An access that a fault serves, and the area that allows it.
pub(super) struct Asked<'a> {
    /// The address of the page.
    pub(super) page: u64,
    /// Whether the access is a store.
    pub(super) store: bool,
    /// The result that the caller wants.
    pub(super) want: Want,
    /// The area that contains the page.
    pub(super) area: &'a Area,
    /// The space of the access.
    pub(super) space: &'a AddressSpace,
}

impl<'a> Asked<'a> {
    /// Returns the access to `page` with these properties.
    #[inline(always)]
    pub(super) fn new(
        page: u64,
        store: bool,
        want: Want,
        area: &'a Area,
        space: &'a AddressSpace,
    ) -> Self {
        Self {
            page,
            store,
            want,
            area,
            space,
        }
    }

    /// Serves the fault with the space's lock held, or returns the supply that is missing. `mapped`
    /// is the space's `State::mapped`, which counts the pages that this maps.
    #[inline(always)]
    pub(super) fn serve(
        &self,
        tables: &PageTables,
        mapped: &mut [u64; 3],
        supplies: &mut Supplies,
    ) -> Step {
        let flags = self.area.flags;
        if flags.contains(VmaFlags::HUGETLB) {
            return self.pool(tables, &mut supplies.pool, &mut supplies.turn);
        }
        let zeros = self.area.backing.file().is_none();
        percpu::this().expects_zeros.store(zeros, Ordering::Relaxed);
        if self.store && zeros && flags.contains(VmaFlags::WRITE) {
            let bits = entry_flags(flags) | store_flags(flags);
            tables.set_hot(cpu_id(), self.area.start..self.area.end, bits);
        }
        if let Some(step) = self.huge(tables, mapped, supplies) {
            return step;
        }
        match tables.entry_or_new(self.page) {
            Ok(entry) => self.small(entry, tables, mapped, supplies),
            Err(error) => error.into(),
        }
    }

    /// Serves a store to a private area, which allows stores: maps a copy of a file's page at an
    /// unused entry. `mapped` is the space's `State::mapped`, which counts the copy. Returns
    /// `false`, and changes nothing, in these cases:
    /// - The area has no file, or no last-level table.
    /// - The entry is in use.
    /// - The file's page is not in memory.
    /// - Several CPUs use the space.
    /// - No frame is free.
    #[inline(always)]
    pub(super) fn copy_present(&self, tables: &PageTables, mapped: &mut [u64; 3]) -> bool {
        let Bytes::File(file, offset) = &self.area.backing else {
            return false;
        };
        let Leaf::Page(entry) = tables.leaf(self.page) else {
            return false;
        };
        // Relaxed (as all entry accesses): under the lock.
        if entry.load(Ordering::Relaxed) != 0 || self.space.is_used_by_several() {
            return false;
        }
        let index = (offset + (self.page - self.area.start)) / PAGE;
        let Some(source) = present_page(file, index) else {
            return false;
        };
        let Ok(frame) = copy_of(source.as_ptr()) else {
            return false;
        };
        percpu::this().expects_zeros.store(false, Ordering::Relaxed);
        let mut change = Change {
            entry,
            old: 0,
            flags: self.area.flags,
            page: self.page,
            space: self.space,
            mapped,
        };
        change.put(frame, 0, true);
        true
    }

    /// Serves the fault by a huge page, or returns the supply that is missing. `mapped` is the
    /// space's `State::mapped`. Returns `None` if the entry of a base page must serve the fault.
    #[inline(always)]
    fn huge(
        &self,
        tables: &PageTables,
        mapped: &mut [u64; 3],
        supplies: &mut Supplies,
    ) -> Option<Step> {
        match tables.leaf(self.page) {
            Leaf::Page(_) => None,
            leaf => self.no_table(leaf, tables, mapped, supplies),
        }
    }

    /// Returns the page of a file that the fault needs.
    #[cold]
    fn file_page(&self, file: &Arc<MappedFile>, index: u64) -> FilePage {
        FilePage {
            file: file.clone(),
            index,
            wish: self.wish(),
            whole: false,
        }
    }

    /// Serves the fault by the page's own entry, or returns the supply that is missing.
    #[inline(always)]
    fn small<'t>(
        &'t self,
        entry: &'t AtomicU64,
        tables: &'t PageTables,
        mapped: &'t mut [u64; 3],
        supplies: &mut Supplies,
    ) -> Step {
        let shared = self.area.flags.contains(VmaFlags::SHARED);
        let old = entry.load(Ordering::Relaxed);
        let mut change = Change {
            entry,
            old,
            flags: self.area.flags,
            page: self.page,
            space: self.space,
            mapped,
        };
        let result = match (old, &self.area.backing) {
            (0, Bytes::Zero) if self.store => {
                new_anonymous(percpu::this()).map(|frame| change.put(frame, 0, true))
            }
            (0, Bytes::Zero) => {
                change.put_zero();
                Ok(())
            }
            (0, Bytes::File(file, offset)) => {
                let index = (offset + (self.page - self.area.start)) / PAGE;
                let supplied = supplies.of(file, index);
                if self.store && !shared {
                    if self.space.is_used_by_several() {
                        return self.copy_beside_others(change, supplied, file, index, supplies);
                    }
                    let Some(source) = supplied.or_else(|| present_page(file, index)) else {
                        return Step::NeedsPage(self.file_page(file, index));
                    };
                    copy_of(source.as_ptr()).map(|frame| change.put(frame, 0, true))
                } else {
                    let kind = if file.shmem { SHMEM } else { FILE };
                    if let Some(page) = supplied {
                        change.put(page, kind, shared);
                    } else if !self.map_around(tables, &mut change, file, index, kind) {
                        return Step::NeedsPage(self.file_page(file, index));
                    }
                    Ok(())
                }
            }
            // A page for stores belongs to the program, even if others read it at this time.
            _ if self.store && !shared && old & WRITABLE == 0 => change.own(),
            _ => {
                change.allow(shared);
                Ok(())
            }
        };
        match result {
            Ok(()) => Step::Done(pin(entry, self.want)),
            Err(error) => error.into(),
        }
    }

    /// Maps a private copy of a file's page that was made without the space's lock. If there is
    /// none, returns the step that makes it: `NeedsCopy`, or `NeedsPage` if the page is not in
    /// memory.
    #[cold]
    fn copy_beside_others(
        &self,
        mut change: Change<'_>,
        supplied: Option<FrameRef>,
        file: &Arc<MappedFile>,
        index: u64,
        supplies: &mut Supplies,
    ) -> Step {
        if let Some(copy) = supplies.take_copy(file, index) {
            change.put(copy, 0, true);
            return Step::Done(pin(change.entry, self.want));
        }
        // Before the page: a task that takes it out of the file in between increments this. A
        // supplied page belonged to the file a moment ago, which `take_copy` checks again.
        let sequence = file.source.mappings().sequence();
        let supplied = supplied.filter(|_| supplies.is_of(sequence));
        match supplied.or_else(|| present_page(file, index)) {
            Some(page) => Step::NeedsCopy(FileCopy {
                file: file.clone(),
                index,
                sequence,
                page,
            }),
            None => Step::NeedsPage(self.file_page(file, index)),
        }
    }

    /// Maps the present pages of a file around page `index`. Returns `false` if this page itself is
    /// not present.
    #[inline(always)]
    fn map_around<'t>(
        &self,
        tables: &'t PageTables,
        change: &mut Change<'t>,
        file: &MappedFile,
        index: u64,
        kind: u64,
    ) -> bool {
        let around = around(self.page, self.area.start..self.area.end);
        let first = index - (self.page - around.start) / PAGE;
        let mut pages = [const { None }; AROUND];
        let wanted = &mut pages[..pages_in(around.end - around.start)];
        file.source.present(first, wanted);
        if wanted[pages_in(self.page - around.start)].is_none() {
            return false;
        }
        let entries = tables.entries(around.start, wanted.len());
        for (entry, frame) in entries.iter().zip(wanted) {
            if entry.load(Ordering::Relaxed) == 0
                && let Some(frame) = frame.take()
            {
                change.entry = entry;
                change.put(frame, kind, self.area.flags.contains(VmaFlags::SHARED));
            }
        }
        true
    }
}

/// Returns a reference to the page of an entry, or `None` if `want` does not ask for one.
fn pin(entry: &AtomicU64, want: Want) -> Option<FrameRef> {
    match want {
        Want::Mapped => None,
        // The entry holds a reference while the lock is held, so there is one to count from.
        Want::Pinned | Want::Forced => Some(FrameRef::new_reference(frame_of(
            entry.load(Ordering::Relaxed),
        ))),
    }
}

/// Returns page `index` of `file`, or `None` if it is not in memory.
fn present_page(file: &MappedFile, index: u64) -> Option<FrameRef> {
    let mut page = [None];
    file.source.present(index, &mut page);
    let [page] = page;
    page
}

/// Returns the pages of `area` that a fault at `page` maps if they are in memory.
fn around(page: u64, area: Range<u64>) -> Range<u64> {
    let start = page & !(AROUND as u64 * PAGE - 1);
    start.max(area.start)..(start + AROUND as u64 * PAGE).min(area.end)
}

/// A change of one page table entry, with what it needs to count the page.
struct Change<'a> {
    entry: &'a AtomicU64,
    old: u64,
    flags: VmaFlags,
    page: u64,
    space: &'a AddressSpace,
    mapped: &'a mut [u64; 3],
}

impl Change<'_> {
    /// Maps `frame` at the entry, which is unused. `kind` is 0 for a private page, else `FILE` or
    /// `SHMEM`. With `store`, the entry gets the area's right to store.
    fn put(&mut self, frame: FrameRef, kind: u64, store: bool) {
        let rights = entry_flags(self.flags) | if store { store_flags(self.flags) } else { 0 };
        if kind == 0 {
            frame.set_owner(self.space.owner_of(self.page).0);
        }
        let value = frame.into_counted().address() | rights | kind;
        self.entry.store(value, Ordering::Relaxed);
        self.count(value, 1);
    }

    /// Maps the shared frame of zeros.
    fn put_zero(&mut self) {
        let value = zero_frame().address() | entry_flags(self.flags) | ZERO;
        self.entry.store(value, Ordering::Relaxed);
    }

    /// Gives the present entry the rights of its area. The right to store is given only if `shared`
    /// says that the area is shared. In a private area, an entry keeps the right to store if it has
    /// it.
    fn allow(&mut self, shared: bool) {
        // Private pages that may be stored to already stay so; others first go through `own`.
        let store = if shared {
            store_flags(self.flags)
        } else {
            self.old & (WRITABLE | DIRTY)
        };
        let kept = self.old & (ADDRESS | FILE | SHMEM | ZERO);
        self.entry
            .store(kept | entry_flags(self.flags) | store, Ordering::Relaxed);
        // Another CPU may have served the same fault; ours may still hold the refused entry.
        machine::arch::cpu::invlpg(self.page);
    }

    /// Makes the private page belong to the program alone. Copies it if other spaces share it.
    /// Fails, and leaves the entry unchanged, if memory is short.
    fn own(&mut self) -> Result<(), AllocError> {
        let frame = frame_of(self.old);
        let borrowed = self.old & (ZERO | FILE | SHMEM) != 0;
        if !borrowed && Descriptor::get(frame).references() == 1 {
            let value = self.old & ADDRESS | entry_flags(self.flags) | store_flags(self.flags);
            self.entry.store(value, Ordering::Relaxed);
            machine::arch::cpu::invlpg(self.page);
            return Ok(());
        }
        // No CPU may read or write the old frame any more when another can store to the new one.
        self.entry.store(0, Ordering::Relaxed);
        tlb::flush(&self.space.cpus, self.page..self.page + PAGE);
        let copy = if self.old & ZERO != 0 {
            new_anonymous(percpu::this())
        } else {
            copy_of(frame_ptr(frame))
        };
        match copy {
            Ok(copy) => self.put(copy, 0, true),
            Err(error) => {
                self.entry.store(self.old, Ordering::Relaxed);
                return Err(error);
            }
        }
        if self.old & ZERO == 0 {
            self.count(self.old, -1);
            machine::memory::memmap::release(frame);
        }
        Ok(())
    }

    fn count(&mut self, entry: u64, pages: i64) {
        let kind = super::gather::kind_index(entry);
        self.mapped[kind] = self.mapped[kind].wrapping_add_signed(pages);
        if kind != 0 {
            percpu::add(Count::MappedFile, pages.cast_unsigned());
        }
    }
}

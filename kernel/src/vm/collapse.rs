//! Joining the pages of 2 MiB into a huge page: for `MADV_COLLAPSE`, and for `khugepaged`.
//!
//! As for a frame that moves (`moving`), the entries are made not present, the CPUs flush, and the
//! bytes are copied without a spin lock. A fault restores its entry at once, and then no page is
//! joined. All pages must belong to the program alone: if another user, such as a device, refers to
//! one of them, the whole region stays as it is.

#![expect(unsafe_code, reason = "frames are copied")]

use super::compaction::daemon;
use super::entry::{
    ADDRESS, COLLAPSING, FILE, HUGE, MOVING, PAGE, PRESENT, REGION, SHMEM, Table, WRITABLE, ZERO,
    frame_of,
};
use super::leaf::HugeSupply;
use super::pagetable::{Leaf, Region};
use super::space::{Area, State};
use super::thp::NEVER;
use super::want::{entry_flags, store_flags};
use super::{AddressSpace, VmaFlags, tlb};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use ebb_mm::Frame;
use logic::errno::Errno;
use machine::memory::copy_page;
use machine::memory::huge::{Effort, FRAMES};
use machine::memory::memmap::{self, Descriptor, frame_ptr};
use machine::memory::percpu::{self, Count};
use machine::sched;

/// The number of further attempts for a region if others refer to some of its pages.
const TRIES: usize = 3;

/// Returns the value that `entry` has while its page is copied.
const fn parked(entry: u64) -> u64 {
    entry & !(PRESENT | WRITABLE) | MOVING | COLLAPSING
}

/// Returns whether `entry` holds a page of private memory.
const fn holds_page(entry: u64) -> bool {
    entry & ADDRESS != 0 && entry & (FILE | SHMEM | ZERO) == 0
}

/// Returns whether `entry` maps a page without other users that is not being moved.
fn is_alone(entry: u64) -> bool {
    entry & PRESENT != 0 && Descriptor::get(frame_of(entry)).is_anonymous(1)
}

/// Returns whether pages of `area` can be joined to huge pages.
pub(super) fn may_join(area: &Area) -> bool {
    area.backing.file().is_none()
        && area.flags.contains(VmaFlags::WRITE)
        && !area.flags.intersects(NEVER)
}

/// The pages of private memory in a last-level table.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Density {
    /// The number of pages.
    pub(super) pages: u64,
    /// The number of pages that have other users or are being moved.
    pub(super) shared: u64,
}

impl Density {
    /// Counts the pages of `table`. The caller holds the lock of its space.
    pub(super) fn of(table: &Table) -> Self {
        let mut density = Self::default();
        for entry in table {
            let entry = entry.load(Ordering::Relaxed);
            if holds_page(entry) {
                density.pages += 1;
                density.shared += u64::from(!is_alone(entry));
            }
        }
        density
    }
}

/// A buffer for the values that the entries of a region of 2 MiB have before its pages are joined.
#[derive(Debug)]
pub(super) struct Before(Vec<u64>);

impl Before {
    /// Returns an empty buffer with room for all entries of a region.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn new() -> Result<Self, Errno> {
        let mut entries = Vec::new();
        let room = usize::try_from(FRAMES).unwrap_or(0);
        entries.try_reserve_exact(room).map_err(|_| Errno::ENOMEM)?;
        Ok(Self(entries))
    }

    /// Returns whether no region's pages were joined.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first and the last of the frames whose pages were joined. If the pages were
    /// touched in order, all these frames lie in the blocks of the two.
    pub(super) fn ends(&self) -> impl Iterator<Item = Frame> {
        let mut pages = self.0.iter().filter(|&&entry| holds_page(entry));
        let (first, last) = (pages.next(), pages.next_back());
        let ends = first.into_iter().chain(last);
        ends.map(|&entry| frame_of(entry))
    }
}

/// The state of a region of 2 MiB whose pages are to be joined to a huge page.
enum Found<'a> {
    /// A huge page maps the region already.
    Whole,
    /// The pages in this table can be joined.
    Pages(&'a Table),
}

impl State {
    /// Returns the state of the region at `start`. Fails with `EINVAL` if the region has no pages
    /// to join.
    fn region_to_join(&mut self, start: u64, space: &AddressSpace) -> Result<Found<'_>, Errno> {
        let area = self.areas.find(start);
        if !area.is_some_and(|area| area.end - start >= REGION && may_join(area)) {
            return Err(Errno::EINVAL);
        }
        self.tables.make_trial_whole(start, &space.cpus);
        match self.tables.region(start) {
            Region::Huge(..) => Ok(Found::Whole),
            // There is none any more.
            Region::Trial(_) => Err(Errno::EAGAIN),
            Region::AbsentUntil(_) => Err(Errno::EINVAL),
            Region::Table(table) => {
                let density = Density::of(table);
                if density.pages == 0 {
                    return Err(Errno::EINVAL);
                }
                if density.shared != 0 {
                    return Err(Errno::EAGAIN);
                }
                Ok(Found::Pages(table))
            }
        }
    }

    /// Maps the block in place of the pages, if all of them are still parked. Fails with `EAGAIN`
    /// if an entry has changed, the area is gone, or memory is short.
    fn put_joined(
        &mut self,
        start: u64,
        before: &[u64],
        supply: HugeSupply,
        space: &AddressSpace,
    ) -> Result<(), Errno> {
        let is_parked = |table: &Table| {
            table.iter().zip(before).all(|(entry, &before)| {
                let expected = if before == 0 { 0 } else { parked(before) };
                entry.load(Ordering::Relaxed) == expected
            })
        };
        let same = matches!(self.tables.region(start), Region::Table(table) if is_parked(table));
        let area = self.areas.find(start).filter(|_| same);
        let rights = match area {
            Some(area) => entry_flags(area.flags) | store_flags(area.flags),
            None => return Err(Errno::EAGAIN),
        };
        // All its references are released later, by `before`.
        let Some((table, slot)) = self.tables.tree.take_table(start) else {
            return Err(Errno::EAGAIN);
        };
        let block = supply.block.into_counted();
        Descriptor::get(block).set_owner(space.owner_of(start).0);
        tlb::flush(&space.cpus, start..start + 1);
        // The table is the one in reserve from here on; that of the supply goes.
        self.tables.deposits.push(table);
        slot.set_page(block.address() | rights | HUGE);
        let pages = before.iter().filter(|&&entry| holds_page(entry)).count();
        self.mapped[0] += FRAMES - pages as u64;
        Ok(())
    }
}

impl AddressSpace {
    /// Joins the pages of each region of 2 MiB that lies wholly in `range` to a huge page. All of
    /// `range` lies in one area. If regions fail, the others are tried too, and the last error is
    /// returned. `ENOMEM` and `EINTR` end the call at once.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an area without huge pages and for a region without a page. Fails
    /// with `EAGAIN` if another user holds a page at that time, with `ENOMEM` if there is no free
    /// huge page, and with `EINTR` if the task is being killed.
    pub(super) fn collapse(&self, range: Range<u64>) -> Result<(), Errno> {
        let mut before = Before::new()?;
        {
            let state = self.state.lock();
            let area = state.areas.find(range.start);
            let whole = |area: &Area| area.start.next_multiple_of(REGION) + REGION <= area.end;
            if !area.is_some_and(|area| may_join(area) && whole(area)) || self.declines_huge_pages()
            {
                return Err(Errno::EINVAL);
            }
        }
        let mut result = Ok(());
        let mut at = range.start.next_multiple_of(REGION);
        while at < range.end && range.end - at >= REGION {
            match self.join(at, Effort::Direct, &mut before) {
                Err(Errno::ENOMEM) => return Err(Errno::ENOMEM),
                Err(error) => result = Err(error),
                Ok(()) => {}
            }
            at += REGION;
            sched::cond_resched();
            if sched::current().killed() {
                return Err(Errno::EINTR);
            }
        }
        result
    }

    /// Joins the pages of the region at `start` to a huge page. Pages that other spaces share are
    /// copied for this space first. `effort` limits the work for a free huge page. `before` is a
    /// buffer; if pages were joined, it holds the former entries of the region.
    ///
    /// # Errors
    /// Fails as [`Self::try_join`] does, with `EAGAIN` only after several attempts, and with the
    /// errors of [`Self::populate`].
    pub(super) fn join(
        &self,
        start: u64,
        effort: Effort,
        before: &mut Before,
    ) -> Result<(), Errno> {
        let mut joined = self.try_join(start, effort, before);
        for _ in 0..TRIES {
            if joined != Err(Errno::EAGAIN) {
                break;
            }
            self.own_region(start)?;
            joined = self.try_join(start, effort, before);
        }
        joined
    }

    /// Copies the pages of a region that are shared with a child or a parent, as a store to each
    /// would. Fails as [`Self::populate`] does.
    fn own_region(&self, start: u64) -> Result<(), Errno> {
        for page in (0..FRAMES).map(|index| start + index * PAGE) {
            let shared = match self.state.lock().tables.leaf(page) {
                Leaf::Page(entry) => {
                    let entry = entry.load(Ordering::Relaxed);
                    holds_page(entry) && !is_alone(entry)
                }
                _ => false,
            };
            if shared {
                self.populate(page..page + PAGE, true)?;
            }
        }
        Ok(())
    }

    /// Joins the pages of the region at `start` to a huge page, if all of them belong to this space
    /// alone. If a huge page maps the region already, only ends its trial, if any. `effort` limits
    /// the work for a free huge page. `before` is a buffer; if pages were joined, it holds the
    /// former entries of the region.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if another user holds one of the pages, or uses one during the copy.
    /// Fails with `EINVAL` if the area allows no huge pages or the region has no page, and with
    /// `ENOMEM` if there is no free huge page.
    pub(super) fn try_join(
        &self,
        start: u64,
        effort: Effort,
        before: &mut Before,
    ) -> Result<(), Errno> {
        let before = &mut before.0;
        before.clear();
        let whole = matches!(self.state.lock().region_to_join(start, self)?, Found::Whole);
        if whole {
            return Ok(());
        }
        let Ok(supply) = HugeSupply::get(effort) else {
            percpu::add(Count::CollapseFailed, 1);
            return Err(Errno::ENOMEM);
        };
        // The area stays as it is, and no other task joins its pages.
        let _change = self.change.lock();
        {
            let mut state = self.state.lock();
            let Found::Pages(table) = state.region_to_join(start, self)? else {
                return Ok(());
            };
            for entry in table {
                let value = entry.load(Ordering::Relaxed);
                before.push(value);
                if value != 0 {
                    entry.store(parked(value), Ordering::Relaxed);
                }
            }
            // Until it is flushed others may store by the entries.
            self.begin_moves();
        }
        tlb::flush(&self.cpus, start..start + REGION);
        self.end_moves();
        for (index, &entry) in before.iter().enumerate() {
            sched::give_way();
            if holds_page(entry) {
                let to = supply.block.frame().offset(index as u64);
                // SAFETY: the block is ours. The page may have another owner by now; then the copy
                // is not used. It is RAM in any case.
                unsafe { copy_page(frame_ptr(to), frame_ptr(frame_of(entry))) };
            }
        }
        let joined = {
            let mut state = self.state.lock();
            let joined = state.put_joined(start, before, supply, self);
            if joined.is_err() {
                state.unpark_region(start, before);
            }
            joined
        };
        if joined.is_ok() {
            percpu::add(Count::Collapsed, 1);
            for &entry in before.iter().filter(|&&entry| holds_page(entry)) {
                memmap::release(frame_of(entry));
            }
            daemon::memory_freed();
        }
        joined
    }
}

impl State {
    /// Restores the entries that are still parked, without the right to store, as in `moving`.
    fn unpark_region(&mut self, start: u64, before: &[u64]) {
        let Region::Table(table) = self.tables.region(start) else {
            return;
        };
        for (entry, &before) in table.iter().zip(before) {
            if before != 0 && entry.load(Ordering::Relaxed) == parked(before) {
                entry.store(before & !WRITABLE, Ordering::Relaxed);
            }
        }
    }
}

const _: () = assert!(REGION == FRAMES * PAGE);

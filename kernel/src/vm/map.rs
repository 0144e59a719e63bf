//! Creates and removes mappings.

use super::backing::{Bytes, Graveyard};
use super::entry::REGION;
use super::hugetlb::HugeFile;
use super::replacing::Replacing;
use super::source::Backing;
use super::space::{Area, PAGE, Sizes, State};
use super::stack::MAP_BOTTOM;
use super::{AddressSpace, MapFlags, MappedFile, Prot, VmaFlags, shared, stack};
use alloc::sync::Arc;
use core::ops::Range;
use ebb_mm::Order;
use logic::errno::Errno;
use logic::vma::NoMemory;
use machine::arch::USER_END;
use machine::arch::spin::SpinGuard;
use machine::memory::{knobs, pressure};

/// The address below which mappings are placed, from the top down. The stack is above it.
pub(super) const MAP_TOP: u64 = 0x0000_7fff_0000_0000;
/// The address below which `MAP_32BIT` mappings are placed, from the top down.
const LOW_TOP: u64 = 0x8000_0000;
/// The number of times that a search avoids a place right below a stack.
const STACKS_AVOIDED: u32 = 16;
/// The flags by which a program determines the place.
const FIXED: MapFlags = MapFlags::FIXED.union(MapFlags::FIXED_NOREPLACE);

/// Rounds `bytes` up to whole pages. Returns `None` if the result is larger than the user's half.
pub(super) fn page_up(bytes: u64) -> Option<u64> {
    bytes
        .checked_next_multiple_of(PAGE)
        .filter(|&b| b <= USER_END)
}

/// Returns the range of whole pages from `start` on, for `bytes` bytes.
///
/// # Errors
/// Fails with `EINVAL` for an unaligned start, and with `beyond` for a range that leaves the user's
/// half.
pub(super) fn page_range(start: u64, bytes: u64, beyond: Errno) -> Result<Range<u64>, Errno> {
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let bytes = page_up(bytes).ok_or(beyond)?;
    let end = start
        .checked_add(bytes)
        .filter(|&end| end <= USER_END)
        .ok_or(beyond)?;
    Ok(start..end)
}

/// Memory that was committed for a change. Dropping this uncommits the memory, unless
/// [`Self::keep`] was called.
pub(super) struct Commitment(u64);

impl Commitment {
    /// Commits `bytes` bytes of memory.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if that exceeds the limit on committed memory.
    pub(super) fn new(bytes: u64) -> Result<Self, Errno> {
        knobs::commit(bytes / PAGE)?;
        Ok(Self(bytes / PAGE))
    }

    /// Keeps the memory committed, because the change was made. Areas with `ACCOUNTED` count it
    /// from now on.
    pub(super) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Commitment {
    fn drop(&mut self) {
        knobs::uncommit(self.0);
    }
}

impl AddressSpace {
    /// Creates a mapping and returns its address. With `FIXED` flags `hint` is the address;
    /// otherwise it is only a wish. `bytes` is rounded up to whole pages.
    ///
    /// # Errors
    /// Fails as `mmap(2)` does.
    pub fn map(
        self: &Arc<Self>,
        hint: Option<u64>,
        bytes: u64,
        prot: Prot,
        flags: MapFlags,
        backing: Backing,
    ) -> Result<u64, Errno> {
        if bytes == 0 {
            return Err(Errno::EINVAL);
        }
        let (flags, populate) = self.locked_in_future(flags);
        let bytes = if let Some(size) = backing.huge_size() {
            let bytes = bytes
                .checked_next_multiple_of(size.bytes())
                .ok_or(Errno::EINVAL)?;
            if bytes > USER_END {
                return Err(Errno::ENOMEM);
            }
            if !hint.unwrap_or(0).is_multiple_of(size.bytes()) && flags.intersects(FIXED) {
                return Err(Errno::EINVAL);
            }
            bytes
        } else {
            page_up(bytes).ok_or(Errno::ENOMEM)?
        };
        let replaces =
            flags.contains(MapFlags::FIXED) && !flags.contains(MapFlags::FIXED_NOREPLACE);
        let (area_flags, mut source) = describe(prot, flags, bytes, backing)?;
        let promised = match self.promise(&mut source, bytes, area_flags, flags) {
            // The replaced mapping may free the memory that this one needs.
            Err(Errno::ENOMEM) if replaces => false,
            done => done.map(|()| true)?,
        };
        let commitment = Commitment::new(Sizes::of(area_flags, bytes).accounted)?;

        let change = self.change.lock();
        let start = self.place(hint, bytes, flags, &source)?;
        let range = start..start + bytes;
        if let Some(file) = source.file() {
            file.source.mappings().register(self)?;
        }
        let replacing = replaces.then(|| Replacing::begin(self, range.clone()));
        if replaces {
            let state = self.state.lock();
            state.check_count()?;
            state.check_replacing(&range, Sizes::of(area_flags, bytes))?;
            drop(state);
            // As on Linux, with any cause.
            self.remove(range.clone()).map_err(|_| Errno::ENOMEM)?;
        }
        if !promised {
            self.promise(&mut source, bytes, area_flags, flags)?;
        }
        self.insert(range.clone(), area_flags, source)?;
        commitment.keep();
        drop(replacing);
        drop(change);
        if populate {
            // As on Linux, what cannot be had now comes later, or not.
            let _ = self.populate(range, prot.contains(Prot::WRITE));
        }
        Ok(start)
    }

    /// Reserves pages of the pool for a new mapping of huge pages, unless `flags` has `NORESERVE`.
    /// Extends the file to the end of a mapping with `WRITE`. Does nothing for other mappings.
    /// Fails with `ENOMEM` if the pool has too few free pages, the file system of the file may not
    /// have them, or memory is short.
    fn promise(
        &self,
        source: &mut Bytes,
        bytes: u64,
        area: VmaFlags,
        flags: MapFlags,
    ) -> Result<(), Errno> {
        let Bytes::File(file, offset) = source else {
            return Ok(());
        };
        let Some(huge) = file.source.as_huge() else {
            return Ok(());
        };
        let range = *offset..*offset + bytes;
        let shared = area.contains(VmaFlags::SHARED);
        let reserve = !flags.contains(MapFlags::NORESERVE);
        if reserve && shared {
            huge.promise(&range)?;
        }
        // No other task has the file yet.
        if reserve
            && !shared
            && let Some(file) = Arc::get_mut(file)
        {
            file.promise(self.id(), &range)?;
        }
        if area.contains(VmaFlags::WRITE)
            && let Some(huge) = file.source.as_huge()
        {
            huge.extend(range.end);
        }
        Ok(())
    }

    /// Returns the address for a new mapping of `bytes` bytes. With `FIXED` alone, other mappings
    /// may be there. Fails with `ENOMEM` if there is no gap for it or the range is invalid, with
    /// `EPERM` below the lowest address of mappings, with `EEXIST` if `FIXED_NOREPLACE` meets
    /// another mapping, and with `EINVAL` for an unaligned fixed address.
    fn place(
        &self,
        hint: Option<u64>,
        bytes: u64,
        flags: MapFlags,
        source: &Bytes,
    ) -> Result<u64, Errno> {
        let align = source.page_bytes();
        let state = self.state.lock();
        if flags.intersects(FIXED) {
            let start = hint.unwrap_or(0);
            let range = page_range(start, bytes, Errno::ENOMEM)?;
            if start < MAP_BOTTOM {
                return Err(Errno::EPERM);
            }
            let taken = state.areas.overlapping(range).next().is_some();
            if taken && flags.contains(MapFlags::FIXED_NOREPLACE) {
                return Err(Errno::EEXIST);
            }
            return Ok(start);
        }
        if let Some(hint) = hint {
            let start = hint & !(align - 1);
            if start >= MAP_BOTTOM
                && let Ok(range) = page_range(start, bytes, Errno::ENOMEM)
                && state.areas.overlapping(range).next().is_none()
            {
                return Ok(start);
            }
        }
        let low = flags.contains(MapFlags::LOW);
        let top = if low { LOW_TOP } else { MAP_TOP };
        if let Some(phase) = source.huge_phase(bytes)
            && let Some(at) = state.find_gap(bytes + REGION - PAGE, top, PAGE)
        {
            return Ok(at + (phase + REGION - at % REGION) % REGION);
        }
        state
            .find_gap(bytes, top, align)
            .filter(|start| start.is_multiple_of(align))
            .ok_or(Errno::ENOMEM)
    }

    /// Adds an area where there is none. The caller holds `change`.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if a limit is exceeded, if there would be too many areas, or if memory
    /// is short.
    pub(super) fn insert(
        &self,
        range: Range<u64>,
        flags: VmaFlags,
        backing: Bytes,
    ) -> Result<(), Errno> {
        let mut state = self.lock_with_room(&range)?;
        let sizes = Sizes::of(flags, range.end - range.start);
        state.check_limits(sizes)?;
        state.check_count()?;
        state.areas.insert(Area {
            start: range.start,
            end: range.end,
            flags,
            backing,
        });
        state.sizes.add(sizes);
        state.changed();
        Ok(())
    }

    /// Unmaps the pages of a range (`munmap(2)`).
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned or empty range, for one beyond the user's half, and if
    /// an end of the range cuts a page of the pool of huge pages. Fails with `ENOMEM` if an area
    /// must be split and cannot be.
    pub fn unmap(&self, start: u64, bytes: u64) -> Result<(), Errno> {
        let range = page_range(start, bytes, Errno::EINVAL)?;
        if range.is_empty() {
            return Err(Errno::EINVAL);
        }
        let _change = self.change.lock();
        self.remove(range)
    }

    /// Unmaps the remaining parts of the segment of System V shared memory that was attached at
    /// `start` (`shmdt(2)`). Parts that `mremap` has moved stay.
    ///
    /// # Errors
    /// Fails with `EINVAL` if no such segment was attached there, and with `ENOMEM` as
    /// [`Self::unmap`] does.
    pub fn detach(&self, start: u64) -> Result<(), Errno> {
        if !start.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let _change = self.change.lock();
        let mut mapping: Option<Arc<MappedFile>> = None;
        let mut from = start;
        loop {
            let (range, file) = {
                let state = self.state.lock();
                let mut areas = state.areas.overlapping(from..USER_END);
                // Parts that were moved are left: they are not where they were attached.
                let found = areas.find_map(|area| match &area.backing {
                    Bytes::File(file, offset)
                        if area.start >= start && area.start - start == *offset =>
                    {
                        let known = mapping.as_ref();
                        let wanted = known.map_or(file.is_attached(), |m| Arc::ptr_eq(m, file));
                        wanted.then(|| (area.start..area.end, file.clone()))
                    }
                    _ => None,
                });
                match found {
                    Some(found) => found,
                    None if mapping.is_none() => return Err(Errno::EINVAL),
                    None => return Ok(()),
                }
            };
            from = range.end;
            mapping.get_or_insert(file);
            self.remove(range)?;
        }
    }

    /// Locks the state, with memory reserved for one change of the areas at the ends of `range`.
    /// The memory is allocated before, since a task with the lock cannot wait for it. The caller
    /// holds `change`.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn lock_with_room(&self, range: &Range<u64>) -> Result<SpinGuard<'_, State>, Errno> {
        let mut relief = pressure::Relief::new(Order::BASE);
        loop {
            let mut state = self.state.lock();
            let Err(NoMemory) = state.areas.prepare(range.start, range.end) else {
                return Ok(state);
            };
            drop(state);
            relief.step(pressure::HEAP_EXHAUSTED)?;
        }
    }

    /// Removes the areas in `range` and their pages. The caller holds `change`.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if an area must be split and cannot be, and with `EINVAL` if an end of
    /// `range` cuts a page of the pool of huge pages. Nothing is removed then.
    pub(super) fn remove(&self, range: Range<u64>) -> Result<(), Errno> {
        let mut from = range.start;
        {
            let mut state = self.lock_with_room(&range)?;
            if state.areas.overlapping(range.clone()).next().is_none() {
                return Ok(());
            }
            state.make_hole_boundaries(&range)?;
        }
        while from < range.end {
            // Dropped when no page is left: the file then learns that it has no mapping for stores.
            let mut graveyard = Graveyard::of(self.id());
            let part = {
                let mut state = self.state.lock();
                state.take_areas(range.clone(), &mut graveyard);
                // The lowest areas go first, so the rest lies above.
                let next = state.areas.next_from(from).map_or(range.end, |a| a.start);
                state.leaving = from..next.min(range.end);
                state.leaving.clone()
            };
            from = part.end;
            self.finish_leaving(part);
        }
        Ok(())
    }

    /// Unmaps the pages that removed areas in `range` have left.
    pub(super) fn finish_leaving(&self, range: Range<u64>) {
        self.zap_unmapped(range);
        self.state.lock().leaving = 0..0;
    }

    /// Sets the start of the heap, which is empty, to the first page boundary that is not before
    /// `start`, the end of the program's data. Called once, by exec.
    pub fn set_brk(&self, start: u64) {
        let start = start.next_multiple_of(PAGE);
        self.state.lock().heap = start..start;
    }

    /// Moves the end of the heap to `address` (`brk(2)`). Returns the new end. Returns the old end
    /// if the heap cannot be changed or `address` is not a possible end.
    pub fn brk(&self, address: u64) -> u64 {
        let change = self.change.lock();
        let heap = self.state.lock().heap.clone();
        if address < heap.start || address > USER_END - PAGE {
            return heap.end;
        }
        let old = heap.end.next_multiple_of(PAGE);
        let new = address.next_multiple_of(PAGE);
        let (lock, populate) = self.locked_in_future(MapFlags::empty());
        let moved = if new > old {
            self.grow_heap(old..new, lock)
        } else {
            self.remove(new..old)
        };
        if moved.is_err() {
            return heap.end;
        }
        self.state.lock().heap.end = address;
        drop(change);
        if populate && new > old {
            // As in `map`.
            let _ = self.populate(old..new, true);
        }
        address
    }

    fn grow_heap(&self, range: Range<u64>, lock: MapFlags) -> Result<(), Errno> {
        let mut flags = VmaFlags::READ
            | VmaFlags::WRITE
            | VmaFlags::MAY_WRITE
            | VmaFlags::ACCOUNTED
            | VmaFlags::HEAP;
        if lock.contains(MapFlags::LOCKED) {
            flags |= VmaFlags::LOCKED;
        }
        // A page stays free, so that the heap never reaches the mapping above it.
        let with_gap = range.start..range.end + PAGE;
        if self
            .state
            .lock()
            .areas
            .overlapping(with_gap)
            .next()
            .is_some()
        {
            return Err(Errno::ENOMEM);
        }
        let commitment = Commitment::new(range.end - range.start)?;
        self.insert(range, flags, Bytes::Zero)?;
        commitment.keep();
        Ok(())
    }
}

impl State {
    /// Returns the highest free address for `bytes` bytes below `top`, or one above `top` if there
    /// is none below. Prefers places that are not right below a stack. Returns `None` if no place
    /// is large enough.
    pub(super) fn find_gap(&self, bytes: u64, top: u64, align: u64) -> Option<u64> {
        let mut below = top;
        for _ in 0..STACKS_AVOIDED {
            let start = self.find_any_gap(bytes, below, align)?;
            let next = self.areas.next_from(start + bytes);
            let Some(stack) = next.filter(|area| {
                area.flags.contains(VmaFlags::GROWS_DOWN)
                    && area.start - (start + bytes) < stack::GUARD
                    && area.start < below
            }) else {
                return Some(start);
            };
            below = stack.start.saturating_sub(stack::GUARD);
        }
        self.find_any_gap(bytes, top, align)
    }

    /// Does the same as [`Self::find_gap`] without regard to stacks, and returns `None` in the same
    /// cases. A place for whole regions is aligned to a region, so that huge pages and page tables
    /// are used fully. Every place is aligned to `align` if possible.
    fn find_any_gap(&self, bytes: u64, top: u64, align: u64) -> Option<u64> {
        let whole = bytes.is_multiple_of(REGION);
        let align = if whole { align.max(REGION) } else { align };
        if align > PAGE
            && let Some(start) = self
                .areas
                .highest_gap(bytes.saturating_add(align - PAGE), MAP_BOTTOM..top)
        {
            return Some(start.next_multiple_of(align));
        }
        self.areas
            .highest_gap(bytes, MAP_BOTTOM..top)
            .or_else(|| self.areas.lowest_gap(bytes, MAP_BOTTOM..USER_END))
    }

    /// Checks that the process's limits allow `more` memory in addition to its present areas.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if a limit would be exceeded.
    pub(super) fn check_limits(&self, more: Sizes) -> Result<(), Errno> {
        let fits =
            |have: u64, more: u64, limit: u64| more == 0 || have.saturating_add(more) <= limit;
        if fits(self.sizes.all, more.all, self.limits.address_space)
            && fits(self.sizes.data, more.data, self.limits.data)
        {
            Ok(())
        } else {
            Err(Errno::ENOMEM)
        }
    }

    /// Checks that there may be another area. As on Linux, the last one may exceed the limit.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if there are more areas than the limit.
    fn check_count(&self) -> Result<(), Errno> {
        if self.areas.len() as u64 > knobs::max_map_count() {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Checks that the process's limits allow `new` memory in place of the present areas in
    /// `range`. Called before these are removed.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if a limit would be exceeded.
    pub(super) fn check_replacing(&self, range: &Range<u64>, new: Sizes) -> Result<(), Errno> {
        self.check_limits(new.beyond(self.sizes_in(range, |flags| flags)))
    }

    /// Checks that the ends of `range` cut no page of the pool of huge pages.
    ///
    /// # Errors
    /// Fails with `EINVAL` if an end cuts one.
    pub(super) fn check_pool_pages(&self, range: &Range<u64>) -> Result<(), Errno> {
        let cuts = |at: u64| {
            let area = self.areas.find(at);
            area.is_some_and(|area| !at.is_multiple_of(area.backing.page_bytes()))
        };
        if cuts(range.start) || cuts(range.end) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Splits the areas that reach across the ends of `range`. The caller has reserved memory by
    /// [`AddressSpace::lock_with_room`].
    ///
    /// # Errors
    /// Fails with `EINVAL` if an end cuts a page of the pool, and with `ENOMEM` if there would be
    /// too many areas.
    pub(super) fn make_boundaries(&mut self, range: &Range<u64>) -> Result<(), Errno> {
        let across = |at| self.areas.find(at).is_some_and(|a| a.start < at);
        let splits = u64::from(across(range.start)) + u64::from(across(range.end));
        self.split_ends(range, splits)
    }

    /// Splits as [`Self::make_boundaries`] does, before the areas in `range` are removed. As on
    /// Linux, the number of areas may exceed its limit until then, so only a hole in the middle of
    /// an area can make too many.
    ///
    /// # Errors
    /// Fails as [`Self::make_boundaries`] does.
    fn make_hole_boundaries(&mut self, range: &Range<u64>) -> Result<(), Errno> {
        let around = |area: &Area| area.start < range.start && range.end < area.end;
        let is_hole = self.areas.find(range.start).is_some_and(around);
        self.split_ends(range, u64::from(is_hole))
    }

    /// Splits the areas that reach across the ends of `range`, which makes `more` areas. Fails with
    /// `ENOMEM` if the space may not have that many areas, and as [`Self::check_pool_pages`].
    fn split_ends(&mut self, range: &Range<u64>, more: u64) -> Result<(), Errno> {
        self.check_pool_pages(range)?;
        if more != 0 && self.areas.len() as u64 + more > knobs::max_map_count() {
            return Err(Errno::ENOMEM);
        }
        self.areas.split(range.start);
        self.areas.split(range.end);
        Ok(())
    }
}

/// Returns the flags and the bytes of a new area. Fails with `EINVAL` for an unaligned offset or a
/// mapping of a file that grows down, with `EOVERFLOW` if the offsets are too high, and with
/// `EACCES` or another error of the file if a shared mapping must be writable and may not be.
fn describe(
    prot: Prot,
    flags: MapFlags,
    bytes: u64,
    backing: Backing,
) -> Result<(VmaFlags, Bytes), Errno> {
    let mut area = prot.flags() | VmaFlags::MAY_WRITE;
    if flags.contains(MapFlags::GROWSDOWN) {
        area |= VmaFlags::GROWS_DOWN;
    }
    if flags.contains(MapFlags::STACK) {
        area |= VmaFlags::STACK;
    }
    if flags.contains(MapFlags::LOCKED) {
        area |= VmaFlags::LOCKED;
    }
    if flags.contains(MapFlags::NO_HUGE_PAGES) {
        area |= VmaFlags::NO_HUGE_PAGES;
    }
    // Policy 2 counts all mappings, also with the program's flag.
    let reserve = !flags.contains(MapFlags::NORESERVE) || knobs::overcommit_memory() == 2;
    if !reserve {
        area |= VmaFlags::NO_RESERVE;
    }
    let source = match backing {
        Backing::Anonymous => Bytes::Zero,
        Backing::SharedAnonymous { writable } => {
            if !writable {
                if prot.contains(Prot::WRITE) {
                    return Err(Errno::EACCES);
                }
                area -= VmaFlags::MAY_WRITE;
            }
            if flags.contains(MapFlags::GROWSDOWN) {
                return Err(Errno::EINVAL);
            }
            area |= VmaFlags::SHARED;
            Bytes::File(Arc::new(shared::file(bytes)), 0)
        }
        Backing::File {
            mut file,
            offset,
            shared,
            writable,
        } => {
            check_offset(offset, bytes)?;
            // A file's offset has no room below where the mapping starts.
            if flags.contains(MapFlags::GROWSDOWN) {
                return Err(Errno::EINVAL);
            }
            if !file.executable {
                area |= VmaFlags::NO_EXEC;
            }
            if shared {
                area |= VmaFlags::SHARED;
                let may_store = if writable {
                    file.claim_stores()
                } else {
                    Err(Errno::EACCES)
                };
                if let Err(error) = may_store {
                    if prot.contains(Prot::WRITE) {
                        return Err(error);
                    }
                    area -= VmaFlags::MAY_WRITE;
                }
            }
            let huge = file.source.as_huge().map(HugeFile::page_size);
            if let Some(size) = huge {
                if !offset.is_multiple_of(size.bytes()) {
                    return Err(Errno::EINVAL);
                }
                // The pool keeps account of them, and they stay in memory anyway.
                area |= VmaFlags::HUGETLB;
                area -= VmaFlags::LOCKED;
            }
            let private_writable = !shared && prot.contains(Prot::WRITE) && huge.is_none();
            if reserve && private_writable {
                area |= VmaFlags::ACCOUNTED;
            }
            return Ok((area, Bytes::File(Arc::new(file), offset)));
        }
    };
    if reserve && (area.contains(VmaFlags::SHARED) || prot.contains(Prot::WRITE)) {
        area |= VmaFlags::ACCOUNTED;
    }
    Ok((area, source))
}

/// Checks that the offsets of a mapped file are whole pages below 2^63. Fails with `EINVAL` if
/// `offset` is no multiple of a page, and with `EOVERFLOW` if the end is too high.
fn check_offset(offset: u64, bytes: u64) -> Result<(), Errno> {
    if !offset.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    match offset.checked_add(bytes) {
        Some(end) if end <= i64::MAX.cast_unsigned() => Ok(()),
        _ => Err(Errno::EOVERFLOW),
    }
}

//! Changes of rights, and advice.

use super::backing::Bytes;
use super::entry::{ADDRESS, DIRTY, FILE, HUGE, POOL, REGION, SHMEM, ZERO, frame_of, pages_in};
use super::khugepaged;
use super::map::{Commitment, page_range};
use super::mappings::Reach;
use super::pagetable::Run;
use super::pieces::Change;
use super::space::{Area, PAGE, State, TABLES_AT_ONCE};
use super::want::{entry_flags, store_flags};
use super::{AddressSpace, Prot, VmaFlags, tlb};
use core::ops::Range;
use core::sync::atomic::Ordering;
use logic::errno::Errno;
use machine::memory::memmap::Descriptor;
use machine::memory::{huge, hugetlb};
use machine::sched;

/// The advice of `madvise(2)` for existing mappings.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Frees the pages. Private memory then reads as zeros or the file's bytes again. Fails for
    /// locked pages.
    DontNeed,
    /// Frees the pages as `DontNeed` does, locked ones too.
    DontNeedLocked,
    /// Frees the pages of private anonymous memory at once. Linux frees them when memory is short,
    /// which a program cannot distinguish without swap. Fails for locked pages and mapped files.
    Free,
    /// Frees the file's bytes behind a shared mapping.
    Remove,
    /// Maps the pages for reading now.
    PopulateRead,
    /// Maps the pages for writing now.
    PopulateWrite,
    /// `fork` does not copy the area.
    DontFork,
    /// `fork` copies the area.
    DoFork,
    /// The area is not in core files.
    DontDump,
    /// The area is in core files.
    DoDump,
    /// The area is zero in the child after `fork`.
    WipeOnFork,
    /// The child gets the area's content.
    KeepOnFork,
    /// Huge pages map the area if the policy is `madvise`.
    HugePages,
    /// Huge pages do not map the area from now on.
    NoHugePages,
    /// Joins the pages of the area to huge pages now.
    Collapse,
    /// The pages are not needed soon. Changes nothing, as there is no swap. Fails for areas whose
    /// pages stay in memory anyway.
    Cold,
    /// Is accepted and changes nothing.
    Nothing,
}

/// The empty set of flags.
pub(super) const NONE: VmaFlags = VmaFlags::empty();

/// The part of an area in a range.
pub(super) struct Piece {
    pub(super) range: Range<u64>,
    pub(super) flags: VmaFlags,
    pub(super) backing: Bytes,
}

/// Returns the entry `old` with the rights of its area. The right to store is added only if
/// `may_store` is set. Returns `None` if the entry is unused or has these rights.
fn with_rights(old: u64, flags: VmaFlags, may_store: bool) -> Option<u64> {
    if old == 0 {
        return None;
    }
    let store = if may_store { store_flags(flags) } else { 0 };
    let kept = old & (ADDRESS | FILE | SHMEM | ZERO | HUGE | POOL);
    let new = kept | entry_flags(flags) | store;
    (new & !DIRTY != old & !DIRTY).then_some(new)
}

impl AddressSpace {
    /// Sets the rights of a range to `prot` (`mprotect(2)`).
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned start, and if an end of the range cuts a page of the
    /// pool of huge pages. Fails with `EACCES` if an area does not allow one of the rights: a
    /// file's descriptor forbids stores, or its mount forbids execution. Fails with `ENOMEM` if a
    /// part is not mapped, a limit would be exceeded, or there would be too many areas.
    pub fn protect(&self, start: u64, bytes: u64, prot: Prot) -> Result<(), Errno> {
        let range = page_range(start, bytes, Errno::ENOMEM)?;
        if range.is_empty() {
            return Ok(());
        }
        let _change = self.change.lock();
        let with = |flags: VmaFlags| {
            let mut new = (flags - VmaFlags::RIGHTS) | prot.flags();
            if prot.contains(Prot::WRITE)
                && !flags.intersects(VmaFlags::SHARED | VmaFlags::NO_RESERVE | VmaFlags::HUGETLB)
            {
                new |= VmaFlags::ACCOUNTED;
            }
            new
        };
        let (store, fetch) = (prot.contains(Prot::WRITE), prot.contains(Prot::EXEC));
        let fit = |area: &Area| {
            (!store || area.flags.contains(VmaFlags::MAY_WRITE))
                && !(fetch && area.flags.contains(VmaFlags::NO_EXEC))
        };
        let (mut reached, mut all_fit, mut change) = (range.start, true, Change::default());
        self.for_areas(range.clone(), |area| {
            if area.start > reached {
                return false;
            }
            reached = area.end;
            all_fit &= fit(area);
            change.add(area, &range, with);
            true
        });
        if reached < range.end {
            return Err(Errno::ENOMEM);
        }
        if !all_fit {
            return Err(Errno::EACCES);
        }
        let more = change.after.beyond(change.before);
        self.state.lock().check_limits(more)?;
        let commitment = Commitment::new(change.after.accounted - change.before.accounted)?;
        self.change_flags(range.clone(), &change, with)?;
        commitment.keep();
        self.settle_trials(range.clone());
        self.apply_rights(range);
        Ok(())
    }

    /// Returns the start of the area that grows down and contains `address`.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned address or an area that does not grow, and with
    /// `ENOMEM` if nothing is mapped there.
    pub fn growing_area_start(&self, address: u64) -> Result<u64, Errno> {
        let range = page_range(address, 0, Errno::ENOMEM)?;
        let state = self.state.lock();
        let area = state.areas.find(range.start).ok_or(Errno::ENOMEM)?;
        if area.flags.contains(VmaFlags::GROWS_DOWN) {
            Ok(area.start)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// Gives the entries in `range` the rights of their areas. Stores to private pages that other
    /// spaces may share are allowed later, by the fault that they cause.
    fn apply_rights(&self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(area) = state.areas.next_from(at).filter(|a| a.start < range.end) else {
                return;
            };
            let (flags, from) = (area.flags, area.start.max(at));
            let part = from..area.end.min(range.end);
            let shared = flags.contains(VmaFlags::SHARED);
            let (mut tables, mut any, mut trial) = (0, false, None);
            state.tables.split_edges(&part, &self.cpus);
            at = state.tables.runs(part, |_, run| {
                if tables == TABLES_AT_ONCE {
                    return false;
                }
                tables += 1;
                match run {
                    Run::Pages(entries) => {
                        for entry in entries {
                            // Relaxed (both): the lock is held; the CPU does not write entries of
                            // ours, whose accessed and dirty bits are set beforehand.
                            let old = entry.load(Ordering::Relaxed);
                            let own = || {
                                old != 0
                                    && old & (ZERO | FILE | SHMEM) == 0
                                    && Descriptor::get(frame_of(old)).references() == 1
                            };
                            if let Some(new) = with_rights(old, flags, shared || own()) {
                                entry.store(new, Ordering::Relaxed);
                                any = true;
                            }
                        }
                    }
                    Run::Trial(slot, _) => {
                        trial = Some(slot);
                        return false;
                    }
                    Run::Huge(slot, _) => {
                        let old = slot.load();
                        let may_store = match old & (POOL | FILE | SHMEM | ZERO) {
                            ZERO => false,
                            0 => huge::is_own(frame_of(old)),
                            POOL => shared || hugetlb::references(frame_of(old)) == 1,
                            _ => shared,
                        };
                        if let Some(new) = with_rights(old, flags, may_store) {
                            slot.set_page(new);
                            any = true;
                        }
                    }
                }
                true
            });
            if let Some(slot) = trial {
                // One that began after `settle_trials`. The next turn finds its pages.
                state.tables.end_trial(slot);
            }
            let pending = (any || self.has_flushes()).then(|| self.begin_flush());
            drop(guard);
            if pending.is_some() {
                tlb::flush(&self.cpus, from..at.max(from + 4096));
            }
            drop(pending);
            sched::cond_resched();
        }
    }

    /// Applies `advice` to a range (`madvise(2)`). Parts that are not mapped are skipped, and fail
    /// the call at its end.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `advice` makes no sense for the range or an area in it, and with
    /// `ENOMEM` if a part is not mapped. [`Advice::Remove`] fails with `EACCES` for a mapping that
    /// may not store, and with the errors of the file. [`Advice::Collapse`],
    /// [`Advice::PopulateRead`] and [`Advice::PopulateWrite`] also fail with `EINTR`, and with
    /// other errors of their work.
    pub fn advise(&self, start: u64, bytes: u64, advice: Advice) -> Result<(), Errno> {
        let range = page_range(start, bytes, Errno::EINVAL)?;
        if range.is_empty() {
            return Ok(());
        }
        let whole = self.covers(&range);
        let any = |_: &Area| true;
        match advice {
            Advice::DontNeed | Advice::DontNeedLocked | Advice::Free => {
                let first = range.start;
                self.zap_areas(range, Reach::All, true, |area| {
                    // Pages of the pool go as wholes; as on Linux, the range must begin with one.
                    let cut =
                        area.start < first && !first.is_multiple_of(area.backing.page_bytes());
                    let fit = !cut
                        && match advice {
                            Advice::DontNeedLocked => true,
                            Advice::DontNeed => !area.flags.contains(VmaFlags::LOCKED),
                            _ => {
                                area.backing.file().is_none()
                                    && !area.flags.contains(VmaFlags::LOCKED)
                            }
                        };
                    if fit {
                        Ok(area.start..area.end)
                    } else {
                        Err(Errno::EINVAL)
                    }
                })?;
            }
            Advice::Remove => self.each_piece(range, |piece| match &piece.backing {
                Bytes::File(..) if piece.flags.contains(VmaFlags::LOCKED) => Err(Errno::EINVAL),
                Bytes::File(file, offset) => {
                    if !piece.flags.contains(VmaFlags::SHARED | VmaFlags::MAY_WRITE) {
                        return Err(Errno::EACCES);
                    }
                    let bytes = piece.range.end - piece.range.start;
                    file.source.punch(*offset..offset + bytes)
                }
                Bytes::Zero => Err(Errno::EINVAL),
            })?,
            Advice::PopulateRead | Advice::PopulateWrite => {
                return self.populate_as_told(range, advice == Advice::PopulateWrite);
            }
            Advice::DontFork => self.set_flags(range, NONE, VmaFlags::DONT_FORK, any)?,
            Advice::DoFork => self.set_flags(range, VmaFlags::DONT_FORK, NONE, any)?,
            Advice::DontDump => self.set_flags(range, NONE, VmaFlags::DONT_DUMP, any)?,
            Advice::DoDump => self.set_flags(range, VmaFlags::DONT_DUMP, NONE, any)?,
            Advice::WipeOnFork => self.set_flags(range, NONE, VmaFlags::WIPE_ON_FORK, |area| {
                !area.flags.contains(VmaFlags::SHARED) && area.backing.file().is_none()
            })?,
            Advice::KeepOnFork => self.set_flags(range, VmaFlags::WIPE_ON_FORK, NONE, any)?,
            Advice::HugePages => {
                self.set_flags(range, VmaFlags::NO_HUGE_PAGES, VmaFlags::HUGE_PAGES, any)?;
                khugepaged::enlist(self);
            }
            Advice::NoHugePages => {
                self.set_flags(range, VmaFlags::HUGE_PAGES, VmaFlags::NO_HUGE_PAGES, any)?;
            }
            Advice::Cold => {
                let unfit = VmaFlags::LOCKED | VmaFlags::HUGETLB;
                let mut all_fit = true;
                self.for_areas(range, |area| {
                    all_fit &= !area.flags.intersects(unfit);
                    all_fit
                });
                if !all_fit {
                    return Err(Errno::EINVAL);
                }
            }
            Advice::Collapse => self.each_piece(range, |piece| self.collapse(piece.range))?,
            Advice::Nothing => {}
        }
        if whole { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Maps the pages of `range` for `MADV_POPULATE_READ` or, with `write`, `MADV_POPULATE_WRITE`.
    /// Fails with `ENOMEM` if an address is not mapped, with `EINVAL` if an area does not give the
    /// right, and as [`Self::populate`].
    fn populate_as_told(&self, range: Range<u64>, write: bool) -> Result<(), Errno> {
        let right = if write {
            VmaFlags::WRITE
        } else {
            VmaFlags::READ
        };
        let mut end = range.start;
        self.each_piece(range.clone(), |piece| {
            if piece.range.start > end {
                return Err(Errno::ENOMEM);
            }
            end = piece.range.end;
            if !piece.flags.intersects(right) {
                return Err(Errno::EINVAL);
            }
            self.populate(piece.range, write)
        })?;
        if end < range.end {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Clears the flags `clear` and sets the flags `set` of all areas in `range`, if `fit` returns
    /// `true` for each of them. Skips gaps.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `fit` returns `false` for an area. Otherwise fails as
    /// [`Self::change_flags`] does.
    pub(super) fn set_flags(
        &self,
        range: Range<u64>,
        clear: VmaFlags,
        set: VmaFlags,
        fit: impl Fn(&Area) -> bool,
    ) -> Result<(), Errno> {
        let _change = self.change.lock();
        let with = |flags: VmaFlags| {
            // As on Linux: pages of the pool stay anyway.
            let none = flags.contains(VmaFlags::HUGETLB) && set == VmaFlags::LOCKED;
            if none { flags } else { (flags - clear) | set }
        };
        // Where nothing changes, nothing is split.
        let (mut all_fit, mut changed, mut change) = (true, None, Change::default());
        self.for_areas(range.clone(), |area| {
            all_fit &= fit(area);
            if with(area.flags) != area.flags {
                let (first, _) = changed.unwrap_or((area.start, 0));
                changed = Some((first, area.end));
            }
            if changed.is_some() {
                change.add(area, &range, with);
            }
            all_fit
        });
        if !all_fit {
            return Err(Errno::EINVAL);
        }
        let Some((first, last)) = changed else {
            return Ok(());
        };
        // Areas behind the last one that changes were taken in, too: they are the same before and
        // after.
        self.change_flags(range.start.max(first)..range.end.min(last), &change, with)
    }

    /// Calls `act` with the part of each area in `range`, in ascending order, without a spin lock
    /// held. Skips gaps.
    ///
    /// # Errors
    /// Fails with the error of `act`.
    pub(super) fn each_piece(
        &self,
        range: Range<u64>,
        mut act: impl FnMut(Piece) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            let piece = {
                let state = self.state.lock();
                let Some(area) = state.areas.next_from(at).filter(|a| a.start < range.end) else {
                    return Ok(());
                };
                let part = area.start.max(at)..area.end.min(range.end);
                let backing = logic::vma::Backing::advanced(&area.backing, part.start - area.start);
                Piece {
                    range: part,
                    flags: area.flags,
                    backing,
                }
            };
            at = piece.range.end;
            act(piece)?;
        }
        Ok(())
    }

    /// Calls `each` with one byte for each page of a range, several at a time, in ascending order:
    /// 1 if the page is in memory, else 0 (`mincore(2)`). In a shared mapping that may store, a
    /// page is in memory if the file has it there, even if it is not mapped.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned start, with `ENOMEM` if a part is not mapped, and with
    /// the errors of `each`.
    pub fn residency(
        &self,
        start: u64,
        bytes: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let range = page_range(start, bytes, Errno::ENOMEM)?;
        if !self.covers(&range) {
            return Err(Errno::ENOMEM);
        }
        let mut at = range.start;
        while at < range.end {
            let mut present = [0; 512];
            let pages = pages_in((range.end - at).min(REGION));
            {
                let state = self.state.lock();
                let end = at + pages as u64 * 4096;
                state.tables.runs(at..end, |from, run| {
                    let first = pages_in(from - at);
                    match run {
                        Run::Pages(entries) => {
                            for (byte, entry) in present[first..].iter_mut().zip(entries) {
                                *byte = u8::from(entry.load(Ordering::Relaxed) != 0);
                            }
                        }
                        Run::Huge(_, places) => {
                            let pages = pages_in((places.end - places.start) * PAGE);
                            present[first..first + pages].fill(1);
                        }
                        Run::Trial(_, pages) => present[first..first + pages].fill(1),
                    }
                    true
                });
                state.add_present(at..end, &mut present);
            }
            each(&present[..pages])?;
            at += pages as u64 * 4096;
            sched::cond_resched();
        }
        Ok(())
    }
}

impl State {
    /// Sets the bytes of `present`, one for each page of `range`, for pages that the mapped files
    /// have in memory. Of files, only those of shared mappings that may store and those that are
    /// mapped from a descriptor for writing are examined. Linux examines every file that the caller
    /// owns or may open for writing.
    fn add_present(&self, range: Range<u64>, present: &mut [u8]) {
        const ROW: usize = 16;
        const TOLD: VmaFlags = VmaFlags::SHARED.union(VmaFlags::MAY_WRITE);
        for area in self.areas.overlapping(range.clone()) {
            let Bytes::File(file, offset) = &area.backing else {
                continue;
            };
            let told = file.writable || area.flags.contains(TOLD);
            if !told || area.flags.contains(VmaFlags::HUGETLB) {
                continue;
            }
            let part = area.start.max(range.start)..area.end.min(range.end);
            let mut index = (offset + (part.start - area.start)) / PAGE;
            let from = pages_in(part.start - range.start);
            let until = from + pages_in(part.end - part.start);
            for bytes in present[from..until].chunks_mut(ROW) {
                if bytes.contains(&0) {
                    let mut row = [const { None }; ROW];
                    file.source.present(index, &mut row[..bytes.len()]);
                    for (byte, page) in bytes.iter_mut().zip(&row) {
                        *byte |= u8::from(page.is_some());
                    }
                }
                index += bytes.len() as u64;
            }
        }
    }
}

//! `mremap`: grows, shrinks and moves a mapping.

use super::backing::{Bytes, Graveyard};
use super::entry::REGION;
use super::map::{Commitment, MAP_TOP, page_range, page_up};
use super::replacing::Replacing;
use super::source::{Backing, MappedFile};
use super::space::{Area, PAGE, Sizes, State, TABLES_AT_ONCE};
use super::stack::MAP_BOTTOM;
use super::{AddressSpace, MapFlags, Prot, VmaFlags, tlb};
use alloc::sync::Arc;
use core::ops::Range;
use ebb_mm::Order;
use logic::errno::Errno;
use logic::vma::{Backing as _, NoMemory};
use machine::arch::USER_END;
use machine::memory::{knobs, pressure};
use machine::sched;

/// The places that a remapped area may go to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Remap {
    /// The area stays in its place, or the call fails.
    InPlace,
    /// The area may go to any place.
    MayMove,
    /// Exactly this address. Mappings there are removed.
    Fixed(u64),
}

impl AddressSpace {
    /// Changes the size of a mapping and moves it if necessary (`mremap(2)`). Returns its address.
    /// With `keep`, the old range stays mapped and empty (`MREMAP_DONTUNMAP`).
    ///
    /// # Errors
    /// Fails as `mremap(2)` does.
    pub fn remap(
        self: &Arc<Self>,
        start: u64,
        old_bytes: u64,
        new_bytes: u64,
        to: Remap,
        keep: bool,
    ) -> Result<u64, Errno> {
        let mut old = page_range(start, old_bytes, Errno::EINVAL)?;
        let mut bytes = page_up(new_bytes)
            .filter(|&b| b != 0)
            .ok_or(Errno::EINVAL)?;
        let mut old_bytes = old.end - old.start;
        // Linux makes a second mapping of a shared area for 0 old bytes; no program is known to
        // need that.
        if old.is_empty() || keep && (old_bytes != bytes || to == Remap::InPlace) {
            return Err(Errno::EINVAL);
        }
        let mut target = match to {
            Remap::Fixed(at) => {
                let range = page_range(at, bytes, Errno::EINVAL)?;
                if range.start < old.end && old.start < range.end {
                    return Err(Errno::EINVAL);
                }
                Some(range)
            }
            _ => None,
        };
        let change = self.change.lock();
        let area = self.check_one_area(&old)?;
        if target
            .as_ref()
            .is_some_and(|range| range.start < MAP_BOTTOM)
        {
            return Err(Errno::EPERM);
        }
        if area.flags.contains(VmaFlags::HUGETLB) {
            let unit = area.backing.page_bytes();
            let at = target.as_ref().map_or(0, |range| range.start);
            // As on Linux, one of huge pages does not grow: nothing is kept for what would come.
            bytes = bytes.checked_next_multiple_of(unit).ok_or(Errno::EINVAL)?;
            old_bytes = old_bytes.next_multiple_of(unit);
            let aligned = old.start.is_multiple_of(unit) && at.is_multiple_of(unit);
            if !aligned || keep || bytes > old_bytes {
                return Err(Errno::EINVAL);
            }
            old.end = old.start + old_bytes;
            if let Some(range) = &mut target {
                *range = page_range(range.start, bytes, Errno::EINVAL)?;
                if range.start < old.end && old.start < range.end {
                    return Err(Errno::EINVAL);
                }
                if bytes < old_bytes {
                    // What goes is not moved, and neither are promises of it.
                    self.remove(old.start + bytes..old.end)?;
                    old.end = old.start + bytes;
                    old_bytes = bytes;
                }
            }
        }
        if target.is_none() && !keep && bytes <= old_bytes {
            if bytes < old_bytes {
                self.remove(old.start + bytes..old.end)?;
            }
            return Ok(old.start);
        }
        let grown = target.is_none() && !keep && self.grow_in_place(&area, &old, bytes)?;
        let start = if grown {
            old.start
        } else if to == Remap::InPlace {
            return Err(Errno::ENOMEM);
        } else if keep && area.flags.intersects(VmaFlags::SHARED) {
            return Err(Errno::EINVAL);
        } else {
            // As on Linux: each of the two places may be split in three first.
            let parts = if keep || target.is_some() { 5 } else { 3 };
            let count = self.state.lock().areas.len() as u64;
            if count + parts >= knobs::max_map_count() {
                return Err(Errno::ENOMEM);
            }
            let gone = if keep { 0 } else { old_bytes };
            let more = Sizes::of(area.flags, bytes).beyond(Sizes::of(area.flags, gone));
            let _replacing = target.clone().map(|range| Replacing::begin(self, range));
            if let Some(range) = &target {
                self.state.lock().check_replacing(range, more)?;
                self.remove(range.clone())?;
            }
            let moved = old.start..old.start + old_bytes.min(bytes);
            self.move_area(&area, moved, target.map(|t| t.start), bytes, keep, old)?
        };
        drop(change);
        if area.flags.contains(VmaFlags::LOCKED) && !keep {
            // As on Linux, what cannot be had now comes later, or not.
            let _ = self.populate(start..start + bytes, area.flags.contains(VmaFlags::WRITE));
        }
        Ok(start)
    }

    /// Changes the part of a file that a shared mapping maps: from `start` on, `bytes` bytes map
    /// the file from its page `first` on (`remap_file_pages(2)`). Makes a new mapping, as Linux
    /// does since version 4.0.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an empty range, and for pages that wrap around. Fails with `EINVAL`
    /// if the range has a gap, a private mapping, mappings of more than one file or mappings with
    /// different flags. Otherwise fails as `mmap(2)` does.
    pub fn show_from(self: &Arc<Self>, start: u64, bytes: u64, first: u64) -> Result<(), Errno> {
        let range = page_range(start, bytes, Errno::EINVAL)?;
        if range.is_empty() || first.checked_add(bytes / PAGE).is_none() {
            return Err(Errno::EINVAL);
        }
        let offset = first.checked_mul(PAGE).ok_or(Errno::EOVERFLOW)?;
        let (flags, file) = self.look_settled(|state| state.one_shared_file(&range))?;
        let prot = Prot::from_bits_truncate(flags.bits());
        let mut map = MapFlags::FIXED | MapFlags::POPULATE;
        map.set(MapFlags::LOCKED, flags.contains(VmaFlags::LOCKED));
        let backing = Backing::File {
            file: file.again(),
            offset,
            shared: true,
            writable: flags.contains(VmaFlags::MAY_WRITE),
        };
        self.map(Some(start), bytes, prot, map, backing).map(|_| ())
    }

    /// Returns the area that contains all of `range`. Fails with `EFAULT` if there is none.
    fn check_one_area(&self, range: &Range<u64>) -> Result<Area, Errno> {
        let state = self.state.lock();
        let area = state.areas.find(range.start).ok_or(Errno::EFAULT)?;
        if area.end < range.end {
            return Err(Errno::EFAULT);
        }
        Ok(area.clone())
    }

    /// Extends the area that ends with `old` to `bytes` bytes from the start of `old`. Returns
    /// `false`, and changes nothing, if another area follows, if `old` is not the area's end, or if
    /// the addresses of programs end before. The caller holds `change`. Fails with `ENOMEM`, and
    /// with `EINVAL` if the addresses overflow.
    fn grow_in_place(&self, area: &Area, old: &Range<u64>, bytes: u64) -> Result<bool, Errno> {
        let grown = old.end..old.start.checked_add(bytes).ok_or(Errno::EINVAL)?;
        if area.end != old.end || grown.end > USER_END {
            return Ok(false);
        }
        let taken = self
            .state
            .lock()
            .areas
            .overlapping(grown.clone())
            .next()
            .is_some();
        if taken {
            return Ok(false);
        }
        let sizes = Sizes::of(area.flags, grown.end - grown.start);
        let commitment = Commitment::new(sizes.accounted)?;
        let backing = area.backing.advanced(old.end - area.start);
        self.insert(grown, area.flags, backing)?;
        commitment.keep();
        Ok(true)
    }

    /// Splits the huge pages that `range` touches, a few each time that the lock is held. There may
    /// be new ones afterwards.
    fn split_huge_pages(&self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let mut state = self.state.lock();
            let tables = &mut state.tables;
            at = tables.split_all(at..range.end, TABLES_AT_ONCE, &self.cpus);
            drop(state);
            sched::cond_resched();
        }
    }

    /// Moves the pages of `moved`, which lie in `area`, to `target`, or to a free place if that is
    /// `None`. The new area has `bytes` bytes. The area of the range `old`, which the program gave
    /// up, is removed unless `keep` is set. Returns the address of the new area. Fails with
    /// `ENOMEM` if memory is short, a limit is exceeded or there is no free place.
    fn move_area(
        &self,
        area: &Area,
        moved: Range<u64>,
        target: Option<u64>,
        bytes: u64,
        keep: bool,
        old: Range<u64>,
    ) -> Result<u64, Errno> {
        let sizes = Sizes::of(area.flags, bytes);
        // For a moment both are there, and committed.
        let commitment = Commitment::new(sizes.accounted)?;
        let moved_bytes = moved.end - moved.start;
        if target.is_none_or(|to| to % REGION == moved.start % REGION) {
            self.settle_trial_edges(&moved);
        } else {
            self.settle_trials(moved.clone());
            self.split_huge_pages(moved.clone());
        }
        // The room stays: `change` is held.
        drop(self.lock_with_room(&old)?);
        let mut relief = pressure::Relief::new(Order::BASE);
        let mut graveyard = if area.flags.contains(VmaFlags::HUGETLB) {
            Graveyard::of_moved(self.id())
        } else {
            Graveyard::of(self.id())
        };
        let start = loop {
            // Files that drop pages meet the entries at the old place or at the new one. Not held
            // while memory is waited for.
            let walks = area.backing.file().map(|f| f.source.mappings().keep_out());
            let mut state = self.state.lock();
            let start = match target {
                Some(start) => start,
                None => {
                    // Aligned like the old place within 2 MiB, so that whole tables move.
                    let unit = area.backing.page_bytes().max(REGION);
                    let slack = if moved_bytes >= REGION {
                        unit - PAGE
                    } else {
                        0
                    };
                    let at = state
                        .find_gap(bytes + slack, MAP_TOP, PAGE)
                        .ok_or(Errno::ENOMEM)?;
                    let shift = (moved.start % unit + unit - at % unit) % unit;
                    if slack == 0 { at } else { at + shift }
                }
            };
            // All that can fail comes first.
            let unlocks = keep && area.flags.contains(VmaFlags::LOCKED);
            if !keep || unlocks {
                state.make_boundaries(&old)?;
            }
            let gone = Sizes::of(area.flags, if keep { 0 } else { old.end - old.start });
            state.check_limits(sizes.beyond(gone))?;
            let prepared = match state.areas.prepare_anywhere() {
                Err(NoMemory) => Err(pressure::HEAP_EXHAUSTED),
                Ok(()) => {
                    let tables = &mut state.tables;
                    tables.prepare_move(moved.start, start, moved_bytes, &self.cpus)
                }
            };
            if let Err(error) = prepared {
                drop(state);
                drop(walks);
                // Tables that were made for nothing do not stay.
                self.zap_unmapped(start..start + bytes);
                relief.step(error)?;
                continue;
            }
            state.tables.move_entries(moved.start, start, moved_bytes);
            // The old area goes before the new one comes: where they touch they would merge.
            if unlocks {
                state.unlock(old.clone(), area.flags);
            }
            if !keep {
                // One area at most: it was checked to hold the whole range.
                state.take_areas(old.clone(), &mut graveyard);
                state.leaving = old.clone();
            }
            let backing = match &area.backing {
                Bytes::Zero => Bytes::Zero,
                file => file.advanced(moved.start - area.start),
            };
            let new = Area {
                start,
                end: start + bytes,
                flags: area.flags,
                backing,
            };
            state.areas.insert(new);
            state.sizes.add(sizes);
            commitment.keep();
            state.changed();
            tlb::flush(&self.cpus, moved.clone());
            break start;
        };
        if !keep {
            // What a shrinking move leaves behind, and the emptied tables.
            self.finish_leaving(old);
        }
        Ok(start)
    }
}

impl State {
    /// Unlocks the pages in `range`, which lies in one area with the flags `flags` and has its ends
    /// at boundaries of areas.
    fn unlock(&mut self, range: Range<u64>, flags: VmaFlags) {
        let unlocked = |flags: VmaFlags| flags - VmaFlags::LOCKED;
        let bytes = range.end - range.start;
        self.areas.set_flags(range, unlocked);
        let before = Sizes::of(flags, bytes);
        let after = Sizes::of(unlocked(flags), bytes);
        self.sizes.subtract(before.beyond(after));
    }

    /// Returns the flags and the file of the areas in `range`. Fails with `EINVAL` unless all areas
    /// map one shared file with the same flags.
    fn one_shared_file(&self, range: &Range<u64>) -> Result<(VmaFlags, Arc<MappedFile>), Errno> {
        let first = self.areas.find(range.start).ok_or(Errno::EINVAL)?;
        let file = first.backing.file().ok_or(Errno::EINVAL)?;
        let source = Arc::as_ptr(&file.source).cast();
        let alike = |area: &Area| {
            let other = area.backing.file();
            area.flags == first.flags && other.is_some_and(|other| other.same_source(source))
        };
        let fit = first.flags.contains(VmaFlags::SHARED)
            && self.areas.covers(range.clone())
            && self.areas.overlapping(range.clone()).all(alike);
        if !fit {
            return Err(Errno::EINVAL);
        }
        Ok((first.flags, file.clone()))
    }
}

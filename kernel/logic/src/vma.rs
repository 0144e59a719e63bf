//! The set of a space's virtual memory areas (VMAs): sorted, disjoint, neighbours merged.
//!
//! Needs no hardware: the bytes of an area come from a [`Backing`] that the set only splits and
//! joins. So host tests run this very file against a naive model.
//!
//! The areas are in sorted chunks of at most [`CHUNK`], a B-tree of two levels. Unlike the standard
//! maps, the set reports that memory is short. [`VmaSet::prepare`] allocates the memory for a
//! change beforehand, so that no change fails half-way.

use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::{Deref, DerefMut, Range};

/// The most areas in a chunk. With areas of 40 bytes a chunk is just below the size class of 2 KiB.
pub const CHUNK: usize = 48;

/// The error if memory for the set itself is short.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NoMemory;

/// The source of the bytes of an area, such as a file. The set only moves its start and compares
/// two of them.
pub trait Backing: Clone {
    /// Returns the backing of the bytes that begin `bytes` bytes after the start of this backing.
    #[must_use]
    fn advanced(&self, bytes: u64) -> Self;
    /// Returns whether `next`, the backing of bytes that begin `bytes` bytes after the start of
    /// this backing, is the continuation of this backing.
    fn continues(&self, bytes: u64, next: &Self) -> bool;
}

/// An area: the pages in `start..end`, with the same rights and one backing.
#[derive(Clone, Debug)]
pub struct Vma<F, B> {
    /// Address of the first byte, a multiple of the page size.
    pub start: u64,
    /// Address after the last byte, a multiple of the page size, above `start`.
    pub end: u64,
    /// Rights and kind. Areas with different flags are never merged.
    pub flags: F,
    /// The source of the area's bytes, from `start` on.
    pub backing: B,
}

impl<F: Copy + PartialEq, B: Backing> Vma<F, B> {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    fn joins(&self, next: &Self) -> bool {
        self.end == next.start
            && self.flags == next.flags
            && self.backing.continues(self.bytes(), &next.backing)
    }
}

/// The place of an area: its chunk, and its index there. Valid until the set changes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Position {
    chunk: usize,
    place: usize,
}

/// Areas of one chunk, with data for the search for a gap.
#[derive(Debug)]
struct Chunk<F, B> {
    areas: Vec<Vma<F, B>>,
    /// The largest gap between two of the areas. `None` if they changed since it was last computed.
    gap: Cell<Option<u64>>,
}

impl<F, B> From<Vec<Vma<F, B>>> for Chunk<F, B> {
    fn from(areas: Vec<Vma<F, B>>) -> Self {
        Self {
            areas,
            gap: Cell::new(None),
        }
    }
}

impl<F, B> Deref for Chunk<F, B> {
    type Target = Vec<Vma<F, B>>;
    fn deref(&self) -> &Self::Target {
        &self.areas
    }
}

impl<F, B> DerefMut for Chunk<F, B> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.gap.set(None);
        &mut self.areas
    }
}

impl<F, B> Chunk<F, B> {
    fn largest_gap(&self) -> u64 {
        self.gap.get().unwrap_or_else(|| {
            let pairs = self.areas.iter().zip(self.areas.iter().skip(1));
            let largest = pairs.map(|(low, high)| high.start - low.end).max();
            self.gap.set(Some(largest.unwrap_or(0)));
            largest.unwrap_or(0)
        })
    }
}

/// The virtual memory areas of an address space, sorted and disjoint.
#[derive(Debug)]
pub struct VmaSet<F, B> {
    /// No chunk is empty. Starts ascend within and across chunks.
    chunks: Vec<Chunk<F, B>>,
    /// Chunks allocated by `prepare`, for splits that must not fail.
    spare: Vec<Vec<Vma<F, B>>>,
    count: usize,
    /// The area that was found last: callers search for the same area, and the next one, again and
    /// again. The position may have become invalid.
    found: Cell<Position>,
    /// The range without gaps that the last search for a gap from above found.
    full: Cell<Full>,
}

/// A range of addresses without a gap of `bytes` or more. `from` is the start of an area, or `to`.
#[derive(Copy, Clone, Debug)]
struct Full {
    from: u64,
    to: u64,
    bytes: u64,
}

impl Full {
    /// No range is known.
    const NOWHERE: Self = Self {
        from: 0,
        to: 0,
        bytes: u64::MAX,
    };
}

impl<F: Copy + PartialEq, B: Backing> Default for VmaSet<F, B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Copy + PartialEq, B: Backing> VmaSet<F, B> {
    /// The most areas that one change inserts. An area in the middle of another makes two more.
    const GROWTH: usize = 3;

    /// Returns the empty set.
    pub const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            spare: Vec::new(),
            count: 0,
            found: Cell::new(Position { chunk: 0, place: 0 }),
            full: Cell::new(Full::NOWHERE),
        }
    }

    /// Returns the number of areas in the set.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no areas.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns a copy of the areas for which `wanted` returns `true`.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short; the partial copy is dropped.
    pub fn try_clone_of(&self, wanted: impl Fn(&Vma<F, B>) -> bool) -> Result<Self, NoMemory> {
        let mut copy = Self::new();
        let mut next = Some(0);
        while let Some(chunk) = next {
            next = self.clone_chunk(chunk, &wanted, &mut copy)?;
        }
        Ok(copy)
    }

    /// Appends copies of those areas in chunk number `chunk` for which `wanted` returns `true` to
    /// `copy`. Chunks count from 0, and the caller must have copied the earlier ones. Returns the
    /// number of the next chunk, or `None` after the last.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short.
    pub fn clone_chunk(
        &self,
        chunk: usize,
        wanted: impl Fn(&Vma<F, B>) -> bool,
        copy: &mut Self,
    ) -> Result<Option<usize>, NoMemory> {
        let Some(from) = self.chunks.get(chunk) else {
            return Ok(None);
        };
        if chunk == 0 {
            let chunks = copy.chunks.try_reserve_exact(self.chunks.len());
            chunks.map_err(|_| NoMemory)?;
        }
        let mut to = Vec::new();
        to.try_reserve_exact(from.len()).map_err(|_| NoMemory)?;
        to.extend(from.iter().filter(|area| wanted(area)).cloned());
        copy.count += to.len();
        if !to.is_empty() {
            copy.chunks.try_reserve(1).map_err(|_| NoMemory)?;
            copy.chunks.push(to.into());
        }
        Ok(Some(chunk + 1).filter(|next| *next < self.chunks.len()))
    }

    /// Returns the position of the first area that ends above `address`, or the position after the
    /// last area.
    fn seek(&self, address: u64) -> Position {
        let found = self.found.get();
        if let Some(position) = self.near(found, address) {
            self.found.set(position);
            return position;
        }
        let after = self.chunks.partition_point(|c| c[0].start <= address);
        let chunk = after.saturating_sub(1);
        let Some(areas) = self.chunks.get(chunk) else {
            return Position { chunk: 0, place: 0 };
        };
        let place = areas.partition_point(|a| a.end <= address);
        let position = if place == areas.len() {
            Position {
                chunk: chunk + 1,
                place: 0,
            }
        } else {
            Position { chunk, place }
        };
        self.found.set(position);
        position
    }

    /// Returns the position that `seek` returns for `address` if it is `here` or next to it in the
    /// chunk, else `None`. Callers look at the start and the end of a range in turn.
    fn near(&self, here: Position, address: u64) -> Option<Position> {
        let areas = self.chunks.get(here.chunk)?;
        let area = areas.get(here.place)?;
        let place = if area.end <= address {
            let next = areas.get(here.place + 1)?;
            (next.end > address).then_some(here.place + 1)?
        } else {
            let ends_below = |place: usize| {
                let before = place.checked_sub(1).and_then(|place| areas.get(place));
                before.is_some_and(|before| before.end <= address)
            };
            if area.start <= address || ends_below(here.place) {
                here.place
            } else {
                // The area before ends above `address`.
                let place = here.place.checked_sub(1)?;
                (areas.get(place)?.start <= address || ends_below(place)).then_some(place)?
            }
        };
        Some(Position {
            chunk: here.chunk,
            place,
        })
    }

    fn at(&self, p: Position) -> Option<&Vma<F, B>> {
        self.chunks.get(p.chunk)?.get(p.place)
    }

    /// Returns the area that contains `address`, or `None` if no area does.
    pub fn find(&self, address: u64) -> Option<&Vma<F, B>> {
        self.at(self.seek(address)).filter(|a| a.start <= address)
    }

    /// Returns the first area that ends above `address`, or `None` if there is no such area.
    pub fn next_from(&self, address: u64) -> Option<&Vma<F, B>> {
        self.at(self.seek(address))
    }

    /// Returns the last area that starts below `address`, or `None` if there is no such area.
    pub fn last_before(&self, address: u64) -> Option<&Vma<F, B>> {
        let after = self.chunks.partition_point(|c| c[0].start < address);
        let areas = self.chunks.get(after.checked_sub(1)?)?;
        areas.get(
            areas
                .partition_point(|a| a.start < address)
                .checked_sub(1)?,
        )
    }

    /// Returns all areas in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Vma<F, B>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Calls `each` with the backing of each area, in ascending order, to replace it. Areas whose
    /// backings continued each other must still do so afterwards, and no others.
    pub fn for_each_backing(&mut self, each: impl FnMut(&mut B)) {
        let areas = self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut());
        areas.map(|area| &mut area.backing).for_each(each);
    }

    /// Returns the areas that overlap `range`, in ascending order.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = &Vma<F, B>> {
        let from = self.seek(range.start);
        let first = self
            .chunks
            .get(from.chunk)
            .map_or(&[][..], |c| &c[from.place..]);
        let rest = self.chunks.get(from.chunk + 1..).unwrap_or(&[]);
        first
            .iter()
            .chain(rest.iter().flat_map(|chunk| chunk.iter()))
            .take_while(move |a| a.start < range.end)
    }

    /// Returns whether areas cover every address of `range`.
    pub fn covers(&self, range: Range<u64>) -> bool {
        let mut reached = range.start;
        for area in self.overlapping(range.clone()) {
            if area.start > reached {
                return false;
            }
            reached = area.end;
        }
        reached >= range.end
    }

    /// Returns the highest address from which on `bytes` bytes within `within` are in no area.
    /// Returns `None` if there is no such address. Skips addresses that an earlier search for no
    /// more bytes below the same `within.end` has found to be occupied.
    pub fn highest_gap(&self, bytes: u64, within: Range<u64>) -> Option<u64> {
        let full = self.full.get();
        let mut top = if full.to == within.end && full.bytes <= bytes {
            full.from
        } else {
            within.end
        };
        let below = self.chunks.partition_point(|chunk| chunk[0].start < top);
        for chunk in self.chunks[..below].iter().rev() {
            let (Some(first), Some(last)) = (chunk.first(), chunk.last()) else {
                continue;
            };
            if first.start >= top {
                continue;
            }
            if last.end < top && top - last.end >= bytes {
                break;
            }
            // Gaps above `top` do not count, so a chunk across `top` is searched area by area.
            if last.end <= top && chunk.largest_gap() < bytes {
                top = first.start;
            } else {
                let mut fits = false;
                let from = top;
                for area in chunk.iter().rev().filter(|area| area.start < from) {
                    if area.end < top && top - area.end >= bytes {
                        fits = true;
                        break;
                    }
                    top = area.start;
                }
                if fits {
                    break;
                }
            }
            if top <= within.start {
                return None;
            }
        }
        self.full.set(Full {
            from: top,
            to: within.end,
            bytes,
        });
        let at = top.checked_sub(bytes)?;
        let floor = self
            .last_before(top)
            .map_or(within.start, |a| a.end.max(within.start));
        (at >= floor).then_some(at)
    }

    /// Returns the lowest address from which on `bytes` bytes within `within` are in no area.
    /// Returns `None` if there is no such address.
    pub fn lowest_gap(&self, bytes: u64, within: Range<u64>) -> Option<u64> {
        let mut at = within.start;
        for area in self.overlapping(within.clone()) {
            if area.start > at && area.start - at >= bytes {
                return Some(at);
            }
            at = area.end.max(at);
        }
        (at < within.end && within.end - at >= bytes).then_some(at)
    }

    /// Allocates the memory for one change between `start` and `end`: a [`Self::split`] at each of
    /// the two, and one [`Self::insert`] at or between them.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short; the areas are unchanged.
    pub fn prepare(&mut self, start: u64, end: u64) -> Result<(), NoMemory> {
        if self.chunks.is_empty() {
            // The first chunk of a set starts small.
            self.spare_chunks(1, Self::GROWTH + 1)?;
        }
        // An insertion goes to the chunk of its position or to the chunk before it.
        for address in [start, end] {
            let chunk = self.seek(address).chunk;
            for index in chunk.saturating_sub(1)..=chunk {
                let Some(areas) = self.chunks.get_mut(index) else {
                    continue;
                };
                if areas.len() + Self::GROWTH > CHUNK {
                    self.spare_chunks(Self::GROWTH, CHUNK)?;
                } else {
                    // A chunk grows by doubling up to the cap, so a small space has small chunks.
                    let room = areas.len().clamp(Self::GROWTH, CHUNK - areas.len());
                    if areas.capacity() - areas.len() < Self::GROWTH {
                        areas.try_reserve_exact(room).map_err(|_| NoMemory)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Allocates the memory for one `insert` anywhere, even after other changes.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short; the areas are unchanged.
    pub fn prepare_anywhere(&mut self) -> Result<(), NoMemory> {
        self.spare_chunks(1, CHUNK)
    }

    fn spare_chunks(&mut self, chunks: usize, capacity: usize) -> Result<(), NoMemory> {
        self.chunks.try_reserve(chunks).map_err(|_| NoMemory)?;
        // Spare chunks may be too small.
        self.spare.retain(|chunk| chunk.capacity() >= capacity);
        self.spare
            .try_reserve_exact(chunks.saturating_sub(self.spare.len()))
            .map_err(|_| NoMemory)?;
        while self.spare.len() < chunks {
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(capacity).map_err(|_| NoMemory)?;
            self.spare.push(chunk);
        }
        Ok(())
    }

    /// Inserts `area` at the position `p`. The memory must be prepared ([`Self::prepare`]).
    fn put(&mut self, p: Position, area: Vma<F, B>) {
        self.count += 1;
        if self.chunks.is_empty() {
            let mut chunk = self.spare.pop().unwrap_or_default();
            chunk.push(area);
            self.chunks.push(chunk.into());
            return;
        }
        // The front of a chunk is also the back of the chunk before, if that has room.
        let mut p = p;
        if p.place == 0
            && p.chunk > 0
            && (p.chunk == self.chunks.len() || self.chunks[p.chunk - 1].len() < CHUNK)
        {
            p = Position {
                chunk: p.chunk - 1,
                place: self.chunks[p.chunk - 1].len(),
            };
        }
        let areas = &mut self.chunks[p.chunk];
        if areas.len() < CHUNK && areas.try_reserve(1).is_err() {
            // Prepared for any place: the area and those after it move to a new chunk.
            let mut upper = self.spare.pop().unwrap_or_default();
            upper.push(area);
            upper.extend(areas.drain(p.place..));
            if areas.is_empty() {
                *areas = upper.into();
            } else {
                self.chunks.insert(p.chunk + 1, upper.into());
            }
            return;
        }
        if areas.len() >= CHUNK {
            let mut upper = self.spare.pop().unwrap_or_default();
            // An ascending fill leaves full chunks behind, not half-full ones.
            let keep = if p.place == areas.len() {
                areas.len() - 1
            } else {
                areas.len() / 2
            };
            upper.extend(areas.drain(keep..));
            self.chunks.insert(p.chunk + 1, upper.into());
            if p.place > keep {
                p = Position {
                    chunk: p.chunk + 1,
                    place: p.place - keep,
                };
            }
        }
        self.chunks[p.chunk].insert(p.place, area);
    }

    /// Splits the area that contains `address` in two, so that an area starts at `address`. Does
    /// nothing if no area contains `address` or one starts there. The memory must be prepared
    /// ([`Self::prepare`]).
    pub fn split(&mut self, address: u64) {
        let p = self.seek(address);
        let Some(area) = self
            .chunks
            .get_mut(p.chunk)
            .and_then(|c| c.get_mut(p.place))
        else {
            return;
        };
        if area.start >= address {
            return;
        }
        let upper = Vma {
            start: address,
            end: area.end,
            flags: area.flags,
            backing: area.backing.advanced(address - area.start),
        };
        area.end = address;
        self.put(
            Position {
                chunk: p.chunk,
                place: p.place + 1,
            },
            upper,
        );
    }

    /// Inserts `area` where there is no area, and joins it with its neighbours. The memory must be
    /// prepared ([`Self::prepare`]).
    ///
    /// # Panics
    /// If another area overlaps `area`, or `area` is empty.
    pub fn insert(&mut self, area: Vma<F, B>) {
        let p = self.seek(area.start);
        assert!(area.start < area.end, "an area without pages");
        assert!(
            self.at(p).is_none_or(|next| next.start >= area.end),
            "areas overlap"
        );
        let (start, end) = (area.start, area.end);
        if let Some(before) = self.before_mut(p)
            && before.joins(&area)
        {
            before.end = end;
        } else {
            self.put(p, area);
        }
        self.merge(start..end);
    }

    fn before_mut(&mut self, p: Position) -> Option<&mut Vma<F, B>> {
        if p.place > 0 {
            self.chunks.get_mut(p.chunk)?.get_mut(p.place - 1)
        } else {
            self.chunks.get_mut(p.chunk.checked_sub(1)?)?.last_mut()
        }
    }

    /// Removes and returns the first area that starts within `range`. Returns `None` if there is no
    /// such area. No area may extend across an end of `range` (see [`Self::split`]).
    pub fn pop(&mut self, range: Range<u64>) -> Option<Vma<F, B>> {
        let p = self.seek(range.start);
        self.at(p).filter(|a| a.start < range.end)?;
        let areas = self.chunks.get_mut(p.chunk)?;
        let area = areas.remove(p.place);
        self.count -= 1;
        if areas.is_empty() {
            self.chunks.remove(p.chunk);
        } else {
            self.tidy(range.start);
        }
        // The gap that the area leaves extends to the next area.
        let mut full = self.full.get();
        if area.end > full.from {
            full = match self.next_from(area.end) {
                Some(next) if next.start <= full.to => Full {
                    from: next.start,
                    ..full
                },
                _ => Full::NOWHERE,
            };
            self.full.set(full);
        }
        Some(area)
    }

    /// Joins the chunk with the address `around` with the chunk before or after it, if both
    /// together are at most half full. Does nothing if memory is short.
    fn tidy(&mut self, around: u64) {
        let first = self.seek(around).chunk.saturating_sub(1);
        for chunk in first..first + 2 {
            let Some([left, right]) = self.chunks.get_mut(chunk..chunk + 2) else {
                return;
            };
            let sum = left.len() + right.len();
            if sum > CHUNK / 2 {
                continue;
            }
            // A join is not worth a failure: without memory it is postponed. The room that was
            // prepared for a change is kept.
            if left.try_reserve_exact(right.len() + Self::GROWTH).is_ok() {
                left.append(right);
                self.chunks.remove(chunk + 1);
                return;
            }
        }
    }

    /// Replaces the flags of the areas in `range` with the results of `change`, which gets the old
    /// flags. No area may extend across an end of `range` (see [`Self::split`]). Does not join
    /// areas whose flags become equal.
    pub fn set_flags(&mut self, range: Range<u64>, mut change: impl FnMut(F) -> F) {
        let from = self.seek(range.start);
        for (index, chunk) in self.chunks.iter_mut().enumerate().skip(from.chunk) {
            let place = if index == from.chunk { from.place } else { 0 };
            for area in &mut chunk[place..] {
                if area.start >= range.end {
                    return;
                }
                area.flags = change(area.flags);
            }
        }
    }

    /// Moves the start of the area that starts at `from` down to `to`. Its backing must be the same
    /// everywhere.
    ///
    /// # Panics
    /// If `to` is not below `from`, no area starts at `from`, or the area before extends beyond
    /// `to`.
    pub fn grow_down(&mut self, from: u64, to: u64) {
        assert!(
            to < from && self.last_before(from).is_none_or(|below| below.end <= to),
            "areas overlap"
        );
        let p = self.seek(from);
        match self
            .chunks
            .get_mut(p.chunk)
            .and_then(|c| c.get_mut(p.place))
        {
            Some(area) if area.start == from => area.start = to,
            _ => panic!("no area starts at {from:#x}"),
        }
    }

    /// Joins all areas that can be joined, from the area before `range` to the area after it. An
    /// area that begins at the end of `range` or later is not joined with its successor.
    pub fn merge(&mut self, range: Range<u64>) {
        let mut p = self.seek(range.start);
        p = self.before(p).unwrap_or(p);
        loop {
            let Some(area) = self.at(p) else { return };
            if area.start >= range.end {
                return;
            }
            let next = self.after(p);
            match self.at(next) {
                Some(following) if area.joins(following) => {
                    let end = following.end;
                    self.chunks[p.chunk][p.place].end = end;
                    self.chunks[next.chunk].remove(next.place);
                    self.count -= 1;
                    if self.chunks[next.chunk].is_empty() {
                        self.chunks.remove(next.chunk);
                    }
                }
                Some(_) => p = next,
                None => return,
            }
        }
    }

    /// Returns the position after `p`, or the position after the last area.
    fn after(&self, p: Position) -> Position {
        if p.place + 1 < self.chunks[p.chunk].len() {
            Position {
                chunk: p.chunk,
                place: p.place + 1,
            }
        } else {
            Position {
                chunk: p.chunk + 1,
                place: 0,
            }
        }
    }

    /// Returns the position before `p`, or `None` if `p` is the first one.
    fn before(&self, p: Position) -> Option<Position> {
        if let Some(place) = p.place.checked_sub(1) {
            return Some(Position {
                chunk: p.chunk,
                place,
            });
        }
        let chunk = p.chunk.checked_sub(1)?;
        let place = self.chunks.get(chunk)?.len() - 1;
        Some(Position { chunk, place })
    }

    /// Checks the invariants, for tests.
    ///
    /// # Panics
    /// If one does not hold.
    #[cfg(any(test, ebb_model))]
    pub fn validate(&self) {
        let mut end = 0;
        let mut count = 0;
        assert!(
            self.chunks
                .iter()
                .all(|c| !c.is_empty() && c.len() <= CHUNK)
        );
        for area in self.iter() {
            assert!(area.start >= end && area.end > area.start);
            end = area.end;
            count += 1;
        }
        assert_eq!(count, self.count);
    }
}

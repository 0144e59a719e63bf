//! Unmaps pages in batches.
//!
//! Each batch is decided and done under one hold of the space's lock. The areas of a range may
//! change between two batches, so each batch checks them again. Only code that holds `change` and
//! has removed the areas may rely on the range alone.

use super::backing::Bytes;
use super::compaction::daemon;
use super::gather::Gather;
use super::mappings::{Reach, Shows};
use super::pieces::AREAS_AT_ONCE;
use super::space::{Area, PAGE, State};
use super::{AddressSpace, VmaFlags};
use core::ops::Range;
use logic::errno::Errno;
use machine::arch::USER_END;
use machine::memory::percpu;
use machine::sched;
use machine::sync::SpinGuard;

/// The number of pages of a call from which on draining the CPU's cache costs little beside freeing
/// them.
const MANY: u64 = (16 << 20) / PAGE;
/// A part of an area with at most this number of bytes is looked at before it is zapped.
const FEW: u64 = 16 * PAGE;

/// The progress of one call that unmaps a range.
struct Zapping<'a> {
    space: &'a AddressSpace,
    /// The batch of unmapped pages, by reference because it is too large to move.
    gather: &'a mut Gather,
    /// The address below which no page is left to unmap.
    at: u64,
    /// The address from which on the last batch has left empty page tables, because it had no room
    /// for them. `None` if there are none.
    unpruned: Option<u64>,
    /// The number of pages unmapped so far.
    pages: u64,
}

impl<'a> Zapping<'a> {
    fn new(space: &'a AddressSpace, at: u64, gather: &'a mut Gather) -> Self {
        Self {
            space,
            gather,
            at,
            unpruned: None,
            pages: 0,
        }
    }

    /// Takes out the pages between `at` and `end` that a batch has room for, flushes them on all
    /// CPUs, and frees them. Emptied tables go if they lie in the range that `owned` returns for
    /// the state and the address reached. The range from `empty_from` to the first address of the
    /// batch is known to be empty; with `None` no range is.
    fn batch(
        &mut self,
        mut state: SpinGuard<'_, State>,
        end: u64,
        reach: Reach,
        owned: impl FnOnce(&State, u64) -> Range<u64>,
        empty_from: Option<u64>,
    ) {
        let (space, gather) = (self.space, &mut *self.gather);
        let from = self.at;
        let edges = state.tables.keep_edges(&(from..end), gather);
        state.tables.split_edges(&(from..end), &space.cpus);
        let files_only = reach != Reach::All;
        self.at = state.tables.zap(from..end, files_only, gather);
        state.peak_mapped = state.peak_mapped.max(state.mapped.iter().sum());
        for (mapped, gone) in state.mapped.iter_mut().zip(gather.pages) {
            *mapped -= gone;
            self.pages += gone;
        }
        // A prune that had no room begins again where it began.
        let prune_from = self.unpruned.take().unwrap_or(from);
        let owned = owned(&state, self.at);
        // No page has come back to the range that was zapped under this hold.
        let emptied = if files_only {
            0..0
        } else {
            empty_from.unwrap_or(from)..self.at
        };
        let pruned = state
            .tables
            .prune(prune_from..self.at, owned, emptied, gather);
        if !pruned {
            self.unpruned = Some(prune_from);
        }
        let mut flush = prune_from..self.at.max(from + PAGE);
        if let Some(edges) = edges {
            flush = flush.start.min(edges.start)..flush.end.max(edges.end);
        }
        // Another's batch may have pages of this range, and its flush be under way.
        if space.has_flushes() {
            gather.must_flush();
        }
        let pending = gather.needs_flush().then(|| space.begin_flush());
        drop(state);
        // Not under the lock, since other CPUs take their time. A fault in between finds the
        // entries gone, and frames and tables stay until all CPUs have flushed.
        gather.flush(&space.cpus, flush);
        drop(pending);
        gather.free();
        daemon::memory_freed();
        sched::cond_resched();
    }
}

impl AddressSpace {
    /// Unmaps the pages of a range that has no area and gets none during the call: `change` is
    /// held, or no task uses the space. Also frees the page tables that no area needs any more.
    pub(super) fn zap_unmapped(&self, range: Range<u64>) {
        let mut gather = Gather::new();
        let mut zapping = Zapping::new(self, range.start, &mut gather);
        while zapping.at < range.end || zapping.unpruned.is_some() {
            let state = self.state.lock();
            let owned = |state: &State, reached| {
                let low = state.areas.last_before(range.start).map_or(0, |a| a.end);
                let next = state.areas.next_from(range.end);
                // The last table of the user's half has its end beyond the user's end.
                let high = next.map_or(USER_END.next_multiple_of(1 << 39), |a| a.start);
                // Entries are left from where it stopped, so tables go up to there.
                low..if reached < range.end { reached } else { high }
            };
            // Nothing comes back where no area is.
            let empty_from = Some(range.start);
            zapping.batch(state, range.end, Reach::All, owned, empty_from);
        }
        if zapping.pages >= MANY {
            // The last frames that this CPU freed are in its cache, and keep their blocks from
            // being whole until the CPU idles. A guest may be paused before that.
            percpu::drain();
        }
    }

    /// Unmaps the part of each area in `range` that `select` returns for it, in ascending order. An
    /// area that changes during the call is visited in its state at that time, or not at all if it
    /// moves down. If `settles` is set, waits while a child gets the pages.
    ///
    /// # Errors
    /// Fails with the errors of `select`. The areas below have been zapped then.
    pub(super) fn zap_areas(
        &self,
        range: Range<u64>,
        reach: Reach,
        settles: bool,
        mut select: impl FnMut(&Area) -> Result<Range<u64>, Errno>,
    ) -> Result<(), Errno> {
        let mut gather = Gather::new();
        let mut zapping = Zapping::new(self, range.start, &mut gather);
        loop {
            let state = if settles {
                self.settled_state()
            } else {
                self.state.lock()
            };
            let mut part = None;
            let mut over = Ok(true);
            let first = zapping.unpruned.unwrap_or(zapping.at);
            for (looked, area) in state.areas.overlapping(first..range.end).enumerate() {
                if looked == AREAS_AT_ONCE {
                    over = Ok(false);
                    break;
                }
                let from = zapping.unpruned.unwrap_or(zapping.at);
                let selected = match select(area) {
                    Ok(selected) => selected,
                    Err(error) => {
                        over = Err(error);
                        break;
                    }
                };
                let mut selected = selected.start.max(range.start)..selected.end.min(range.end);
                let is_met = |selected: &Range<u64>| selected.end > from && !selected.is_empty();
                if is_met(&selected) {
                    if let Some(size) = area.backing.huge_size() {
                        // Whole pages of the pool alone, also where such an area has come in the
                        // middle of the walk.
                        selected.end &= !(size.bytes() - 1);
                        zapping.at = zapping.at.next_multiple_of(size.bytes());
                    }
                    // Advice mostly names present pages; the spaces that map a file often have none
                    // of its pages.
                    let is_left = settles || zapping.unpruned.is_some() || self.has_flushes();
                    if is_met(&selected) && (is_left || state.tables.shows_any(&selected, FEW)) {
                        part = Some(selected);
                        break;
                    }
                }
                zapping.unpruned = None;
                zapping.at = zapping.at.max(area.end);
            }
            match (part, over) {
                (Some(part), _) => {
                    zapping.at = zapping.at.max(part.start);
                    let owned = |_: &State, reached| match reach {
                        Reach::All => part.start..reached,
                        Reach::Files | Reach::UnlockedFiles => 0..0,
                    };
                    zapping.batch(state, part.end, reach, owned, None);
                }
                (None, Ok(false)) => {
                    drop(state);
                    sched::cond_resched();
                }
                (None, Ok(true)) => break Ok(()),
                (None, Err(error)) => break Err(error),
            }
        }
    }

    /// Unmaps the pages of files in the range whose areas were removed and whose pages are still
    /// being unmapped. So a file's walk over the areas need not wait for the end of that.
    pub(super) fn zap_leaving(&self) {
        if self.state.lock().leaving.is_empty() {
            return;
        }
        let mut gather = Gather::new();
        let mut zapping = Zapping::new(self, 0, &mut gather);
        loop {
            let state = self.state.lock();
            let leaving = state.leaving.clone();
            // Another range may be leaving by now. A page of the pool in which the last one ended
            // came after the walk.
            zapping.at = state.tables.after_pool_page(zapping.at.max(leaving.start));
            if zapping.at >= leaving.end {
                return;
            }
            zapping.batch(state, leaving.end, Reach::Files, |_, _| 0..0, None);
        }
    }
}

/// Returns the part of an area that maps `pages` of a file. The part is empty if the area maps
/// none.
fn shown(area: &Area, source: *const (), pages: &Range<u64>) -> Range<u64> {
    let Bytes::File(file, offset) = &area.backing else {
        return 0..0;
    };
    if !file.same_source(source) {
        return 0..0;
    }
    // In pages from the start of the area.
    let before = offset / PAGE;
    let end = pages.end.saturating_sub(before).min(area.bytes() / PAGE);
    let first = pages.start.saturating_sub(before).min(end);
    area.start + first * PAGE..area.start + end * PAGE
}

impl Shows for AddressSpace {
    fn number(&self) -> u64 {
        self.id
    }

    fn take_out(&self, source: *const (), pages: &Range<u64>, reach: Reach) {
        // Areas never fail this, so nothing is left out.
        let _ = self.zap_areas(0..USER_END, reach, false, |area| {
            let locked = area.flags.contains(VmaFlags::LOCKED);
            if reach == Reach::UnlockedFiles && locked {
                return Ok(area.start..area.start);
            }
            Ok(shown(area, source, pages))
        });
        self.zap_leaving();
    }

    fn surrender(&self, source: *const (), pages: &Range<u64>) {
        let is_private = |area: &Area| !area.flags.contains(VmaFlags::SHARED);
        {
            let mut state = self.state.lock();
            let mut at = 0;
            while let Some(area) = state.areas.next_from(at) {
                let range = area.start..area.end;
                at = range.end;
                if is_private(area) && !shown(area, source, pages).is_empty() {
                    state
                        .areas
                        .set_flags(range, |flags| flags | VmaFlags::POOL_LOST);
                }
            }
            state.changed();
        }
        // As above.
        let _ = self.zap_areas(0..USER_END, Reach::All, false, |area| {
            Ok(if is_private(area) {
                shown(area, source, pages)
            } else {
                area.start..area.start
            })
        });
    }
}

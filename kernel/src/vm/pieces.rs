//! Walks over many areas, piece by piece: other tasks run between two holds of the lock, and their
//! faults are served.

use super::AddressSpace;
use super::VmaFlags;
use super::space::{Area, Sizes, State};
use core::ops::Range;
use logic::errno::Errno;
use machine::sched;

/// Areas that are looked at under one hold of the lock.
pub(super) const AREAS_AT_ONCE: usize = 64;

/// What flags areas in a range have, and what they would have.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Change {
    pub(super) before: Sizes,
    pub(super) after: Sizes,
    /// How many areas there are.
    areas: usize,
}

impl Change {
    /// Takes an area of `range` in, which `with` gives other flags.
    pub(super) fn add(
        &mut self,
        area: &Area,
        range: &Range<u64>,
        with: impl Fn(VmaFlags) -> VmaFlags,
    ) {
        let bytes = area.end.min(range.end) - area.start.max(range.start);
        self.before.add(Sizes::of(area.flags, bytes));
        self.after.add(Sizes::of(with(area.flags), bytes));
        self.areas += 1;
    }

    /// Whether it is made under one hold of the lock.
    fn is_short(&self) -> bool {
        self.areas <= AREAS_AT_ONCE
    }
}

impl AddressSpace {
    /// Calls `each` with the areas that overlap `range`, upwards, until it returns `false`. The
    /// caller holds `change`, so that they do not change; without it each is met in its state at
    /// that time. The caller holds no spin lock.
    pub(super) fn for_areas(&self, range: Range<u64>, mut each: impl FnMut(&Area) -> bool) {
        let mut at = range.start;
        while at < range.end {
            {
                let state = self.state.lock();
                let mut areas = state.areas.overlapping(at..range.end);
                for _ in 0..AREAS_AT_ONCE {
                    let Some(area) = areas.next() else { return };
                    at = area.end;
                    if !each(area) {
                        return;
                    }
                }
            }
            sched::give_way();
        }
    }

    /// Returns where the areas that begin at the start of `range` without a gap end, at most its
    /// end. As [`Self::for_areas`].
    pub(super) fn covered_until(&self, range: &Range<u64>) -> u64 {
        let mut reached = range.start;
        self.for_areas(range.clone(), |area| {
            let joins = area.start <= reached;
            if joins {
                reached = area.end;
            }
            joins
        });
        reached.min(range.end)
    }

    /// Gives the areas in `range` the flags that `with` returns for theirs. Areas with these flags
    /// are not touched. `change` was made for it with the same `range` and `with`, and the caller
    /// holds `self.change`. Other threads may see some areas with the new flags before the last one
    /// has them.
    ///
    /// # Errors
    /// `ENOMEM` if there would be too many areas, or memory is short; nothing is changed then.
    pub(super) fn change_flags(
        &self,
        range: Range<u64>,
        change: &Change,
        with: impl Fn(VmaFlags) -> VmaFlags,
    ) -> Result<(), Errno> {
        let mut state = self.lock_with_room(&range)?;
        state.make_boundaries(&range)?;
        if change.is_short() {
            state.put_flags(range, change.before, change.after, with);
            return Ok(());
        }
        let mut at = range.start;
        loop {
            let end = state.end_of_piece(at..range.end);
            let part = at..end;
            let before = state.sizes_in(&part, |flags| flags);
            let after = state.sizes_in(&part, &with);
            state.put_flags(part, before, after, &with);
            if end >= range.end {
                return Ok(());
            }
            at = end;
            drop(state);
            sched::give_way();
            state = self.state.lock();
        }
    }
}

impl State {
    /// Returns where the last of the areas in `range` ends that are looked at under one hold of the
    /// lock, or the end of `range`.
    fn end_of_piece(&self, range: Range<u64>) -> u64 {
        let last = self.areas.overlapping(range.clone()).nth(AREAS_AT_ONCE - 1);
        last.map_or(range.end, |area| area.end)
    }

    /// Gives areas other flags, all between two boundaries.
    fn put_flags(
        &mut self,
        range: Range<u64>,
        before: Sizes,
        after: Sizes,
        with: impl Fn(VmaFlags) -> VmaFlags,
    ) {
        self.areas.set_flags(range.clone(), with);
        self.sizes.subtract(before);
        self.sizes.add(after);
        self.areas.merge(range);
        self.changed();
    }
}

//! Walks over many areas, piece by piece. Other tasks run between two holds of the lock, and their
//! faults are served.

use super::AddressSpace;
use super::VmaFlags;
use super::space::{Area, Sizes, State};
use core::ops::Range;
use logic::errno::Errno;
use machine::sched;

/// The most areas that are visited each time that the lock is held.
pub(super) const AREAS_AT_ONCE: usize = 64;

/// A planned change of the flags of the areas in a range.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Change {
    /// The sizes that the areas count for before the change.
    pub(super) before: Sizes,
    /// The sizes that the areas count for after the change.
    pub(super) after: Sizes,
    /// The number of areas in the range.
    areas: usize,
}

impl Change {
    /// Adds the part of `area` in `range` to the plan. `with` returns the area's new flags for its
    /// present ones.
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

    /// Returns whether the change is made under one hold of the lock.
    fn is_short(&self) -> bool {
        self.areas <= AREAS_AT_ONCE
    }
}

impl AddressSpace {
    /// Calls `each` with the areas that overlap `range`, in ascending order, until it returns
    /// `false`. `each` runs with `state` locked, which is released after every [`AREAS_AT_ONCE`]
    /// areas. So the areas can change in between, unless the caller holds `change`. The caller
    /// holds no spin lock.
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

    /// Returns the end of the areas that cover `range` from its start on without a gap, at most the
    /// end of `range`. The areas can change during the call, as with [`Self::for_areas`].
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

    /// Gives the areas in `range` the flags that `with` returns for their present ones. Leaves
    /// areas alone that have these flags already. The caller holds `self.change`, and has made
    /// `change` with the same `range` and `with`. Other threads may see some areas with the new
    /// flags before the last one has them.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if there would be too many areas, or memory is short. Fails with
    /// `EINVAL` if an end of `range` cuts a page of the pool of huge pages. Nothing is changed
    /// then.
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

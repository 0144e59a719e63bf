//! The last steps of moving a frame: who has it is asked, its bytes are copied, its entries are changed.
//!
//! The entries were *parked* before, so that an access faults, and all CPUs have forgotten them. A fault takes its entry back at
//! once and goes on with the frame that it shows. So the order of the steps is what keeps stores: a frame is copied only if
//! there are no more references than parked entries, and an entry is changed only if it is parked still. No hardware in it: a
//! loom model runs all interleavings with faults, copies after a fork and calls that hold the frame.

/// Who has an entry parked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ParkedBy {
    /// Nobody: it is as faults left it.
    Nobody,
    /// One who moves its frame.
    Mover,
    /// One who joins the pages around it.
    Joiner,
}

impl ParkedBy {
    /// Whether one who moves frames may park the entry. Another's parking he could not tell from his own: the other gives the
    /// entry back, a program stores, the other parks it again, and what was copied before the store would be shown.
    pub const fn may_be_movers(self) -> bool {
        matches!(self, Self::Nobody)
    }
}

/// A frame on its way, with entries that were parked.
pub trait Moving {
    /// Whether the frame is what it was and has so many references.
    fn has_references(&self, count: u32) -> bool;

    /// Whether nobody has asked for this entry since it was parked.
    fn is_parked(&self, entry: usize) -> bool;

    /// Gives an entry its rights again if it is parked still, but for that to store: a fault looks who has the frame.
    fn unpark(&self, entry: usize);

    /// Copies the bytes to the new frame, which nobody has.
    fn copy(&self);

    /// Has an entry show the new frame if it is parked still, and tells whether it was.
    fn exchange(&self, entry: usize) -> bool;
}

/// Moves a frame with so many parked entries, if it can still be. How many entries show the new frame; the others show the old
/// one, with the same bytes.
pub fn carry(moving: &impl Moving, entries: usize) -> usize {
    // In this order: entries that are parked after the count were so at the count, and had a reference each. With one entry,
    // that it is exchanged says so; where one of several has gone, another reference could stand in for it.
    let alone = u32::try_from(entries).is_ok_and(|count| moving.has_references(count))
        && (entries == 1 || (0..entries).all(|entry| moving.is_parked(entry)));
    if !alone {
        (0..entries).for_each(|entry| moving.unpark(entry));
        return 0;
    }
    moving.copy();
    (0..entries).filter(|&entry| moving.exchange(entry)).count()
}

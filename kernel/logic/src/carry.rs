//! The last steps of moving a frame: count its references, copy its bytes, change its entries.
//!
//! The entries were *parked* before, so that an access faults, and all CPUs have flushed them from
//! their TLBs. A fault takes its entry back at once and goes on with the frame that the entry maps.
//! The order of the steps keeps stores: a frame is copied only if it has no more references than
//! parked entries. An entry is changed only if it is still parked. The code needs no hardware: a
//! loom model runs all interleavings with faults, copies after a fork and system calls that hold
//! the frame.

/// The operation that has parked a page table entry. Accesses through a parked entry fault.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ParkedBy {
    /// No operation: the entry is as faults left it.
    None,
    /// The mover, which moves the entry's frame.
    Mover,
    /// The joiner, which joins the pages around the entry to a huge page.
    Joiner,
}

impl ParkedBy {
    /// Returns `true` if no operation has parked the entry, so that the mover may park it. The
    /// mover cannot tell another operation's parking from its own. Suppose that the other operation
    /// unparks the entry, a program stores, and the other operation parks it again. Then the mover
    /// would map a copy made before the store.
    pub const fn may_be_movers(self) -> bool {
        matches!(self, Self::None)
    }
}

/// A frame that is being moved, and the page table entries that map it. The entries have the
/// numbers from 0 on. All of them were parked before, so that accesses through them fault.
pub trait Moving {
    /// Returns whether the frame is still used for the same kind of page and has exactly `count`
    /// references.
    fn has_references(&self, count: u32) -> bool;

    /// Returns whether the entry with number `entry` is still parked. A fault may have restored it
    /// since.
    fn is_parked(&self, entry: usize) -> bool;

    /// Restores the rights of the entry with number `entry`, except the right to store, if it is
    /// still parked. The next store faults, and the fault checks whether the frame has other
    /// references.
    fn unpark(&self, entry: usize);

    /// Copies the bytes of the frame to the new frame, which replaces it and has no other user yet.
    fn copy(&self);

    /// Makes the entry with number `entry` map the new frame and returns `true` if the entry is
    /// still parked. Otherwise changes nothing and returns `false`.
    fn exchange(&self, entry: usize) -> bool;
}

/// Moves the frame of `moving`, which has `entries` parked entries, if it has no other references.
/// Returns the number of entries that map the new frame then. The other entries map the old frame,
/// with the same bytes. Returns 0 if the frame was not moved, and unparks all entries then.
pub fn carry(moving: &impl Moving, entries: usize) -> usize {
    // In this order: an entry that is parked after the count was parked at the count, and held a
    // reference then. With one entry, the exchange itself proves that. With several, one entry may
    // have gone and another reference have taken its place in the count.
    let alone = u32::try_from(entries).is_ok_and(|count| moving.has_references(count))
        && (entries == 1 || (0..entries).all(|entry| moving.is_parked(entry)));
    if !alone {
        (0..entries).for_each(|entry| moving.unpark(entry));
        return 0;
    }
    moving.copy();
    (0..entries).filter(|&entry| moving.exchange(entry)).count()
}

//! The objects of System V IPC, found by ID, by key, or by place.
//!
//! The low bits of an ID are the object's place. The high bits are its *round*, which counts how
//! often the places were reused from the start. So the ID of a removed object is not reused soon.

use crate::errno::Errno;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Bits of an ID that hold the place.
const PLACE_BITS: u32 = 15;
/// The largest number of places.
pub const MAX_PLACES: usize = 1 << PLACE_BITS;
/// Rounds are counted modulo this.
const ROUNDS: u32 = i32::MAX.cast_unsigned() >> PLACE_BITS;
/// The key of objects that can be found by ID alone.
pub const PRIVATE: i32 = 0;

#[derive(Debug)]
struct Slot<T> {
    id: i32,
    key: i32,
    object: T,
}

/// The objects of one kind, such as all message queues. Each object is in a place, a number below
/// [`MAX_PLACES`]. `T` is the type of an object.
#[derive(Debug)]
pub struct IpcIds<T> {
    /// The last slot is always in use. Each slot is boxed, so that the table is small.
    slots: Vec<Option<Box<Slot<T>>>>,
    /// No place before this one is free.
    free_from: usize,
    keys: BTreeMap<i32, usize>,
    count: usize,
    /// The current round.
    round: u32,
    /// The place that was taken last.
    last: Option<usize>,
    /// The ID that was requested for the next object.
    next: Option<i32>,
}

impl<T> Default for IpcIds<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the place in `id`, in any round. Fails with `EINVAL` if `id` is negative.
fn place_of(id: i32) -> Result<usize, Errno> {
    let id = usize::try_from(id).map_err(|_| Errno::EINVAL)?;
    Ok(id % MAX_PLACES)
}

impl<T> IpcIds<T> {
    /// Returns a table without objects.
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free_from: 0,
            keys: BTreeMap::new(),
            count: 0,
            round: 0,
            last: None,
            next: None,
        }
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of places for which memory is allocated.
    pub fn room(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns the number of the highest place in use, or 0 if there are no objects.
    pub fn highest(&self) -> usize {
        self.slots.len().saturating_sub(1)
    }

    /// Returns the ID that [`Self::set_next_id`] requested for the next object, or `None` if no ID
    /// is requested.
    pub fn next_id(&self) -> Option<i32> {
        self.next
    }

    /// Requests `id`, which must not be negative, for the next object. If the place in the low bits
    /// of `id` is in use, the object gets the next free place after it, with the high bits of `id`.
    pub fn set_next_id(&mut self, id: i32) {
        self.next = Some(id);
    }

    /// Stores an object in the lowest free place and returns its ID. `object` makes the object from
    /// the ID. No other object may have `key`, unless it is [`PRIVATE`]. At most `most` objects are
    /// allowed. If an ID was requested by [`Self::set_next_id`], the search for a place starts
    /// there.
    ///
    /// # Errors
    /// `ENOSPC` if there are `most` objects or the search finds no free place; `ENOMEM` if memory
    /// is short; `EINVAL` if a negative ID was requested.
    pub fn insert(
        &mut self,
        key: i32,
        most: usize,
        object: impl FnOnce(i32) -> T,
    ) -> Result<i32, Errno> {
        if self.count >= most.min(MAX_PLACES) {
            return Err(Errno::ENOSPC);
        }
        let asked = self.next.take();
        let from = asked.map_or(Ok(self.free_from), place_of)?;
        let mut behind = self.slots.iter().enumerate().skip(from);
        let free = behind.find(|(_, slot)| slot.is_none());
        let place = free.map_or(self.slots.len().max(from), |(place, _)| place);
        if place >= MAX_PLACES {
            return Err(Errno::ENOSPC);
        }
        if let Some(more) = (place + 1).checked_sub(self.slots.len()) {
            self.slots.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
            self.slots.resize_with(place + 1, || None);
        }
        let round = match asked {
            Some(id) => id.cast_unsigned() >> PLACE_BITS,
            None => {
                if self.last.is_some_and(|last| place <= last) {
                    self.round = (self.round + 1) % ROUNDS;
                }
                self.last = Some(place);
                self.free_from = place + 1;
                self.round
            }
        };
        // Both parts fit, by the constants above.
        let low = i32::try_from(place).unwrap_or(0);
        let id = round.cast_signed() << PLACE_BITS | low;
        self.slots[place] = Some(Box::new(Slot {
            id,
            key,
            object: object(id),
        }));
        if key != PRIVATE {
            let before = self.keys.insert(key, place);
            debug_assert!(before.is_none(), "key {key:#x} is taken");
        }
        self.count += 1;
        Ok(id)
    }

    fn slot(&self, id: i32) -> Result<&Slot<T>, Errno> {
        let slot = self.slots.get(place_of(id)?).and_then(Option::as_deref);
        slot.filter(|slot| slot.id == id).ok_or(Errno::EINVAL)
    }

    /// Returns the object with this `id`.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub fn get(&self, id: i32) -> Result<&T, Errno> {
        self.slot(id).map(|slot| &slot.object)
    }

    /// Returns the object with this `id` for modification.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub fn get_mut(&mut self, id: i32) -> Result<&mut T, Errno> {
        let slot = self.slots.get_mut(place_of(id)?).and_then(Option::as_mut);
        let slot = slot.filter(|slot| slot.id == id).ok_or(Errno::EINVAL)?;
        Ok(&mut slot.object)
    }

    /// Returns the ID of the object in `place`. If `place` is an ID, only its low bits count.
    ///
    /// # Errors
    /// `EINVAL` if the place is free or `place` is negative.
    pub fn at(&self, place: i32) -> Result<i32, Errno> {
        let slot = self.slots.get(place_of(place)?).and_then(Option::as_ref);
        slot.map(|slot| slot.id).ok_or(Errno::EINVAL)
    }

    /// Returns the ID of the object with this `key`, which is not [`PRIVATE`]. Returns `None` if
    /// there is none.
    pub fn find(&self, key: i32) -> Option<i32> {
        let &place = self.keys.get(&key)?;
        self.slots[place].as_ref().map(|slot| slot.id)
    }

    /// Returns the key of the object with this `id`.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub fn key(&self, id: i32) -> Result<i32, Errno> {
        self.slot(id).map(|slot| slot.key)
    }

    /// Removes the key of the object with this `id`. From then on the object can be found by ID
    /// alone. Does nothing if there is no such object.
    pub fn forget_key(&mut self, id: i32) {
        let slot = place_of(id).ok();
        let slot = slot.and_then(|place| self.slots.get_mut(place)?.as_mut());
        if let Some(slot) = slot.filter(|slot| slot.id == id && slot.key != PRIVATE) {
            self.keys.remove(&slot.key);
            slot.key = PRIVATE;
        }
    }

    /// Removes the object with this `id` and returns it.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub fn remove(&mut self, id: i32) -> Result<T, Errno> {
        self.forget_key(id);
        self.slot(id)?;
        let place = place_of(id)?;
        let slot = self.slots[place].take().ok_or(Errno::EINVAL)?;
        self.free_from = self.free_from.min(place);
        while let Some(None) = self.slots.last() {
            self.slots.pop();
        }
        self.count -= 1;
        self.shrink();
        Ok(slot.object)
    }

    /// Moves the slots to a smaller table if far fewer places are in use than before and memory for
    /// it is available.
    fn shrink(&mut self) {
        const KEPT: usize = 64;
        let (used, room) = (self.slots.len(), self.slots.capacity());
        let mut smaller = Vec::new();
        if room > KEPT && used < room / 4 && smaller.try_reserve_exact(used * 2).is_ok() {
            smaller.append(&mut self.slots);
            self.slots = smaller;
        }
    }

    /// Returns the ID of the first object at or after `place`, and the number of the place after
    /// that object. Returns `None` if there is no such object.
    pub fn next_from(&self, place: usize) -> Option<(i32, usize)> {
        let mut behind = self.slots.iter().enumerate().skip(place);
        behind.find_map(|(place, slot)| Some((slot.as_ref()?.id, place + 1)))
    }

    /// Returns all IDs, in the order of the places.
    pub fn ids(&self) -> impl Iterator<Item = i32> {
        self.slots.iter().flatten().map(|slot| slot.id)
    }
}

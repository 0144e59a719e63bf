//! The objects of System V IPC: by number, by key, and by place.
//!
//! A number is the object's place and, above it, how often places have come round, so that the number
//! of what is gone is not soon another's.

use crate::errno::Errno;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Bits of a place in a number.
const PLACE_BITS: u32 = 15;
/// There are no more places than this.
pub const MAX_PLACES: usize = 1 << PLACE_BITS;
/// Rounds are counted to below this.
const ROUNDS: u32 = i32::MAX.cast_unsigned() >> PLACE_BITS;
/// The key of objects that are found by number alone.
pub const PRIVATE: i32 = 0;

#[derive(Debug)]
struct Slot<T> {
    id: i32,
    key: i32,
    object: T,
}

/// Objects of one kind.
#[derive(Debug)]
pub struct IpcIds<T> {
    /// The last one is in use. In boxes, so that the table of all of them is small.
    slots: Vec<Option<Box<Slot<T>>>>,
    /// No place before this one is free.
    free_from: usize,
    keys: BTreeMap<i32, usize>,
    count: usize,
    /// Which round it is.
    round: u32,
    /// The place that was taken last.
    last: Option<usize>,
    /// The number that the next object is to have.
    next: Option<i32>,
}

impl<T> Default for IpcIds<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The place that a number names, whatever round it is of.
fn place_of(id: i32) -> Result<usize, Errno> {
    let id = usize::try_from(id).map_err(|_| Errno::EINVAL)?;
    Ok(id % MAX_PLACES)
}

impl<T> IpcIds<T> {
    /// None.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Places that there is memory for.
    pub fn room(&self) -> usize {
        self.slots.capacity()
    }

    /// The highest place in use; 0 when none is.
    pub fn highest(&self) -> usize {
        self.slots.len().saturating_sub(1)
    }

    /// Returns the number that the next object is to have, if one was asked for.
    pub fn next_id(&self) -> Option<i32> {
        self.next
    }

    /// Has the next object get the number `id`, which is not negative. If its place is taken, the
    /// object gets the next free one in the same round.
    pub fn set_next_id(&mut self, id: i32) {
        self.next = Some(id);
    }

    /// Enters an object in the lowest free place and gives its number. Nothing has its key, if it has
    /// one; `most` is how many there may be.
    ///
    /// # Errors
    /// `ENOSPC` if there are so many, `ENOMEM`.
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
        // Both parts fit by the constants above.
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

    /// The object with this number.
    ///
    /// # Errors
    /// `EINVAL`: none has it.
    pub fn get(&self, id: i32) -> Result<&T, Errno> {
        self.slot(id).map(|slot| &slot.object)
    }

    /// The object with this number, to change it.
    ///
    /// # Errors
    /// `EINVAL`: none has it.
    pub fn get_mut(&mut self, id: i32) -> Result<&mut T, Errno> {
        let slot = self.slots.get_mut(place_of(id)?).and_then(Option::as_mut);
        let slot = slot.filter(|slot| slot.id == id).ok_or(Errno::EINVAL)?;
        Ok(&mut slot.object)
    }

    /// The number of what stands in a place, which may be given with a round.
    ///
    /// # Errors
    /// `EINVAL`: nothing does.
    pub fn at(&self, place: i32) -> Result<i32, Errno> {
        let slot = self.slots.get(place_of(place)?).and_then(Option::as_ref);
        slot.map(|slot| slot.id).ok_or(Errno::EINVAL)
    }

    /// The number of the object with this key, which is not [`PRIVATE`].
    pub fn find(&self, key: i32) -> Option<i32> {
        let &place = self.keys.get(&key)?;
        self.slots[place].as_ref().map(|slot| slot.id)
    }

    /// The key of an object.
    ///
    /// # Errors
    /// `EINVAL`: none has this number.
    pub fn key(&self, id: i32) -> Result<i32, Errno> {
        self.slot(id).map(|slot| slot.key)
    }

    /// Takes an object's key away: it is found by number alone.
    pub fn forget_key(&mut self, id: i32) {
        let slot = place_of(id).ok();
        let slot = slot.and_then(|place| self.slots.get_mut(place)?.as_mut());
        if let Some(slot) = slot.filter(|slot| slot.id == id && slot.key != PRIVATE) {
            self.keys.remove(&slot.key);
            slot.key = PRIVATE;
        }
    }

    /// Takes an object out.
    ///
    /// # Errors
    /// `EINVAL`: none has this number.
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

    /// Gives memory back when there are far fewer places than before, if there is some for the smaller
    /// table.
    fn shrink(&mut self) {
        const KEPT: usize = 64;
        let (used, room) = (self.slots.len(), self.slots.capacity());
        let mut smaller = Vec::new();
        if room > KEPT && used < room / 4 && smaller.try_reserve_exact(used * 2).is_ok() {
            smaller.append(&mut self.slots);
            self.slots = smaller;
        }
    }

    /// The number of the first object in this place or behind it, and the place behind it.
    pub fn next_from(&self, place: usize) -> Option<(i32, usize)> {
        let mut behind = self.slots.iter().enumerate().skip(place);
        behind.find_map(|(place, slot)| Some((slot.as_ref()?.id, place + 1)))
    }

    /// The numbers of all, by place.
    pub fn ids(&self) -> impl Iterator<Item = i32> {
        self.slots.iter().flatten().map(|slot| slot.id)
    }
}

//! Items with names, in the order of a hash of the name. Names with a common beginning, which are
//! frequent among files, are then distinguished by a number and not byte by byte.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// An item that is found by its name. The name must not change while the item is in a set.
pub trait Named {
    /// Returns the item's name.
    fn name(&self) -> &[u8];
}

/// Returns the two halves of the product of `a` and `b` combined by exclusive or, so that every bit
/// of both factors influences the result.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let low = product as u64;
    low ^ (product >> 64) as u64
}

fn hash(key: u64, name: &[u8]) -> u64 {
    let mut hash = key ^ name.len() as u64;
    let (words, rest) = name.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), key);
    }
    let mut last = 0;
    for byte in rest {
        last = last << 8 | u64::from(*byte);
    }
    fold(hash ^ last, key.rotate_left(32) | 1)
}

/// The items with one hash, usually just one.
#[derive(Debug)]
struct Alike<T> {
    first: T,
    more: Vec<T>,
}

/// A set of items with different names.
#[derive(Debug)]
pub struct ByName<T> {
    key: u64,
    by_hash: BTreeMap<u64, Alike<T>>,
    count: usize,
}

impl<T: Named> ByName<T> {
    /// Returns an empty set. `key` is a secret for the hash of names. Without knowing it, an
    /// attacker cannot find names with the same hash.
    pub const fn new(key: u64) -> Self {
        Self {
            key: key | 1,
            by_hash: BTreeMap::new(),
            count: 0,
        }
    }

    /// Removes all items. Returns an iterator over them, in the order of the hashes of their names.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.count = 0;
        core::mem::take(&mut self.by_hash)
            .into_values()
            .flat_map(|alike| core::iter::once(alike.first).chain(alike.more))
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the set has no items.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the item called `name`, or `None` if the set has no such item.
    pub fn get(&self, name: &[u8]) -> Option<&T> {
        self.get_at(hash(self.key, name), name)
    }

    /// Returns the item called `name`, whose hash is `hash`, or `None` if the set has no such item.
    pub(super) fn get_at(&self, hash: u64, name: &[u8]) -> Option<&T> {
        let alike = self.by_hash.get(&hash)?;
        core::iter::once(&alike.first)
            .chain(&alike.more)
            .find(|thing| thing.name() == name)
    }

    /// Returns the item called `name` for modification, or `None` if the set has no such item.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut T> {
        let alike = self.by_hash.get_mut(&hash(self.key, name))?;
        core::iter::once(&mut alike.first)
            .chain(&mut alike.more)
            .find(|thing| thing.name() == name)
    }

    /// Adds `thing`. The caller must have checked that the set has no item with the same name. With
    /// two such items, lookups would find only the first one.
    pub fn insert(&mut self, thing: T) {
        self.insert_at(hash(self.key, thing.name()), thing);
    }

    /// Like [`Self::insert`], for a `thing` whose name has the hash `hash`.
    pub(super) fn insert_at(&mut self, hash: u64, thing: T) {
        self.count += 1;
        if let Some(alike) = self.by_hash.get_mut(&hash) {
            alike.more.push(thing);
            return;
        }
        let alike = Alike {
            first: thing,
            more: Vec::new(),
        };
        self.by_hash.insert(hash, alike);
    }

    /// Removes the item called `name` and returns it. Returns `None` if the set has no such item.
    pub fn remove(&mut self, name: &[u8]) -> Option<T> {
        self.remove_at(hash(self.key, name), name)
    }

    /// Removes the item called `name`, whose hash is `hash`, and returns it. Returns `None` if the
    /// set has no such item.
    pub(super) fn remove_at(&mut self, hash: u64, name: &[u8]) -> Option<T> {
        let alike = self.by_hash.get_mut(&hash)?;
        let thing = if alike.first.name() != name {
            let place = alike.more.iter().position(|thing| thing.name() == name)?;
            alike.more.swap_remove(place)
        } else if let Some(other) = alike.more.pop() {
            core::mem::replace(&mut alike.first, other)
        } else {
            self.by_hash.remove(&hash)?.first
        };
        self.count -= 1;
        Some(thing)
    }
}

//! Things with names, in the order of a hash of the name: names that begin alike, as those of many
//! files do, are then told apart by a number and not byte by byte.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Something that is found by its name, which does not change.
pub trait Named {
    /// Its name.
    fn name(&self) -> &[u8];
}

/// Both halves of a product: every bit of either factor has a say in it.
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

/// Those with one hash, which is one thing as a rule.
#[derive(Debug)]
struct Alike<T> {
    first: T,
    more: Vec<T>,
}

/// A set of things, each with a name of its own.
#[derive(Debug)]
pub struct ByName<T> {
    key: u64,
    by_hash: BTreeMap<u64, Alike<T>>,
    count: usize,
}

impl<T: Named> ByName<T> {
    /// The empty set. Who does not know the key does not know which names have one hash.
    pub const fn new(key: u64) -> Self {
        Self {
            key: key | 1,
            by_hash: BTreeMap::new(),
            count: 0,
        }
    }

    /// Takes all out.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.count = 0;
        core::mem::take(&mut self.by_hash)
            .into_values()
            .flat_map(|alike| core::iter::once(alike.first).chain(alike.more))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The one with this name.
    pub fn get(&self, name: &[u8]) -> Option<&T> {
        self.get_at(hash(self.key, name), name)
    }

    /// The same, of a name that has this hash.
    pub(super) fn get_at(&self, hash: u64, name: &[u8]) -> Option<&T> {
        let alike = self.by_hash.get(&hash)?;
        core::iter::once(&alike.first)
            .chain(&alike.more)
            .find(|thing| thing.name() == name)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut T> {
        let alike = self.by_hash.get_mut(&hash(self.key, name))?;
        core::iter::once(&mut alike.first)
            .chain(&mut alike.more)
            .find(|thing| thing.name() == name)
    }

    /// Puts one in whose name nobody has.
    pub fn insert(&mut self, thing: T) {
        self.insert_at(hash(self.key, thing.name()), thing);
    }

    /// Where the name has this hash.
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

    /// Takes the one with this name out.
    pub fn remove(&mut self, name: &[u8]) -> Option<T> {
        self.remove_at(hash(self.key, name), name)
    }

    /// The same, of a name that has this hash.
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

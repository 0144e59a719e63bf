//! The names of all nodes, stored one behind the other.

use super::growth::push_all;

/// The offset of a name is stored for one node in `STRIDE`. The others are found from there.
const STRIDE: usize = 8;

/// The names of an image's nodes by node number. Each is stored as one byte with its length, at
/// most 255, and then its bytes.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// Offsets in `bytes` of the names of nodes 0, [`STRIDE`], 2 × `STRIDE`, ….
    places: Vec<u32>,
    count: usize,
}

impl Names {
    /// Adds `name` as the name of the next node number.
    ///
    /// # Panics
    /// If `name` has more than 255 bytes, or if all names together exceed 4 GiB.
    pub(super) fn push(&mut self, name: &[u8]) {
        if self.count.is_multiple_of(STRIDE) {
            let place = u32::try_from(self.bytes.len()).expect("an index has a bounded size");
            push_all(&mut self.places, &[place]);
        }
        let length = u8::try_from(name.len()).expect("longer names are refused");
        push_all(&mut self.bytes, &[length]);
        push_all(&mut self.bytes, name);
        self.count += 1;
    }

    /// Returns the byte offset in this store of the name of node `number`.
    ///
    /// # Panics
    /// If that node has no name yet.
    pub(super) fn place(&self, number: u32) -> u32 {
        let number = number as usize;
        let mut place = self.places[number / STRIDE];
        for _ in 0..number % STRIDE {
            place += 1 + u32::from(self.bytes[place as usize]);
        }
        place
    }

    /// Returns the number of the node whose name is at the byte offset `place`, which
    /// [`Self::place`] has returned.
    pub(super) fn number_at(&self, place: u32) -> u32 {
        let group = self.places.partition_point(|first| *first <= place) - 1;
        let mut at = self.places[group];
        let mut number = group * STRIDE;
        while at < place {
            at += 1 + u32::from(self.bytes[at as usize]);
            number += 1;
        }
        u32::try_from(number).expect("an index has a bounded size")
    }

    /// Returns the name at the byte offset `place`, which [`Self::place`] has returned.
    pub(super) fn at(&self, place: u32) -> &[u8] {
        let from = place as usize + 1;
        &self.bytes[from..from + usize::from(self.bytes[from - 1])]
    }

    /// Returns the name of node `number`.
    ///
    /// # Panics
    /// If that node has no name yet.
    pub(super) fn get(&self, number: u32) -> &[u8] {
        self.at(self.place(number))
    }

    /// Returns the number of bytes of memory that are reserved for the names.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<u32>() * self.places.capacity()
    }
}

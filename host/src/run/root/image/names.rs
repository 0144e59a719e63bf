//! Names and targets of links, one behind the other.

use super::growth::push_all;

/// A name stands without its place for all but every eighth: the others are found from there.
const STRIDE: usize = 8;

/// The names of files, by their numbers. Each has at most 255 bytes, and its length before it.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// Where the names of files 0, [`STRIDE`], … stand.
    places: Vec<u32>,
    count: usize,
}

impl Names {
    /// Adds the name of the next file. It must have at most 255 bytes.
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

    /// Returns where the name of a file stands.
    pub(super) fn place(&self, number: u32) -> u32 {
        let number = number as usize;
        let mut place = self.places[number / STRIDE];
        for _ in 0..number % STRIDE {
            place += 1 + u32::from(self.bytes[place as usize]);
        }
        place
    }

    /// Returns the number of the file whose name stands at a place.
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

    /// Returns the name that stands at a place.
    pub(super) fn at(&self, place: u32) -> &[u8] {
        let from = place as usize + 1;
        &self.bytes[from..from + usize::from(self.bytes[from - 1])]
    }

    /// Returns the name of a file.
    pub(super) fn get(&self, number: u32) -> &[u8] {
        self.at(self.place(number))
    }

    /// Returns the bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<u32>() * self.places.capacity()
    }
}

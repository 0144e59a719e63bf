//! Reads a guest's memory without side effects: pages are copied out of the RAM file.
//!
//! A load through a mapping could make a page of the file resident. A read of the file does not.
//! The file has holes where the guest has never written, and holes are read as zeroes.

use crate::qemu::{GuestAddress, GuestRam};
use ebb_mm::view::Memory;
use std::cell::RefCell;
use std::collections::HashMap;

const PAGE: u64 = 4096;
const WORDS: usize = 512;
/// The largest number of copied pages. The header, state words and GiB words of the largest guest's
/// metadata need fewer. So a guest that lies about their addresses costs a bounded time.
const PAGES_MAX: usize = 512;

/// A copy of a part of a guest's memory, as 64-bit words. Each page is copied when it is first
/// read, at most 512 pages. A word beyond the part or these pages, or outside of RAM, is missing.
pub(super) struct Snapshot<'a> {
    ram: &'a GuestRam,
    start: GuestAddress,
    bytes: u64,
    pages: RefCell<Pages>,
}

#[derive(Default)]
struct Pages {
    copies: Vec<[u64; WORDS]>,
    index: HashMap<u64, usize>,
    /// The last page that was read and its index in `copies`. Most reads go upwards.
    last: Option<(u64, usize)>,
}

impl<'a> Snapshot<'a> {
    /// Returns a snapshot of `bytes` bytes of `ram` from the guest-physical address `start`. Copies
    /// nothing yet.
    pub(super) fn new(ram: &'a GuestRam, start: GuestAddress, bytes: u64) -> Self {
        Self {
            ram,
            start,
            bytes,
            pages: RefCell::default(),
        }
    }
}

impl Memory for Snapshot<'_> {
    fn word(&self, offset: u64) -> Option<u64> {
        if offset >= self.bytes {
            return None;
        }
        let address = self.start.checked_add(offset)?;
        if !address.0.is_multiple_of(8) {
            return None;
        }
        let number = address.0 / PAGE;
        let word = usize::try_from(address.0 % PAGE / 8).ok()?;
        let mut pages = self.pages.borrow_mut();
        let at = match pages.last {
            Some((last, at)) if last == number => at,
            _ => match pages.index.get(&number) {
                Some(at) => *at,
                None => pages.copy(self.ram, number)?,
            },
        };
        pages.last = Some((number, at));
        pages.copies.get(at)?.get(word).copied()
    }
}

impl Pages {
    fn copy(&mut self, ram: &GuestRam, number: u64) -> Option<usize> {
        if self.copies.len() == PAGES_MAX {
            return None;
        }
        let mut bytes = [0; WORDS * 8];
        ram.read_at(GuestAddress(number.checked_mul(PAGE)?), &mut bytes)?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.copies.push(words);
        let at = self.copies.len() - 1;
        self.index.insert(number, at);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn looking_makes_nothing_resident() {
        let ram = GuestRam::new(Machine::Microvm, 8 << 20).unwrap();
        rustix::io::pwrite(ram.fd(), &7u64.to_le_bytes(), 0x3008).unwrap();
        let before = ram.resident_bytes().unwrap();
        let snapshot = Snapshot::new(&ram, GuestAddress(0x3000), 1 << 20);
        assert_eq!(snapshot.word(8), Some(7));
        assert_eq!(snapshot.word(0x8000), Some(0));
        assert_eq!(snapshot.word(1 << 20), None);
        assert_eq!(ram.resident_bytes().unwrap(), before);
    }

    #[test]
    fn lies_are_bounded() {
        let ram = GuestRam::new(Machine::Microvm, 8 << 20).unwrap();
        let outside = Snapshot::new(&ram, GuestAddress(8 << 20), 4096);
        assert_eq!(outside.word(0), None);
        let wrapped = Snapshot::new(&ram, GuestAddress(u64::MAX - 7), u64::MAX);
        assert_eq!((wrapped.word(0), wrapped.word(8)), (None, None));
        let odd = Snapshot::new(&ram, GuestAddress(4), 4096);
        assert_eq!(odd.word(0), None);
        let endless = Snapshot::new(&ram, GuestAddress(0), u64::MAX);
        let read = (0..2048).filter(|page| endless.word(page * PAGE).is_some());
        assert_eq!(read.count(), PAGES_MAX);
    }
}

//! A ring of bytes in pages that are allocated and freed with the bytes. Pure logic.
//!
//! One page stays when the last byte is consumed. Most pipes are emptied after each write, and
//! would otherwise allocate and free a page each time. The page is freed with the ring, when the
//! pipe's last end closes.
//!
//! A byte's position counts from the ring's start. Position `p` lies in slot `(p / 4096) % slots`
//! at offset `p % 4096`. There is one slot more than the capacity needs, so the bytes never wrap
//! into the page in which they begin.
//!
//! Bytes that were written as a packet (`O_DIRECT`) are bytes like others, whose place the ring
//! remembers. There are no more packets than pages, so that this takes little memory.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// Size of a page in bytes.
pub const PAGE: usize = 4096;

/// A ring of bytes in pages of type `P`.
#[derive(Debug)]
pub struct Ring<P> {
    slots: Vec<Option<P>>,
    capacity: usize,
    head: usize,
    len: usize,
    reserved: usize,
    /// Number of bytes that have left the ring.
    passed: usize,
    /// The packets, the oldest first: their places among all bytes that have come. None has left
    /// the ring whole. `None` before the first packet, which most rings never have.
    #[expect(clippy::box_collection, reason = "a pipe fits into 256 bytes so")]
    packets: Option<Box<VecDeque<Range<usize>>>>,
}

/// The error if memory for the slots of a ring is short.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// A run of bytes in one page.
#[derive(Debug)]
pub struct Run<'a, P> {
    /// The page.
    pub page: &'a P,
    /// Offset of the first byte in the page.
    pub offset: usize,
    /// Number of bytes.
    pub length: usize,
}

impl<P> Ring<P> {
    /// Returns an empty ring of `capacity` bytes, a multiple of [`PAGE`] and not 0.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short.
    pub fn new(capacity: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            slots: Self::empty_slots(capacity)?,
            capacity,
            head: 0,
            len: 0,
            reserved: 0,
            passed: 0,
            packets: None,
        })
    }

    fn empty_slots(capacity: usize) -> Result<Vec<Option<P>>, NoMemory> {
        let count = capacity / PAGE + 1;
        let mut slots = Vec::new();
        slots.try_reserve_exact(count).map_err(|_| NoMemory)?;
        slots.resize_with(count, || None);
        Ok(slots)
    }

    /// Returns the number of bytes in the ring.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes that can be added: the capacity less the bytes in the ring and
    /// the reserved room.
    pub fn room(&self) -> usize {
        self.capacity - self.len - self.reserved
    }

    /// Reserves room for `count` bytes, at most [`Self::room`].
    pub fn reserve(&mut self, count: usize) {
        debug_assert!(count <= self.room());
        self.reserved += count;
    }

    /// Releases `count` bytes of the reserved room.
    pub fn release(&mut self, count: usize) {
        debug_assert!(count <= self.reserved);
        self.reserved -= count;
    }

    /// Returns the number of bytes of reserved room.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Returns the number of packets in the ring, including a packet that was consumed in part.
    pub fn packets(&self) -> usize {
        self.packets.as_ref().map_or(0, |packets| packets.len())
    }

    /// Returns whether no further packet may be added, because the ring has one for each page of
    /// its capacity.
    pub fn is_full_of_packets(&self) -> bool {
        self.packets() >= self.capacity / PAGE
    }

    /// Returns the range of bytes of the first packet after the oldest `skip` bytes. Positions
    /// count from the byte after these. If a part of the packet was consumed or is among the `skip`
    /// bytes, returns the range of the rest. Returns `None` if there is no such packet.
    pub fn packet_at(&self, skip: usize) -> Option<Range<usize>> {
        let packets = self.packets.as_ref()?;
        let from = self.passed + skip;
        let packet = packets.get(packets.partition_point(|packet| packet.end <= from))?;
        Some(packet.start.saturating_sub(from)..packet.end - from)
    }

    /// Reserves memory for one more packet.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short.
    pub fn reserve_packet(&mut self) -> Result<(), NoMemory> {
        let packets = self.packets.get_or_insert_default();
        packets.try_reserve(1).map_err(|_| NoMemory)
    }

    /// Makes the newest `count` bytes a packet. The caller has called [`Self::reserve_packet`].
    pub fn add_packet(&mut self, count: usize) {
        debug_assert!(count > 0 && count <= self.len);
        let end = self.passed + self.len;
        let packets = self.packets.get_or_insert_default();
        packets.push_back(end - count..end);
    }

    /// Counts `count` bytes that have left, and forgets the packets that ended with them.
    fn pass(&mut self, count: usize) {
        self.passed += count;
        let Some(packets) = &mut self.packets else {
            return;
        };
        while packets
            .front()
            .is_some_and(|packet| packet.end <= self.passed)
        {
            packets.pop_front();
        }
    }

    fn slot(&self, position: usize) -> usize {
        position / PAGE % self.slots.len()
    }

    /// Returns the oldest bytes, up to the end of the page that contains the oldest byte. Returns
    /// `None` if the ring is empty.
    pub fn front(&self) -> Option<Run<'_, P>> {
        if self.len == 0 {
            return None;
        }
        let offset = self.head % PAGE;
        let length = (PAGE - offset).min(self.len);
        let page = self.slots[self.slot(self.head)].as_ref()?;
        Some(Run {
            page,
            offset,
            length,
        })
    }

    /// Removes the `count` oldest bytes, which lie within [`Self::front`]. If no byte is left in
    /// their page, removes the page and returns it, unless the ring is empty then. Otherwise
    /// returns `None`.
    pub fn consume(&mut self, count: usize) -> Option<P> {
        debug_assert!(count <= self.len && count <= PAGE - self.head % PAGE);
        let slot = self.slot(self.head);
        self.head += count;
        self.len -= count;
        self.pass(count);
        if self.len == 0 {
            // The page that stays moves to slot 0, and the next byte goes to its start.
            self.slots.swap(0, slot);
            self.head = 0;
            return None;
        }
        let used_up = self.head.is_multiple_of(PAGE);
        self.head %= self.slots.len() * PAGE;
        if used_up {
            self.slots[slot].take()
        } else {
            None
        }
    }

    /// Returns whether the ring has room for a byte but no page for it. The caller must then
    /// [supply](Self::supply) a page.
    pub fn needs_page(&self) -> bool {
        self.room() > 0 && self.slots[self.slot(self.head + self.len)].is_none()
    }

    /// Inserts `page` where the next byte goes. There must be no page there yet.
    pub fn supply(&mut self, page: P) {
        let slot = self.slot(self.head + self.len);
        debug_assert!(self.slots[slot].is_none());
        self.slots[slot] = Some(page);
    }

    /// Returns the room for the next bytes, up to the end of their page. Returns `None` if the ring
    /// is full or needs a page ([`Self::needs_page`]).
    pub fn back(&self) -> Option<Run<'_, P>> {
        let tail = self.head + self.len;
        let offset = tail % PAGE;
        let length = (PAGE - offset).min(self.room());
        if length == 0 {
            return None;
        }
        let page = self.slots[self.slot(tail)].as_ref()?;
        Some(Run {
            page,
            offset,
            length,
        })
    }

    /// Adds `count` bytes that were written to [`Self::back`]. If `count` is 0, removes a page that
    /// was supplied but not used and returns it, unless the ring is empty. Otherwise returns
    /// `None`.
    pub fn commit(&mut self, count: usize) -> Option<P> {
        debug_assert!(count <= self.room());
        let tail = self.head + self.len;
        self.len += count;
        if count == 0 && self.len > 0 && tail.is_multiple_of(PAGE) && self.room() > 0 {
            let slot = self.slot(tail);
            return self.slots[slot].take();
        }
        None
    }

    /// Removes the page with the oldest bytes and returns it. Returns `None` if the ring is empty
    /// or part of the page has been read already.
    pub fn take_page(&mut self) -> Option<P> {
        if !self.head.is_multiple_of(PAGE) || self.len == 0 {
            return None;
        }
        let slot = self.slot(self.head);
        let page = self.slots[slot].take();
        let count = PAGE.min(self.len);
        self.len -= count;
        self.pass(count);
        self.head = if self.len == 0 {
            0
        } else {
            (self.head + count) % (self.slots.len() * PAGE)
        };
        page
    }

    /// Returns whether [`Self::put_page`] can add a page with `count` bytes. It can if the last
    /// byte ends a page and there is room for `count` bytes.
    pub fn takes_page(&self, count: usize) -> bool {
        (self.head + self.len).is_multiple_of(PAGE) && self.room() >= count
    }

    /// Puts `page`, which has `count` bytes at its start, after the last byte. `count` is at most
    /// [`PAGE`], and [`Self::takes_page`] must be true. Returns the empty page that was at this
    /// place, or `None` if there was no page.
    pub fn put_page(&mut self, page: P, count: usize) -> Option<P> {
        debug_assert!(self.takes_page(count) && count <= PAGE);
        let slot = self.slot(self.head + self.len);
        self.len += count;
        self.slots[slot].replace(page)
    }

    /// Returns the bytes that follow the oldest `skip` bytes, up to the end of their first page.
    /// Returns `None` if there are no more than `skip` bytes.
    pub fn run_at(&self, skip: usize) -> Option<Run<'_, P>> {
        if skip >= self.len {
            return None;
        }
        let at = self.head + skip;
        let offset = at % PAGE;
        let page = self.slots[self.slot(at)].as_ref()?;
        Some(Run {
            page,
            offset,
            length: (PAGE - offset).min(self.len - skip),
        })
    }

    /// Changes the capacity to `capacity` bytes, a multiple of [`PAGE`] and not 0. The bytes in the
    /// ring and the reserved room must fit.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short; the ring is unchanged.
    pub fn resize(&mut self, capacity: usize) -> Result<(), NoMemory> {
        debug_assert!(capacity >= self.len + self.reserved);
        debug_assert!(capacity > 0 && capacity.is_multiple_of(PAGE));
        let mut slots = Self::empty_slots(capacity)?;
        let used = (self.head % PAGE + self.len).div_ceil(PAGE).max(1);
        for (n, slot) in slots.iter_mut().enumerate().take(used) {
            let from = self.slot(self.head + n * PAGE);
            *slot = self.slots[from].take();
        }
        self.slots = slots;
        self.head %= PAGE;
        self.capacity = capacity;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::prelude::v1::*;

    type Page = RefCell<[u8; PAGE]>;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize),
        Read(usize),
        Resize(usize),
        FailedWrite,
        TakePage,
        PutPage(usize),
        Reserve(usize),
        Release,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..20_000_usize).prop_map(Step::Write),
            4 => (0..20_000_usize).prop_map(Step::Read),
            1 => (1..6_usize).prop_map(Step::Resize),
            1 => Just(Step::FailedWrite),
            1 => Just(Step::TakePage),
            1 => (1..=PAGE).prop_map(Step::PutPage),
            1 => (0..9_000_usize).prop_map(Step::Reserve),
            1 => Just(Step::Release),
        ]
    }

    /// A pipe that is emptied after each write needs only one page.
    #[test]
    fn an_emptied_ring_keeps_one_page() {
        let mut ring = Ring::<Page>::new(2 * PAGE).unwrap();
        let mut supplied = 0;
        for count in [1, 1, 700, PAGE, 1, PAGE, PAGE - 1, 1] {
            if ring.needs_page() {
                ring.supply(RefCell::new([0; PAGE]));
                supplied += 1;
            }
            assert!(ring.commit(count).is_none());
            assert!(ring.consume(count).is_none());
        }
        assert_eq!(supplied, 1);
        // A page that is read is freed if it is not the only one.
        for _ in 0..2 {
            if ring.needs_page() {
                ring.supply(RefCell::new([0; PAGE]));
            }
            ring.commit(PAGE);
        }
        assert!(ring.consume(PAGE).is_some());
        assert!(ring.consume(PAGE).is_none());
    }

    /// Packets end where they were written, also if parts are consumed, and count one a page.
    #[test]
    fn packets_keep_their_places() {
        let mut ring = Ring::<Page>::new(3 * PAGE).unwrap();
        let put = |ring: &mut Ring<Page>, count: usize, packet: bool| {
            if ring.needs_page() {
                ring.supply(RefCell::new([0; PAGE]));
            }
            ring.commit(count);
            if packet {
                ring.reserve_packet().unwrap();
                ring.add_packet(count);
            }
        };
        put(&mut ring, 3, false);
        assert_eq!(ring.packet_at(0), None);
        put(&mut ring, 5, true);
        put(&mut ring, 2, true);
        put(&mut ring, 1, false);
        assert_eq!(ring.packet_at(0), Some(3..8));
        assert_eq!(ring.packet_at(5), Some(0..3));
        assert_eq!(ring.packet_at(8), Some(0..2));
        assert_eq!(ring.packet_at(10), None);
        assert!(!ring.is_full_of_packets());
        ring.consume(4);
        assert_eq!((ring.packet_at(0), ring.packets()), (Some(0..4), 2));
        put(&mut ring, 9, true);
        assert!(ring.is_full_of_packets());
        ring.consume(4);
        assert_eq!(ring.packet_at(0), Some(0..2));
        ring.consume(2);
        assert_eq!(ring.packet_at(0), Some(1..10));
        ring.resize(4 * PAGE).unwrap();
        ring.consume(1);
        assert_eq!(ring.packet_at(0), Some(0..9));
        ring.consume(9);
        assert!(ring.is_empty() && ring.packets() == 0);
        put(&mut ring, PAGE, true);
        assert!(ring.take_page().is_some() && ring.packets() == 0);
    }

    proptest! {
        #[test]
        fn behaves_like_a_queue_of_bytes(steps in prop::collection::vec(step(), 0..60)) {
            let mut ring = Ring::<Page>::new(2 * PAGE).unwrap();
            let mut model = VecDeque::new();
            let mut next = 0_u8;
            for step in steps {
                match step {
                    Step::Write(mut count) => while count > 0 && ring.room() > 0 {
                        if ring.needs_page() { ring.supply(RefCell::new([0; PAGE])); }
                        let run = ring.back().unwrap();
                        let n = run.length.min(count);
                        for at in run.offset..run.offset + n {
                            next = next.wrapping_mul(31).wrapping_add(7);
                            run.page.borrow_mut()[at] = next;
                            model.push_back(next);
                        }
                        prop_assert!(ring.commit(n).is_none());
                        count -= n;
                    },
                    Step::Read(mut count) => while count > 0 && !ring.is_empty() {
                        let run = ring.front().unwrap();
                        let n = run.length.min(count);
                        for at in run.offset..run.offset + n {
                            prop_assert_eq!(Some(run.page.borrow()[at]), model.pop_front());
                        }
                        ring.consume(n);
                        count -= n;
                    },
                    Step::Resize(pages) => if pages * PAGE >= ring.len() + ring.reserved() {
                        ring.resize(pages * PAGE).unwrap();
                    },
                    Step::TakePage => {
                        let front = ring.front().map(|run| (run.offset, run.length));
                        let page = ring.take_page();
                        prop_assert_eq!(page.is_some(), front.is_some_and(|(offset, _)| offset == 0));
                        if let (Some(page), Some((_, length))) = (page, front) {
                            for at in 0..length {
                                prop_assert_eq!(Some(page.borrow()[at]), model.pop_front());
                            }
                        }
                    },
                    Step::PutPage(count) => if ring.takes_page(count) {
                        let page = RefCell::new([0; PAGE]);
                        for at in 0..count {
                            next = next.wrapping_mul(31).wrapping_add(7);
                            page.borrow_mut()[at] = next;
                            model.push_back(next);
                        }
                        ring.put_page(page, count);
                    },
                    Step::Reserve(count) => ring.reserve(count.min(ring.room())),
                    Step::Release => ring.release(ring.reserved()),
                    Step::FailedWrite => if ring.room() > 0 {
                        let fresh = ring.needs_page();
                        if fresh { ring.supply(RefCell::new([0; PAGE])); }
                        prop_assert_eq!(ring.commit(0).is_some(), fresh && !ring.is_empty());
                    },
                }
                prop_assert_eq!(ring.len(), model.len());
                prop_assert!(ring.len() + ring.reserved() + ring.room() == ring.capacity);
                let mut seen = 0;
                while let Some(run) = ring.run_at(seen) {
                    for at in run.offset..run.offset + run.length {
                        prop_assert_eq!(run.page.borrow()[at], model[seen]);
                        seen += 1;
                    }
                }
                prop_assert_eq!(seen, model.len());
                let pages = ring.slots.iter().filter(|s| s.is_some()).count();
                prop_assert!(pages <= ring.len().div_ceil(PAGE) + 1);
                prop_assert!(!ring.is_empty() || pages <= 1);
            }
        }
    }
}

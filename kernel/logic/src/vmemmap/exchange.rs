//! Parts of the memmap given up, brought back and moved, with one flush for many.

use super::machine::{
    AtomicU64, MAX_PAGES, Machine, entries, page_entry, part_entry, table_entry, take, target,
};
use super::retired::Retired;
use super::shared::Shared;
use super::supply::{Supply, get_any};
use core::ops::DerefMut;
use core::sync::atomic::Ordering;
use ebb_mm::{AllocError, Frame, FrameRange};

/// The most frames that a block carries: its part of the memmap, and a table to map it.
const CARRIED: usize = MAX_PAGES + 1;

/// How a block's part of the memmap was restored.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// On frames of the allocator's: all of the block is the caller's to free.
    Elsewhere,
    /// On the block's own first frames, so many.
    Carried(u64),
}

/// Blocks whose part of the memmap is exchanged together. Holds the lock of what they share: one at a time.
#[derive(Debug)]
pub struct Exchange<M: Machine, G: DerefMut<Target = Option<Shared>>> {
    machine: M,
    shared: G,
    retired: Retired,
    /// Something was changed that a TLB may know.
    any: bool,
}

impl<M: Machine, G: DerefMut<Target = Option<Shared>>> Exchange<M, G> {
    /// Nothing is exchanged yet.
    #[inline]
    pub fn begin(machine: M, shared: G) -> Self {
        const {
            assert!(M::PAGES <= MAX_PAGES && M::PAGES.is_power_of_two());
            assert!(M::ENTRIES.is_power_of_two() && M::PAGES as u64 <= M::ENTRIES);
        }
        Self {
            machine,
            shared,
            retired: Retired::new(),
            any: false,
        }
    }

    #[inline]
    fn retire(&mut self, frame: Frame, owned: bool) {
        if !self.retired.push(frame, owned) {
            self.make_room();
            self.retired.push(frame, owned);
        }
    }

    /// Retires the page of an entry.
    #[inline]
    fn retire_page(&mut self, entry: u64) {
        self.retire(target::<M>(entry), entry & M::BITS.owned != 0);
    }

    #[cold]
    fn make_room(&mut self) {
        self.flush();
        self.retired.free(self.machine);
        // The caller may be in the middle of a table: what it changes from here on, nobody has flushed.
        self.any = true;
    }

    fn flush(&mut self) {
        if core::mem::take(&mut self.any) {
            self.machine.flush();
        }
    }

    fn shared(&mut self) -> Result<Shared, AllocError> {
        if let Some(shared) = *self.shared {
            return Ok(shared);
        }
        let shared = Shared::new(self.machine)?;
        *self.shared = Some(shared);
        Ok(shared)
    }

    /// Gives up the part of the memmap of a block that the caller has allocated and whose descriptors are zero.
    ///
    /// # Errors
    /// If there is no frame for a table. Nothing has changed then.
    pub fn share(&mut self, block: Frame) -> Result<(), AllocError> {
        let machine = self.machine;
        let shared = self.shared()?;
        let slot = machine.slot(block);
        // Relaxed: under the lock.
        let old = slot.load(Ordering::Relaxed);
        let table = if old & M::BITS.large == 0 {
            target::<M>(old)
        } else {
            self.split(slot, old)?
        };
        debug_assert_ne!(table, shared.table, "{block:?} is shared twice");
        self.any = true;
        for entry in entries(machine, table, block) {
            // Relaxed: under the lock.
            let old = entry.load(Ordering::Relaxed);
            // Release: the shared page was filled before.
            entry.store(shared.entry::<M>(), Ordering::Release);
            self.retire_page(old);
        }
        let counter = machine.shared_entries(table);
        let count = counter.load(Ordering::Relaxed) + M::PAGES as u64;
        counter.store(count, Ordering::Relaxed);
        if count == M::ENTRIES {
            counter.store(0, Ordering::Relaxed);
            // Release: the shared table was filled before.
            slot.store(table_entry::<M>(shared.table), Ordering::Release);
            self.retire(table, true);
        }
        Ok(())
    }

    /// Gives a table of pages in the place of a large page.
    fn split(&mut self, slot: &AtomicU64, large: u64) -> Result<Frame, AllocError> {
        let machine = self.machine;
        let table = machine.allocate()?;
        take(machine, &[table]);
        for index in 0..M::ENTRIES {
            machine
                .entry(table, index)
                .store(part_entry::<M>(large, index), Ordering::Relaxed);
        }
        // Release: the entries come first. Both ways lead to the same frames.
        slot.store(table_entry::<M>(table), Ordering::Release);
        Ok(table)
    }

    /// The same of a block of 1 GiB, by whole tables.
    ///
    /// # Errors
    /// As [`Self::share`].
    pub fn share_giant(&mut self, block: Frame) -> Result<(), AllocError> {
        let shared = self.shared()?;
        let described = M::ENTRIES / M::PAGES as u64 * M::ENTRIES;
        for part in 0..M::PAGES as u64 {
            let slot = self.machine.slot(block.offset(part * described));
            // Relaxed: under the lock.
            let old = slot.load(Ordering::Relaxed);
            // Release: the shared table was filled before.
            slot.store(table_entry::<M>(shared.table), Ordering::Release);
            self.any = true;
            self.retire_table(old, shared);
        }
        Ok(())
    }

    /// Retires what an entry led to that stood for a whole table.
    fn retire_table(&mut self, old: u64, shared: Shared) {
        let machine = self.machine;
        if old & M::BITS.large != 0 {
            for index in 0..M::ENTRIES {
                self.retire_page(part_entry::<M>(old, index));
            }
            return;
        }
        let table = target::<M>(old);
        debug_assert_ne!(table, shared.table, "shared twice");
        for index in 0..M::ENTRIES {
            let page = machine.entry(table, index).load(Ordering::Relaxed);
            if target::<M>(page) != shared.page {
                self.retire_page(page);
            }
        }
        machine.shared_entries(table).store(0, Ordering::Relaxed);
        self.retire(table, true);
    }

    /// Brings back the part of the memmap of a block whose part is shared, all zero. Never fails. The block must not be
    /// freed before [`Self::end`].
    ///
    /// # Panics
    /// If nobody shares anything.
    pub fn restore(&mut self, block: Frame, supply: &mut Supply<M>) -> Restored {
        let machine = self.machine;
        let Some(shared) = *self.shared else {
            panic!("{block:?} shares its descriptors with nobody")
        };
        let slot = machine.slot(block);
        // Relaxed (all): under the lock.
        let table = target::<M>(slot.load(Ordering::Relaxed));
        let needs_table = table == shared.table;
        let mut frames = [Frame::new(0); CARRIED];
        let wanted = &mut frames[..M::PAGES + usize::from(needs_table)];
        let found = supply.get(wanted);
        if !found {
            for (index, frame) in (0..).zip(&mut *wanted) {
                *frame = block.offset(index);
            }
        }
        let new_table = wanted.get(M::PAGES).copied();
        if let Some(new) = new_table {
            shared.fill(machine, new);
        }
        let table = new_table.unwrap_or(table);
        self.put(block, slot, table, &wanted[..M::PAGES]);
        take(machine, wanted);
        let counter = machine.shared_entries(table);
        let before = if needs_table {
            M::ENTRIES
        } else {
            counter.load(Ordering::Relaxed)
        };
        counter.store(before - M::PAGES as u64, Ordering::Relaxed);
        if found {
            Restored::Elsewhere
        } else {
            Restored::Carried(wanted.len() as u64)
        }
    }

    /// Brings the part of the memmap of a block that carries it, and of which the caller has all frames, to frames of
    /// the allocator's; false: it has none. After [`Self::end`] the block is the caller's to free, in single frames.
    pub fn move_out(&mut self, block: Frame, carried: u64) -> bool {
        let machine = self.machine;
        let pages = M::PAGES as u64;
        let slot = machine.slot(block);
        // Relaxed (all): under the lock.
        let own_table = target::<M>(slot.load(Ordering::Relaxed));
        let carries_table = carried > pages && own_table == block.offset(pages);
        let mut frames = [Frame::new(0); CARRIED];
        let wanted = &mut frames[..M::PAGES + usize::from(carries_table)];
        if !get_any(machine, wanted) {
            return false;
        }
        let shared = machine.shared_entries(own_table).load(Ordering::Relaxed);
        let new_table = wanted.get(M::PAGES).copied();
        if let Some(new) = new_table {
            for index in 0..M::ENTRIES {
                let value = machine.entry(own_table, index).load(Ordering::Relaxed);
                machine.entry(new, index).store(value, Ordering::Relaxed);
            }
        }
        let table = new_table.unwrap_or(own_table);
        self.put(block, slot, table, &wanted[..M::PAGES]);
        take(machine, wanted);
        if let Some(new) = new_table {
            machine.shared_entries(new).store(shared, Ordering::Relaxed);
        }
        // The descriptors of the carrying frames are zero with all others of the block.
        machine.uncount(carried);
        true
    }

    /// Puts pages in for a block's part of the memmap, by this table, which it puts in, too. This CPU may write the
    /// descriptors afterwards.
    #[inline]
    fn put(&mut self, block: Frame, slot: &AtomicU64, table: Frame, pages: &[Frame]) {
        let machine = self.machine;
        clear(machine, pages);
        for (entry, &page) in entries(machine, table, block).zip(pages) {
            // Release: the page is clear. x86 keeps stores in order, so the walkers' reads find it.
            entry.store(page_entry::<M>(page), Ordering::Release);
        }
        // Release: the entries come first.
        slot.store(table_entry::<M>(table), Ordering::Release);
        self.any = true;
        machine.forget(block);
    }

    /// Puts a large page of zeros in for the part of the memmap under one table, which is shared.
    pub(super) fn put_large(&mut self, first: Frame, page: Frame) {
        let slot = self.machine.slot(first);
        let table = target::<M>(slot.load(Ordering::Relaxed));
        let shared = self.shared.as_ref().map(|shared| shared.table);
        assert_eq!(Some(table), shared, "{first:?} shares no table");
        // Release: the page is clear.
        slot.store(page_entry::<M>(page) | M::BITS.large, Ordering::Release);
        self.any = true;
    }

    /// Ends the exchange: when this returns, every CPU knows.
    pub fn end(mut self) {
        self.flush();
        // What is freed may be asked for by others who exchange.
        drop(self.shared);
        self.retired.free(self.machine);
    }
}

fn clear<M: Machine>(machine: M, pages: &[Frame]) {
    let first = pages[0];
    let together = (0..)
        .zip(pages)
        .all(|(index, &page)| page == first.offset(index));
    if together {
        machine.clear(FrameRange::new(first, M::PAGES as u64));
        return;
    }
    for &page in pages {
        machine.clear(FrameRange::new(page, 1));
    }
}

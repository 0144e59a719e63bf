//! Shares, restores and moves parts of the memmap, with one flush for many blocks.

use super::machine::{
    AtomicU64, MAX_PAGES, Machine, entries, page_entry, part_entry, table_entry, take, target,
};
use super::retired::Retired;
use super::shared::Shared;
use super::supply::{Supply, get_any};
use core::ops::DerefMut;
use core::sync::atomic::Ordering;
use ebb_mm::{AllocError, Frame, FrameRange};

/// The most frames that a block carries: its part of the memmap, and a table that maps it.
const CARRIED: usize = MAX_PAGES + 1;

/// The place where the part of the memmap of a block was restored.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// On frames from the allocator. The caller may free the whole block.
    Elsewhere,
    /// On this number of frames at the start of the block itself.
    Carried(u64),
}

/// A change of the memmap parts of several blocks, with one flush at its end. It holds the lock of
/// the shared page, so only one runs at a time.
#[derive(Debug)]
pub struct Exchange<M: Machine, G: DerefMut<Target = Option<Shared>>> {
    machine: M,
    shared: G,
    retired: Retired,
    /// Whether an entry was changed that a TLB may still cache.
    any: bool,
}

impl<M: Machine, G: DerefMut<Target = Option<Shared>>> Exchange<M, G> {
    /// Begins an exchange of parts of the memmap of `machine`, which has changed nothing yet.
    /// `shared` is the guard of the lock of the shared page, which is held until [`Self::end`].
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

    /// Retires the page that `entry` mapped: the page is freed once all CPUs have flushed.
    #[inline]
    fn retire_page(&mut self, entry: u64) {
        self.retire(target::<M>(entry), entry & M::BITS.owned != 0);
    }

    #[cold]
    fn make_room(&mut self) {
        self.flush();
        self.retired.admit(self.machine);
        self.retired.free(self.machine);
        // The caller may be in the middle of a table. Its further changes are not covered by this
        // flush.
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

    /// Replaces the part of the memmap of `block` with the shared page. The caller must have
    /// allocated the block, and the block's descriptors must be zero.
    ///
    /// # Errors
    /// [`AllocError`] if there is no frame for a table or for the shared page. In that case no
    /// entry has changed.
    pub fn share(&mut self, block: Frame) -> Result<(), AllocError> {
        let machine = self.machine;
        let shared = self.shared()?;
        let slot = machine.slot(block);
        // Relaxed: the lock is held.
        let old = slot.load(Ordering::Relaxed);
        let table = if old & M::BITS.large == 0 {
            target::<M>(old)
        } else {
            self.split(slot, old)?
        };
        debug_assert_ne!(table, shared.table, "{block:?} is shared twice");
        self.any = true;
        for entry in entries(machine, table, block) {
            // Relaxed: the lock is held.
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

    /// Replaces `large`, an upper entry that maps a large page, in `slot` with a table of its
    /// pages, and returns the table. Fails with [`AllocError`], and changes nothing, if no frame is
    /// free.
    fn split(&mut self, slot: &AtomicU64, large: u64) -> Result<Frame, AllocError> {
        let machine = self.machine;
        let table = machine.allocate()?;
        take(machine, &[table]);
        for index in 0..M::ENTRIES {
            machine
                .entry(table, index)
                .store(part_entry::<M>(large, index), Ordering::Relaxed);
        }
        // Release: the entries are written before. Both mappings lead to the same frames.
        slot.store(table_entry::<M>(table), Ordering::Release);
        Ok(table)
    }

    /// Replaces the part of the memmap of `block`, a page of 1 GiB, with the shared page. Does so
    /// by whole tables, and otherwise as [`Self::share`] does.
    ///
    /// # Errors
    /// [`AllocError`] if there is no frame for the shared page. In that case no entry has changed.
    pub fn share_giant(&mut self, block: Frame) -> Result<(), AllocError> {
        let shared = self.shared()?;
        let described = M::ENTRIES / M::PAGES as u64 * M::ENTRIES;
        for part in 0..M::PAGES as u64 {
            let slot = self.machine.slot(block.offset(part * described));
            // Relaxed: the lock is held.
            let old = slot.load(Ordering::Relaxed);
            // Release: the shared table was filled before.
            slot.store(table_entry::<M>(shared.table), Ordering::Release);
            self.any = true;
            self.retire_table(old, shared);
        }
        Ok(())
    }

    /// Retires all pages that the upper entry `old` mapped, except the page of `shared`. If `old`
    /// led to a table, retires the table, too. `old` was replaced before.
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

    /// Restores the part of the memmap of `block`, which must map the shared page: the descriptors
    /// of the block become zero and writable. The new memmap pages are on frames of `supply`. If
    /// `supply` has too few frames and can allocate no more, they are on the first frames of the
    /// block itself, so this never fails. Returns which frames were used. The block must not be
    /// freed before [`Self::end`].
    ///
    /// # Panics
    /// If there is no shared page.
    pub fn restore(&mut self, block: Frame, supply: &mut Supply<M>) -> Restored {
        let machine = self.machine;
        let Some(shared) = *self.shared else {
            panic!("{block:?} shares its descriptors with no block")
        };
        let slot = machine.slot(block);
        // Relaxed (all): the lock is held.
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

    /// Moves the part of the memmap of `block` to frames from the allocator and returns `true`. The
    /// first `carried` frames of the block contain it now. The caller must own all frames of the
    /// block, and may free it in single frames after [`Self::end`]. Returns `false`, and changes
    /// nothing, if the allocator has too few frames.
    pub fn move_out(&mut self, block: Frame, carried: u64) -> bool {
        let machine = self.machine;
        let pages = M::PAGES as u64;
        let slot = machine.slot(block);
        // Relaxed (all): the lock is held.
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
        // The descriptors of the carrying frames are zero like all others of the block.
        machine.uncount(carried);
        true
    }

    /// Clears `pages`, maps them for the part of the memmap of `block` in `table`, and stores
    /// `table` in the upper entry `slot`. This CPU may write the block's descriptors afterwards.
    #[inline]
    fn put(&mut self, block: Frame, slot: &AtomicU64, table: Frame, pages: &[Frame]) {
        let machine = self.machine;
        clear(machine, pages);
        for (entry, &page) in entries(machine, table, block).zip(pages) {
            // Release: the page is clear. x86 keeps stores in order, so page walks see the cleared
            // page.
            entry.store(page_entry::<M>(page), Ordering::Release);
        }
        // Release: the entries are written before.
        slot.store(table_entry::<M>(table), Ordering::Release);
        self.any = true;
        machine.forget(block);
    }

    /// Replaces the shared table by `page` in the upper entry for the part of the memmap that
    /// describes `first`, the first frame described under this entry. `page` is a large page of
    /// zeros from the allocator.
    ///
    /// # Panics
    /// If the entry does not lead to the shared table.
    pub(super) fn put_large(&mut self, first: Frame, page: Frame) {
        let slot = self.machine.slot(first);
        let table = target::<M>(slot.load(Ordering::Relaxed));
        let shared = self.shared.as_ref().map(|shared| shared.table);
        assert_eq!(Some(table), shared, "{first:?} shares no table");
        // Release: the page is clear.
        slot.store(page_entry::<M>(page) | M::BITS.large, Ordering::Release);
        self.any = true;
    }

    /// Ends the exchange. When this returns, every CPU has flushed and the retired frames are free.
    pub fn end(mut self) {
        self.flush();
        // The lock is still held, because no two CPUs may admit frames of one pageblock at once.
        self.retired.admit(self.machine);
        // Released before the frames are freed, because another exchange may want them.
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

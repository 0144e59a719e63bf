//! The tree of an address space's page tables.

use super::frame::TableFrame;
use super::hot::HotPlaces;
use super::slot::Slot;
use super::table::{
    REGION, SPANS, TRIAL, Table, UPPER, USERS, index, is_empty, leads_to_table, next_used,
};
use crate::arch::layout::phys_to_virt;
use crate::arch::pte::{ADDRESS, LARGE, unused_before};
use crate::memory::memmap::{self, Descriptor};
use crate::memory::tables::kernel_root;
use core::cell::Cell;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame};

/// A number that no region has.
const NO_REGION: u64 = u64::MAX;

/// The mapping of a region, an aligned range of 2 MiB.
#[derive(Debug)]
pub enum Region<'t> {
    /// A last-level page table.
    Table(&'t Table),
    /// A huge page: its entry, and its size in bytes.
    Huge(Slot<'t>, u64),
    /// The entry with [`TRIAL`] that leads to the region's table.
    Trial(Slot<'t>),
    /// Nothing. No address below this one, from the region on, is mapped.
    AbsentUntil(u64),
}

/// The mapping of one address.
#[derive(Debug)]
pub enum Leaf<'t> {
    /// The entry of the page in a last-level page table. It may be unused.
    Page(&'t AtomicU64),
    /// The entry of the huge page that contains the address.
    Huge(Slot<'t>),
    /// The entry with [`TRIAL`] that leads to the page table for the address.
    Trial(Slot<'t>),
    /// No page table covers the address.
    Absent,
}

/// The page tables of one address space. The upper half of the root maps the kernel.
///
/// A reference to an entry ends with the lock under which it was found. This compiles:
///
/// ```no_run
/// use core::sync::atomic::{AtomicU64, Ordering};
/// use machine::memory::page_tables::{Leaf, Tree};
/// use machine::sync::SpinLock;
///
/// /// Returns the value of the entry for `address`.
/// fn value(lock: &SpinLock<Tree>, address: u64) -> u64 {
///     let tree = lock.lock();
///     let Leaf::Page(entry) = tree.leaf(address) else {
///         return 0;
///     };
///     let value = entry.load(Ordering::Relaxed);
///     drop(tree);
///     value
/// }
/// ```
///
/// But not if the lock is dropped first:
///
/// ```compile_fail,E0505
/// use core::sync::atomic::{AtomicU64, Ordering};
/// use machine::memory::page_tables::{Leaf, Tree};
/// use machine::sync::SpinLock;
///
/// /// Returns the value of the entry for `address`.
/// fn value(lock: &SpinLock<Tree>, address: u64) -> u64 {
///     let tree = lock.lock();
///     let Leaf::Page(entry) = tree.leaf(address) else {
///         return 0;
///     };
///     drop(tree);
///     entry.load(Ordering::Relaxed)
/// }
/// ```
///
/// No table is taken out while there is a reference to it:
///
/// ```compile_fail,E0502
/// use core::sync::atomic::Ordering;
/// use machine::memory::page_tables::{Region, Tree};
///
/// /// Takes out the table of a region, and returns the value of its first entry.
/// fn first(tree: &mut Tree, address: u64) -> u64 {
///     let Region::Table(table) = tree.region(address) else {
///         return 0;
///     };
///     drop(tree.take_table(address));
///     table[0].load(Ordering::Relaxed)
/// }
/// ```
#[derive(Debug)]
pub struct Tree {
    root: Frame,
    /// The number of tables, with the root.
    count: Cell<u64>,
    /// The number of the region whose last-level table was used last.
    recent_region: Cell<u64>,
    /// The last-level table of the region `recent_region`. Null if there is none.
    pub(super) recent_table: Cell<*const Table>,
    pub(super) hot: HotPlaces,
}

// SAFETY: the pointers lead to tables of the tree, which are the same on every CPU.
unsafe impl Send for Tree {}

impl Tree {
    /// Returns tables that map only the kernel. Fails if no frame is free.
    #[inline]
    pub fn new() -> Result<Self, AllocError> {
        let root = TableFrame::try_new_root()?.cleared();
        // SAFETY: the kernel's own root stays. All access to it is atomic.
        let from = unsafe { &*phys_to_virt(kernel_root()).cast::<Table>() };
        for (from, to) in from[USERS..].iter().zip(&root.entries()[USERS..]) {
            // Relaxed: the kernel's top-level entries are all set before the first space is made.
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(Self {
            root: root.into_frame(),
            count: Cell::new(1),
            recent_region: Cell::new(NO_REGION),
            recent_table: Cell::new(ptr::null()),
            hot: HotPlaces::new(),
        })
    }

    /// Returns the physical address of the root table.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root.address()
    }

    /// Returns the number of tables, with the root.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Returns the table that `entry` leads to.
    ///
    /// # Safety
    /// `entry` is the present value of an entry of an upper level of this tree, and leads to a
    /// table.
    #[inline]
    unsafe fn table(&self, entry: u64) -> &Table {
        debug_assert!(leads_to_table(entry));
        // SAFETY: such an entry was made of a `TableFrame`, which is in the physmap. It is taken
        // out through `&mut self` only. All access is atomic.
        unsafe { &*phys_to_virt(entry & ADDRESS).cast::<Table>() }
    }

    /// Returns the root table, for the entry for `address`.
    ///
    /// # Panics
    /// Panics if `address` is the kernel's.
    #[inline]
    fn top(&self, address: u64) -> &Table {
        assert!(
            address < USERS as u64 * SPANS[3],
            "{address:#x} is no program's"
        );
        // SAFETY: the root is this tree's, and goes with it. All access is atomic.
        unsafe { &*phys_to_virt(self.root.address()).cast::<Table>() }
    }

    /// Returns the mapping of the region that contains `address`.
    #[inline]
    #[must_use]
    pub fn region(&self, address: u64) -> Region<'_> {
        let mut table = self.top(address);
        for level in [3, 2, 1] {
            let slot = Slot::new(&table[index(address, level)], level);
            let entry = slot.load();
            if entry == 0 {
                return Region::AbsentUntil(next_used(table, address, level));
            }
            if entry & LARGE != 0 {
                return Region::Huge(slot, SPANS[level]);
            }
            if entry & TRIAL != 0 {
                return Region::Trial(slot);
            }
            // SAFETY: the slot is one of this tree, and leads to a table.
            table = unsafe { self.table(entry) };
        }
        Region::Table(table)
    }

    /// Returns the mapping of `address`.
    #[inline]
    pub fn leaf(&self, address: u64) -> Leaf<'_> {
        if address / REGION == self.recent_region.get() {
            return Leaf::Page(&self.recent()[index(address, 0)]);
        }
        self.find_leaf(address)
    }

    /// Returns the last-level table of the region `recent_region`, which is a region.
    #[inline]
    fn recent(&self) -> &Table {
        // SAFETY: the two are set together, and forgotten when a table is taken out.
        unsafe { &*self.recent_table.get() }
    }

    #[cold]
    fn find_leaf(&self, address: u64) -> Leaf<'_> {
        match self.region(address) {
            Region::Table(table) => {
                self.note_recent(address, table);
                Leaf::Page(&table[index(address, 0)])
            }
            Region::Huge(slot, _) => Leaf::Huge(slot),
            Region::Trial(slot) => Leaf::Trial(slot),
            Region::AbsentUntil(_) => Leaf::Absent,
        }
    }

    /// Records `table`, of this tree, as the last-level table for `address`.
    fn note_recent(&self, address: u64, table: &Table) {
        self.recent_region.set(address / REGION);
        self.recent_table.set(table);
    }

    /// Returns the last-level table for `address`. Creates missing tables, with the owner word
    /// `owner`. Fails if no frame is free.
    ///
    /// # Panics
    /// Panics if a huge page maps the region, or an entry with [`TRIAL`].
    #[inline]
    pub fn table_or_new(&self, address: u64, owner: u64) -> Result<&Table, AllocError> {
        if address / REGION == self.recent_region.get() {
            return Ok(self.recent());
        }
        self.find_or_new(address, owner)
    }

    #[cold]
    fn find_or_new(&self, address: u64, owner: u64) -> Result<&Table, AllocError> {
        let slot = self.slot_or_new(address, 1, owner)?;
        if slot.load() == 0 {
            self.hang_in(slot, owner)?;
        }
        let entry = slot.load();
        assert!(
            entry & (LARGE | TRIAL) == 0,
            "a huge page is taken for a table"
        );
        // SAFETY: the slot is one of this tree, and leads to a table.
        let table = unsafe { self.table(entry) };
        self.note_recent(address, table);
        Ok(table)
    }

    /// Returns the entry for `address` at `level`, which is not the last one. Creates missing
    /// tables above it, with the owner word `owner`. Fails if no frame is free.
    ///
    /// # Panics
    /// Panics if a huge page of a higher level maps `address`, and if `level` is not 1 to 3.
    pub fn slot_or_new(
        &self,
        address: u64,
        level: usize,
        owner: u64,
    ) -> Result<Slot<'_>, AllocError> {
        assert!((1..4).contains(&level), "no upper level: {level}");
        let mut table = self.top(address);
        for upper in (level + 1..4).rev() {
            let slot = Slot::new(&table[index(address, upper)], upper);
            if slot.load() == 0 {
                self.hang_in(slot, owner)?;
            }
            let entry = slot.load();
            assert!(entry & LARGE == 0, "a huge page is taken for a table");
            // SAFETY: the slot is one of this tree, and leads to a table.
            table = unsafe { self.table(entry) };
        }
        Ok(Slot::new(&table[index(address, level)], level))
    }

    /// Allocates an empty table with the owner word `owner`, and hangs it in at the unused entry
    /// `slot`. Fails if memory is short.
    fn hang_in(&self, slot: Slot<'_>, owner: u64) -> Result<(), AllocError> {
        let table = TableFrame::try_new()?.cleared();
        table.set_owner(owner);
        self.count.set(self.count.get() + 1);
        slot.put_empty_table(table, UPPER);
        Ok(())
    }

    /// Makes `table` the last-level table for the region of `slot`, an unused entry of level 1. The
    /// entry gets the bits `bits` in addition to those of a table: [`TRIAL`], or software bits.
    ///
    /// # Panics
    /// Panics if the entry is in use or of another level.
    pub fn put_table(&self, slot: Slot<'_>, table: TableFrame, bits: u64) {
        self.count.set(self.count.get() + 1);
        slot.put_last_table(table, UPPER | bits);
    }

    /// Returns the entry for `address` in the table at `level`, 1 to 3, if it is in use.
    ///
    /// # Errors
    /// If there is no such entry, or a huge page of a higher level maps `address`, fails with the
    /// address up to which there are none.
    #[inline]
    pub fn upper_slot(&self, address: u64, level: usize) -> Result<Slot<'_>, u64> {
        assert!((1..4).contains(&level), "no upper level: {level}");
        let mut table = self.top(address);
        for upper in (level..4).rev() {
            let slot = Slot::new(&table[index(address, upper)], upper);
            let entry = slot.load();
            if entry == 0 {
                return Err(next_used(table, address, upper));
            }
            if upper == level {
                return Ok(slot);
            }
            if entry & LARGE != 0 {
                return Err((address / SPANS[upper] + 1) * SPANS[upper]);
            }
            // SAFETY: the slot is one of this tree, and leads to a table.
            table = unsafe { self.table(entry) };
        }
        unreachable!("level is 1 to 3")
    }

    /// Exchanges what the entries of `level` for the addresses `one` and `two` map: nothing, a huge
    /// page, or a table, which gets the owner word that `owner` returns for its new address.
    ///
    /// # Panics
    /// Panics if one of the entries has no table.
    pub fn exchange(&self, one: u64, two: u64, level: usize, owner: impl Fn(u64) -> u64) {
        assert!((1..4).contains(&level), "no upper level: {level}");
        self.forget_tables();
        let [first, second] = [one, two].map(|address| {
            self.slot(address, level)
                .unwrap_or_else(|| panic!("no page table for {address:#x}"))
        });
        first.exchange(second);
        for (slot, address) in [(first, one), (second, two)] {
            let entry = slot.load();
            if leads_to_table(entry) {
                Descriptor::get(Frame::containing(entry & ADDRESS)).set_owner(owner(address));
            }
        }
    }

    /// Returns the entry for `address` at `level`, 1 to 3, which may be unused. Returns `None` if
    /// there is no table for it.
    fn slot(&self, address: u64, level: usize) -> Option<Slot<'_>> {
        let mut table = self.top(address);
        for upper in (level + 1..4).rev() {
            let entry = table[index(address, upper)].load(Ordering::Relaxed);
            if !leads_to_table(entry) {
                return None;
            }
            // SAFETY: the value was just read in an entry of the tree.
            table = unsafe { self.table(entry) };
        }
        Some(Slot::new(&table[index(address, level)], level))
    }

    /// Takes out the last-level table of the region of `address`. Returns it with its entry, which
    /// is unused now. The CPUs may use the table until they are flushed. Returns `None` if the
    /// region has no table.
    pub fn take_table(&mut self, address: u64) -> Option<(TableFrame, Slot<'_>)> {
        self.forget_tables();
        let slot = self.upper_slot(address, 1).ok()?;
        let table = slot.take_table()?;
        self.count.set(self.count.get() - 1);
        Some((table, slot))
    }

    /// Replaces the table in the frame `from`, which maps `address`, by `to`. Clears the entry that
    /// leads to the table and calls `flush` with its value, so that no CPU uses the table any more.
    /// Then copies the entries, and lets the entry lead to the copy. Returns the old table.
    ///
    /// # Errors
    /// Returns `to` if there is no such table.
    pub fn replace_table(
        &mut self,
        address: u64,
        from: Frame,
        to: TableFrame,
        flush: impl FnOnce(u64),
    ) -> Result<TableFrame, TableFrame> {
        let leads_there = |slot: &Slot<'_>| {
            let entry = slot.load();
            leads_to_table(entry) && entry & ADDRESS == from.address()
        };
        let mut slots = (1..4).filter_map(|level| self.upper_slot(address, level).ok());
        let Some(slot) = slots.find(leads_there) else {
            return Err(to);
        };
        self.forget_tables();
        let entry = slot.load();
        let Some(old) = slot.take_table() else {
            return Err(to);
        };
        flush(entry);
        for (old, new) in old.entries().iter().zip(to.entries()) {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        to.set_owner(old.owner());
        slot.put_copy(to, entry);
        Ok(old)
    }

    /// Removes empty tables that touch `range` and lie wholly in `owned`. Tables wholly in
    /// `emptied` are known to be empty. Calls `take` with each. Returns `false` if `is_full`
    /// returns `true` and there are more.
    pub fn prune<C>(
        &mut self,
        range: Range<u64>,
        owned: Range<u64>,
        emptied: Range<u64>,
        taken: &mut C,
        is_full: impl Fn(&C) -> bool,
        take: impl Fn(&mut C, TableFrame),
    ) -> bool {
        self.forget_tables();
        let pruning = Pruning {
            tree: self,
            // The others are the kernel's.
            range: range.start..range.end.min(USERS as u64 * SPANS[3]),
            owned,
            emptied,
            is_full,
            take,
        };
        pruning.below(self.top(0), 3, 0, taken)
    }

    /// Forgets the last-level tables that were used last.
    #[inline]
    pub fn forget_tables(&self) {
        self.recent_region.set(NO_REGION);
        self.forget_hot_tables();
    }
}

/// The tables that [`Tree::prune`] removes.
struct Pruning<'t, F, T> {
    tree: &'t Tree,
    range: Range<u64>,
    owned: Range<u64>,
    emptied: Range<u64>,
    is_full: F,
    take: T,
}

impl<F, T> Pruning<'_, F, T> {
    /// Removes the tables below `entries`, of which the first, at `level`, maps the address `base`.
    /// Visits each table once. Returns `false` if there is no room for more.
    fn below<C>(&self, entries: &Table, level: usize, base: u64, taken: &mut C) -> bool
    where
        F: Fn(&C) -> bool,
        T: Fn(&mut C, TableFrame),
    {
        let span = SPANS[level];
        let mut at = base.max(self.range.start / span * span);
        let end = self.range.end.min(base + entries.len() as u64 * span);
        while at < end {
            let slot = Slot::new(&entries[index(at, level)], level);
            let entry = slot.load();
            if entry == 0 {
                at = next_used(entries, at, level);
                continue;
            }
            let next = at + span;
            if entry & (LARGE | TRIAL) == 0 && at < self.owned.end && self.owned.start < next {
                // SAFETY: the value was just read in an entry of the tree.
                let inner = unsafe { self.tree.table(entry) };
                if level > 1 && !self.below(inner, level - 1, at, taken) {
                    return false;
                }
                let is_owned = self.owned.start <= at && next <= self.owned.end;
                // Between two batches the lock was free, so pages may have come back in remaining
                // areas.
                let known = self.emptied.start <= at && next <= self.emptied.end;
                debug_assert!(!known || is_empty(inner));
                if is_owned && (known || is_empty(inner)) {
                    if (self.is_full)(taken) {
                        return false;
                    }
                    if let Some(table) = slot.take_table() {
                        self.tree.count.set(self.tree.count.get() - 1);
                        (self.take)(taken, table);
                    }
                }
            }
            at = next;
        }
        true
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let users = &self.top(0)[..USERS];
        assert!(
            unused_before(users) == users.len(),
            "a space goes with page tables left in it"
        );
        memmap::release(self.root);
    }
}

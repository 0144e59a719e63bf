//! Entries of the levels above the last one.

use super::frame::TableFrame;
use super::table::{Table, leads_to_table};
use crate::arch::layout::phys_to_virt;
use crate::arch::pte::{ADDRESS, LARGE, PRESENT};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

/// An entry of an upper level of a [`Tree`](super::Tree): it is unused, maps a huge page, or leads
/// to a table.
#[derive(Copy, Clone, Debug)]
pub struct Slot<'t> {
    entry: &'t AtomicU64,
    level: usize,
    /// A change of an entry is several accesses, so a slot stays on the thread that borrows the
    /// tree.
    _thread: PhantomData<*const ()>,
}

impl<'t> Slot<'t> {
    /// Returns the slot for `entry`, which is of `level`.
    #[inline]
    pub(super) fn new(entry: &'t AtomicU64, level: usize) -> Self {
        Self {
            entry,
            level,
            _thread: PhantomData,
        }
    }

    /// Returns the value of the entry.
    #[inline]
    #[must_use]
    pub fn load(self) -> u64 {
        // Relaxed: changed under the space's lock; the CPU's walker takes entries in any order.
        self.entry.load(Ordering::Relaxed)
    }

    /// Returns the last-level table that the entry leads to. Returns `None` if the entry is of
    /// another level than 1, or leads to no table.
    #[inline]
    #[must_use]
    pub fn table(self) -> Option<&'t Table> {
        let entry = self.load();
        if self.level != 1 || !leads_to_table(entry) {
            return None;
        }
        // SAFETY: as for `Tree::table`: the slot borrows from the tree.
        Some(unsafe { &*phys_to_virt(entry & ADDRESS).cast::<Table>() })
    }

    /// Sets the entry to `value`, which is 0 or maps a huge page.
    ///
    /// # Panics
    /// Panics if the entry leads to a table, or `value` would.
    #[inline]
    pub fn set_page(self, value: u64) {
        assert!(
            !leads_to_table(self.load()) && !leads_to_table(value),
            "a page is no table"
        );
        // Release: the page was filled before; x86 keeps that order anyway.
        self.entry.store(value, Ordering::Release);
    }

    /// Replaces the bits beside the address, in an entry that leads to a table, by those of
    /// `value`.
    ///
    /// # Panics
    /// Panics if the entry leads to no table, or would lead to another one or to none.
    #[inline]
    pub fn set_bits(self, value: u64) {
        const KEPT: u64 = ADDRESS | LARGE | PRESENT;
        let old = self.load();
        assert!(
            leads_to_table(old) && old & KEPT == value & KEPT,
            "the bits of one table"
        );
        self.entry.store(value, Ordering::Relaxed);
    }

    /// Exchanges the contents of two entries of one level and one tree.
    pub(super) fn exchange(self, other: Self) {
        let (one, two) = (self.load(), other.load());
        self.entry.store(two, Ordering::Relaxed);
        other.entry.store(one, Ordering::Relaxed);
    }

    /// Lets the unused entry lead to `table`, which is empty.
    pub(super) fn put_empty_table(self, table: TableFrame, bits: u64) {
        debug_assert!(table.is_empty(), "an upper level leads to tables only");
        self.put(table.into_frame().address() | bits);
    }

    /// Lets the unused entry of level 1 lead to `table`.
    pub(super) fn put_last_table(self, table: TableFrame, bits: u64) {
        assert_eq!(self.level, 1, "only the CPU follows last-level entries");
        self.put(table.into_frame().address() | bits & !(ADDRESS | LARGE));
    }

    /// Lets the unused entry lead to `table`, a copy of the table that the entry led to when it was
    /// `entry`.
    pub(super) fn put_copy(self, table: TableFrame, entry: u64) {
        self.put(table.into_frame().address() | entry & !ADDRESS);
    }

    fn put(self, value: u64) {
        assert_eq!(self.load(), 0, "an entry is in use");
        // Release: the table's entries come before it.
        self.entry.store(value, Ordering::Release);
    }

    /// Clears the entry and returns the table that it led to. Returns `None` and changes nothing if
    /// it led to none. The caller is about to have the tree alone, or drops its references to the
    /// table before the result.
    pub(super) fn take_table(self) -> Option<TableFrame> {
        let entry = self.load();
        if !leads_to_table(entry) {
            return None;
        }
        self.entry.store(0, Ordering::Relaxed);
        // SAFETY: the entry was made of the table's owner, and does not lead there any more.
        Some(unsafe { TableFrame::of_entry(entry) })
    }
}

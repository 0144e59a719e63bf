//! Entries for stores near a CPU's last one, found without a walk.

use super::hot::PLACES;
use super::table::{REGION, index};
use super::tree::{Leaf, Tree};
use crate::arch::{CpuSet, cpu_id};
use core::ops::Range;
use core::sync::atomic::AtomicU64;

impl Tree {
    /// Finds the entry of `page`, the address of a page, for a store on this CPU. Returns the entry
    /// and the bits to store there together with the frame. The entry may be in use.
    ///
    /// Returns `None` unless this CPU's last recorded store ([`Self::set_hot`]) was to the same
    /// area and the page has a table. If several CPUs use the space, the page must also be in the
    /// same region as that of the CPU's last fault.
    #[inline]
    pub fn hot_entry(&self, page: u64, cpus: &CpuSet) -> Option<(&AtomicU64, u64)> {
        let hot = &self.hot.0[cpu_id() % PLACES];
        if page.wrapping_sub(hot.start.get()) < hot.bytes.get() {
            // SAFETY: the table is one of this tree. It is forgotten when a table is taken out.
            let table = unsafe { &*hot.table.get() };
            return Some((&table[index(page, 0)], hot.entry.get()));
        }
        self.next_hot_entry(page, cpus)
    }

    /// Does the same as [`Self::hot_entry`] for another region of the area than that of the CPU's
    /// last fault, and records that region. Returns `None` if several CPUs use the space.
    #[cold]
    fn next_hot_entry(&self, page: u64, cpus: &CpuSet) -> Option<(&AtomicU64, u64)> {
        if cpus.has_several() {
            return None;
        }
        let cpu = cpu_id();
        let (entry, rights) = self.warm_entry(cpu, page)?;
        let hot = &self.hot.0[cpu % PLACES];
        let region = page & !(REGION - 1);
        let area = hot.area_start.get();
        let end = (area + hot.area_bytes.get()).min(region + REGION);
        let start = area.max(region);
        hot.start.set(start);
        hot.bytes.set(end - start);
        // `leaf` has found the entry there.
        hot.table.set(self.recent_table.get());
        Some((entry, rights))
    }

    /// Finds the entry of `page` for a store on CPU `cpu`. Returns the entry and the bits to store
    /// there together with the frame. The entry may be in use. Returns `None` unless the CPU's last
    /// recorded store ([`Self::set_hot`]) was to the same area and the page has a table. Unlike
    /// [`Self::hot_entry`], this does not depend on the table of the CPU's last fault, and accepts
    /// any region of the area.
    #[inline]
    pub fn warm_entry(&self, cpu: usize, page: u64) -> Option<(&AtomicU64, u64)> {
        let hot = &self.hot.0[cpu % PLACES];
        if page.wrapping_sub(hot.area_start.get()) >= hot.area_bytes.get() {
            return None;
        }
        // Where there is no table yet, a huge page may be wanted.
        match self.leaf(page) {
            Leaf::Page(entry) => Some((entry, hot.entry.get())),
            _ => None,
        }
    }

    /// Records that CPU `cpu` stored to the anonymous area `area`. `entry` has the bits of the
    /// entries of its pages, without the frame.
    #[inline]
    pub fn set_hot(&self, cpu: usize, area: Range<u64>, entry: u64) {
        let hot = &self.hot.0[cpu % PLACES];
        hot.bytes.set(0);
        hot.entry.set(entry);
        hot.area_start.set(area.start);
        hot.area_bytes.set(area.end - area.start);
    }

    /// Forgets the areas of all CPUs, because areas have changed.
    #[inline]
    pub fn forget_areas(&self) {
        for hot in &self.hot.0 {
            hot.bytes.set(0);
            hot.area_bytes.set(0);
        }
    }

    /// Forgets the tables of all CPUs but not their areas, so that each CPU's next fault looks its
    /// table up.
    #[inline]
    pub fn forget_hot_tables(&self) {
        for hot in &self.hot.0 {
            hot.bytes.set(0);
        }
    }
}

//! The place where each CPU stored last. The next fault of the same kind needs only this.

use super::{Leaf, REGION, Table, Tree, index};
use crate::arch::{CpuSet, cpu_id};
use core::cell::Cell;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::AtomicU64;

/// The number of places. CPUs beyond this number share places.
const PLACES: usize = 8;

/// The area to which one CPU stored last, with a part of it whose page table is known. The first
/// [`PLACES`] CPUs have their own, because the threads of a process mostly store to separate areas.
#[derive(Debug)]
#[repr(align(64))]
struct Hot {
    /// The first address of the part of the area that `table` maps.
    start: Cell<u64>,
    /// The length in bytes of the part of the area that `table` maps. 0 if no table is known.
    bytes: Cell<u64>,
    /// The last-level page table. Valid while `bytes` is not 0.
    table: Cell<*const Table>,
    /// The bits of a page table entry of the area, without the frame.
    entry: Cell<u64>,
    /// The first address of the area.
    area_start: Cell<u64>,
    /// The length of the area in bytes.
    area_bytes: Cell<u64>,
}

/// The places of all CPUs in one space.
#[derive(Debug)]
pub(super) struct HotPlaces([Hot; PLACES]);

impl HotPlaces {
    /// Returns places without areas.
    pub(super) const fn new() -> Self {
        Self(
            [const {
                Hot {
                    start: Cell::new(0),
                    bytes: Cell::new(0),
                    table: Cell::new(ptr::null()),
                    entry: Cell::new(0),
                    area_start: Cell::new(0),
                    area_bytes: Cell::new(0),
                }
            }; PLACES],
        )
    }
}

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

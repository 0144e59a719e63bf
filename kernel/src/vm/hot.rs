//! The place where each CPU stored last. The next fault of the same kind needs only this.

#![expect(unsafe_code, reason = "page tables are reached by address")]

use super::entry::{NO_REGION, REGION, Table, index};
use super::pagetable::{Leaf, PageTables};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::AtomicU64;
use machine::arch::{CpuSet, cpu_id};

/// The number of places. CPUs beyond this number share places.
const PLACES: usize = 8;

/// The area to which one CPU stored last, with a part of it whose page table is known. The first
/// [`PLACES`] CPUs have their own, because the threads of a process mostly store to separate areas.
#[derive(Debug)]
#[repr(align(64))]
struct Hot {
    /// The first address of the part of the area that `table` maps.
    start: u64,
    /// The length in bytes of the part of the area that `table` maps. 0 if no table is known.
    bytes: u64,
    /// The last-level page table. Valid while `bytes` is not 0.
    table: *const Table,
    /// The bits of a page table entry of the area, without the frame.
    entry: u64,
    /// The first address of the area.
    area_start: u64,
    /// The length of the area in bytes.
    area_bytes: u64,
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
                    start: 0,
                    bytes: 0,
                    table: ptr::null(),
                    entry: 0,
                    area_start: 0,
                    area_bytes: 0,
                }
            }; PLACES],
        )
    }
}

impl PageTables {
    /// Finds the entry of `page`, the address of a page, for a store on this CPU. Returns the entry
    /// and the bits to store there together with the frame. The entry may be in use.
    ///
    /// Returns `None` unless this CPU's last recorded store ([`Self::set_hot`]) was to the same
    /// area and the page has a table. If several CPUs use the space, the page must also be in the
    /// same region as that of the CPU's last fault.
    #[inline]
    pub(super) fn hot_entry(
        &mut self,
        page: u64,
        cpus: &CpuSet,
    ) -> Option<(&'static AtomicU64, u64)> {
        let hot = &self.hot.0[cpu_id() % PLACES];
        if page.wrapping_sub(hot.start) < hot.bytes {
            // SAFETY: the table is forgotten when tables are taken out; see `table_at`.
            let table: &'static Table = unsafe { &*hot.table };
            return Some((&table[index(page, 0)], hot.entry));
        }
        self.next_hot_entry(page, cpus)
    }

    /// Does the same as [`Self::hot_entry`] for another region of the area than that of the CPU's
    /// last fault, and records that region. Returns `None` if several CPUs use the space.
    #[cold]
    fn next_hot_entry(&mut self, page: u64, cpus: &CpuSet) -> Option<(&'static AtomicU64, u64)> {
        if cpus.has_several() {
            return None;
        }
        let cpu = cpu_id();
        let (entry, _) = self.warm_entry(cpu, page)?;
        let table = self.recent_table;
        let hot = &mut self.hot.0[cpu % PLACES];
        let region = page & !(REGION - 1);
        let end = (hot.area_start + hot.area_bytes).min(region + REGION);
        hot.start = hot.area_start.max(region);
        hot.bytes = end - hot.start;
        hot.table = table;
        Some((entry, hot.entry))
    }

    /// Finds the entry of `page` for a store on CPU `cpu`. Returns the entry and the bits to store
    /// there together with the frame. The entry may be in use. Returns `None` unless the CPU's last
    /// recorded store ([`Self::set_hot`]) was to the same area and the page has a table. Unlike
    /// [`Self::hot_entry`], this does not depend on the table of the CPU's last fault, and accepts
    /// any region of the area.
    pub(super) fn warm_entry(
        &mut self,
        cpu: usize,
        page: u64,
    ) -> Option<(&'static AtomicU64, u64)> {
        let hot = &self.hot.0[cpu % PLACES];
        if page.wrapping_sub(hot.area_start) >= hot.area_bytes {
            return None;
        }
        let rights = hot.entry;
        // Where there is no table yet, a huge page may be wanted.
        match self.leaf(page) {
            Leaf::Page(entry) => Some((entry, rights)),
            _ => None,
        }
    }

    /// Records that CPU `cpu` stored to the anonymous area `area`. `entry` has the bits of the
    /// entries of its pages, without the frame.
    pub(super) fn set_hot(&mut self, cpu: usize, area: Range<u64>, entry: u64) {
        let hot = &mut self.hot.0[cpu % PLACES];
        hot.bytes = 0;
        hot.entry = entry;
        hot.area_start = area.start;
        hot.area_bytes = area.end - area.start;
    }

    /// Forgets the areas of all CPUs, because areas have changed.
    pub(super) fn forget_areas(&mut self) {
        for hot in &mut self.hot.0 {
            (hot.bytes, hot.area_bytes) = (0, 0);
        }
    }

    /// Forgets the tables of all CPUs, because some tables may be freed.
    pub(super) fn forget_tables(&mut self) {
        self.recent_region = NO_REGION;
        self.forget_hot_tables();
    }

    /// Forgets the tables of all CPUs but not their areas, so that each CPU's next fault looks its
    /// table up.
    pub(super) fn forget_hot_tables(&mut self) {
        for hot in &mut self.hot.0 {
            hot.bytes = 0;
        }
    }
}

//! The place where each CPU stored last.

use super::table::Table;
use core::cell::Cell;
use core::ptr;

/// The number of places. CPUs beyond this number share places.
pub(super) const PLACES: usize = 8;

/// The area to which one CPU stored last, with a part of it whose page table is known. The first
/// [`PLACES`] CPUs have their own, because the threads of a process mostly store to separate areas.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Hot {
    /// The first address of the part of the area that `table` maps.
    pub(super) start: Cell<u64>,
    /// The length in bytes of the part of the area that `table` maps. 0 if no table is known.
    pub(super) bytes: Cell<u64>,
    /// The last-level page table. Valid while `bytes` is not 0.
    pub(super) table: Cell<*const Table>,
    /// The bits of a page table entry of the area, without the frame.
    pub(super) entry: Cell<u64>,
    /// The first address of the area.
    pub(super) area_start: Cell<u64>,
    /// The length of the area in bytes.
    pub(super) area_bytes: Cell<u64>,
}

/// The places of all CPUs in one space.
#[derive(Debug)]
pub(super) struct HotPlaces(pub(super) [Hot; PLACES]);

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

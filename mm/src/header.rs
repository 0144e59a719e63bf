//! The first page of the metadata: [`Header`], with one [`ZoneRecord`] for each zone. It contains
//! all that a reader in another address space needs to find the arrays.

use crate::{
    config::{Extents, MAX_EXTENTS, MAX_ZONES, ZoneConfig},
    metadata::ZonePlan,
    sync::{AtomicI64, AtomicU32, AtomicU64, Ordering},
};

/// The first eight bytes of valid metadata: `EbbFrame` in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"EbbFrame");
/// The version of the layout that this crate writes.
pub const VERSION: u32 = 7;

/// Value of `Header::host`: no attached host needs to be woken when a block is freed.
pub(crate) const HOST_AWAKE: u32 = 0;
/// Value of `Header::host`: an attached host found nothing to take and waits to be woken.
pub(crate) const HOST_ASLEEP: u32 = 1;

/// The adjacent pageblocks of one extent of a zone, in the metadata's header.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ExtentRecord {
    /// Number of the first pageblock (aligned 2 MiB).
    pub(crate) first: AtomicU64,
    /// Number of pageblocks.
    pub(crate) blocks: AtomicU64,
}

/// The part of the header for one zone. `free`, `isolated`, `isolations`, `taken`, `managed` and
/// `missing` change while the zone is in use. All other fields are written only before the header
/// is published.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ZoneRecord {
    /// Free frames, without the local counts that per-CPU caches have not yet added. Signed, as
    /// caches add allocated and freed frames in any order.
    pub(crate) free: AtomicI64,
    /// Free frames that are isolated, being emptied, or held by the reporter.
    pub(crate) isolated: AtomicU64,
    /// How often free frames were isolated, also by an attached host.
    pub(crate) isolations: AtomicU64,
    /// An upper bound of the free frames that an attached host has taken out. Only the host writes
    /// it.
    pub(crate) taken: AtomicU64,
    padding: [AtomicU64; 4],
    /// A `ZoneKind`.
    pub(crate) kind: AtomicU32,
    /// The NUMA node.
    pub(crate) node: AtomicU32,
    /// Number of frames that have memory and are not offline.
    pub(crate) managed: AtomicU64,
    /// Number of pageblocks in the zone's trees that have no memory or are offline.
    pub(crate) missing: AtomicU64,
    /// Number of trees (64 MiB), from which the lengths of all arrays follow.
    pub(crate) trees: AtomicU64,
    /// Offset of the search hints of trees from the start of the metadata, in bytes. The following
    /// offsets are in bytes, too. An optional array that does not exist has the offset 0.
    pub(crate) map: AtomicU64,
    /// Offset of the states of GiBs.
    pub(crate) gibs: AtomicU64,
    /// Offset of the summaries of trees.
    pub(crate) summaries: AtomicU64,
    /// Offset of the states of pageblocks.
    pub(crate) states: AtomicU64,
    /// Offset of the upper bounds of the orders of free runs.
    pub(crate) run_bounds: AtomicU64,
    /// Offset of the allocation bitmaps.
    pub(crate) bits: AtomicU64,
    /// Offset of the marks of frames that were ever allocated.
    pub(crate) used: AtomicU64,
    /// Offset of the marks of frames that the host may hold memory for.
    pub(crate) touched: AtomicU64,
    /// Number of valid entries of `extent`.
    pub(crate) extents: AtomicU32,
    spare: AtomicU32,
    /// The extents.
    pub(crate) extent: [ExtentRecord; MAX_EXTENTS],
}

/// The header of the metadata: one page.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Header {
    /// [`MAGIC`], stored last, which makes the header valid.
    pub(crate) magic: AtomicU64,
    /// [`VERSION`].
    pub(crate) version: AtomicU32,
    /// Number of valid entries of `zone`.
    pub(crate) zones: AtomicU32,
    /// Length of the metadata in bytes.
    pub(crate) bytes: AtomicU64,
    /// The smallest order of free blocks that are reported; 255 = off.
    pub(crate) reporting_order: AtomicU32,
    /// [`HOST_ASLEEP`] if an attached host must be woken when a block is freed, else
    /// [`HOST_AWAKE`].
    pub(crate) host: AtomicU32,
    /// How often a request failed while free memory was isolated.
    pub(crate) isolation_failures: AtomicU32,
    spare: AtomicU32,
    /// The zones.
    pub(crate) zone: [ZoneRecord; MAX_ZONES],
}

#[cfg(not(ebb_model))]
const _: () = {
    assert!(size_of::<Header>() == 4096);
    assert!(size_of::<ZoneRecord>().is_multiple_of(64));
};

impl ZoneRecord {
    /// Writes the description of a zone with `managed` frames into its record in the header: kind,
    /// node, size, array offsets and extents. `Relaxed`: the store of `magic` publishes it.
    pub(crate) fn describe(
        &self,
        config: &ZoneConfig<'_>,
        extents: &Extents,
        plan: &ZonePlan,
        managed: u64,
    ) {
        let order = Ordering::Relaxed;
        self.kind.store(config.kind as u32, order);
        self.node.store(u32::from(config.node), order);
        self.managed.store(managed, order);
        self.trees.store(extents.trees(), order);
        self.map.store(plan.map[0] as u64, order);
        self.gibs.store(plan.gibs as u64, order);
        self.run_bounds.store(plan.run_bounds as u64, order);
        self.summaries.store(plan.summaries as u64, order);
        self.states.store(plan.states as u64, order);
        self.bits.store(plan.bits as u64, order);
        self.used.store(plan.used as u64, order);
        self.touched.store(plan.touched as u64, order);
        let mut count = 0;
        for (record, extent) in self.extent.iter().zip(extents.as_slice()) {
            record.first.store(extent.first(), order);
            record.blocks.store(extent.blocks(), order);
            count += 1;
        }
        self.extents.store(count, order);
    }
}

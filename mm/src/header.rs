//! The first page of the metadata: what a reader in another address space needs to find its way.

use crate::{
    config::{Extents, MAX_EXTENTS, MAX_ZONES, ZoneConfig},
    metadata::ZonePlan,
    sync::{AtomicI64, AtomicU32, AtomicU64, Ordering},
};

/// The first eight bytes of valid metadata: `EbbFrame` in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"EbbFrame");
/// The layout that this crate writes.
pub const VERSION: u32 = 7;

/// An attached host looks, or there is none: who frees does not call. Value of `Header::host`.
pub(crate) const HOST_AWAKE: u32 = 0;
/// An attached host has found nothing to take and waits for a call. Value of `Header::host`.
pub(crate) const HOST_ASLEEP: u32 = 1;

/// Which pageblocks an extent has.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ExtentRecord {
    /// Number of the first (aligned 2 MiB).
    pub(crate) first: AtomicU64,
    /// How many.
    pub(crate) blocks: AtomicU64,
}

/// One zone. Written once before the header is published, but for the counts.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ZoneRecord {
    /// Free frames, but for those that fronts hold and have not told of. Signed, as fronts tell
    /// of taking and freeing in any order.
    pub(crate) free: AtomicI64,
    /// Free frames that are taken out: isolated, or held by the reporter.
    pub(crate) isolated: AtomicU64,
    /// How often free frames were taken out. Here, as an attached host does so too.
    pub(crate) isolations: AtomicU64,
    /// Free frames that an attached host has taken out, at most. It alone writes here.
    pub(crate) taken: AtomicU64,
    padding: [AtomicU64; 4],
    /// A `ZoneKind`.
    pub(crate) kind: AtomicU32,
    /// The NUMA node.
    pub(crate) node: AtomicU32,
    /// Frames that there are and that are not offline.
    pub(crate) managed: AtomicU64,
    /// Blocks of its trees that have no memory, or whose memory is offline.
    pub(crate) missing: AtomicU64,
    /// Trees, and so the lengths of all arrays.
    pub(crate) trees: AtomicU64,
    /// Offsets of the arrays from the start of the metadata.
    pub(crate) map: AtomicU64,
    pub(crate) giants: AtomicU64,
    pub(crate) summaries: AtomicU64,
    pub(crate) states: AtomicU64,
    pub(crate) reaches: AtomicU64,
    pub(crate) bits: AtomicU64,
    pub(crate) used: AtomicU64,
    pub(crate) touched: AtomicU64,
    /// How many of `extent` are valid.
    pub(crate) extents: AtomicU32,
    spare: AtomicU32,
    pub(crate) extent: [ExtentRecord; MAX_EXTENTS],
}

/// The header.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct Header {
    /// [`MAGIC`], stored last.
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// How many of `zone` are valid.
    pub(crate) zones: AtomicU32,
    /// Length of the metadata.
    pub(crate) bytes: AtomicU64,
    /// The order from which on free blocks are reported; 255 = off.
    pub(crate) reporting_order: AtomicU32,
    /// Whether an attached host wants to be called when a block becomes free: [`HOST_ASLEEP`] if it does.
    pub(crate) host: AtomicU32,
    /// How often a request failed while free memory was taken out.
    pub(crate) misses: AtomicU32,
    spare: AtomicU32,
    pub(crate) zone: [ZoneRecord; MAX_ZONES],
}

#[cfg(not(ebb_model))]
const _: () = {
    assert!(size_of::<Header>() == 4096);
    assert!(size_of::<ZoneRecord>().is_multiple_of(64));
};

impl ZoneRecord {
    /// Fills the record of a zone in, before anybody reads it: `Relaxed`, published by `magic`.
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
        self.giants.store(plan.giants as u64, order);
        self.reaches.store(plan.reaches as u64, order);
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

//! The layout of the metadata ([`Plan`]), and the conversion of the caller's memory to references
//! ([`Arrays`]).
//!
//! The only other `unsafe` code is in the constructors in `allocator` and `attach`, which pass the
//! memory on.
#![allow(
    unsafe_code,
    reason = "the named module in which metadata memory becomes references"
)]

use core::{alloc::Layout, ptr::NonNull};

use crate::{
    bitmap::Line,
    config::{self, Config, ConfigError, Extents, MAX_ZONES, Marks},
    contents::AtomicUsed,
    frame::index,
    gib::AtomicGib,
    header::Header,
    ids::{GibId, Id, Indexed, PerBlock, PerGib, PerTree, TreeId},
    map::{self, LEVELS, Map},
    run_bound::AtomicRunBound,
    state::AtomicState,
    summary::{AtomicSummary, TREE_BLOCKS},
    sync::AtomicU64,
};

/// Number of `u64`s of a group in a zone's search hints of trees: four cache lines.
const TREE_KINDS: usize = 32;
/// Number of `u64`s of a group in a zone's search hints of GiBs.
const GIB_KINDS: usize = 1;

/// The positions of a zone's arrays: their offsets from the start of the metadata, in bytes.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct ZonePlan {
    /// Number of trees (64 MiB).
    pub(crate) trees: usize,
    /// Number of GiBs.
    pub(crate) gib_count: usize,
    /// Search hints of trees, by level.
    pub(crate) map: [usize; LEVELS],
    /// Search hints of GiBs, by level.
    pub(crate) gib_map: [usize; LEVELS],
    /// States of GiBs.
    pub(crate) gibs: usize,
    /// Summaries of trees.
    pub(crate) summaries: usize,
    /// States of pageblocks.
    pub(crate) states: usize,
    /// Upper bounds of the orders of free runs.
    pub(crate) run_bounds: usize,
    /// Allocation bitmaps.
    pub(crate) bits: usize,
    /// Marks of groups of 64 frames that were ever allocated. 0 if there are none.
    pub(crate) used: usize,
    /// Marks of frames that the host may hold memory for. 0 if there are none.
    pub(crate) touched: usize,
}

/// The layout of the whole metadata. Arrays of the same type are adjacent. Those that normal use
/// never touches come last.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Plan {
    /// The positions of each zone's arrays.
    pub(crate) zones: [ZonePlan; MAX_ZONES],
    /// Length of the metadata in bytes.
    pub(crate) bytes: usize,
}

impl Plan {
    /// Computes the layout for these extents, one entry for each zone, and optional marks. Accesses
    /// no metadata.
    pub(crate) fn new(extents: &[Extents; MAX_ZONES], marks: Marks) -> Self {
        let mut zones = [ZonePlan::default(); MAX_ZONES];
        let mut bytes = size_of::<Header>();
        // Cannot overflow: there are at most 2^26 trees with 4.2 KiB of metadata each, in 8 zones.
        let mut array = |length: usize, item: Layout| {
            let start = bytes.next_multiple_of(item.align().max(align_of::<Line>()));
            bytes = start + length * item.size();
            start
        };
        for (plan, extents) in zones.iter_mut().zip(extents) {
            plan.trees = index(extents.trees());
            plan.gib_count = index(extents.gibs());
            let word = Layout::new::<AtomicU64>();
            plan.map = map::lengths(plan.trees, TREE_KINDS).map(|length| array(length, word));
            plan.gib_map =
                map::lengths(plan.gib_count, GIB_KINDS).map(|length| array(length, word));
            plan.gibs = array(plan.gib_count, Layout::new::<AtomicGib>());
            plan.summaries = array(plan.trees, Layout::new::<AtomicSummary>());
        }
        for plan in &mut zones {
            plan.states = array(plan.trees * TREE_BLOCKS, Layout::new::<AtomicState>());
            plan.run_bounds = array(plan.trees * TREE_BLOCKS, Layout::new::<AtomicRunBound>());
        }
        for plan in &mut zones {
            plan.bits = array(plan.trees * TREE_BLOCKS, Layout::new::<Line>());
        }
        for plan in zones.iter_mut().filter(|_| marks.uses) {
            plan.used = array(plan.trees * TREE_BLOCKS, Layout::new::<AtomicUsed>());
        }
        for plan in zones.iter_mut().filter(|_| marks.frames) {
            plan.touched = array(plan.trees * TREE_BLOCKS, Layout::new::<Line>());
        }
        Self { zones, bytes }
    }
}

/// Returns the size and the alignment of the metadata that an allocator of this configuration
/// needs. Allocates nothing.
///
/// Each GiB of memory needs 33.7 KiB: 32 KiB for the bitmap (one bit for each frame), 1 KiB for
/// states (two bytes for each pageblock), 512 bytes for run bounds (one byte for each pageblock),
/// and 196 bytes for summaries and maps. The header needs one page, and each zone less than a KiB.
///
/// [`Config::with_frame_marks`] adds 32 KiB per GiB. They stay untouched unless blocks below order
/// 9 are reported. [`Config::with_use_marks`] adds 512 bytes per GiB.
///
/// # Errors
/// Fails if the configuration is invalid (see [`ConfigError`]).
pub fn metadata_layout(config: &Config<'_>) -> Result<Layout, ConfigError> {
    let plan = Plan::new(&config::extents(config)?, config.marks);
    Layout::from_size_align(plan.bytes, align_of::<Header>()).map_err(|_| ConfigError::Empty)
}

/// The arrays of a zone.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Arrays<'m> {
    /// Search hints: which trees may have blocks of a kind.
    pub(crate) map: Map<'m, TreeId>,
    /// Search hints: which GiBs may be free.
    pub(crate) gib_map: Map<'m, GibId>,
    /// The states of the GiBs.
    pub(crate) gibs: PerGib<'m, AtomicGib>,
    /// The number of pageblocks of each class.
    pub(crate) summaries: PerTree<'m, AtomicSummary>,
    /// The state words: the number of frames in use, and flags.
    pub(crate) states: PerBlock<'m, AtomicState>,
    /// The upper bounds of the orders of free runs.
    pub(crate) run_bounds: PerBlock<'m, AtomicRunBound>,
    /// The allocation bitmaps.
    pub(crate) bits: PerBlock<'m, Line>,
    /// Which groups of 64 frames were ever allocated. Empty without use marks.
    pub(crate) used: PerBlock<'m, AtomicUsed>,
    /// Which frames the host may hold memory for. Empty without frame marks.
    pub(crate) touched: PerBlock<'m, Line>,
}

/// Returns the header at the start of the metadata.
///
/// # Safety
/// `base` is valid for reads and writes of the header's size for `'m`, and aligned to a page. In
/// that time this address space accesses the header only through these atomics.
#[cfg(not(ebb_model))]
pub(crate) unsafe fn header<'m>(base: NonNull<u8>) -> &'m Header {
    // SAFETY: all fields of the header are atomics, for which any bytes are valid. The caller
    // guarantees the rest.
    unsafe { base.cast::<Header>().as_ref() }
}

/// Returns the header, and the arrays of each zone.
///
/// # Safety
/// `base` is valid for reads and writes of `plan.bytes` bytes for `'m`, and aligned to a page. In
/// that time the bytes are changed only through these atomics.
pub(crate) unsafe fn map<'m>(
    base: NonNull<u8>,
    plan: &Plan,
) -> (&'m Header, [Arrays<'m>; MAX_ZONES]) {
    debug_assert!(base.addr().get().is_multiple_of(align_of::<Header>()));
    // SAFETY: the header is at the start, `base` is aligned for it, and all its fields are atomics,
    // for which any bytes are valid. The caller guarantees the memory for `'m`.
    let header = unsafe { base.cast::<Header>().as_ref() };
    let arrays = plan.zones.map(|zone| {
        let blocks = zone.trees * TREE_BLOCKS;
        let marked = |offset| if offset == 0 { 0 } else { blocks };
        // SAFETY: `Plan::new` placed each array inside `plan.bytes`, aligned for its items and
        // apart from all others. The items are atomics, for which any bytes are valid. The caller
        // guarantees the memory for `'m`.
        unsafe {
            Arrays {
                map: maps(base, zone.map, zone.trees, TREE_KINDS),
                gib_map: maps(base, zone.gib_map, zone.gib_count, GIB_KINDS),
                gibs: Indexed::new(array(base, zone.gibs, zone.gib_count)),
                summaries: Indexed::new(array(base, zone.summaries, zone.trees)),
                states: Indexed::new(array(base, zone.states, blocks)),
                run_bounds: Indexed::new(array(base, zone.run_bounds, blocks)),
                bits: Indexed::new(array(base, zone.bits, blocks)),
                used: Indexed::new(array(base, zone.used, marked(zone.used))),
                touched: Indexed::new(array(base, zone.touched, marked(zone.touched))),
            }
        }
    });
    (header, arrays)
}

/// Returns the array at `offset` as a slice.
///
/// # Safety
/// At this offset there are `length` valid items of `T` for `'m`. `T` contains only atomics.
unsafe fn array<'m, T>(base: NonNull<u8>, offset: usize, length: usize) -> &'m [T] {
    // SAFETY: the caller guarantees that the offset is inside the metadata and valid for these
    // items.
    unsafe { NonNull::slice_from_raw_parts(base.byte_add(offset).cast::<T>(), length).as_ref() }
}

/// Returns the map whose levels are at these offsets.
///
/// # Safety
/// The `u64`s of a map of this number of items and kinds are at these offsets for `'m`.
unsafe fn maps<'m, I: Id>(
    base: NonNull<u8>,
    offsets: [usize; LEVELS],
    items: usize,
    kinds: usize,
) -> Map<'m, I> {
    let lengths = map::lengths(items, kinds);
    // SAFETY: the caller guarantees that the `u64`s of this level are at this offset for `'m`.
    let level = |level: usize| unsafe { array(base, offsets[level], lengths[level]) };
    Map::new(core::array::from_fn(level), kinds, items)
}

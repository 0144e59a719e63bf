//! The caller's memory as the allocator's arrays. Besides this module, only the constructors in
//! `allocator` and `attach`, which hand the memory on, have unsafe code.
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
    giant::AtomicGiant,
    header::Header,
    map::{self, LEVELS, Map},
    reach::AtomicReach,
    state::AtomicState,
    summary::{AtomicSummary, TREE_BLOCKS},
    sync::AtomicU64,
};

/// Words of a group of a zone's map of trees: four cache lines.
const TREE_KINDS: usize = 32;
/// Words of a group of its map of giants.
const GIANT_KINDS: usize = 1;

/// Offsets of a zone's arrays from the start of the metadata.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct ZonePlan {
    pub(crate) trees: usize,
    pub(crate) giant_count: usize,
    pub(crate) map: [usize; LEVELS],
    pub(crate) giant_map: [usize; LEVELS],
    pub(crate) giants: usize,
    pub(crate) summaries: usize,
    pub(crate) states: usize,
    pub(crate) reaches: usize,
    pub(crate) bits: usize,
    /// 0 if there are none.
    pub(crate) used: usize,
    /// 0 if there are none.
    pub(crate) touched: usize,
}

/// Where everything is. Arrays of one kind stand together, those that normal use never touches
/// last.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) zones: [ZonePlan; MAX_ZONES],
    pub(crate) bytes: usize,
}

impl Plan {
    pub(crate) fn new(extents: &[Extents; MAX_ZONES], marks: Marks) -> Self {
        let mut zones = [ZonePlan::default(); MAX_ZONES];
        let mut bytes = size_of::<Header>();
        // Cannot overflow: at most 2^26 trees of 4.2 KiB of metadata each in 8 zones.
        let mut array = |length: usize, item: Layout| {
            let start = bytes.next_multiple_of(item.align().max(align_of::<Line>()));
            bytes = start + length * item.size();
            start
        };
        for (plan, extents) in zones.iter_mut().zip(extents) {
            plan.trees = index(extents.trees());
            plan.giant_count = index(extents.giants());
            let word = Layout::new::<AtomicU64>();
            plan.map = map::lengths(plan.trees, TREE_KINDS).map(|length| array(length, word));
            plan.giant_map =
                map::lengths(plan.giant_count, GIANT_KINDS).map(|length| array(length, word));
            plan.giants = array(plan.giant_count, Layout::new::<AtomicGiant>());
            plan.summaries = array(plan.trees, Layout::new::<AtomicSummary>());
        }
        for plan in &mut zones {
            plan.states = array(plan.trees * TREE_BLOCKS, Layout::new::<AtomicState>());
            plan.reaches = array(plan.trees * TREE_BLOCKS, Layout::new::<AtomicReach>());
        }
        for plan in &mut zones {
            plan.bits = array(plan.trees * TREE_BLOCKS, Layout::new::<Line>());
        }
        for plan in zones.iter_mut().filter(|_| marks.fresh) {
            plan.used = array(plan.trees * TREE_BLOCKS, Layout::new::<AtomicUsed>());
        }
        for plan in zones.iter_mut().filter(|_| marks.frames) {
            plan.touched = array(plan.trees * TREE_BLOCKS, Layout::new::<Line>());
        }
        Self { zones, bytes }
    }
}

/// The metadata that an allocator of this configuration needs: its size and alignment.
///
/// Per GiB of memory: 32 KiB of bits (one a frame), 1 KiB of states and 512 bytes of reaches (two
/// bytes and one a pageblock), and 196 bytes of summaries and maps: 33.7 KiB. Plus a page for
/// all, and less than a KiB for each zone. [`Config::with_frame_marks`] adds 32 KiB that stay
/// untouched (so cost nothing where untouched memory costs nothing) unless blocks below order 9
/// are reported, [`Config::with_fresh_marks`] half a KiB.
///
/// # Errors
/// If the configuration is not one.
pub fn metadata_layout(config: &Config<'_>) -> Result<Layout, ConfigError> {
    let plan = Plan::new(&config::extents(config)?, config.marks);
    Layout::from_size_align(plan.bytes, align_of::<Header>()).map_err(|_| ConfigError::Empty)
}

/// A zone's arrays.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Arrays<'m> {
    /// Which trees may have what is searched for.
    pub(crate) map: Map<'m>,
    /// Which giants may be free.
    pub(crate) giant_map: Map<'m>,
    pub(crate) giants: &'m [AtomicGiant],
    pub(crate) summaries: &'m [AtomicSummary],
    pub(crate) states: &'m [AtomicState],
    pub(crate) reaches: &'m [AtomicReach],
    pub(crate) bits: &'m [Line],
    /// Empty unless the configuration asks for them.
    pub(crate) used: &'m [AtomicUsed],
    /// Empty unless the configuration asks for them.
    pub(crate) touched: &'m [Line],
}

/// The header at the start of metadata.
///
/// # Safety
/// `base` is valid for reads and writes of a header's size for `'m`, aligned to a page, and in that
/// time accessed here by nobody but through these atomics.
#[cfg(not(ebb_model))]
pub(crate) unsafe fn header<'m>(base: NonNull<u8>) -> &'m Header {
    // SAFETY: all its fields are atomics for which any bytes are a value; the rest the caller says.
    unsafe { base.cast::<Header>().as_ref() }
}

/// The metadata as references.
///
/// # Safety
/// `base` is valid for reads and writes of `plan.bytes` bytes for `'m`, aligned to a page, zero,
/// and in that time changed by nobody but through these atomics.
pub(crate) unsafe fn map<'m>(
    base: NonNull<u8>,
    plan: &Plan,
) -> (&'m Header, [Arrays<'m>; MAX_ZONES]) {
    debug_assert!(base.addr().get().is_multiple_of(align_of::<Header>()));
    // SAFETY: the header is at the start, `base` is aligned for it, all its fields are atomics for
    // which zero is a value, and the caller grants the memory for 'm.
    let header = unsafe { base.cast::<Header>().as_ref() };
    let arrays = plan.zones.map(|zone| {
        let blocks = zone.trees * TREE_BLOCKS;
        let marked = |offset| if offset == 0 { 0 } else { blocks };
        // SAFETY: `Plan::new` laid each array out inside `plan.bytes`, aligned for its items and
        // apart from all others; items are atomics for which zero is a value; the caller grants
        // the memory for 'm.
        unsafe {
            Arrays {
                map: maps(base, zone.map, zone.trees, TREE_KINDS),
                giant_map: maps(base, zone.giant_map, zone.giant_count, GIANT_KINDS),
                giants: array(base, zone.giants, zone.giant_count),
                summaries: array(base, zone.summaries, zone.trees),
                states: array(base, zone.states, blocks),
                reaches: array(base, zone.reaches, blocks),
                bits: array(base, zone.bits, blocks),
                used: array(base, zone.used, marked(zone.used)),
                touched: array(base, zone.touched, marked(zone.touched)),
            }
        }
    });
    (header, arrays)
}

/// # Safety
/// `length` valid items of `T`, which only holds atomics, are at this offset for `'m`.
unsafe fn array<'m, T>(base: NonNull<u8>, offset: usize, length: usize) -> &'m [T] {
    // SAFETY: the caller says that the offset is inside the metadata and valid for these items.
    unsafe { NonNull::slice_from_raw_parts(base.byte_add(offset).cast::<T>(), length).as_ref() }
}

/// # Safety
/// The words of a map of so many items and kinds are at these offsets for `'m`.
unsafe fn maps<'m>(
    base: NonNull<u8>,
    offsets: [usize; LEVELS],
    items: usize,
    kinds: usize,
) -> Map<'m> {
    let lengths = map::lengths(items, kinds);
    Map {
        // SAFETY: the caller says so.
        levels: core::array::from_fn(|level| unsafe {
            array(base, offsets[level], lengths[level])
        }),
        kinds,
        items,
    }
}

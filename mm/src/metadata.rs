//! The caller's memory as the allocator's arrays. The one module with unsafe code.
#![allow(
    unsafe_code,
    reason = "the named module in which metadata memory becomes references"
)]

use core::{alloc::Layout, ptr::NonNull};

use crate::{
    bitmap::Line,
    config::{self, Config, ConfigError, Extents, MAX_ZONES},
    frame::index,
    group::{AtomicGroup, GROUP_TREES},
    header::Header,
    state::AtomicState,
    summary::{AtomicSummary, TREE_BLOCKS},
};

/// Offsets of a zone's arrays from the start of the metadata.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct ZonePlan {
    pub(crate) trees: usize,
    pub(crate) groups: usize,
    pub(crate) summaries: usize,
    pub(crate) states: usize,
    pub(crate) bits: usize,
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
    pub(crate) fn new(extents: &[Extents; MAX_ZONES]) -> Self {
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
            let groups = plan.trees.div_ceil(GROUP_TREES);
            plan.groups = array(groups, Layout::new::<AtomicGroup>());
            plan.summaries = array(plan.trees, Layout::new::<AtomicSummary>());
        }
        for plan in &mut zones {
            plan.states = array(plan.trees * TREE_BLOCKS, Layout::new::<AtomicState>());
        }
        for plan in &mut zones {
            plan.bits = array(plan.trees * TREE_BLOCKS, Layout::new::<Line>());
        }
        for plan in &mut zones {
            plan.touched = array(plan.trees * TREE_BLOCKS, Layout::new::<Line>());
        }
        Self { zones, bytes }
    }
}

/// The metadata that an allocator of this configuration needs: its size and alignment.
///
/// Per GiB of memory: 34 KiB of bits and states, 130 bytes of summaries, and 32 KiB that stay
/// untouched (so cost nothing where untouched memory costs nothing) unless blocks below order 9
/// are reported. Plus one page.
///
/// # Errors
/// If the configuration is not one.
pub fn metadata_layout(config: &Config<'_>) -> Result<Layout, ConfigError> {
    let plan = Plan::new(&config::extents(config)?);
    Layout::from_size_align(plan.bytes, align_of::<Header>()).map_err(|_| ConfigError::Empty)
}

/// A zone's arrays.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Arrays<'m> {
    pub(crate) groups: &'m [AtomicGroup],
    pub(crate) summaries: &'m [AtomicSummary],
    pub(crate) states: &'m [AtomicState],
    pub(crate) bits: &'m [Line],
    pub(crate) touched: &'m [Line],
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
        // SAFETY: `Plan::new` laid each array out inside `plan.bytes`, aligned for its items and
        // apart from all others; items are atomics for which zero is a value; the caller grants
        // the memory for 'm.
        unsafe {
            Arrays {
                groups: array(base, zone.groups, zone.trees.div_ceil(GROUP_TREES)),
                summaries: array(base, zone.summaries, zone.trees),
                states: array(base, zone.states, blocks),
                bits: array(base, zone.bits, blocks),
                touched: array(base, zone.touched, blocks),
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

//! The metadata as a reader in another address space sees it: the host, over the guest's RAM.
//!
//! Everything read is an allegation of whoever writes it: counts are capped by what there can be,
//! offsets are checked, and no bytes whatever make a reader panic or leave the memory it was given.

use core::{
    error, fmt,
    mem::offset_of,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    Frame, ZoneKind,
    config::{Extent, MAX_EXTENTS, MAX_ZONES},
    frame::{FRAME_LIMIT, PAGEBLOCK_FRAMES},
    giant::{GIANT_TREES_SHIFT, Giant},
    header::{ExtentRecord, Header, ZoneRecord},
    state::{Class, State},
    summary::{Summary, TREE_BLOCKS, TREE_FRAMES},
    usage::BlockView,
};

/// What the metadata's first words are: a magic number of 64 bits, then the version in 32.
pub use crate::header::{MAGIC, VERSION};

/// Memory that can be read in words while others write it.
pub trait Memory {
    /// The eight bytes at this offset, which is a multiple of 8; none beyond the end.
    fn word(&self, offset: u64) -> Option<u64>;
}

impl Memory for [AtomicU64] {
    fn word(&self, offset: u64) -> Option<u64> {
        let word = self.get(usize::try_from(offset / 8).ok()?)?;
        // `Acquire` for the magic, which pairs with the `Release` of the allocator; the rest is
        // out of date at once anyway.
        Some(word.load(Ordering::Acquire))
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn word(&self, offset: u64) -> Option<u64> {
        (**self).word(offset)
    }
}

/// Why the memory is not metadata that can be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ViewError {
    /// It does not start with the magic number, but with this.
    Magic(u64),
    /// It has a layout that this crate does not know.
    Version(u32),
    /// It says that it has so many zones.
    Zones(u32),
    /// A zone says that it has so many trees of 64 MiB: more than there is memory for.
    Trees(u64),
    /// Something would be at this offset, beyond its end.
    OutOfBounds(u64),
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(found) => write!(f, "no allocator metadata: it starts with {found:#x}"),
            Self::Version(found) => write!(f, "metadata of version {found}, not {VERSION}"),
            Self::Zones(found) => write!(f, "metadata of {found} zones, at most {MAX_ZONES}"),
            Self::Trees(found) => {
                write!(f, "a zone of {found} trees, more than there is memory for")
            }
            Self::OutOfBounds(offset) => write!(f, "metadata ends before offset {offset:#x}"),
        }
    }
}

impl error::Error for ViewError {}

/// A reader of an allocator's metadata.
#[derive(Debug)]
pub struct View<M> {
    memory: M,
    zones: u32,
    /// Trees that all zones can have.
    trees: u64,
}

/// Trees at the ends of extents, of which only a part is memory.
const EDGES: u64 = 2 * (MAX_ZONES * MAX_EXTENTS) as u64;

/// What one zone says of itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ZoneView {
    /// What it is good for.
    pub kind: ZoneKind,
    /// Its NUMA node.
    pub node: u16,
    /// Frames that there are: no more than its trees can hold.
    pub managed_frames: u64,
    /// Frames that are free: no more than there are.
    pub free_frames: u64,
    /// Frames of free pageblocks.
    pub free_block_frames: u64,
    /// Of those, frames that the host may hold memory for.
    pub unreported_free_frames: u64,
    /// Frames that are isolated.
    pub isolated_frames: u64,
}

/// The low and the high half of a word, as `u32` fields that share it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are what is wanted"
)]
const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

impl<M: Memory> View<M> {
    /// A reader of the metadata at the start of this memory.
    ///
    /// # Errors
    /// If it is not metadata of this version.
    pub fn new(memory: M) -> Result<Self, ViewError> {
        let mut view = Self {
            memory,
            zones: 0,
            trees: FRAME_LIMIT / TREE_FRAMES,
        };
        let magic = view.word(offset_of!(Header, magic))?;
        if magic != MAGIC {
            return Err(ViewError::Magic(magic));
        }
        const { assert!(offset_of!(Header, zones) == offset_of!(Header, version) + 4) }
        let [version, zones] = halves(view.word(offset_of!(Header, version))?);
        if version != VERSION {
            return Err(ViewError::Version(version));
        }
        if zones as usize > MAX_ZONES {
            return Err(ViewError::Zones(zones));
        }
        view.zones = zones;
        Ok(view)
    }

    /// The same for a reader who knows how many frames there are. Metadata that claims more is
    /// inconsistent, so what is read of it is bounded by what there is.
    #[must_use]
    pub fn within(self, frames: u64) -> Self {
        let trees = frames.div_ceil(TREE_FRAMES).saturating_add(EDGES);
        Self {
            trees: trees.min(self.trees),
            ..self
        }
    }

    fn word(&self, offset: usize) -> Result<u64, ViewError> {
        self.at(offset as u64)
    }

    fn at(&self, offset: u64) -> Result<u64, ViewError> {
        let misaligned = !offset.is_multiple_of(8);
        let word = if misaligned {
            None
        } else {
            self.memory.word(offset)
        };
        word.ok_or(ViewError::OutOfBounds(offset))
    }

    /// The zones. Reads two words for each 64 MiB that they claim, and of metadata that claims more
    /// than [`Self::within`] allows none of those. A caller stops at the first error.
    pub fn zones(&self) -> impl Iterator<Item = Result<ZoneView, ViewError>> {
        let mut left = self.trees;
        (0..self.zones as usize).map(move |zone| self.zone(zone, &mut left))
    }

    /// Free frames of all zones, and of those the frames of free pageblocks that the host may hold
    /// memory for.
    ///
    /// # Errors
    /// If the metadata is not consistent.
    pub fn free_frames(&self) -> Result<(u64, u64), ViewError> {
        self.zones()
            .try_fold((0, 0), |(free, unreported): (u64, u64), zone| {
                let zone = zone?;
                // Each is below 2^40 + 2^14, and there are at most 8.
                Ok((
                    free + zone.free_frames,
                    unreported + zone.unreported_free_frames,
                ))
            })
    }

    /// All pageblocks, zone by zone, upwards: a map of the memory. Reads two bytes for each.
    ///
    /// Metadata that lies can claim more blocks than there is memory, so the caller takes no more
    /// than there can be, and stops at the first error.
    pub fn blocks(&self) -> impl Iterator<Item = Result<BlockView, ViewError>> {
        (0..self.zones as usize).flat_map(move |zone| {
            let record = offset_of!(Header, zone) + zone * size_of::<ZoneRecord>();
            let (giants, error) = match self.giants_and_states(record) {
                Ok(found) => (Some(found), None),
                Err(error) => (None, Some(Err(error))),
            };
            let blocks = giants.into_iter().flat_map(move |(giants, states)| {
                let extents = giants.extents;
                let mut giant = Ok(Giant::from_bits(0));
                // Bounded by the caps on extents: 2^31 blocks.
                extents
                    .into_iter()
                    .flat_map(|extent| (0..extent.blocks()).map(move |inside| (extent, inside)))
                    .map(move |(extent, inside)| {
                        let block = extent.base() + inside;
                        // Of a tree it is looked at once, by the first of its blocks.
                        if inside == 0 || block.is_multiple_of(TREE_BLOCKS as u64) {
                            giant = giants.of(self, block / TREE_BLOCKS as u64);
                        }
                        let state = self.state(states, block)?;
                        let start = Frame::new((extent.first() + inside) * PAGEBLOCK_FRAMES);
                        Ok(BlockView::new(start, giant?, state))
                    })
            });
            blocks.chain(error)
        })
    }

    fn giants_and_states(&self, record: usize) -> Result<(Giants, u64), ViewError> {
        let states = self.word(record + offset_of!(ZoneRecord, states))?;
        Ok((Giants::read(self, record)?, states))
    }

    /// The state word of a block of a zone whose state words begin at this offset.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "its part of the word is wanted"
    )]
    fn state(&self, states: u64, block: u64) -> Result<State, ViewError> {
        let offset = states.saturating_add(block * size_of::<u16>() as u64);
        let word = self.at(offset & !7)?;
        Ok(State::from_bits((word >> ((offset & 6) * 8)) as u16))
    }

    /// A zone, which takes its trees from those that are `left`.
    fn zone(&self, zone: usize, left: &mut u64) -> Result<ZoneView, ViewError> {
        let record = offset_of!(Header, zone) + zone * size_of::<ZoneRecord>();
        let field = |offset: usize| self.word(record + offset);
        const { assert!(offset_of!(ZoneRecord, node) == offset_of!(ZoneRecord, kind) + 4) }
        let [kind, node] = halves(field(offset_of!(ZoneRecord, kind))?);
        let trees = field(offset_of!(ZoneRecord, trees))?;
        // Before any of them is looked at: no zone makes a reader look at what there cannot be.
        *left = left.checked_sub(trees).ok_or(ViewError::Trees(trees))?;
        let summaries = field(offset_of!(ZoneRecord, summaries))?;
        let giants = Giants::read(self, record)?;
        let (mut free, mut touched) = (0, 0);
        for tree in 0..trees {
            let summary = match giants.of(self, tree)? {
                giant if giant.is_huge() => continue,
                giant if giant.is_touched() => Summary::all(Class::Touched),
                _ => Summary::from_bits(self.at(summaries.saturating_add(tree * 8))?),
            };
            let blocks = |count: u8| u64::from(count).min(TREE_BLOCKS as u64);
            free += blocks(summary.free());
            touched += blocks(summary.count(Class::Touched));
        }
        let managed = field(offset_of!(ZoneRecord, managed))?.min(trees * TREE_FRAMES);
        let count = field(offset_of!(ZoneRecord, free))?.cast_signed();
        let isolated = field(offset_of!(ZoneRecord, isolated))?;
        let frames = |blocks: u64| (blocks * PAGEBLOCK_FRAMES).min(managed);
        Ok(ZoneView {
            kind: ZoneKind::from_record(kind),
            node: u16::try_from(node).unwrap_or(u16::MAX),
            managed_frames: managed,
            free_frames: u64::try_from(count).unwrap_or(0).min(managed),
            free_block_frames: frames(free),
            unreported_free_frames: frames(touched),
            isolated_frames: isolated.min(managed),
        })
    }
}

/// Where the words of a zone's giants are, and which trees are whose.
struct Giants {
    offset: u64,
    extents: [Extent; MAX_EXTENTS],
}

impl Giants {
    fn read<M: Memory>(view: &View<M>, record: usize) -> Result<Self, ViewError> {
        let offset = view.word(record + offset_of!(ZoneRecord, giants))?;
        let mut extents = [Extent::default(); MAX_EXTENTS];
        const LIMIT: u64 = FRAME_LIMIT / PAGEBLOCK_FRAMES;
        // No more in all than there can be in one zone.
        let (mut left, mut trees) = (LIMIT, 0);
        for (number, extent) in extents.iter_mut().enumerate() {
            let at = record + offset_of!(ZoneRecord, extent) + number * size_of::<ExtentRecord>();
            let first = view.word(at + offset_of!(ExtentRecord, first))?.min(LIMIT);
            let blocks = view.word(at + offset_of!(ExtentRecord, blocks))?.min(left);
            if blocks != 0 {
                *extent = Extent::new(first, blocks, trees);
                left -= blocks;
                trees += extent.trees();
            }
        }
        Ok(Self { offset, extents })
    }

    /// The giant of a tree; a free one where there is none.
    fn of<M: Memory>(&self, view: &View<M>, tree: u64) -> Result<Giant, ViewError> {
        let mut base = 0;
        for extent in self.extents.iter().filter(|extent| extent.blocks() != 0) {
            let inside = tree.wrapping_sub(extent.base_tree());
            if inside < extent.trees() {
                let giant = (extent.first_tree() + inside) >> GIANT_TREES_SHIFT;
                let number = base + giant - extent.first_giant();
                let offset = self.offset.saturating_add(number * 4);
                let word = view.at(offset & !7)?;
                return Ok(Giant::from_bits(halves(word)[usize::from(offset & 4 != 0)]));
            }
            // Bounded by the caps above: 2^22, and two for each extent.
            base += extent.giants();
        }
        Ok(Giant::from_bits(0))
    }
}

#[cfg(all(test, not(ebb_model)))]
#[path = "view_tests.rs"]
mod tests;

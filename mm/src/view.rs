//! A read-only view of the metadata for another address space: the host, over the guest's RAM.
//!
//! The reader trusts no byte. Counts are limited to the maximum possible, offsets are checked, and
//! no contents make a reader panic or leave the memory it was given.

use core::{
    error, fmt,
    mem::offset_of,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    Frame, ZoneKind,
    config::{Extent, MAX_EXTENTS, MAX_ZONES},
    frame::{FRAME_LIMIT, PAGEBLOCK_FRAMES},
    gib::{GIB_TREES_SHIFT, Gib},
    header::{ExtentRecord, Header, ZoneRecord},
    state::{Class, State},
    summary::{Summary, TREE_BLOCKS, TREE_FRAMES},
    usage::BlockView,
};

/// The start of valid metadata: a magic number of 64 bits, then the layout version in 32 bits.
pub use crate::header::{MAGIC, VERSION};

/// Memory that can be read in 8-byte words while others write it.
pub trait Memory {
    /// Returns the eight bytes at `offset`, a multiple of 8. Returns `None` beyond the end of the
    /// memory.
    fn word(&self, offset: u64) -> Option<u64>;
}

impl Memory for [AtomicU64] {
    fn word(&self, offset: u64) -> Option<u64> {
        let word = self.get(usize::try_from(offset / 8).ok()?)?;
        // `Acquire` for the magic, which pairs with the `Release` of the allocator. The other words
        // may be out of date at once in any case.
        Some(word.load(Ordering::Acquire))
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn word(&self, offset: u64) -> Option<u64> {
        (**self).word(offset)
    }
}

/// Why the memory cannot be read as metadata.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ViewError {
    /// The memory starts with this number, not with the magic number.
    Magic(u64),
    /// The metadata has this version, which this crate does not know.
    Version(u32),
    /// The metadata claims this number of zones, which is more than [`MAX_ZONES`].
    Zones(u32),
    /// A zone claims this number of trees of 64 MiB, which is more than there is memory for.
    Trees(u64),
    /// Data would be at this offset, which is beyond the end of the memory.
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

/// A reader of an allocator's metadata in the memory `M`.
#[derive(Debug)]
pub struct View<M> {
    memory: M,
    zones: u32,
    /// The most trees that all zones together can have.
    trees: u64,
}

/// The number of trees at the ends of extents, which may have memory only in part.
const EDGES: u64 = 2 * (MAX_ZONES * MAX_EXTENTS) as u64;

/// The statistics of one zone, as the metadata states them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ZoneView {
    /// The kind of the zone.
    pub kind: ZoneKind,
    /// The NUMA node of the zone.
    pub node: u16,
    /// The number of managed frames, at most what the zone's trees can hold.
    pub managed_frames: u64,
    /// The number of free frames, at most `managed_frames`.
    pub free_frames: u64,
    /// The number of frames in free pageblocks.
    pub free_block_frames: u64,
    /// The number of frames in free pageblocks that the host may hold memory for.
    pub unreported_free_frames: u64,
    /// The number of isolated frames, which cannot be allocated now.
    pub isolated_frames: u64,
}

/// Splits a word into its low and its high half, for two `u32` fields that share it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are what is wanted"
)]
const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

impl<M: Memory> View<M> {
    /// Returns a reader of the metadata at the start of `memory`.
    ///
    /// # Errors
    /// Fails with `Magic`, `Version` or `Zones` if the memory does not start with metadata of this
    /// version, and with `OutOfBounds` if it ends within the first 16 bytes. The rest is checked
    /// when it is read.
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

    /// Limits the reader to metadata of `frames` frames of memory. Metadata that claims more is
    /// inconsistent: [`Self::zones`] and [`Self::free_frames`] fail before they read more.
    /// [`Self::blocks`] is not limited.
    #[must_use]
    pub fn within(self, frames: u64) -> Self {
        let trees = frames.div_ceil(TREE_FRAMES).saturating_add(EDGES);
        Self {
            trees: trees.min(self.trees),
            ..self
        }
    }

    /// Returns the word at `offset`. Fails if that is not in the memory.
    fn word(&self, offset: usize) -> Result<u64, ViewError> {
        self.at(offset as u64)
    }

    /// Returns the word at `offset`. Fails if that is not a multiple of 8 or not in the memory.
    fn at(&self, offset: u64) -> Result<u64, ViewError> {
        let misaligned = !offset.is_multiple_of(8);
        let word = if misaligned {
            None
        } else {
            self.memory.word(offset)
        };
        word.ok_or(ViewError::OutOfBounds(offset))
    }

    /// Returns the statistics of all zones. Reads two words for each 64 MiB that they claim. Yields
    /// [`ViewError::Trees`] for a zone that claims more memory than [`Self::within`] allows, and
    /// [`ViewError::OutOfBounds`] for one that is not in the memory. Stop at the first error.
    pub fn zones(&self) -> impl Iterator<Item = Result<ZoneView, ViewError>> {
        let mut left = self.trees;
        (0..self.zones as usize).map(move |zone| self.zone(zone, &mut left))
    }

    /// Returns two numbers, summed over all zones: the free frames, and the frames in free
    /// pageblocks that the host may hold memory for.
    ///
    /// # Errors
    /// Fails with the first error of [`Self::zones`].
    pub fn free_frames(&self) -> Result<(u64, u64), ViewError> {
        self.zones()
            .try_fold((0, 0), |(free, unreported): (u64, u64), zone| {
                let zone = zone?;
                // Each is below 2^40 + 2^14, and there are at most 8 zones.
                Ok((
                    free + zone.free_frames,
                    unreported + zone.unreported_free_frames,
                ))
            })
    }

    /// Returns all pageblocks, zone by zone in ascending order: a map of the memory. Reads two
    /// bytes for each pageblock. Yields [`ViewError::OutOfBounds`] for what is not in the memory.
    ///
    /// Metadata may claim more pageblocks than there is memory. Take no more than there can be, and
    /// stop at the first error.
    pub fn blocks(&self) -> impl Iterator<Item = Result<BlockView, ViewError>> {
        (0..self.zones as usize).flat_map(move |zone| {
            let record = offset_of!(Header, zone) + zone * size_of::<ZoneRecord>();
            let (gibs, error) = match self.gibs_and_states(record) {
                Ok(found) => (Some(found), None),
                Err(error) => (None, Some(Err(error))),
            };
            let blocks = gibs.into_iter().flat_map(move |(gibs, states)| {
                let extents = gibs.extents;
                let mut gib = Ok(Gib::from_bits(0));
                // Bounded by the caps on extents: 2^31 blocks.
                extents
                    .into_iter()
                    .flat_map(|extent| (0..extent.blocks()).map(move |inside| (extent, inside)))
                    .map(move |(extent, inside)| {
                        let block = extent.base() + inside;
                        // Read once for each tree, at the first of its pageblocks.
                        if inside == 0 || block.is_multiple_of(TREE_BLOCKS as u64) {
                            gib = gibs.of(self, block / TREE_BLOCKS as u64);
                        }
                        let state = self.state(states, block)?;
                        let start = Frame::new((extent.first() + inside) * PAGEBLOCK_FRAMES);
                        Ok(BlockView::new(start, gib?, state))
                    })
            });
            blocks.chain(error)
        })
    }

    /// Returns the GiB words of the zone whose record is at `record`, and the offset of its state
    /// words.
    fn gibs_and_states(&self, record: usize) -> Result<(Gibs, u64), ViewError> {
        let states = self.word(record + offset_of!(ZoneRecord, states))?;
        Ok((Gibs::read(self, record)?, states))
    }

    /// Returns the state word of pageblock `block` in the array at offset `states`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "its part of the word is wanted"
    )]
    fn state(&self, states: u64, block: u64) -> Result<State, ViewError> {
        let offset = states.saturating_add(block * size_of::<u16>() as u64);
        let word = self.at(offset & !7)?;
        Ok(State::from_bits((word >> ((offset & 6) * 8)) as u16))
    }

    /// Returns the statistics of zone number `zone`, and subtracts its trees from `left`. Fails if
    /// it claims more trees than that.
    fn zone(&self, zone: usize, left: &mut u64) -> Result<ZoneView, ViewError> {
        let record = offset_of!(Header, zone) + zone * size_of::<ZoneRecord>();
        let field = |offset: usize| self.word(record + offset);
        const { assert!(offset_of!(ZoneRecord, node) == offset_of!(ZoneRecord, kind) + 4) }
        let [kind, node] = halves(field(offset_of!(ZoneRecord, kind))?);
        let trees = field(offset_of!(ZoneRecord, trees))?;
        // Checked before any tree is read: no zone makes a reader examine trees that cannot exist.
        *left = left.checked_sub(trees).ok_or(ViewError::Trees(trees))?;
        let summaries = field(offset_of!(ZoneRecord, summaries))?;
        let gibs = Gibs::read(self, record)?;
        let (mut free, mut touched) = (0, 0);
        for tree in 0..trees {
            let summary = match gibs.of(self, tree)? {
                gib if gib.is_huge() => continue,
                gib if gib.is_touched() => Summary::all(Class::Touched),
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

/// The offset of a zone's GiB words, and the extents that say which trees belong to which GiB.
struct Gibs {
    offset: u64,
    extents: [Extent; MAX_EXTENTS],
}

impl Gibs {
    /// Reads the zone record at `record`, and limits its extents to the maximum possible.
    fn read<M: Memory>(view: &View<M>, record: usize) -> Result<Self, ViewError> {
        let offset = view.word(record + offset_of!(ZoneRecord, gibs))?;
        let mut extents = [Extent::default(); MAX_EXTENTS];
        const LIMIT: u64 = FRAME_LIMIT / PAGEBLOCK_FRAMES;
        // Limited to the pageblocks that one zone can have.
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

    /// Returns the word of the GiB that has `tree`. Returns that of a free GiB if no extent has the
    /// tree.
    fn of<M: Memory>(&self, view: &View<M>, tree: u64) -> Result<Gib, ViewError> {
        let mut base = 0;
        for extent in self.extents.iter().filter(|extent| extent.blocks() != 0) {
            let inside = tree.wrapping_sub(extent.base_tree());
            if inside < extent.trees() {
                let gib = (extent.first_tree() + inside) >> GIB_TREES_SHIFT;
                let number = base + gib - extent.first_gib();
                let offset = self.offset.saturating_add(number * 4);
                let word = view.at(offset & !7)?;
                return Ok(Gib::from_bits(halves(word)[usize::from(offset & 4 != 0)]));
            }
            // Bounded by the caps above: 2^22, and two for each extent.
            base += extent.gibs();
        }
        Ok(Gib::from_bits(0))
    }
}

#[cfg(all(test, not(ebb_model)))]
#[path = "view_tests.rs"]
mod tests;

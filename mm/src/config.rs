//! The memory that an allocator manages: zones, and the ranges in them.

use core::{error, fmt};

use crate::{
    FrameRange,
    frame::{FRAME_LIMIT, PAGEBLOCK_FRAMES},
    giant::GIANT_TREES_SHIFT,
    node,
    summary::{TREE_BLOCKS, TREE_BLOCKS_SHIFT},
};

/// The most zones of an allocator.
pub const MAX_ZONES: usize = 8;
/// The most extents of a zone: its ranges, those that share or touch a 64 MiB tree taken as one.
pub const MAX_EXTENTS: usize = 16;

/// What a zone is good for. A request names the highest kind that it can use.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneKind {
    /// Memory below 16 MiB, which ISA devices can reach.
    Dma = 0,
    /// Memory below 4 GiB, which devices with 32-bit addresses can reach.
    Dma32 = 1,
    /// All other memory.
    Normal = 2,
}

impl ZoneKind {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All, from the one that the fewest requests need upwards.
    pub const ALL: [Self; Self::COUNT] = [Self::Dma, Self::Dma32, Self::Normal];

    /// The address that memory of this kind ends at or below, if there is one.
    pub const fn limit(self) -> Option<u64> {
        match self {
            Self::Dma => Some(16 << 20),
            Self::Dma32 => Some(1 << 32),
            Self::Normal => None,
        }
    }

    /// The kind that metadata says a zone has: of one that nobody knows, the one with no promise.
    #[cfg(not(ebb_model))]
    pub(crate) fn from_record(kind: u32) -> Self {
        let known = Self::ALL.into_iter().find(|&known| known as u32 == kind);
        known.unwrap_or(Self::Normal)
    }
}

/// A zone: memory of one kind on one node.
#[derive(Copy, Clone, Debug)]
pub struct ZoneConfig<'a> {
    /// What it is good for.
    pub kind: ZoneKind,
    /// The NUMA node that it is on, below [`MAX_NODES`](crate::MAX_NODES).
    pub node: u16,
    /// Its memory: sorted, disjoint, of any alignment.
    pub ranges: &'a [FrameRange],
}

/// All zones of an allocator, and what it keeps of them.
///
/// A request tries the zones of its node first, of those the highest kind that it may use, then the
/// lower ones; then those of the nearest other node, and so on. Zones of one node and kind are tried
/// from the first to the last.
#[derive(Copy, Clone, Debug)]
pub struct Config<'a> {
    pub(crate) zones: &'a [ZoneConfig<'a>],
    pub(crate) distances: &'a [u8],
    pub(crate) marks: Marks,
}

impl<'a> Config<'a> {
    /// These zones. No two may have frames in the same pageblock of 2 MiB, and none may lie in a gap of
    /// another whose ranges on both sides are in the same aligned 64 MiB or in adjacent ones.
    #[must_use]
    pub const fn new(zones: &'a [ZoneConfig<'a>]) -> Self {
        Self {
            zones,
            distances: &[],
            marks: Marks {
                frames: false,
                fresh: false,
            },
        }
    }

    /// The same with these distances between NUMA nodes: for `n` nodes `n * n` of them, from node 0
    /// to node 0, 1 and so on, then from node 1, as ACPI's SLIT has them. A node is always nearest
    /// to itself; nodes at the same distance are tried upwards from it and then round, which is the
    /// order of all while no distances are given.
    #[must_use]
    pub const fn with_distances(self, distances: &'a [u8]) -> Self {
        Self { distances, ..self }
    }

    /// The same with metadata for what the host holds of single frames, which reporting below
    /// order 9 needs: 32 KiB a GiB, which stay untouched until then.
    #[must_use]
    pub const fn with_frame_marks(self) -> Self {
        Self {
            marks: Marks {
                frames: true,
                ..self.marks
            },
            ..self
        }
    }

    /// The same with metadata for what was never handed out, which
    /// [`Allocator::allocate_known`](crate::Allocator::allocate_known) needs: 512 bytes a GiB.
    #[must_use]
    pub const fn with_fresh_marks(self) -> Self {
        Self {
            marks: Marks {
                fresh: true,
                ..self.marks
            },
            ..self
        }
    }
}

/// What is kept besides what allocation needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    /// What the host holds of single frames.
    pub(crate) frames: bool,
    /// What was never handed out.
    pub(crate) fresh: bool,
}

/// What is wrong with a configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// There is no zone, or a zone has no frame.
    Empty,
    /// More than [`MAX_ZONES`] zones.
    TooManyZones(usize),
    /// This zone has more than [`MAX_EXTENTS`] extents.
    TooManyExtents(usize),
    /// This range starts before the end of the one before it in its zone.
    Unsorted(FrameRange),
    /// This range ends beyond the 52 bits of an x86-64 physical address, or is empty.
    OutOfRange(FrameRange),
    /// This range of a zone of this kind reaches beyond the kind's [limit](ZoneKind::limit).
    BeyondLimit(ZoneKind, FrameRange),
    /// These two zones have frames in the same pageblock, or one lies in a gap of the other that is too
    /// small for that.
    Overlap(usize, usize),
    /// So many distances are not the square of a number of nodes up to
    /// [`MAX_NODES`](crate::MAX_NODES).
    Distances(usize),
    /// A zone is on this node, which is beyond [`MAX_NODES`](crate::MAX_NODES) or has no distances.
    Node(u16),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |range: &FrameRange| (range.start.number(), range.frames);
        match self {
            Self::Empty => write!(f, "a zone without frames, or no zone"),
            Self::TooManyZones(n) => write!(f, "{n} zones, at most {MAX_ZONES} are possible"),
            Self::TooManyExtents(zone) => {
                write!(
                    f,
                    "zone {zone} has more than {MAX_EXTENTS} separate extents"
                )
            }
            Self::Unsorted(range) => {
                write!(
                    f,
                    "range at frame {:#x} starts before the end of the last",
                    at(range).0
                )
            }
            Self::OutOfRange(range) => {
                write!(
                    f,
                    "range at frame {:#x} of {:#x} frames",
                    at(range).0,
                    at(range).1
                )
            }
            Self::BeyondLimit(kind, range) => {
                write!(
                    f,
                    "range at frame {:#x} of {:#x} frames reaches beyond {:#x}, where zones of kind {kind:?} end",
                    at(range).0,
                    at(range).1,
                    kind.limit().unwrap_or(u64::MAX)
                )
            }
            Self::Overlap(a, b) => {
                write!(
                    f,
                    "zones {a} and {b} share an aligned 2 MiB, or a gap of less than 64 MiB"
                )
            }
            Self::Distances(n) => write!(f, "{n} distances, not the square of a number of nodes"),
            Self::Node(node) => write!(f, "a zone on node {node}, which is unknown"),
        }
    }
}

impl error::Error for ConfigError {}

/// Pageblocks that follow each other in a zone. It has metadata for the whole of each tree (aligned
/// 64 MiB) that they are in; of the first and the last tree other zones may have other pageblocks.
///
/// In half the bytes that the numbers could have: there are at most 2^31 pageblocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extent {
    first: u32,
    blocks: u32,
    base: u32,
    first_tree: u32,
    trees: u32,
    base_tree: u32,
}

impl Extent {
    /// So many pageblocks, at least one, from this one on, in the trees of a zone from this one on.
    pub(crate) fn new(first: u64, blocks: u64, base_tree: u64) -> Self {
        let first_tree = first >> TREE_BLOCKS_SHIFT;
        let last_tree = (first + blocks - 1) >> TREE_BLOCKS_SHIFT;
        Self {
            first: small(first),
            blocks: small(blocks),
            base: small((base_tree << TREE_BLOCKS_SHIFT) + first % TREE_BLOCKS as u64),
            first_tree: small(first_tree),
            trees: small(last_tree - first_tree + 1),
            base_tree: small(base_tree),
        }
    }

    /// Number of the first: its first frame's number divided by the frames of a pageblock.
    pub(crate) const fn first(self) -> u64 {
        self.first as u64
    }

    /// How many.
    pub(crate) const fn blocks(self) -> u64 {
        self.blocks as u64
    }

    /// Index of the first in the zone's arrays: as far from the start of a tree as the first is.
    pub(crate) const fn base(self) -> u64 {
        self.base as u64
    }

    /// Number of the pageblock behind the last.
    pub(crate) const fn end(self) -> u64 {
        self.first() + self.blocks()
    }

    /// Number of the tree of the first.
    pub(crate) const fn first_tree(self) -> u64 {
        self.first_tree as u64
    }

    /// How many trees they are in.
    pub(crate) const fn trees(self) -> u64 {
        self.trees as u64
    }

    /// Index of the first tree in the zone's arrays.
    pub(crate) const fn base_tree(self) -> u64 {
        self.base_tree as u64
    }

    /// Number of the first giant that it has a part of.
    pub(crate) const fn first_giant(self) -> u64 {
        self.first_tree() >> GIANT_TREES_SHIFT
    }

    /// How many giants it has a part of.
    pub(crate) const fn giants(self) -> u64 {
        let last = self.first_tree() + self.trees() - 1;
        (last >> GIANT_TREES_SHIFT) - self.first_giant() + 1
    }

    /// Whether a pageblock is one of both.
    const fn overlaps(self, other: Self) -> bool {
        self.first() < other.end() && other.first() < self.end()
    }
}

/// A number of pageblocks or trees.
fn small(number: u64) -> u32 {
    let Ok(small) = u32::try_from(number) else {
        unreachable!("{number} pageblocks")
    };
    small
}

/// The extents of one zone.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Extents {
    list: [Extent; MAX_EXTENTS],
    len: usize,
}

impl Extents {
    pub(crate) fn as_slice(&self) -> &[Extent] {
        &self.list[..self.len]
    }

    pub(crate) fn trees(&self) -> u64 {
        self.as_slice()
            .last()
            .map_or(0, |last| last.base_tree() + last.trees())
    }

    /// How many giants they have a part of.
    pub(crate) fn giants(&self) -> u64 {
        self.as_slice().iter().map(|extent| extent.giants()).sum()
    }

    /// Whether a pageblock is one of both zones.
    pub(crate) fn overlap(&self, other: &Self) -> bool {
        let others = other.as_slice();
        let mut own = self.as_slice().iter();
        own.any(|extent| others.iter().any(|other| extent.overlaps(*other)))
    }

    /// Adds an extent apart from those that there are, if there is room.
    #[cfg(not(ebb_model))]
    pub(crate) fn add(&mut self, first: u64, blocks: u64) -> bool {
        let len = self.len;
        self.push(first, first + blocks) && self.len == len + 1
    }

    /// Adds pageblocks behind those that there are: to the last extent, if they are in the trees of that or
    /// in the next.
    fn push(&mut self, first: u64, end: u64) -> bool {
        let trees = self.trees();
        if let Some(before) = self.list[..self.len].last_mut()
            && first >> TREE_BLOCKS_SHIFT <= before.first_tree() + before.trees()
        {
            *before = Extent::new(before.first(), end - before.first(), before.base_tree());
            return true;
        }
        let Some(extent) = self.list.get_mut(self.len) else {
            return false;
        };
        *extent = Extent::new(first, end - first, trees);
        self.len += 1;
        true
    }
}

/// Checks a configuration and lays its zones out in trees.
pub(crate) fn extents(config: &Config<'_>) -> Result<[Extents; MAX_ZONES], ConfigError> {
    if config.zones.is_empty() {
        return Err(ConfigError::Empty);
    }
    if config.zones.len() > MAX_ZONES {
        return Err(ConfigError::TooManyZones(config.zones.len()));
    }
    node::check(config)?;
    let mut all = [Extents::default(); MAX_ZONES];
    for (zone, of) in config.zones.iter().zip(&mut all) {
        let mut end = 0;
        for &range in zone.ranges {
            if range.is_empty()
                || range.start.number() >= FRAME_LIMIT
                || range.frames > FRAME_LIMIT - range.start.number()
            {
                return Err(ConfigError::OutOfRange(range));
            }
            if range.start.number() < end {
                return Err(ConfigError::Unsorted(range));
            }
            end = range.end().number();
            if zone
                .kind
                .limit()
                .is_some_and(|limit| range.end().address() > limit)
            {
                return Err(ConfigError::BeyondLimit(zone.kind, range));
            }
            let first = range.start.number() / PAGEBLOCK_FRAMES;
            if !of.push(first, end.div_ceil(PAGEBLOCK_FRAMES)) {
                let index = config.zones.iter().position(|z| core::ptr::eq(z, zone));
                return Err(ConfigError::TooManyExtents(index.unwrap_or(0)));
            }
        }
        if zone.ranges.is_empty() {
            return Err(ConfigError::Empty);
        }
    }
    for (a, one) in all.iter().enumerate() {
        for (b, other) in all.iter().enumerate().skip(a + 1) {
            if one.overlap(other) {
                return Err(ConfigError::Overlap(a, b));
            }
        }
    }
    Ok(all)
}

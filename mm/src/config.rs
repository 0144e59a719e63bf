//! The configuration of an allocator: its zones, their memory ranges, and optional metadata.
//!
//! [`Config`] is what the caller passes. [`extents`] checks it and returns the internal form: for
//! each zone its [`Extents`].

use core::{error, fmt};

use crate::{
    FrameRange, ZoneId,
    frame::{FRAME_LIMIT, PAGEBLOCK_FRAMES},
    gib::GIB_TREES_SHIFT,
    node,
    summary::{TREE_BLOCKS, TREE_BLOCKS_SHIFT},
};

/// The maximum number of zones of an allocator.
pub const MAX_ZONES: usize = 8;
/// The maximum number of extents of a zone. Ranges that share a tree (aligned 64 MiB), or lie in
/// adjacent trees, form one extent.
pub const MAX_EXTENTS: usize = 16;

/// The kind of a zone: which devices can reach its memory. A request names the highest kind that it
/// can use.
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
    /// Number of kinds.
    pub const COUNT: usize = 3;
    /// All kinds, from the lowest to the highest.
    pub const ALL: [Self; Self::COUNT] = [Self::Dma, Self::Dma32, Self::Normal];

    /// Returns the physical address at which memory of this kind must end at the latest. Returns
    /// `None` if the kind has no limit.
    pub const fn limit(self) -> Option<u64> {
        match self {
            Self::Dma => Some(16 << 20),
            Self::Dma32 => Some(1 << 32),
            Self::Normal => None,
        }
    }

    /// Converts the number of a kind in the metadata. Returns [`ZoneKind::Normal`], which promises
    /// nothing, for an unknown number.
    #[cfg(not(ebb_model))]
    pub(crate) fn from_record(kind: u32) -> Self {
        let known = Self::ALL.into_iter().find(|&known| known as u32 == kind);
        known.unwrap_or(Self::Normal)
    }
}

/// The configuration of a zone: memory of one kind on one NUMA node.
#[derive(Copy, Clone, Debug)]
pub struct ZoneConfig<'a> {
    /// The kind of the zone.
    pub kind: ZoneKind,
    /// The NUMA node of the memory, below [`MAX_NODES`](crate::MAX_NODES).
    pub node: u16,
    /// The memory of the zone: sorted, disjoint ranges of any alignment.
    pub ranges: &'a [FrameRange],
}

/// The zones of an allocator, the distances between NUMA nodes, and which optional metadata to
/// keep.
///
/// A request tries the zones of its node first: the highest kind that it may use, then the lower
/// kinds. Then it tries the zones of the nearest other node, and so on. Zones of the same node and
/// kind are tried in the order of the configuration.
#[derive(Copy, Clone, Debug)]
pub struct Config<'a> {
    /// The zones.
    pub(crate) zones: &'a [ZoneConfig<'a>],
    /// The distances between NUMA nodes, row by row. Empty if there are none.
    pub(crate) distances: &'a [u8],
    /// The optional metadata.
    pub(crate) marks: Marks,
}

impl<'a> Config<'a> {
    /// Returns a configuration of these zones, without distances and without optional metadata. A
    /// zone's position in the slice is the index of its [`ZoneId`].
    ///
    /// Two zones must not have frames in the same pageblock (2 MiB). A zone must not lie in a gap
    /// between two ranges of another zone if those ranges are in the same tree (aligned 64 MiB) or
    /// in adjacent trees.
    #[must_use]
    pub const fn new(zones: &'a [ZoneConfig<'a>]) -> Self {
        Self {
            zones,
            distances: &[],
            marks: Marks {
                frames: false,
                uses: false,
            },
        }
    }

    /// Returns the configuration with these distances between NUMA nodes.
    ///
    /// For `n` nodes there are `n * n` distances, in the order of ACPI's SLIT: from node 0 to nodes
    /// 0, 1 and so on, then from node 1. A node is always nearest to itself. Nodes at the same
    /// distance from node `i` are tried in the order `i + 1`, `i + 2` and so on, then from 0.
    /// Without distances this order holds for all nodes.
    ///
    /// The number of distances is not checked here. [`Allocator::new`](crate::Allocator::new) and
    /// [`metadata_layout`](crate::metadata_layout) fail if it is wrong.
    #[must_use]
    pub const fn with_distances(self, distances: &'a [u8]) -> Self {
        Self { distances, ..self }
    }

    /// Returns the configuration with one mark for each frame: whether the host may hold memory for
    /// it. Reporting below order 9 needs these marks.
    ///
    /// They add 32 KiB of metadata per GiB, which stay untouched until such an order is set.
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

    /// Returns the configuration with one mark for each 64 frames: whether any of them was ever
    /// allocated. [`Allocator::allocate_known`](crate::Allocator::allocate_known) needs these
    /// marks.
    ///
    /// They add 512 bytes of metadata per GiB.
    #[must_use]
    pub const fn with_use_marks(self) -> Self {
        Self {
            marks: Marks {
                uses: true,
                ..self.marks
            },
            ..self
        }
    }
}

/// Which optional metadata the allocator keeps.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    /// Keep, for each frame, whether the host may hold memory for it.
    pub(crate) frames: bool,
    /// Keep, for each group of 64 frames, whether any of them was ever allocated.
    pub(crate) uses: bool,
}

/// Why a configuration is invalid.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// There is no zone, or a zone has no range.
    Empty,
    /// This number of zones is above [`MAX_ZONES`].
    TooManyZones(usize),
    /// This zone has more than [`MAX_EXTENTS`] extents.
    TooManyExtents(ZoneId),
    /// This range starts before the end of the previous range of its zone.
    Unsorted(FrameRange),
    /// This range is empty, or ends beyond the 52 bits of an x86-64 physical address.
    OutOfRange(FrameRange),
    /// This range ends above the [limit](ZoneKind::limit) of its zone's kind.
    BeyondLimit(ZoneKind, FrameRange),
    /// These zones have frames in the same pageblock. Or one lies in a gap of the other that is too
    /// small, because its ranges on both sides of the gap form one extent.
    Overlap(ZoneId, ZoneId),
    /// This number of distances is not the square of a number of nodes up to
    /// [`MAX_NODES`](crate::MAX_NODES).
    Distances(usize),
    /// This node of a zone is not below [`MAX_NODES`](crate::MAX_NODES), or has no distances.
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
                    "zone {} has more than {MAX_EXTENTS} separate extents",
                    zone.index()
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
                    "zones {} and {} share an aligned 2 MiB, or a gap of less than 64 MiB",
                    a.index(),
                    b.index()
                )
            }
            Self::Distances(n) => write!(f, "{n} distances, not the square of a number of nodes"),
            Self::Node(node) => write!(f, "a zone on node {node}, which is unknown"),
        }
    }
}

impl error::Error for ConfigError {}

/// Adjacent pageblocks of a zone, and their position in the zone's arrays.
///
/// The zone has metadata for whole trees (aligned 64 MiB). Other pageblocks of the first and the
/// last tree may belong to other zones.
///
/// All numbers are `u32` to save space: there are at most 2^31 pageblocks.
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
    /// Returns the extent of `blocks` pageblocks, at least one, from pageblock number `first` on.
    /// `base_tree` is the index of its first tree in the zone's arrays.
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

    /// Returns the number of the first pageblock: its first frame number divided by
    /// [`PAGEBLOCK_FRAMES`].
    pub(crate) const fn first(self) -> u64 {
        self.first as u64
    }

    /// Returns the number of pageblocks.
    pub(crate) const fn blocks(self) -> u64 {
        self.blocks as u64
    }

    /// Returns the index of the first pageblock in the zone's arrays. It has the same offset in its
    /// tree as the pageblock's number.
    pub(crate) const fn base(self) -> u64 {
        self.base as u64
    }

    /// Returns the number of the pageblock behind the last one.
    pub(crate) const fn end(self) -> u64 {
        self.first() + self.blocks()
    }

    /// Returns the number of the first pageblock's tree: the pageblock number divided by
    /// [`TREE_BLOCKS`].
    pub(crate) const fn first_tree(self) -> u64 {
        self.first_tree as u64
    }

    /// Returns the number of trees that contain these pageblocks.
    pub(crate) const fn trees(self) -> u64 {
        self.trees as u64
    }

    /// Returns the index of the first tree in the zone's arrays.
    pub(crate) const fn base_tree(self) -> u64 {
        self.base_tree as u64
    }

    /// Returns the number of the first GiB that contains some of these pageblocks.
    pub(crate) const fn first_gib(self) -> u64 {
        self.first_tree() >> GIB_TREES_SHIFT
    }

    /// Returns the number of aligned GiBs that contain some of these pageblocks.
    pub(crate) const fn gibs(self) -> u64 {
        let last = self.first_tree() + self.trees() - 1;
        (last >> GIB_TREES_SHIFT) - self.first_gib() + 1
    }

    /// Returns `true` if a pageblock is in both extents.
    const fn overlaps(self, other: Self) -> bool {
        self.first() < other.end() && other.first() < self.end()
    }
}

/// Converts a number of pageblocks or trees, which always fits.
fn small(number: u64) -> u32 {
    let Ok(small) = u32::try_from(number) else {
        unreachable!("{number} pageblocks")
    };
    small
}

/// The extents of one zone, in ascending order.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Extents {
    list: [Extent; MAX_EXTENTS],
    len: usize,
}

impl Extents {
    /// Returns the extents in ascending order.
    pub(crate) fn as_slice(&self) -> &[Extent] {
        &self.list[..self.len]
    }

    /// Returns the number of trees of all extents.
    pub(crate) fn trees(&self) -> u64 {
        self.as_slice()
            .last()
            .map_or(0, |last| last.base_tree() + last.trees())
    }

    /// Returns the number of GiBs that contain parts of these extents, added up extent by extent.
    pub(crate) fn gibs(&self) -> u64 {
        self.as_slice().iter().map(|extent| extent.gibs()).sum()
    }

    /// Returns `true` if a pageblock is in both sets of extents.
    pub(crate) fn overlap(&self, other: &Self) -> bool {
        let others = other.as_slice();
        let mut own = self.as_slice().iter();
        own.any(|extent| others.iter().any(|other| extent.overlaps(*other)))
    }

    /// Adds an extent of `blocks` pageblocks from number `first` on, above all others. Returns
    /// `true` if it became an extent of its own. Returns `false` if there are [`MAX_EXTENTS`]
    /// extents already, or if it touches a tree of the last extent or the tree behind it. In the
    /// second case the last extent was extended.
    #[cfg(not(ebb_model))]
    pub(crate) fn add(&mut self, first: u64, blocks: u64) -> bool {
        let len = self.len;
        self.push(first, first + blocks) && self.len == len + 1
    }

    /// Adds the pageblocks `first..end`, above all others. Extends the last extent if they start in
    /// one of its trees or in the tree behind it. Returns `false` if there is no room for another
    /// extent.
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

/// Checks a configuration and returns the extents of each zone, by the zone's index. Those of
/// indices without a zone are empty.
///
/// # Errors
/// Returns the first violation that is found.
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
                return Err(ConfigError::TooManyExtents(ZoneId::new(index.unwrap_or(0))));
            }
        }
        if zone.ranges.is_empty() {
            return Err(ConfigError::Empty);
        }
    }
    for (a, one) in all.iter().enumerate() {
        for (b, other) in all.iter().enumerate().skip(a + 1) {
            if one.overlap(other) {
                return Err(ConfigError::Overlap(ZoneId::new(a), ZoneId::new(b)));
            }
        }
    }
    Ok(all)
}

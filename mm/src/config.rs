//! The memory that an allocator manages: zones, and the ranges in them.

use core::{error, fmt};

use crate::{
    FrameRange,
    frame::FRAME_LIMIT,
    giant::GIANT_TREES_SHIFT,
    node,
    summary::{TREE_FRAMES, TREE_FRAMES_SHIFT},
};

/// The most zones of an allocator.
pub const MAX_ZONES: usize = 8;
/// The most extents of a zone: its ranges, those that share or touch a 64 MiB tree taken as one.
pub const MAX_EXTENTS: usize = 16;

/// What a zone is good for. A request names the highest kind that it can use.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneKind {
    /// Memory below 4 GiB, which devices with 32-bit addresses can reach.
    Dma32 = 0,
    /// All other memory.
    Normal = 1,
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
    /// These zones. No two may have frames in the same aligned 64 MiB.
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
    /// This range of a zone of kind `Dma32` reaches beyond 4 GiB.
    BeyondDma32(FrameRange),
    /// These two zones have frames in the same aligned 64 MiB.
    SharedTree(usize, usize),
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
            Self::BeyondDma32(range) => {
                write!(f, "range at frame {:#x} reaches beyond 4 GiB", at(range).0)
            }
            Self::SharedTree(a, b) => write!(f, "zones {a} and {b} share an aligned 64 MiB"),
            Self::Distances(n) => write!(f, "{n} distances, not the square of a number of nodes"),
            Self::Node(node) => write!(f, "a zone on node {node}, which is unknown"),
        }
    }
}

impl error::Error for ConfigError {}

/// Trees (aligned 64 MiB) that follow each other in a zone.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extent {
    /// Number of the first tree: its first frame's number divided by the frames of a tree.
    pub(crate) first: u64,
    /// How many trees.
    pub(crate) trees: u64,
    /// Index of the first in the zone's arrays.
    pub(crate) base: u64,
}

impl Extent {
    /// Number of the first giant that it has a part of.
    pub(crate) const fn first_giant(self) -> u64 {
        self.first >> GIANT_TREES_SHIFT
    }

    /// How many giants it has a part of.
    pub(crate) const fn giants(self) -> u64 {
        ((self.first + self.trees - 1) >> GIANT_TREES_SHIFT) - self.first_giant() + 1
    }
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
            .map_or(0, |last| last.base + last.trees)
    }

    /// How many giants they have a part of.
    pub(crate) fn giants(&self) -> u64 {
        self.as_slice().iter().map(|extent| extent.giants()).sum()
    }

    /// Adds an extent after those that there are, if there is room.
    #[cfg(not(ebb_model))]
    pub(crate) fn add(&mut self, first: u64, trees: u64) -> bool {
        let len = self.len;
        self.push(first, first + trees - 1) && self.len == len + 1
    }

    fn push(&mut self, first: u64, last: u64) -> bool {
        if let Some(before) = self.list[..self.len].last_mut()
            && first <= before.first + before.trees
        {
            before.trees = last + 1 - before.first;
            return true;
        }
        let base = self.trees();
        let Some(extent) = self.list.get_mut(self.len) else {
            return false;
        };
        *extent = Extent {
            first,
            trees: last + 1 - first,
            base,
        };
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
            if zone.kind == ZoneKind::Dma32 && range.end().address() > 1 << 32 {
                return Err(ConfigError::BeyondDma32(range));
            }
            let first = range.start.number() >> TREE_FRAMES_SHIFT;
            if !of.push(first, (end - 1) / TREE_FRAMES) {
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
            let shared = one.as_slice().iter().any(|x| {
                other
                    .as_slice()
                    .iter()
                    .any(|y| x.first < y.first + y.trees && y.first < x.first + x.trees)
            });
            if shared {
                return Err(ConfigError::SharedTree(a, b));
            }
        }
    }
    Ok(all)
}

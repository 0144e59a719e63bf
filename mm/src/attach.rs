//! Access to an allocator's metadata from another address space: a host attaches to the metadata of
//! its guest.
//!
//! [`Attached`] lets the host see free memory and take it out with the same atomic operations as
//! the guest. This needs no call to the guest and no CPU of the guest.
//!
//! The code does not trust the bytes:
//!
//! - The layout follows from the extents of the zones alone. These are checked and copied once.
//! - No other number that it reads is ever an index, an offset or the bound of a loop.
//! - Each compare-and-swap is tried a bounded number of times, as the guest may write without end.
//!
//! A guest that writes wrong metadata can only lose memory of its own.
//! [`OpenGib`](crate::OpenGib) takes blocks out. [`Reclaimer`](crate::Reclaimer) selects them.

use core::{error, fmt, ptr::NonNull};

use crate::{
    Frame, ZoneId, ZoneKind,
    config::{Extents, MAX_EXTENTS, MAX_ZONES, Marks},
    frame::{FRAME_LIMIT, PAGEBLOCK_FRAMES, index},
    header::{Header, MAGIC, VERSION, ZoneRecord},
    ids::{BlockId, Id},
    metadata::{self, Plan},
    sync::Ordering,
    zone::Zone,
};

pub use crate::usage::{BlockView, Usage};

/// Why [`Attached::new`] refuses bytes as the metadata of an allocator.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// The bytes do not start at a page boundary, or are shorter than the header.
    Misplaced,
    /// The bytes start with this value instead of the magic number.
    Magic(u64),
    /// The metadata has this version of the layout, which this crate does not support.
    Version(u32),
    /// The header contains this number of zones, which is 0 or above the maximum.
    Zones(u32),
    /// The extents of this zone are invalid: there are none or too many, or they are out of order,
    /// out of range, or overlap another zone.
    Extents(ZoneId),
    /// Metadata of these zones has this length in bytes. The header says otherwise, or fewer bytes
    /// are mapped.
    Length(u64),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misplaced => write!(f, "allocator metadata is whole pages"),
            Self::Magic(found) => write!(f, "no allocator metadata: it starts with {found:#x}"),
            Self::Version(found) => write!(f, "metadata of version {found}, not {VERSION}"),
            Self::Zones(found) => write!(f, "metadata of {found} zones, not 1 to {MAX_ZONES}"),
            Self::Extents(zone) => {
                write!(f, "the extents of zone {} make no sense", zone.index())
            }
            Self::Length(bytes) => write!(f, "metadata that would have {bytes:#x} bytes"),
        }
    }
}

impl error::Error for AttachError {}

/// One zone of the attached metadata.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AttachedZone {
    /// The kind of the zone.
    pub kind: ZoneKind,
    /// The NUMA node of the zone.
    pub node: u16,
    /// Number of pageblocks in the zone's trees (multiples of 64 MiB). Some of them may have no
    /// memory.
    pub blocks: u64,
    /// Number of free frames, at most the number of frames in `blocks`.
    pub free_frames: u64,
}

/// The metadata of an allocator, mapped by a second participant: the host of a guest.
#[derive(Debug)]
pub struct Attached<'m> {
    /// The header of the metadata.
    pub(crate) header: &'m Header,
    zones: [Option<Zone<'m>>; MAX_ZONES],
}

impl<'m> Attached<'m> {
    /// Attaches to the metadata of an [`Allocator`](crate::Allocator), in another address space or
    /// in this one. `bytes` is the length of the mapping at `base`. Writes nothing, and does not
    /// tell the allocator.
    ///
    /// # Errors
    /// Fails if the bytes are not valid metadata of this version (see [`AttachError`]).
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `bytes` bytes for `'m`, and this address space
    /// accesses them only with this crate's atomic operations. The content of the bytes does not
    /// matter, and other address spaces may change it at any time.
    #[allow(
        unsafe_code,
        reason = "hands the caller's promise on to the metadata module"
    )]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Result<Self, AttachError> {
        let misaligned = !base.addr().get().is_multiple_of(align_of::<Header>());
        if misaligned || bytes < size_of::<Header>() {
            return Err(AttachError::Misplaced);
        }
        // SAFETY: size and alignment of the header are checked above. The caller guarantees the
        // rest.
        let header = unsafe { metadata::header(base) };
        // `Acquire` pairs with the `Release` of an honest allocator: the rest of its header is
        // visible.
        let magic = header.magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return Err(AttachError::Magic(magic));
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(AttachError::Version(version));
        }
        let zones = header.zones.load(Ordering::Relaxed);
        let count = zones as usize;
        if count == 0 || count > MAX_ZONES {
            return Err(AttachError::Zones(zones));
        }
        let extents = read_extents(&header.zone, count)?;
        let marks = Marks {
            frames: header.zone[0].touched.load(Ordering::Relaxed) != 0,
            uses: header.zone[0].used.load(Ordering::Relaxed) != 0,
        };
        let plan = Plan::new(&extents, marks);
        let said = header.bytes.load(Ordering::Relaxed);
        if plan.bytes > bytes || plan.bytes as u64 != said {
            return Err(AttachError::Length(plan.bytes as u64));
        }
        // SAFETY: `plan.bytes` is at most `bytes`, as checked above. All items are atomics, for
        // which any bytes are valid. The caller guarantees the rest.
        let (header, arrays) = unsafe { metadata::map(base, &plan) };
        let mut attached = [const { None }; MAX_ZONES];
        for (zone, record) in header.zone.iter().enumerate().take(count) {
            let node = record.node.load(Ordering::Relaxed);
            attached[zone] = Some(Zone::new(
                (
                    ZoneKind::from_record(record.kind.load(Ordering::Relaxed)),
                    u16::try_from(node).unwrap_or(u16::MAX),
                ),
                extents[zone],
                arrays[zone],
                record,
            ));
        }
        Ok(Self {
            header,
            zones: attached,
        })
    }

    /// Iterates over the zones, in the order of the allocator's configuration.
    pub fn zones(&self) -> impl Iterator<Item = AttachedZone> {
        self.each_zone().map(|zone| {
            let blocks = zone.blocks() as u64;
            AttachedZone {
                kind: zone.kind,
                node: zone.node,
                blocks,
                free_frames: zone.free_frames().min(blocks * PAGEBLOCK_FRAMES),
            }
        })
    }

    /// Iterates over the current usage of all pageblocks, zone by zone, in ascending order: a map
    /// of the memory. Reads two bytes for each pageblock, and the state of its GiB.
    pub fn blocks(&self) -> impl Iterator<Item = BlockView> {
        self.each_zone().flat_map(|zone| {
            let extents = zone.extents.as_slice().iter();
            let blocks = extents.flat_map(|extent| extent.base()..extent.base() + extent.blocks());
            blocks.map(move |block| block_view(zone, BlockId::new(index(block))))
        })
    }

    /// Returns the current usage of the pageblock that contains `frame`. Returns `None` if no zone
    /// contains the frame. A pageblock of a zone without memory gives [`Usage::Missing`].
    pub fn block(&self, frame: Frame) -> Option<BlockView> {
        let (zone, block) = self.locate(frame)?;
        Some(block_view(self.zone(zone)?, block))
    }

    /// Iterates over the zones' own metadata, in the order of the configuration.
    pub(crate) fn each_zone(&self) -> impl Iterator<Item = &Zone<'m>> {
        self.zones.iter().flatten()
    }

    /// Returns the zone, or `None` if there is no such zone.
    pub(crate) fn zone(&self, zone: ZoneId) -> Option<&Zone<'m>> {
        self.zones.get(zone.index())?.as_ref()
    }

    /// Returns the zone that contains `frame`, and the frame's pageblock. Returns `None` if no zone
    /// contains the frame.
    pub(crate) fn locate(&self, frame: Frame) -> Option<(ZoneId, BlockId)> {
        let zones = self.zones.iter().enumerate();
        zones.into_iter().find_map(|(index, zone)| {
            let block = zone.as_ref()?.block_of(frame)?;
            Some((ZoneId::new(index), block))
        })
    }
}

/// Reads and checks the extents of the first `zones` zones.
///
/// Each zone's extents must be in ascending order, apart from each other, and below the limit of
/// frame numbers. So no number that is computed from them overflows.
///
/// # Errors
/// Fails with [`AttachError::Extents`] for the first zone that violates this.
fn read_extents(
    records: &[ZoneRecord; MAX_ZONES],
    zones: usize,
) -> Result<[Extents; MAX_ZONES], AttachError> {
    const MOST: u64 = FRAME_LIMIT / PAGEBLOCK_FRAMES;
    let mut all = [Extents::default(); MAX_ZONES];
    for zone in 0..zones {
        let refuse = AttachError::Extents(ZoneId::new(zone));
        let record = &records[zone];
        let count = record.extents.load(Ordering::Relaxed) as usize;
        if count == 0 || count > MAX_EXTENTS {
            return Err(refuse);
        }
        let mut end = 0;
        for extent in &record.extent[..count] {
            // Read each number once, as it may change at any time.
            let first = extent.first.load(Ordering::Relaxed);
            let blocks = extent.blocks.load(Ordering::Relaxed);
            if first < end || blocks == 0 || first > MOST || blocks > MOST - first {
                return Err(refuse);
            }
            end = first + blocks;
            // `add` refuses extents whose trees touch. The allocator would have merged them.
            if !all[zone].add(first, blocks) {
                return Err(refuse);
            }
        }
        let (before, own) = all.split_at(zone);
        if before.iter().any(|before| before.overlap(&own[0])) {
            return Err(refuse);
        }
    }
    Ok(all)
}

/// Reads the current state of a pageblock.
fn block_view(zone: &Zone<'_>, block: BlockId) -> BlockView {
    let gib = zone.gib(block.tree()).load();
    let state = zone.arrays.states[block].load();
    BlockView::new(zone.first_frame(block), gib, state)
}

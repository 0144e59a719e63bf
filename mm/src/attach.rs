//! A second participant over the same metadata bytes, from another address space: the host of a
//! guest, which sees what is free and takes it out by the same atomic words, with no call to the
//! guest and no CPU of it.
//!
//! It trusts none of the bytes. The layout follows from the extents of the zones alone, which are
//! checked and copied once; no other number that it reads is ever used as an index, an offset or a
//! bound of a loop; and every exchange is tried a bounded number of times, as who writes against it
//! may never stop. A guest that lies about its memory loses what its own words say, nothing else.
//! How blocks are taken is in [`OpenGiant`](crate::OpenGiant), which are next in [`Reclaimer`](crate::Reclaimer).

use core::{error, fmt, ptr::NonNull};

use crate::{
    Frame, ZoneKind,
    config::{Extents, MAX_EXTENTS, MAX_ZONES, Marks},
    frame::{FRAME_LIMIT, PAGEBLOCK_FRAMES, index},
    header::{Header, MAGIC, VERSION, ZoneRecord},
    metadata::{self, Plan},
    summary::TREE_BLOCKS,
    sync::Ordering,
    zone::Zone,
};

pub use crate::usage::{BlockView, Usage};

/// Why the bytes are no metadata that can be attached to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// They do not start at an aligned page, or are less than the header.
    Misplaced,
    /// They do not start with the magic number, but with this.
    Magic(u64),
    /// They have a layout that this crate does not know.
    Version(u32),
    /// They say that they have so many zones.
    Zones(u32),
    /// This zone's extents are too many, out of order, out of range or another zone's.
    Extents(usize),
    /// What they describe needs so many bytes, which is not what they say, or more than there are.
    Length(u64),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misplaced => write!(f, "allocator metadata is whole pages"),
            Self::Magic(found) => write!(f, "no allocator metadata: it starts with {found:#x}"),
            Self::Version(found) => write!(f, "metadata of version {found}, not {VERSION}"),
            Self::Zones(found) => write!(f, "metadata of {found} zones, not 1 to {MAX_ZONES}"),
            Self::Extents(zone) => write!(f, "the extents of zone {zone} make no sense"),
            Self::Length(bytes) => write!(f, "metadata that would have {bytes:#x} bytes"),
        }
    }
}

impl error::Error for AttachError {}

/// What one zone says of itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AttachedZone {
    /// What it is good for.
    pub kind: ZoneKind,
    /// Its NUMA node.
    pub node: u16,
    /// Pageblocks that its extents have room for.
    pub blocks: u64,
    /// Frames that are free: no more than there is room for.
    pub free_frames: u64,
}

/// Metadata that this address space takes part in.
#[derive(Debug)]
pub struct Attached<'m> {
    pub(crate) header: &'m Header,
    zones: [Option<Zone<'m>>; MAX_ZONES],
}

impl<'m> Attached<'m> {
    /// Attaches to the metadata of an [`Allocator`](crate::Allocator) in another address space, or
    /// in this one.
    ///
    /// # Errors
    /// If the bytes cannot be such metadata.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `bytes` bytes for `'m`, and this address space
    /// accesses them only by this crate's atomics. What they hold, and what other address spaces
    /// store there at any time, does not matter.
    #[allow(
        unsafe_code,
        reason = "hands the caller's promise on to the metadata module"
    )]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Result<Self, AttachError> {
        let misaligned = !base.addr().get().is_multiple_of(align_of::<Header>());
        if misaligned || bytes < size_of::<Header>() {
            return Err(AttachError::Misplaced);
        }
        // SAFETY: the header fits and is aligned, as just checked; the rest the caller promises.
        let header = unsafe { metadata::header(base) };
        // `Acquire` pairs with the `Release` of an honest allocator: what it wrote before is seen.
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
            fresh: header.zone[0].used.load(Ordering::Relaxed) != 0,
        };
        let plan = Plan::new(&extents, marks);
        let said = header.bytes.load(Ordering::Relaxed);
        if plan.bytes > bytes || plan.bytes as u64 != said {
            return Err(AttachError::Length(plan.bytes as u64));
        }
        // SAFETY: the plan's bytes are there, as just checked; all items are atomics for which any
        // bytes are a value; the rest the caller promises.
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

    /// The zones, in the order of the allocator's configuration.
    pub fn zones(&self) -> impl Iterator<Item = AttachedZone> {
        self.zones.iter().flatten().map(|zone| {
            let blocks = zone.blocks() as u64;
            AttachedZone {
                kind: zone.kind,
                node: zone.node,
                blocks,
                free_frames: zone.free_frames().min(blocks * PAGEBLOCK_FRAMES),
            }
        })
    }

    /// All pageblocks, zone by zone, upwards: a map of the memory. Reads two bytes for each.
    pub fn blocks(&self) -> impl Iterator<Item = BlockView> {
        self.zones.iter().flatten().flat_map(|zone| {
            let extents = zone.extents.as_slice().iter();
            let blocks = extents.flat_map(|extent| extent.base()..extent.base() + extent.blocks());
            blocks.map(move |block| look(zone, index(block)))
        })
    }

    /// The pageblock of this frame.
    pub fn block(&self, frame: Frame) -> Option<BlockView> {
        let (zone, block) = self.locate(frame)?;
        Some(look(self.zones[zone].as_ref()?, block))
    }

    /// The zone of this number.
    pub(crate) fn zone(&self, zone: usize) -> Option<&Zone<'m>> {
        self.zones.get(zone)?.as_ref()
    }

    pub(crate) fn locate(&self, frame: Frame) -> Option<(usize, usize)> {
        let zones = self.zones.iter().enumerate();
        zones.into_iter().find_map(|(index, zone)| {
            let block = zone.as_ref()?.block_of(frame)?;
            Some((index, block))
        })
    }
}

/// The extents of all zones: in order, apart from each other, of frames that there can be. So all
/// that is computed of them fits.
fn read_extents(
    records: &[ZoneRecord; MAX_ZONES],
    zones: usize,
) -> Result<[Extents; MAX_ZONES], AttachError> {
    const MOST: u64 = FRAME_LIMIT / PAGEBLOCK_FRAMES;
    let mut all = [Extents::default(); MAX_ZONES];
    for zone in 0..zones {
        let refuse = AttachError::Extents(zone);
        let record = &records[zone];
        let count = record.extents.load(Ordering::Relaxed) as usize;
        if count == 0 || count > MAX_EXTENTS {
            return Err(refuse);
        }
        let mut end = 0;
        for extent in &record.extent[..count] {
            // Each is read once: it may change at any time.
            let first = extent.first.load(Ordering::Relaxed);
            let blocks = extent.blocks.load(Ordering::Relaxed);
            if first < end || blocks == 0 || first > MOST || blocks > MOST - first {
                return Err(refuse);
            }
            end = first + blocks;
            // The trees of those of one zone do not touch, or they would be one.
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

fn look(zone: &Zone<'_>, block: usize) -> BlockView {
    let giant = zone.giant(block / TREE_BLOCKS).load();
    let state = zone.arrays.states[block].load();
    BlockView::new(zone.first_frame(block), giant, state)
}

//! A second participant over the same metadata bytes, from another address space: the host of a
//! guest, which sees what is free and takes it out by the same atomic words, with no call to the
//! guest and no CPU of it.
//!
//! It trusts none of the bytes. The layout follows from the extents of the zones alone, which are
//! checked and copied once; no other number that it reads is ever used as an index, an offset or a
//! bound of a loop; and every exchange is tried a bounded number of times, as who writes against it
//! may never stop. A guest that lies about its memory loses what its own words say, nothing else.

use core::{error, fmt, ptr::NonNull};

use crate::{
    Frame, FrameRange, PutBack, ZoneKind,
    config::{Extent, Extents, MAX_EXTENTS, MAX_ZONES, Marks},
    frame::{FRAME_LIMIT, PAGEBLOCK_FRAMES, index},
    giant::AtomicGiant,
    header::{Header, MAGIC, VERSION, ZoneRecord},
    metadata::{self, Plan},
    reach::Reach,
    state::{Change, State},
    summary::{TREE_BLOCKS, TREE_FRAMES},
    sync::Ordering,
    whole::blocks_from,
    zone::{FREE_GIANTS, Wanted, Zone},
};

pub use crate::usage::{BlockView, Usage};

/// How often a word is exchanged before its other users are taken to be hostile. An honest guest
/// makes an exchange fail a few times at most: once for each of its CPUs that is at the same word.
const ATTEMPTS: usize = 1 << 10;
/// How often the blocks of a GiB are told what its word says, before the same is thought: each time
/// all 512 are. An honest guest makes it necessary again only by using and freeing the GiB
/// meanwhile.
const HAND_DOWNS: usize = 4;

/// Why the bytes are no metadata that can be attached to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// They do not start at an aligned page, or are less than one.
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

/// Why a block could not be taken out, or put back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No such frame is in the metadata.
    NotManaged,
    /// The block is not free, or (when it is put back) not isolated: its owner broke the rules.
    State,
    /// Others changed its words again and again.
    Contended,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotManaged => "the frame is not managed",
            Self::State => "the block is not in the state for it",
            Self::Contended => "others kept changing the block",
        })
    }
}

impl error::Error for Refused {}

/// A free pageblock that was taken out. Nobody can allocate it until it is put back; dropping this
/// loses the block to the guest.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the guest has lost the block unless it is put back"]
pub struct AttachedBlock {
    zone: usize,
    block: usize,
    start: Frame,
}

impl AttachedBlock {
    /// Its frames, by what the metadata says: whoever wrote it may have described memory that it was
    /// not given, so the caller checks that they are.
    pub fn range(&self) -> FrameRange {
        FrameRange::new(self.start, PAGEBLOCK_FRAMES)
    }
}

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
                (kind_of(record), u16::try_from(node).unwrap_or(u16::MAX)),
                extents[zone],
                arrays[zone],
                record,
            ));
        }
        Ok(Self { zones: attached })
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
        self.zones
            .iter()
            .flatten()
            .flat_map(|zone| (0..zone.blocks()).map(move |block| look(zone, block)))
    }

    /// The pageblock of this frame.
    pub fn block(&self, frame: Frame) -> Option<BlockView> {
        let (zone, block) = self.locate(frame)?;
        Some(look(self.zones[zone].as_ref()?, block))
    }

    fn locate(&self, frame: Frame) -> Option<(usize, usize)> {
        let zones = self.zones.iter().enumerate();
        zones.into_iter().find_map(|(index, zone)| {
            let block = zone.as_ref()?.block_of(frame)?;
            Some((index, block))
        })
    }

    /// Takes the pageblock of this frame out, if all of it is free: nobody can allocate it until
    /// it is put back, and an allocation that fails for its want says that it is isolated.
    ///
    /// # Errors
    /// If it is not free, or others do not leave its words alone.
    pub fn isolate(&self, frame: Frame) -> Result<AttachedBlock, Refused> {
        let (at, block) = self.locate(frame).ok_or(Refused::NotManaged)?;
        let zone = self.zones[at].as_ref().ok_or(Refused::NotManaged)?;
        let state = &zone.arrays.states[block];
        if !state.load().is_free() {
            return Err(Refused::State);
        }
        let frames = PAGEBLOCK_FRAMES.cast_signed();
        zone.count_isolation();
        zone.count_isolated(frames);
        let taken = enter(zone, block).and_then(|()| {
            let isolate = |old: State| old.is_free().then_some(old.isolated());
            let change = exchange(zone, block, isolate);
            if change.is_err() {
                // What a hostile guest makes of this does not matter.
                let _ = leave(zone, block);
            }
            change
        });
        let change = match taken {
            Ok(change) => change,
            Err(refused) => {
                zone.count_isolated(-frames);
                return Err(refused);
            }
        };
        count(zone, block, change);
        zone.count_free(-frames);
        Ok(AttachedBlock {
            zone: at,
            block,
            start: zone.first_frame(block),
        })
    }

    /// Puts a block back.
    ///
    /// # Errors
    /// If the guest has meddled with it. The block is gone then, and it is the guest that lacks it.
    pub fn put_back(&self, block: AttachedBlock, how: PutBack) -> Result<(), Refused> {
        let AttachedBlock { zone, block, .. } = block;
        let zone = self.zones[zone].as_ref().ok_or(Refused::NotManaged)?;
        if block >= zone.blocks() {
            // It is of another attachment.
            return Err(Refused::NotManaged);
        }
        let reported = how == PutBack::Reported;
        if reported && zone.arrays.states[block].load().is_fine() {
            zone.forget_touched(block);
        }
        let back = |old: State| old.is_isolated().then_some(old.put_back(reported));
        let change = exchange(zone, block, back)?;
        count(zone, block, change);
        leave(zone, block)?;
        let frames = PAGEBLOCK_FRAMES.cast_signed();
        zone.count_free(frames);
        zone.count_isolated(-frames);
        Ok(())
    }
}

fn kind_of(record: &ZoneRecord) -> ZoneKind {
    if record.kind.load(Ordering::Relaxed) == ZoneKind::Dma32 as u32 {
        ZoneKind::Dma32
    } else {
        ZoneKind::Normal
    }
}

/// The extents of all zones: in order, apart from each other, of frames that there can be. So all
/// that is computed of them fits.
fn read_extents(
    records: &[ZoneRecord; MAX_ZONES],
    zones: usize,
) -> Result<[Extents; MAX_ZONES], AttachError> {
    const MOST_TREES: u64 = FRAME_LIMIT / TREE_FRAMES;
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
            let trees = extent.trees.load(Ordering::Relaxed);
            if first < end || trees == 0 || first > MOST_TREES || trees > MOST_TREES - first {
                return Err(refuse);
            }
            end = first + trees;
            // Those of one zone do not touch, or they would be one.
            if !all[zone].add(first, trees) {
                return Err(refuse);
            }
        }
        let overlap =
            |a: &Extent, b: &Extent| a.first < b.first + b.trees && b.first < a.first + a.trees;
        let (before, own) = all.split_at(zone);
        let own = own[0].as_slice();
        let shared = before
            .iter()
            .flat_map(Extents::as_slice)
            .any(|a| own.iter().any(|b| overlap(a, b)));
        if shared {
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

/// Changes a block's state, as long as others let it.
fn exchange(
    zone: &Zone<'_>,
    block: usize,
    step: impl Fn(State) -> Option<State>,
) -> Result<Change, Refused> {
    let state = &zone.arrays.states[block];
    for _ in 0..ATTEMPTS {
        let old = state.load();
        let new = step(old).ok_or(Refused::State)?;
        if state.exchange(old, new) {
            return Ok(Change { old, new });
        }
    }
    Err(Refused::Contended)
}

/// Enters the GiB of a block that is about to be used.
fn enter(zone: &Zone<'_>, block: usize) -> Result<(), Refused> {
    let giant = zone.giant_of(block / TREE_BLOCKS);
    let word: &AtomicGiant = &zone.arrays.giants[giant];
    let mut hand_downs = 0;
    for _ in 0..ATTEMPTS {
        let old = word.load();
        if old.is_huge() {
            return Err(Refused::State);
        }
        if old.is_touched() {
            if hand_downs == HAND_DOWNS {
                break;
            }
            hand_downs += 1;
            hand_down(zone, giant)?;
            word.settled(old);
            continue;
        }
        let Some(new) = old.entered() else {
            return Err(Refused::State);
        };
        if word.exchange(old, new) {
            return Ok(());
        }
    }
    Err(Refused::Contended)
}

/// Leaves it, the block being free.
fn leave(zone: &Zone<'_>, block: usize) -> Result<(), Refused> {
    let giant = zone.giant_of(block / TREE_BLOCKS);
    let word = &zone.arrays.giants[giant];
    for _ in 0..ATTEMPTS {
        let old = word.load();
        let new = old.left().ok_or(Refused::State)?;
        if word.exchange(old, new) {
            if new.count() == 0 {
                zone.arrays.giant_map.announce(FREE_GIANTS, giant);
            }
            return Ok(());
        }
    }
    Err(Refused::Contended)
}

/// Tells the blocks of a GiB that was used whole that they are touched.
fn hand_down(zone: &Zone<'_>, giant: usize) -> Result<(), Refused> {
    // One that lacks trees is never used whole.
    let first = zone.first_tree(giant).ok_or(Refused::State)?;
    for block in blocks_from(first) {
        let touch = |old: State| (old.is_free() && !old.is_touched()).then_some(old.touched());
        match exchange(zone, block, touch) {
            Ok(change) => count(zone, block, change),
            Err(Refused::State) => {}
            Err(refused) => return Err(refused),
        }
    }
    Ok(())
}

/// Counts a change of a block that is free or isolated before and after.
fn count(zone: &Zone<'_>, block: usize, change: Change) {
    let tree = block / TREE_BLOCKS;
    let (old, new) = (change.old.class(), change.new.class());
    zone.arrays.summaries[tree].count(old, new);
    if let Some(wanted) = Wanted::of(change.new, Reach::ALL) {
        zone.announce(wanted, tree);
    }
}

const _: () = assert!(
    index(PAGEBLOCK_FRAMES) == 512,
    "a block's count has ten bits"
);

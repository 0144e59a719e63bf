//! The allocator: what a kernel calls.

use core::{fmt, ptr::NonNull};

use crate::{
    AllocError, Config, ConfigError, Frame, FrameRange, Front, HintList, Mobility, NotAHintLimit,
    NotWatermarks, Order, OrderError, Request, Watermarks, ZoneKind,
    config::{self, MAX_ZONES},
    frame::{PAGEBLOCK_FRAMES, index},
    header::{Header, MAGIC, VERSION},
    hub::Hub,
    lowmem_reserve::DMA_RESERVE_RATIO,
    metadata::{self, Plan},
    node::Fallback,
    summary::{TREE_BLOCKS, TREE_FRAMES},
    sync::Ordering,
    watermark::min_free_kbytes,
    zone::{Zone, ZoneRef},
};

/// What the allocator tells its owner. Called from within allocations and frees, so it must not
/// call back; it may set a flag or wake a thread.
pub trait Events: Sync {
    /// A block of the reporting order was freed while the reporter slept: it should be polled. While
    /// blocks are hinted: so should the hinter.
    fn report_requested(&self);
    /// Where the CPU that calls notes the blocks that it frees, while they are hinted.
    fn hints(&self) -> Option<&HintList> {
        None
    }
    /// A zone ran low: memory should be freed until it has its `high` mark.
    ///
    /// An edge. It is told by the first request that finds all zones that it may use at their low marks, for each of them
    /// that has fewer frames free than its `low` mark; and again only once that zone has had as many as its `high` mark. Frames
    /// that fronts hold do not count as free.
    fn low_memory(&self, zone: usize) {
        let _ = zone;
    }
}

/// No one to tell.
impl Events for () {
    fn report_requested(&self) {}
}

/// A page-frame allocator over metadata that its caller owns. Any number of threads may call it;
/// each hands in a [`Front`] of its own.
pub struct Allocator<'m> {
    zones: [Option<Zone<'m>>; MAX_ZONES],
    /// In which order requests try the zones.
    pub(crate) fallback: Fallback,
    zone_count: usize,
    pub(crate) hub: Hub<'m>,
}

impl fmt::Debug for Allocator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<'m> Allocator<'m> {
    /// An allocator of the zones in `config`, all of whose memory is free and untouched.
    ///
    /// Writes the header and the entries of pageblocks that lie on the edge of a range, nothing
    /// else.
    ///
    /// # Errors
    /// If the configuration is not one.
    ///
    /// # Safety
    /// `metadata` is valid for reads and writes for `'m`, of the size and alignment that
    /// [`metadata_layout`](crate::metadata_layout) gives for `config`, all zero, and used for
    /// nothing else in that time. Others may read it; they may write it only as this crate does.
    #[allow(
        unsafe_code,
        reason = "hands the caller's promise on to the metadata module"
    )]
    pub unsafe fn new(
        metadata: NonNull<u8>,
        config: &Config<'_>,
        events: &'m dyn Events,
    ) -> Result<Self, ConfigError> {
        let extents = config::extents(config)?;
        let fallback = Fallback::new(config);
        let plan = Plan::new(&extents, config.marks);
        // SAFETY: what `map` asks for is what the caller has promised.
        let (header, arrays) = unsafe { metadata::map(metadata, &plan) };
        let total: u64 = config.zones.iter().map(managed).sum();
        let mut zones = [const { None }; MAX_ZONES];
        for (zone, config) in config.zones.iter().enumerate() {
            let (record, managed) = (&header.zone[zone], managed(config));
            record.describe(config, &extents[zone], &plan.zones[zone], managed);
            let new = Zone::new(
                (config.kind, config.node),
                extents[zone],
                arrays[zone],
                record,
            );
            new.count_free(i64::try_from(managed).unwrap_or(i64::MAX));
            zones[zone] = Some(new);
        }
        let zone_count = config.zones.len();
        let allocator = Self {
            zones,
            fallback,
            zone_count,
            hub: Hub::new(events, header, config.marks.frames),
        };
        for (zone, config) in config.zones.iter().enumerate() {
            let missing = allocator.mark_missing(zone, config.ranges);
            // `Relaxed`, as is all that comes before the header is published.
            let record = allocator.zone(zone).zone.record;
            record.missing.store(missing, Ordering::Relaxed);
        }
        allocator.set_min_free_frames(min_free_kbytes(total) / 4);
        allocator.set_lowmem_reserve_ratio(ZoneKind::Dma, DMA_RESERVE_RATIO);
        allocator.publish(header, plan.bytes);
        Ok(allocator)
    }

    fn publish(&self, header: &Header, bytes: usize) {
        header.version.store(VERSION, Ordering::Relaxed);
        header.zones.store(
            u32::try_from(self.zone_count).unwrap_or(0),
            Ordering::Relaxed,
        );
        header.bytes.store(bytes as u64, Ordering::Relaxed);
        // `Release` pairs with the `Acquire` of a reader in another address space.
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Takes out what the trees of a zone cover beyond its ranges; the blocks wholly so.
    fn mark_missing(&self, zone: usize, ranges: &[FrameRange]) -> u64 {
        let at = self.zone(zone);
        let mut missing = 0;
        at.zone.mark_missing_trees();
        for extent in at.zone.extents.as_slice() {
            let mut from = extent.first_tree() * TREE_FRAMES;
            let end = from + extent.trees() * TREE_FRAMES;
            let frames = from..end;
            let base = extent.base_tree() * TREE_BLOCKS as u64;
            let inside = ranges
                .iter()
                .filter(|range| frames.contains(&range.start.number()));
            let mut gap = |start: u64, end: u64| {
                let mut frame = start;
                while frame < end {
                    let next = end.min((frame / PAGEBLOCK_FRAMES + 1) * PAGEBLOCK_FRAMES);
                    let block = index(base + (frame - frames.start) / PAGEBLOCK_FRAMES);
                    missing += u64::from(at.mark_missing(block, Frame::new(frame), next - frame));
                    frame = next;
                }
            };
            for range in inside.copied() {
                gap(from, range.start.number());
                from = range.end().number();
            }
            gap(from, end);
        }
        missing
    }

    #[inline]
    pub(crate) fn zone(&self, zone: usize) -> ZoneRef<'_, 'm> {
        let Some(zone) = &self.zones[zone] else {
            unreachable!("zone {zone} of {}", self.zone_count)
        };
        ZoneRef {
            zone,
            hub: &self.hub,
        }
    }

    /// How many zones there are. They are numbered as in the configuration.
    pub fn zones(&self) -> usize {
        self.zone_count
    }

    /// The zone and the block that hold a frame.
    #[inline]
    pub(crate) fn locate(&self, frame: Frame) -> Option<(usize, usize)> {
        self.zones[..self.zone_count]
            .iter()
            .enumerate()
            .find_map(|(index, zone)| {
                let block = zone.as_ref()?.block_of(frame)?;
                Some((index, block))
            })
    }

    #[inline]
    pub(crate) fn locate_managed(&self, frame: Frame) -> (usize, usize) {
        let Some(at) = self.locate(frame) else {
            panic!("{frame:?} is not managed")
        };
        at
    }

    /// Takes a block.
    ///
    /// Costs nothing shared in the common case of order 0, where the front holds frames, and of
    /// orders 1 to 9 where it holds what was last taken and freed. At worst it looks through the
    /// summaries of all zones.
    ///
    /// # Errors
    /// If there is none. Frames in this front have been given back then and were considered;
    /// those in the fronts of others have been asked for.
    #[inline]
    pub fn allocate(&self, front: &mut Front, request: Request) -> Result<Frame, AllocError> {
        if let Some(frame) = front
            .take_held(request)
            .or_else(|| front.take_freed(request))
        {
            return Ok(frame);
        }
        // A frame or none comes back in registers. An error would not, and then whoever asks would
        // have each frame stored and loaded again.
        self.allocate_shared(front, request)
            .ok_or_else(|| front.failure(request))
    }

    #[cold]
    #[inline(never)]
    fn allocate_shared(&self, front: &mut Front, request: Request) -> Option<Frame> {
        self.search_zones(front, request)
            .or_else(|| self.allocate_last(front, request))
    }

    /// Tries again with what this front holds of other mobilities, and notes why it failed.
    #[cold]
    #[inline(never)]
    fn allocate_last(&self, front: &mut Front, request: Request) -> Option<Frame> {
        // Before the search: a block that was out meanwhile may be what was missing.
        let (isolations, isolated) = self.isolated(front.node, request);
        self.drain(front);
        if let Some(frame) = self.search_zones(front, request) {
            return Some(frame);
        }
        self.hub.request_drain();
        front.isolated = isolated != 0 || self.isolated(front.node, request).0 != isolations;
        if front.isolated {
            self.hub.missed();
        }
        None
    }

    fn search_zones(&self, front: &mut Front, request: Request) -> Option<Frame> {
        if request.order == Order::BASE
            && let Some(frame) = self.reuse(front, request)
        {
            return Some(frame);
        }
        let frames = request.order.frames();
        let mut searched = 0_u32;
        // First the zones that stay above their low mark, then as deep as the request may go.
        for low in [true, false] {
            for zone in self.candidates(front.node, request) {
                if searched & 1 << zone != 0 {
                    continue;
                }
                let at = self.zone(zone);
                let spare = self.spare(zone, at.zone.floor(request, low), front);
                if spare < frames {
                    continue;
                }
                searched |= 1 << zone;
                let taken = match request.order.get() {
                    0 => self.refill(zone, front, request, spare),
                    1..=8 => self.take_run(zone, front, request),
                    18 => at.take_giant(request.mobility),
                    _ => at.take_whole(request.order, request.mobility),
                };
                if let Some(frame) = taken {
                    if request.order != Order::BASE {
                        front.fresh = at.zone.hand_out(frame, request.order);
                        self.count(zone, front, -(1 << request.order.get()));
                    }
                    if self.may_keep(zone, front) {
                        self.remember(zone, front, frame, request);
                    }
                    if !low {
                        self.tell_low(front, request);
                    } else if at.zone.low_memory.is_low() {
                        // Whoever put memory back in another address space cannot have said so.
                        at.zone.look_whether_it_rose();
                    }
                    return Some(frame);
                }
            }
        }
        self.tell_low(front, request);
        None
    }

    /// Tells of zones that have run low, once each, after a request that found none above its mark.
    #[cold]
    fn tell_low(&self, front: &mut Front, request: Request) {
        let local = front.node;
        for zone in self.candidates(local, request) {
            let of = self.zone(zone).zone;
            if !of.low_memory.is_low() {
                // The count is compared with marks of any size, so it must be exact.
                self.tell(front);
                if of.fell() {
                    self.hub.low_memory(zone);
                }
            }
        }
    }

    /// Frames of a zone above a floor, with what this front has not told. While there are plenty,
    /// by the zone's count as this front last saw it, when it told it of its own: the count is what
    /// all CPUs write to.
    #[inline]
    pub(crate) fn spare(&self, zone: usize, floor: u64, front: &mut Front) -> u64 {
        let above = |front: &Front| {
            u64::try_from(front.seen_free + front.untold)
                .unwrap_or(0)
                .saturating_sub(floor)
        };
        if front.untold_zone == zone && above(front) >= front.plenty() {
            return above(front);
        }
        let free = self.zone(zone).zone.free_frames();
        if front.untold_zone != zone {
            return free.saturating_sub(floor);
        }
        front.seen_free = free.cast_signed();
        above(front)
    }

    /// Notes frames freed (positive) or taken (negative), and tells the zone now and then.
    #[inline]
    pub(crate) fn count(&self, zone: usize, front: &mut Front, frames: i64) {
        if front.untold_zone != zone {
            self.tell(front);
            front.untold_zone = zone;
            front.seen_free = 0;
            front.tell_least = self.zone(zone).zone.tell_least();
        }
        front.untold += frames;
        if front.untold.abs() >= front.tell_at() {
            self.tell(front);
        }
    }

    pub(crate) fn tell(&self, front: &mut Front) {
        if front.untold != 0 {
            let zone = self.zone(front.untold_zone).zone;
            front.seen_free = zone.count_free(front.untold);
            front.untold = 0;
        }
    }

    /// Gives a block back.
    ///
    /// Costs nothing shared in the common case of order 0, where other frames of the same 64 were
    /// freed lately, and of orders 1 to 9 where the front keeps the block (it reads its state word);
    /// else one exchange on the bits and one on the state of a block.
    ///
    /// # Panics
    /// If the block is not in use, as far as that can be seen: a frame freed twice shows at
    /// once in the word that frames are handed out from, else when its word goes back to the bitmap.
    #[inline(always)]
    pub fn free(&self, front: &mut Front, frame: Frame, order: Order) {
        if order != Order::BASE {
            self.free_block(front, frame, order);
        } else if !front.words.note_freed(frame) {
            self.free_word(front, frame);
        }
    }

    fn free_block(&self, front: &mut Front, frame: Frame, order: Order) {
        if !self.keep(front, frame, order) {
            self.free_shared(front, frame, order);
        }
    }

    #[inline(never)]
    fn free_shared(&self, front: &mut Front, frame: Frame, order: Order) {
        assert!(
            frame.is_aligned(order),
            "{frame:?} freed at order {}",
            order.get()
        );
        let (zone, block) = self.locate_managed(frame);
        let at = self.zone(zone);
        if order == Order::PAGEBLOCK && self.may_keep(zone, front) && !self.hub.listens() {
            // The front remembers the wrong block. From here on it is this one.
            self.give_kept(front, order);
            self.remember(zone, front, frame, Request::new(order, Mobility::Movable));
            if self.keep(front, frame, order) {
                return;
            }
        }
        if order < Order::PAGEBLOCK {
            at.block(block)
                .give_run(index(frame.number() % PAGEBLOCK_FRAMES), order);
            self.hub.freed_run(frame, order);
        } else if order == Order::GIANT {
            at.give_giant(frame);
        } else {
            at.block(block).give_whole();
            if order > Order::PAGEBLOCK {
                at.block(block + 1).give_whole();
            }
        }
        self.count(zone, front, 1 << order.get());
    }

    /// Whether every front was asked to drain since this one last did. One relaxed load.
    #[inline]
    pub fn drain_requested(&self, front: &Front) -> bool {
        self.hub.drains() != front.drains
    }

    /// Asks every front to drain.
    pub fn request_drain(&self) {
        self.hub.request_drain();
    }

    /// The marks of a zone.
    pub fn watermarks(&self, zone: usize) -> Watermarks {
        self.zone(zone).zone.marks.load()
    }

    /// Sets the marks of a zone.
    ///
    /// # Errors
    /// If they do not rise from `min` over `low` to `high`; equal ones do.
    pub fn set_watermarks(&self, zone: usize, marks: Watermarks) -> Result<(), NotWatermarks> {
        if marks.min > marks.low || marks.low > marks.high {
            return Err(NotWatermarks(marks));
        }
        self.store_watermarks(zone, marks);
        Ok(())
    }

    fn store_watermarks(&self, zone: usize, marks: Watermarks) {
        let of = self.zone(zone).zone;
        of.marks.store(marks);
        of.look_whether_it_rose();
    }

    /// Sets the marks of all zones as Linux does for this `min_free_kbytes`, here in frames. A zone's
    /// `min` is an eighth of it at most ([`Watermarks::for_zone`]).
    pub fn set_min_free_frames(&self, min_free: u64) {
        let managed = |zone: usize| self.zone(zone).zone.managed();
        let total = (0..self.zone_count).map(managed).sum();
        for zone in 0..self.zone_count {
            self.store_watermarks(zone, Watermarks::for_zone(min_free, managed(zone), total));
        }
    }

    /// The order from which on free blocks are reported or hinted; none while neither is done.
    pub fn reporting_order(&self) -> Option<Order> {
        self.hub.reporting_order()
    }

    /// Sets the order from which on free blocks are reported, or turns reporting off. Calls for a
    /// pass of the reporter.
    ///
    /// # Errors
    /// If nothing can be given back from this order on: below 9 without
    /// [`Config::with_frame_marks`], or above 10.
    pub fn set_reporting_order(&self, order: Option<Order>) -> Result<(), OrderError> {
        self.hub.set_reporting_order(order)
    }

    /// Has blocks from this order on hinted as they are freed, instead of reported. Calls for the
    /// [`Hinter`](crate::Hinter). Undone by [`set_reporting_order`](Self::set_reporting_order); only one
    /// caller of the two at a time.
    ///
    /// # Errors
    /// As [`set_reporting_order`](Self::set_reporting_order) has them.
    pub fn set_hinting_order(&self, order: Order) -> Result<(), OrderError> {
        self.hub.set_hinting_order(order)
    }

    /// Has an attached host take what is free, instead of reports. Whoever frees a block calls
    /// [`Events::report_requested`] if the host sleeps. Undone as hinting is.
    pub fn set_shared(&self) {
        self.hub.set_shared();
    }

    /// Whether an attached host takes what is free.
    pub fn is_shared(&self) -> bool {
        self.hub.is_shared()
    }

    /// Whether freed blocks are hinted.
    pub fn is_hinting(&self) -> bool {
        self.hub.is_hinting()
    }

    /// Sets how many entries make a CPU's list full.
    ///
    /// # Errors
    /// For none, and for more than [`HINT_ENTRIES`](crate::HINT_ENTRIES), for which there is no room.
    pub fn set_hint_limit(&self, entries: usize) -> Result<(), NotAHintLimit> {
        if !(1..=crate::HINT_ENTRIES).contains(&entries) {
            return Err(NotAHintLimit(entries));
        }
        self.hub.hints().set_limit(entries);
        Ok(())
    }
}

fn managed(zone: &crate::ZoneConfig<'_>) -> u64 {
    zone.ranges.iter().map(|range| range.frames).sum()
}

//! The allocator: construction, allocation and freeing of blocks, and its settings.
//!
//! [`Allocator`] is shared by all CPUs. Each CPU passes its own [`CpuCache`], a cache of free
//! frames, so that the common allocation and the common free access no shared memory. [`Events`] is
//! the interface by which the allocator notifies the kernel.

use core::{fmt, ptr::NonNull};

use crate::{
    AllocError, Config, ConfigError, CpuCache, Frame, FrameRange, HintList, Mobility,
    NotAHintLimit, NotWatermarks, Order, OrderError, Request, Watermarks, ZoneId, ZoneKind,
    config::{self, MAX_ZONES},
    frame::{PAGEBLOCK_FRAMES, index},
    header::{Header, MAGIC, VERSION},
    ids::{BlockId, Id, TreeId},
    lowmem_reserve::DMA_RESERVE_RATIO,
    metadata::{self, Plan},
    node::Fallback,
    shared::Shared,
    summary::TREE_FRAMES,
    sync::Ordering,
    watermark::min_free_kbytes,
    zone::{Zone, ZoneRef},
};

/// Notifications from the allocator to its owner.
///
/// The allocator calls these methods inside allocations and frees, on the CPU that calls it. They
/// must not call the allocator. They may set a flag or wake a thread.
pub trait Events: Sync {
    /// Requests that the owner polls the [`Reporter`](crate::Reporter), or, while blocks are
    /// hinted, the [`Hinter`](crate::Hinter). If an attached host takes the free memory, requests
    /// that the owner wakes that host.
    ///
    /// Called when a block of the reporting order was freed while the other side was asleep. Also
    /// called by [`Allocator::set_reporting_order`] (not with `None`),
    /// [`Allocator::set_hinting_order`] and [`Allocator::set_shared`].
    fn report_requested(&self);
    /// Returns the list in which the calling CPU notes the blocks that it frees while blocks are
    /// hinted.
    ///
    /// Returns `None` if this CPU has no list, as the default does. The next sweep of the hinter
    /// over all memory then finds those blocks.
    fn hints(&self) -> Option<&HintList> {
        None
    }
    /// Notifies the owner that `zone` ran low: reclaim memory until the zone has `high` free
    /// frames. The default does nothing.
    ///
    /// Called by the first request that finds all zones that it may use at their `low` watermarks,
    /// for each of those zones that has fewer than `low` free frames. Called again for a zone only
    /// after that zone has had `high` free frames. Frames in per-CPU caches do not count as free.
    fn low_memory(&self, zone: ZoneId) {
        let _ = zone;
    }
}

/// Ignores all notifications.
impl Events for () {
    fn report_requested(&self) {}
}

/// A page-frame allocator over metadata that its caller provides.
///
/// Any number of threads may call it at the same time. Each passes a [`CpuCache`] of its own.
pub struct Allocator<'m> {
    zones: [Option<Zone<'m>>; MAX_ZONES],
    /// The order in which requests try the zones.
    pub(crate) fallback: Fallback,
    zone_count: usize,
    /// The state that all zones share.
    pub(crate) shared: Shared<'m>,
}

impl fmt::Debug for Allocator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<'m> Allocator<'m> {
    /// Creates an allocator for the zones of `config`. All memory is free, and the host holds none
    /// of it. `events` receives the allocator's notifications. The watermarks and the lowmem
    /// reserve are Linux's defaults, and reporting is off.
    ///
    /// Writes the header and the entries of pageblocks and GiBs at the edges of ranges, and nothing
    /// else.
    ///
    /// # Errors
    /// Fails if the configuration is invalid (see [`ConfigError`]). Nothing was written then.
    ///
    /// # Safety
    /// `metadata` is valid for reads and writes for `'m`, has the size and alignment that
    /// [`metadata_layout`](crate::metadata_layout) returns for `config`, is all zero, and is used
    /// for nothing else in that time. Others may read it, and may write it only with the atomic
    /// operations of this crate.
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
        // SAFETY: the caller of `new` guarantees the memory that `map` requires.
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
            shared: Shared::new(events, header, config.marks.frames),
        };
        for (zone, config) in allocator.zone_ids().zip(config.zones) {
            let missing = allocator.mark_missing(zone, config.ranges);
            // `Relaxed`: the store of `magic` with `Release` publishes it.
            let record = allocator.zone(zone).zone.record;
            record.missing.store(missing, Ordering::Relaxed);
        }
        allocator.set_min_free_frames(min_free_kbytes(total) / 4);
        allocator.set_lowmem_reserve_ratio(ZoneKind::Dma, DMA_RESERVE_RATIO);
        allocator.publish(header, plan.bytes);
        Ok(allocator)
    }

    /// Writes the rest of the header, and `magic` last. `bytes` is the length of the metadata.
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

    /// Marks the frames in a zone's trees that are in no range of `ranges` as missing. Returns the
    /// number of pageblocks that have no memory at all.
    fn mark_missing(&self, zone: ZoneId, ranges: &[FrameRange]) -> u64 {
        let at = self.zone(zone);
        let mut missing = 0;
        at.zone.mark_missing_trees();
        for extent in at.zone.extents.as_slice() {
            let mut from = extent.first_tree() * TREE_FRAMES;
            let end = from + extent.trees() * TREE_FRAMES;
            let frames = from..end;
            let first = TreeId::new(index(extent.base_tree())).first_block();
            let inside = ranges
                .iter()
                .filter(|range| frames.contains(&range.start.number()));
            let mut gap = |start: u64, end: u64| {
                let mut frame = start;
                while frame < end {
                    let next = end.min((frame / PAGEBLOCK_FRAMES + 1) * PAGEBLOCK_FRAMES);
                    let block = first.offset(index((frame - frames.start) / PAGEBLOCK_FRAMES));
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

    /// Returns the zone, together with the state that all zones share.
    ///
    /// # Panics
    /// If there is no such zone.
    #[inline]
    pub(crate) fn zone(&self, zone: ZoneId) -> ZoneRef<'_, 'm> {
        let Some(zone) = &self.zones[zone.index()] else {
            unreachable!("zone {} of {}", zone.index(), self.zone_count)
        };
        ZoneRef {
            zone,
            shared: &self.shared,
        }
    }

    /// Iterates over the zones, in the order of the configuration.
    pub fn zone_ids(
        &self,
    ) -> impl ExactSizeIterator<Item = ZoneId> + DoubleEndedIterator + Clone + use<> {
        (0..self.zone_count).map(ZoneId::new)
    }

    /// Returns the zone that contains `frame`, and the frame's pageblock. Returns `None` if the
    /// frame is in no pageblock of any zone. A frame without memory, or offline, is found if its
    /// pageblock lies in an extent of the zone.
    #[inline]
    pub(crate) fn locate(&self, frame: Frame) -> Option<(ZoneId, BlockId)> {
        self.zones[..self.zone_count]
            .iter()
            .enumerate()
            .find_map(|(index, zone)| {
                let block = zone.as_ref()?.block_of(frame)?;
                Some((ZoneId::new(index), block))
            })
    }

    /// Returns the zone that contains `frame`, and the frame's pageblock, like
    /// [`locate`](Self::locate).
    ///
    /// # Panics
    /// If the frame is in no pageblock of any zone.
    #[inline]
    pub(crate) fn locate_managed(&self, frame: Frame) -> (ZoneId, BlockId) {
        let Some(at) = self.locate(frame) else {
            panic!("{frame:?} is not managed")
        };
        at
    }

    /// Allocates one block, as `request` describes it, and returns its first frame.
    ///
    /// Accesses no shared memory if the per-CPU `cache` holds a suitable block. That is the common
    /// case for order 0. For orders 1 to 9 it is the case if the block that was last allocated
    /// through `cache` has been freed through it. In the worst case this searches the summaries of
    /// all zones. Calls [`Events::low_memory`] if zones ran low.
    ///
    /// # Errors
    /// Fails with [`AllocError::Exhausted`] if no zone has a suitable block, and with
    /// [`AllocError::Isolated`] if blocks that could have served the request are isolated at the
    /// moment. Before it fails, it drains `cache` and searches again, then requests that all other
    /// caches be drained.
    #[inline]
    pub fn allocate(&self, cache: &mut CpuCache, request: Request) -> Result<Frame, AllocError> {
        if let Some(frame) = cache
            .take_held(request)
            .or_else(|| cache.take_freed(request))
        {
            return Ok(frame);
        }
        // `Option<Frame>` is returned in registers, a `Result` with this error is not. With the
        // latter each frame would be stored to memory and loaded again.
        self.allocate_shared(cache, request)
            .ok_or_else(|| cache.failure(request))
    }

    /// Allocates a block that the cache does not hand out at once. Returns `None` if there is none.
    #[cold]
    #[inline(never)]
    fn allocate_shared(&self, cache: &mut CpuCache, request: Request) -> Option<Frame> {
        self.search_zones(cache, request)
            .or_else(|| self.allocate_last(cache, request))
    }

    /// Drains `cache`, whose frames may be of other mobilities, and searches again.
    ///
    /// Returns `None` if there is no block. Then `cache.isolated` is set if isolated blocks may be
    /// the reason, and all caches are requested to drain.
    #[cold]
    #[inline(never)]
    fn allocate_last(&self, cache: &mut CpuCache, request: Request) -> Option<Frame> {
        // Read before the search: a block that is put back during the search may be the one that is
        // missing.
        let (isolations, isolated) = self.isolated(cache.node, request);
        self.drain(cache);
        if let Some(frame) = self.search_zones(cache, request) {
            return Some(frame);
        }
        self.shared.request_drain();
        cache.isolated = isolated != 0 || self.isolated(cache.node, request).0 != isolations;
        if cache.isolated {
            self.shared.count_isolation_failure();
        }
        None
    }

    /// Searches the cache for reusable frames, then all zones that the request may use. Returns
    /// `None` if no zone has a suitable block above its reserve.
    fn search_zones(&self, cache: &mut CpuCache, request: Request) -> Option<Frame> {
        if request.order == Order::BASE
            && let Some(frame) = self.reuse(cache, request)
        {
            return Some(frame);
        }
        let frames = request.order.frames();
        let mut searched = 0_u32;
        // First the zones that stay above their `low` watermark, then all of them down to the
        // number of frames that the request must leave.
        for low in [true, false] {
            for zone in self.candidates(cache.node, request) {
                if searched & 1 << zone.index() != 0 {
                    continue;
                }
                let at = self.zone(zone);
                let spare = self.spare(zone, at.zone.floor(request, low), cache);
                if spare < frames {
                    continue;
                }
                searched |= 1 << zone.index();
                let taken = match request.order.get() {
                    0 => self.refill(zone, cache, request, spare),
                    1..=8 => self.take_run(zone, cache, request),
                    18 => at.take_gib(request.mobility),
                    _ => at.take_whole(request.order, request.mobility),
                };
                if let Some(frame) = taken {
                    if request.order != Order::BASE {
                        cache.never_used = at.zone.hand_out(frame, request.order);
                        self.count(zone, cache, -(1 << request.order.get()));
                    }
                    if self.may_keep(zone, cache) {
                        self.remember(zone, cache, frame, request);
                    }
                    if !low {
                        self.notify_low(cache, request);
                    } else if at.zone.low_memory.is_low() {
                        // A host in another address space may have put memory back, and cannot
                        // clear this flag itself.
                        at.zone.check_high_watermark();
                    }
                    return Some(frame);
                }
            }
        }
        self.notify_low(cache, request);
        None
    }

    /// Calls [`Events::low_memory`] for each zone that has just run low. For a request that found
    /// no zone above its `low` watermark.
    #[cold]
    fn notify_low(&self, cache: &mut CpuCache, request: Request) {
        let local = cache.node;
        for zone in self.candidates(local, request) {
            let of = self.zone(zone).zone;
            if !of.low_memory.is_low() {
                // The watermarks may be small, so add the frames that only `cache` has counted.
                self.flush_count(cache);
                if of.mark_low() {
                    self.shared.low_memory(zone);
                }
            }
        }
    }

    /// Returns the number of free frames of a zone beyond the `floor` frames that a request must
    /// leave, or 0 if there are fewer. Includes those that `cache` has not yet added to the zone's
    /// counter.
    ///
    /// If plenty are free, this uses the value of the counter that `cache` saw last. All CPUs write
    /// to the counter, so reading it costs a cache miss.
    #[inline]
    pub(crate) fn spare(&self, zone: ZoneId, floor: u64, cache: &mut CpuCache) -> u64 {
        let above = |cache: &CpuCache| {
            u64::try_from(cache.seen_free + cache.uncounted)
                .unwrap_or(0)
                .saturating_sub(floor)
        };
        if cache.uncounted_zone == zone && above(cache) >= cache.plenty() {
            return above(cache);
        }
        let free = self.zone(zone).zone.free_frames();
        if cache.uncounted_zone != zone {
            return free.saturating_sub(floor);
        }
        cache.seen_free = free.cast_signed();
        above(cache)
    }

    /// Counts `frames` frames of a zone as freed (if positive) or allocated (if negative): first in
    /// the per-CPU `cache`, and from time to time in the zone's shared counter of free
    /// frames.
    #[inline]
    pub(crate) fn count(&self, zone: ZoneId, cache: &mut CpuCache, frames: i64) {
        if cache.uncounted_zone != zone {
            self.flush_count(cache);
            cache.uncounted_zone = zone;
            cache.seen_free = 0;
            cache.flush_least = self.zone(zone).zone.flush_least();
        }
        cache.uncounted += frames;
        if cache.uncounted.abs() >= cache.flush_at() {
            self.flush_count(cache);
        }
    }

    /// Adds the frames that `cache` has counted locally to their zone's shared counter of free
    /// frames. Does nothing if that number is 0.
    pub(crate) fn flush_count(&self, cache: &mut CpuCache) {
        if cache.uncounted != 0 {
            let zone = self.zone(cache.uncounted_zone).zone;
            cache.seen_free = zone.count_free(cache.uncounted);
            cache.uncounted = 0;
        }
    }

    /// Frees the block of this order that starts at `frame`, into the per-CPU `cache` or to its
    /// zone. May call [`Events::report_requested`].
    ///
    /// Accesses no shared memory in the common case: for order 0 if `cache` holds other frames of
    /// the same group of 64, and for orders 1 to 9 if `cache` keeps the block (it reads the block's
    /// state then). Otherwise it costs one exchange on the bitmap and one on the state of the
    /// block.
    ///
    /// # Panics
    /// If `frame` is not managed or not aligned to `order`, or if the block is not in use, as far
    /// as this can be detected. A double free of a frame is detected at once if `cache` holds the
    /// frame in a group that it allocates from or collects. Otherwise it is detected when the group
    /// goes back to the bitmap.
    #[inline(always)]
    pub fn free(&self, cache: &mut CpuCache, frame: Frame, order: Order) {
        if order != Order::BASE {
            self.free_block(cache, frame, order);
        } else if !cache.groups.note_freed(frame) {
            self.free_word(cache, frame);
        }
    }

    /// Frees a block above order 0: into the cache, or to the zone.
    fn free_block(&self, cache: &mut CpuCache, frame: Frame, order: Order) {
        if !self.cache_block(cache, frame, order) {
            self.free_shared(cache, frame, order);
        }
    }

    /// Frees a block above order 0 to the zone.
    #[inline(never)]
    fn free_shared(&self, cache: &mut CpuCache, frame: Frame, order: Order) {
        assert!(
            frame.is_aligned(order),
            "{frame:?} freed at order {}",
            order.get()
        );
        let (zone, block) = self.locate_managed(frame);
        let at = self.zone(zone);
        if order == Order::PAGEBLOCK && self.may_keep(zone, cache) && !self.shared.listens() {
            // The cache keeps another pageblock. Free that one, and keep this one instead.
            self.free_cached(cache, order);
            self.remember(zone, cache, frame, Request::new(order, Mobility::Movable));
            if self.cache_block(cache, frame, order) {
                return;
            }
        }
        if order < Order::PAGEBLOCK {
            let left = at
                .block(block)
                .give_run(index(frame.number() % PAGEBLOCK_FRAMES), order);
            self.shared.freed_in_word(frame, left.word);
        } else if order == Order::GIB {
            at.give_gib(frame);
        } else {
            at.block(block).give_whole();
            if order > Order::PAGEBLOCK {
                at.block(block.next()).give_whole();
            }
        }
        self.count(zone, cache, 1 << order.get());
    }

    /// Returns `true` if a drain of all per-CPU caches was requested since `cache` was last
    /// drained. Costs one relaxed load.
    #[inline]
    pub fn drain_requested(&self, cache: &CpuCache) -> bool {
        self.shared.drains() != cache.drains
    }

    /// Requests that every per-CPU cache be drained. [`drain_requested`](Self::drain_requested)
    /// returns `true` for each of them from now on, until it is drained. Only sets a mark: wakes no
    /// CPU and waits for none.
    pub fn request_drain(&self) {
        self.shared.request_drain();
    }

    /// Returns the watermarks of a zone, in frames.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn watermarks(&self, zone: ZoneId) -> Watermarks {
        self.zone(zone).zone.marks.load()
    }

    /// Sets the watermarks of a zone, in frames. If the zone has `high` free frames, it no longer
    /// counts as low on memory. Requests a pass of a sleeping reporter.
    ///
    /// # Errors
    /// Fails if not `min` <= `low` <= `high`. Nothing is changed then.
    ///
    /// # Panics
    /// If there is no such zone.
    pub fn set_watermarks(&self, zone: ZoneId, marks: Watermarks) -> Result<(), NotWatermarks> {
        if marks.min > marks.low || marks.low > marks.high {
            return Err(NotWatermarks(marks));
        }
        self.store_watermarks(zone, marks);
        Ok(())
    }

    /// Stores the watermarks, and clears the zone's low-memory flag if it has `high` free frames
    /// now.
    fn store_watermarks(&self, zone: ZoneId, marks: Watermarks) {
        let of = self.zone(zone).zone;
        of.marks.store(marks);
        of.check_high_watermark();
        // The zone may have been too short of memory for a report before.
        self.shared.request_pass();
    }

    /// Sets the watermarks of all zones as Linux does for `vm.min_free_kbytes`, but `min_free` is
    /// in frames, for all zones together. A zone's `min` is at most an eighth of its memory
    /// ([`Watermarks::for_zone`]). Zones that have `high` free frames then no longer count as low
    /// on memory.
    pub fn set_min_free_frames(&self, min_free: u64) {
        let managed = |zone: ZoneId| self.zone(zone).zone.managed();
        let total = self.zone_ids().map(managed).sum();
        for zone in self.zone_ids() {
            self.store_watermarks(zone, Watermarks::for_zone(min_free, managed(zone), total));
        }
    }

    /// Returns the smallest order of free blocks that are reported or hinted. Returns `None` while
    /// neither is active, also while an attached host takes free memory.
    pub fn reporting_order(&self) -> Option<Order> {
        self.shared.reporting_order()
    }

    /// Sets the smallest order of free blocks that are reported to the host. `None` turns reporting
    /// off.
    ///
    /// Ends hinting, and the mode in which an attached host takes free memory. Unless `order` is
    /// `None` or a pass is under way, requests a pass of the reporter at once
    /// ([`Events::report_requested`]).
    ///
    /// # Errors
    /// Fails if the order is below 9 without [`Config::with_frame_marks`], or above 10. Nothing is
    /// changed then.
    pub fn set_reporting_order(&self, order: Option<Order>) -> Result<(), OrderError> {
        self.shared.set_reporting_order(order)
    }

    /// Starts page hinting for blocks of `order` and above: CPUs note such blocks when they free
    /// them, and the [`Hinter`](crate::Hinter) passes them to the host. This ends free page
    /// reporting, and the mode in which an attached host takes free memory
    /// ([`set_shared`](Self::set_shared)).
    ///
    /// Requests a poll of the hinter at once ([`Events::report_requested`]).
    /// [`set_reporting_order`](Self::set_reporting_order) ends hinting. Only one thread may call
    /// these two functions at a time.
    ///
    /// # Errors
    /// Fails like [`set_reporting_order`](Self::set_reporting_order). Nothing is changed then.
    pub fn set_hinting_order(&self, order: Order) -> Result<(), OrderError> {
        self.shared.set_hinting_order(order)
    }

    /// Starts the mode in which an attached host takes free memory itself
    /// ([`attach`](crate::attach)). Ends free page reporting and hinting.
    ///
    /// Calls [`Events::report_requested`] at once, so that the owner wakes the host. From then on
    /// the CPU that frees a block calls it if the host is asleep.
    /// [`set_reporting_order`](Self::set_reporting_order) and
    /// [`set_hinting_order`](Self::set_hinting_order) end the mode.
    pub fn set_shared(&self) {
        self.shared.set_shared();
    }

    /// Returns `true` in the mode in which an attached host takes free memory
    /// ([`set_shared`](Self::set_shared)).
    pub fn is_shared(&self) -> bool {
        self.shared.is_shared()
    }

    /// Returns `true` while freed blocks are hinted
    /// ([`set_hinting_order`](Self::set_hinting_order)).
    pub fn is_hinting(&self) -> bool {
        self.shared.is_hinting()
    }

    /// Returns how many entries make a CPU's [`HintList`] full.
    pub fn hint_limit(&self) -> usize {
        self.shared.hints().limit()
    }

    /// Sets how many entries make a CPU's [`HintList`] full, initially
    /// [`HINT_LIMIT`](crate::HINT_LIMIT). A CPU that fills its list wakes the hinter.
    ///
    /// # Errors
    /// Fails if `entries` is 0 or above [`HINT_ENTRIES`](crate::HINT_ENTRIES). Nothing is changed
    /// then.
    pub fn set_hint_limit(&self, entries: usize) -> Result<(), NotAHintLimit> {
        if !(1..=crate::HINT_ENTRIES).contains(&entries) {
            return Err(NotAHintLimit(entries));
        }
        self.shared.hints().set_limit(entries);
        Ok(())
    }
}

/// Returns the number of frames in the ranges of a zone.
fn managed(zone: &crate::ZoneConfig<'_>) -> u64 {
    zone.ranges.iter().map(|range| range.frames).sum()
}

//! The per-CPU cache of free frames, [`CpuCache`]. It is plain memory, so the common allocation and
//! the common free access nothing that other CPUs write.
//!
//! A cache holds frames of up to eight groups of 64 frames ([`GroupCache`]); a group is one `u64`
//! of the bitmap. For each mobility there is one group to allocate from. Up to 64 frames of it are
//! taken with one exchange. The other groups collect freed frames. The frames of a group go back
//! with one exchange when another group needs its entry, or when the cache is drained.
//!
//! The cache also counts allocated and freed frames locally, and adds them to the zone's shared
//! counter from time to time.

use crate::{
    AllocError, Frame, Mobility, Order, Request, ZoneId,
    bitmap::WORD_FRAMES,
    cached_block::{CACHED_BLOCKS, CachedBlock},
    frame::PAGEBLOCK_FRAMES,
    group_cache::{GroupCache, GroupMask},
    ids::{BlockId, TreeId},
    search::OpenHint,
    zone::Zone,
};

/// The usual minimum of frames that a cache counts locally before it updates the shared counter of
/// free frames.
const FLUSH_LEAST: u64 = 256;
/// In a small zone the minimum is lower: the zone's managed frames divided by two to this power.
const FLUSH_LEAST_SHIFT: u32 = 8;
/// If many frames are free, a cache counts more locally: the free frames divided by two to this
/// power.
const FLUSH_SHIFT: u32 = 10;
/// The maximum of frames that a cache counts locally (16 MiB).
const FLUSH_MOST: i64 = 4096;
/// The id of no zone.
const NO_ZONE: ZoneId = ZoneId::new(usize::MAX);
/// The cache relies on the value of the shared counter that it saw last if this many times its
/// local limit are free, beyond the frames that the request must leave.
const PLENTY: u64 = 16;

/// A pageblock that a per-CPU cache allocates from. Other caches search elsewhere first.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldBlock {
    /// The zone.
    pub(crate) zone: ZoneId,
    /// The pageblock in that zone.
    pub(crate) block: BlockId,
}

impl HeldBlock {
    /// Returns the pageblock of `held`. Returns `None` if it is in another zone than `zone`.
    pub(crate) fn in_zone(held: Option<Self>, zone: ZoneId) -> Option<BlockId> {
        held.filter(|held| held.zone == zone).map(|held| held.block)
    }
}

/// The cache of free frames of one CPU (or thread), with at most 704 single frames.
///
/// Pass it by `&mut` to each call. It needs no lock if only one CPU uses it at a time. It holds
/// frames of eight groups of 64, of one more group for each mobility that was never allocated
/// before, and the most recently freed block of each order from 1 to 9.
///
/// Call [`Allocator::drain`](crate::Allocator::drain) before you drop it, or the frames in it are
/// lost. A debug build panics in that case, but never while another panic unwinds the stack.
/// Without the feature `std` the crate cannot know that, so it panics only where a panic aborts the
/// program.
#[derive(Debug)]
pub struct CpuCache {
    /// Single frames: up to eight groups of 64.
    pub(crate) groups: GroupCache,
    /// For each mobility, the pageblock that frames were last taken from. The next are taken from
    /// there, too.
    pub(crate) held: [Option<HeldBlock>; Mobility::COUNT],
    /// For each mobility, the remaining frames of a group of 64 that was never allocated before.
    /// They are kept apart, so that frames of the other groups need no check of their contents.
    pub(crate) unused_groups: [GroupMask; Mobility::COUNT],
    /// The most recently allocated block of each order from 1 to 9. The cache keeps it when it is
    /// freed.
    pub(crate) blocks: [CachedBlock; CACHED_BLOCKS],
    /// For each mobility, the pageblock that this cache last split for a run of frames.
    pub(crate) opened: [Option<HeldBlock>; Mobility::COUNT],
    /// For each mobility, the zone and the tree (64 MiB) in which this cache last split a free
    /// pageblock.
    pub(crate) home: [Option<(ZoneId, TreeId)>; Mobility::COUNT],
    /// Whether the block most recently taken from a zone had never been allocated before.
    pub(crate) never_used: bool,
    /// Whether blocks were isolated when a request last failed.
    pub(crate) isolated: bool,
    /// Frames freed minus frames allocated in the zone `uncounted_zone` since its shared counter
    /// was last updated.
    pub(crate) uncounted: i64,
    /// The zone of `uncounted`.
    pub(crate) uncounted_zone: ZoneId,
    /// The smallest absolute value of `uncounted` at which the shared counter of that zone is
    /// updated.
    pub(crate) flush_least: i64,
    /// The shared counter of that zone when this cache last updated or read it, or 0 if it did
    /// neither.
    pub(crate) seen_free: i64,
    /// The number of drain requests up to the last drain.
    pub(crate) drains: u32,
    /// The NUMA node of the CPU that uses this cache.
    pub(crate) node: u16,
}

impl CpuCache {
    /// Returns an empty per-CPU cache, for a CPU of NUMA node 0.
    pub const fn new() -> Self {
        Self::on_node(0)
    }

    /// Returns an empty per-CPU cache, for a CPU of this NUMA node. Requests with
    /// [`NodePolicy::Local`](crate::NodePolicy::Local) take memory of this node while it has
    /// enough.
    pub const fn on_node(node: u16) -> Self {
        Self {
            groups: GroupCache::new(),
            held: [None; Mobility::COUNT],
            unused_groups: [GroupMask::NONE; Mobility::COUNT],
            blocks: [CachedBlock::NONE; CACHED_BLOCKS],
            opened: [None; Mobility::COUNT],
            home: [None; Mobility::COUNT],
            never_used: false,
            isolated: false,
            uncounted: 0,
            uncounted_zone: NO_ZONE,
            flush_least: 0,
            seen_free: 0,
            drains: 0,
            node,
        }
    }

    /// Returns the NUMA node of the CPU that uses this cache.
    pub const fn node(&self) -> u16 {
        self.node
    }

    /// Returns the number of free frames in this cache, in single frames and in blocks.
    pub fn held(&self) -> u64 {
        let singles = self.masks().map(|group| u64::from(group.mask.count_ones()));
        singles.sum::<u64>() + self.blocks.iter().map(CachedBlock::frames).sum::<u64>()
    }

    /// Iterates over the single frames in this cache, group by group.
    fn masks(&self) -> impl Iterator<Item = GroupMask> {
        self.groups.masks().chain(self.unused_groups)
    }

    /// Returns `true` if the cache holds no frame and its local count is 0.
    pub(crate) fn is_empty(&self) -> bool {
        self.masks().all(|group| group.mask == 0)
            && self.blocks.iter().all(|cached| !cached.is_held)
            && self.uncounted == 0
    }

    /// Returns how many frames this cache may count locally, as freed or allocated, before it
    /// updates the zone's shared counter.
    #[inline]
    pub(crate) fn flush_at(&self) -> i64 {
        (self.seen_free >> FLUSH_SHIFT)
            .min(FLUSH_MOST)
            .max(self.flush_least)
    }

    /// Returns the number of frames, beyond those that a request must leave, from which on the
    /// cache relies on the value of the shared counter that it saw last.
    #[inline]
    pub(crate) fn plenty(&self) -> u64 {
        // Not fewer in a small zone, as other CPUs may allocate just as much there.
        let limit = self.seen_free.unsigned_abs() >> FLUSH_SHIFT;
        PLENTY * limit.clamp(FLUSH_LEAST, FLUSH_MOST.unsigned_abs())
    }

    /// Returns the tree (64 MiB) of this zone in which this per-CPU cache last split a free
    /// pageblock for `mobility`, as the one to prefer. The hint is empty if that was in another
    /// zone or never.
    pub(crate) fn open_hint(&self, zone: ZoneId, mobility: Mobility) -> OpenHint {
        let home = self.home[mobility.index()].filter(|home| home.0 == zone);
        OpenHint {
            home: home.map(|home| home.1),
            opened: None,
        }
    }

    /// Remembers the tree in `hint` as the one that this per-CPU cache prefers. Does nothing if the
    /// search split no pageblock.
    pub(crate) fn store_open_hint(&mut self, zone: ZoneId, mobility: Mobility, hint: OpenHint) {
        if hint.opened.is_some() {
            self.home[mobility.index()] = hint.home.map(|home| (zone, home));
        }
    }

    /// Allocates a block from this per-CPU cache alone, without the allocator: the common case of
    /// [`Allocator::allocate`](crate::Allocator::allocate). The contents of the block are unknown.
    ///
    /// Returns `None` if the cache has no suitable block at hand. Then call the allocator, which
    /// may still have one.
    #[inline]
    pub fn take_held(&mut self, request: Request) -> Option<Frame> {
        if !request.takes_any() {
            None
        } else if request.order == Order::BASE {
            self.groups.pop_left(request.mobility)
        } else {
            self.take_cached(request.order, request.mobility)
        }
    }

    /// Allocates a frame that was freed to the same group of 64 that this cache allocates from.
    /// Returns `None` if there is none, or the request is not for any single frame.
    #[inline]
    pub(crate) fn take_freed(&mut self, request: Request) -> Option<Frame> {
        if request.order == Order::BASE && request.takes_any() {
            self.groups.pop_freed(request.mobility)
        } else {
            None
        }
    }

    /// Returns the error for this request, which has just failed: `Isolated` if blocks were
    /// isolated at that time, otherwise `Exhausted`.
    #[cold]
    pub(crate) fn failure(&self, request: Request) -> AllocError {
        let Request { order, zone, .. } = request;
        if self.isolated {
            AllocError::Isolated { order, zone }
        } else {
            AllocError::Exhausted { order, zone }
        }
    }

    /// Returns `true` if this cache holds exactly `frames` frames of the pageblock that starts with
    /// frame number `first`.
    #[inline]
    pub(crate) fn holds_all(&self, first: u64, frames: u32) -> bool {
        let inside = |base: u64| base.wrapping_sub(first) < PAGEBLOCK_FRAMES;
        let cached = self.blocks.iter().filter(|cached| inside(cached.base));
        let cached = cached.map(CachedBlock::frames).sum::<u64>();
        // A cheap upper bound first: it is mostly too small, and exact counting costs a dozen
        // instructions a group.
        let unused = Mobility::COUNT as u64 * u64::from(WORD_FRAMES);
        let most = self.groups.most_of_block(first / PAGEBLOCK_FRAMES) + unused + cached;
        if most < u64::from(frames) {
            return false;
        }
        let groups = self.masks();
        let groups = groups.filter(|group| group.mask != 0 && inside(group.base()));
        let held = groups.map(|group| u64::from(group.mask.count_ones()));
        cached + held.sum::<u64>() == u64::from(frames)
    }

    /// Allocates a frame of a group of 64 that was never allocated before. Returns `None` if the
    /// cache holds no such group, or the request is not for any single frame.
    #[inline]
    pub(crate) fn take_unused(&mut self, request: Request) -> Option<Frame> {
        if request.order == Order::BASE && request.takes_any() {
            self.unused_groups[request.mobility.index()].pop()
        } else {
            None
        }
    }

    /// Makes `group`, frames of one group of 64, the frames that this cache allocates from for
    /// `mobility`. They were just taken from the bitmap, or from a group that was never allocated
    /// before. The cache must have no frame left of the group that it allocated from before.
    ///
    /// Returns the frames that had the same entry of the cache, often none. The caller must free
    /// them, but only after it has allocated a frame. Otherwise the cache would seem to hold all of
    /// the pageblock's used frames.
    pub(crate) fn begin(&mut self, group: GroupMask, mobility: Mobility) -> GroupMask {
        let (entry, evicted) = self.groups.entry(group.word);
        self.groups.hand_out_from(entry, group.mask, mobility);
        evicted
    }

    /// Adds freed frames of one group of 64 to this cache, in an entry that another group may have
    /// had. Returns the frames of that other group, often none. The caller must free them.
    ///
    /// # Panics
    /// If the cache holds one of the frames already: it was freed twice.
    pub(crate) fn note_group(&mut self, freed: GroupMask) -> GroupMask {
        let (entry, evicted) = self.groups.entry(freed.word);
        for mobility in Mobility::ALL {
            let unused = self.unused_groups[mobility.index()];
            if unused.word == freed.word {
                // A frame that is still to be allocated cannot be freed.
                unused.check_without(freed.mask);
                self.groups.note_own(entry, mobility);
                if self.groups.is_used_up(mobility) {
                    self.groups.hand_out_from(entry, 0, mobility);
                }
            }
        }
        self.groups.note_freed_at(entry, freed.mask);
        evicted
    }
}

impl Zone<'_> {
    /// Returns the smallest number of frames that a per-CPU cache counts locally before it updates
    /// this zone's shared counter. It is small enough that the local counts of all CPUs together do
    /// not hide the use of the zone's reserve.
    pub(crate) fn flush_least(&self) -> i64 {
        let part = self.managed() >> FLUSH_LEAST_SHIFT;
        part.clamp(1, FLUSH_LEAST).cast_signed()
    }
}

impl Default for CpuCache {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CpuCache {
    fn drop(&mut self) {
        debug_assert!(
            self.is_empty() || may_be_unwinding(),
            "a per-CPU cache was dropped with {} frames in it",
            self.held()
        );
    }
}

/// Returns whether a panic may be unwinding the stack of this thread. A second panic would then end
/// the process without the message of the first.
///
/// Without the standard library only a program that aborts at a panic is known not to be unwinding.
fn may_be_unwinding() -> bool {
    #[cfg(any(test, feature = "std"))]
    return std::thread::panicking();
    #[cfg(not(any(test, feature = "std")))]
    return cfg!(panic = "unwind");
}

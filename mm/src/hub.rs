//! What all zones share: whom to tell of what, and what is asked of every front.

use core::fmt;

use crate::{
    Order,
    allocator::Events,
    bitmap::runs,
    header::Header,
    sync::{AtomicU32, Ordering},
};

/// Nobody wants to hear of freed blocks: reporting is off, or a pass is due anyway.
const SILENT: u32 = 0;
/// The reporter sleeps: the first block freed wakes it.
const WATCHING: u32 = 1;
/// The reporter is at work: a block freed now calls for another pass.
const WORKING: u32 = 2;

/// Reporting is off.
const OFF: u32 = 255;

/// The shared part of an allocator.
pub(crate) struct Hub<'m> {
    events: &'m dyn Events,
    header: &'m Header,
    trigger: AtomicU32,
    drains: AtomicU32,
    /// Whether there is metadata for what the host holds of single frames.
    frame_marks: bool,
}

impl fmt::Debug for Hub<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("trigger", &self.trigger)
            .finish_non_exhaustive()
    }
}

impl<'m> Hub<'m> {
    pub(crate) fn new(events: &'m dyn Events, header: &'m Header, frame_marks: bool) -> Self {
        header.reporting_order.store(OFF, Ordering::Relaxed);
        Self {
            events,
            header,
            trigger: AtomicU32::new(SILENT),
            drains: AtomicU32::new(0),
            frame_marks,
        }
    }

    pub(crate) fn low_memory(&self, zone: usize) {
        self.events.low_memory(zone);
    }

    /// `Relaxed`: a block freed while the order changes is found by the pass that the change
    /// calls for.
    #[inline]
    pub(crate) fn reporting_order(&self) -> Option<Order> {
        u8::try_from(self.header.reporting_order.load(Ordering::Relaxed))
            .ok()
            .and_then(Order::new)
    }

    pub(crate) fn set_reporting_order(&self, order: Option<Order>) {
        let least = if self.frame_marks {
            Order::BASE
        } else {
            Order::PAGEBLOCK
        };
        let value = order.map_or(OFF, |order| u32::from(order.clamp(least, Order::MAX).get()));
        self.header.reporting_order.store(value, Ordering::Relaxed);
        match order {
            // Blocks that are free already wait for a pass as much as those freed from now on.
            Some(_) => self.announce(self.trigger.swap(SILENT, Ordering::AcqRel) != WORKING),
            None => self.trigger.store(SILENT, Ordering::Release),
        }
    }

    /// Whether touched marks are kept for each frame: while blocks below order 9 are reported.
    #[inline]
    pub(crate) fn fine(&self) -> bool {
        self.header.reporting_order.load(Ordering::Relaxed) < u32::from(Order::PAGEBLOCK.get())
    }

    /// Whether the next block that becomes free is to be told of.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.trigger.load(Ordering::Relaxed) != SILENT
    }

    /// Whether a free block of this order is to be told of, so that no front may keep it.
    #[inline]
    pub(crate) fn awaits(&self, order: Order) -> bool {
        self.listens() && self.reporting_order().is_some_and(|least| least <= order)
    }

    /// A whole block became free.
    #[inline]
    pub(crate) fn freed_block(&self) {
        if self.listens() {
            self.freed();
        }
    }

    /// Frames of a word became free; `used` are in use in it now.
    #[inline]
    pub(crate) fn freed_in_word(&self, used: u64) {
        if self.listens()
            && let Some(order) = self.reporting_order()
            && order < Order::PAGEBLOCK
            // A larger order spans words: that this one is free is what can be told from here.
            && runs(!used, order.get().min(6)) != 0
        {
            self.freed();
        }
    }

    /// A run of this order became free in a block.
    pub(crate) fn freed_run(&self, freed: Order) {
        if self.awaits(freed) {
            self.freed();
        }
    }

    /// Tells the reporter, once.
    #[cold]
    fn freed(&self) {
        // `AcqRel`: the reporter that sees SILENT sees the block free (`pass_is_wanted`).
        match self.trigger.swap(SILENT, Ordering::AcqRel) {
            WATCHING => self.announce(true),
            _ => self.announce(false),
        }
    }

    fn announce(&self, asleep: bool) {
        if asleep {
            self.events.report_requested();
        }
    }

    /// The reporter starts a pass.
    pub(crate) fn work(&self) {
        self.trigger.store(WORKING, Ordering::Release);
    }

    /// The pass is over and the next one fixed: nobody needs to call for it.
    pub(crate) fn rest(&self) {
        self.trigger.store(SILENT, Ordering::Release);
    }

    /// The pass is over: whether a block was freed meanwhile. If not, the reporter sleeps now.
    pub(crate) fn finish(&self) -> bool {
        self.trigger
            .compare_exchange(WORKING, WATCHING, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
    }

    /// Whether a pass was asked for, so that the freeing path is silent.
    pub(crate) fn pass_is_wanted(&self) -> bool {
        self.trigger.load(Ordering::Acquire) == SILENT
    }

    #[inline]
    pub(crate) fn drains(&self) -> u32 {
        self.drains.load(Ordering::Relaxed)
    }

    pub(crate) fn request_drain(&self) {
        self.drains.fetch_add(1, Ordering::Relaxed);
    }
}

//! What all zones share: whom to tell of what, and what is asked of every front.

use core::fmt;

use crate::{
    Order, OrderError,
    allocator::Events,
    bitmap::runs,
    frame::Frame,
    header::{HOST_ASLEEP, HOST_AWAKE, Header},
    hints::{Calls, Hint},
    sync::{AtomicU32, Ordering},
};

/// Nobody wants to hear of freed blocks: nothing is given back, or a pass is due anyway.
const SILENT: u32 = 0;
/// The reporter sleeps: the first block freed wakes it.
const WATCHING: u32 = 1;
/// The reporter is at work: a block freed now calls for another pass.
const WORKING: u32 = 2;
/// Blocks are hinted: each block freed is noted.
const HINTING: u32 = 3;
/// An attached host takes what is free: whoever frees a block calls it if it sleeps.
const SHARED: u32 = 4;

/// Reporting is off.
const OFF: u32 = 255;

/// The shared part of an allocator.
pub(crate) struct Hub<'m> {
    events: &'m dyn Events,
    header: &'m Header,
    /// The mode decides between `HINTING`, `SHARED` and the others, and `set_mode` alone changes it. All others
    /// go from one value to another by an exchange that fails if the mode was changed meanwhile.
    trigger: AtomicU32,
    hints: Calls,
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
            hints: Calls::new(),
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

    pub(crate) fn set_reporting_order(&self, order: Option<Order>) -> Result<(), OrderError> {
        order.map_or(Ok(()), |order| self.check_order(order))?;
        let before = self.set_mode(order, SILENT);
        // Blocks that are free already wait for a pass as much as those freed from now on.
        if order.is_some() && before != WORKING {
            self.events.report_requested();
        }
        Ok(())
    }

    pub(crate) fn set_hinting_order(&self, order: Order) -> Result<(), OrderError> {
        self.check_order(order)?;
        // Blocks that are free already have not been noted.
        self.hints.miss();
        self.set_mode(Some(order), HINTING);
        self.hints.work();
        self.events.report_requested();
        Ok(())
    }

    /// Whether free memory can be given back from this order on.
    fn check_order(&self, order: Order) -> Result<(), OrderError> {
        if order > Order::MAX {
            Err(OrderError::TooLarge(order))
        } else if order < Order::PAGEBLOCK && !self.frame_marks {
            Err(OrderError::NoFrameMarks(order))
        } else {
            Ok(())
        }
    }

    pub(crate) fn set_shared(&self) {
        self.set_mode(None, SHARED);
        self.events.report_requested();
    }

    /// Whether an attached host takes what is free.
    pub(crate) fn is_shared(&self) -> bool {
        self.trigger.load(Ordering::Acquire) == SHARED
    }

    /// What the trigger was before.
    fn set_mode(&self, order: Option<Order>, trigger: u32) -> u32 {
        let value = order.map_or(OFF, |order| u32::from(order.get()));
        self.header.reporting_order.store(value, Ordering::Relaxed);
        self.trigger.swap(trigger, Ordering::AcqRel)
    }

    /// Whether freed blocks are hinted.
    pub(crate) fn is_hinting(&self) -> bool {
        self.trigger.load(Ordering::Acquire) == HINTING
    }

    /// Who is called for hints.
    pub(crate) fn hints(&self) -> &Calls {
        &self.hints
    }

    /// Whether touched marks are kept for each frame: while blocks below order 9 are reported.
    #[inline]
    pub(crate) fn fine(&self) -> bool {
        self.header.reporting_order.load(Ordering::Relaxed) < u32::from(Order::PAGEBLOCK.get())
    }

    /// Whether a reporter waits for blocks to become free, so that no front may keep what makes one
    /// whole. Hinting does not wait: what a front holds is given back when its CPU is idle.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        matches!(self.trigger.load(Ordering::Relaxed), WATCHING | WORKING)
    }

    /// Whether a reporter waits for a free block of this order, so that no front may keep it.
    #[inline]
    pub(crate) fn awaits(&self, order: Order) -> bool {
        self.listens() && self.gives_back(order)
    }

    fn gives_back(&self, order: Order) -> bool {
        self.reporting_order().is_some_and(|least| least <= order)
    }

    /// A whole block became free, which `first` tells.
    ///
    /// `SeqCst`, here and below: after the step that freed the block, which is `SeqCst` too, and
    /// paired with the exchange in `work`: either this sees that a pass is under way, or the pass
    /// sees the block free.
    #[inline]
    pub(crate) fn freed_block(&self, first: impl FnOnce() -> Frame) {
        match self.trigger.load(Ordering::SeqCst) {
            SILENT => {}
            HINTING => self.hint(Hint::block(first())),
            _ => self.freed(),
        }
    }

    /// These whole blocks became free, or most of them.
    pub(crate) fn freed_blocks(&self, blocks: &[Frame]) {
        match self.trigger.load(Ordering::SeqCst) {
            SILENT => {}
            HINTING => blocks
                .iter()
                .for_each(|&block| self.hint(Hint::block(block))),
            _ => self.freed(),
        }
    }

    /// An aligned GiB became free.
    pub(crate) fn freed_giant(&self, first: Frame) {
        match self.trigger.load(Ordering::SeqCst) {
            SILENT => {}
            HINTING => self.hint(Hint::giant(first)),
            _ => self.freed(),
        }
    }

    /// Frames of the word of this frame became free; `used` are in use in it now.
    #[inline]
    pub(crate) fn freed_in_word(&self, frame: Frame, used: u64) {
        if self.trigger.load(Ordering::SeqCst) != SILENT
            && let Some(order) = self.reporting_order()
            && order < Order::PAGEBLOCK
            // A larger order spans words: that this one is free is what can be told from here.
            && runs(!used, order.get().min(6)) != 0
        {
            self.freed_block(|| frame);
        }
    }

    /// A run of this order became free in the block of this frame.
    pub(crate) fn freed_run(&self, frame: Frame, freed: Order) {
        if self.trigger.load(Ordering::SeqCst) != SILENT && self.gives_back(freed) {
            self.freed_block(|| frame);
        }
    }

    /// Calls the host, if it sleeps. `SeqCst`, paired with that of `Attached::sleep`: either this sees that it sleeps, or it
    /// looks once more and sees the block free.
    fn freed_for_host(&self) {
        let host = &self.header.host;
        if host.load(Ordering::SeqCst) == HOST_ASLEEP
            && host
                .compare_exchange(HOST_ASLEEP, HOST_AWAKE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            self.events.report_requested();
        }
    }

    /// Tells the reporter or the host, once.
    #[cold]
    fn freed(&self) {
        let mut seen = self.trigger.load(Ordering::Relaxed);
        if seen == SHARED {
            return self.freed_for_host();
        }
        // Bounded by the progress of others: a failed exchange means that another's succeeded, and
        // the reporter goes from one value to the next once in a pass.
        while matches!(seen, WATCHING | WORKING) {
            // `AcqRel`: the reporter that sees SILENT sees the block free (`pass_is_wanted`).
            match self.trigger.compare_exchange_weak(
                seen,
                SILENT,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(WATCHING) => return self.events.report_requested(),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Notes what was freed in the list of this CPU, and calls the worker if that is due.
    #[cold]
    fn hint(&self, hint: Hint) {
        if self.hints.note(self.events.hints(), hint) {
            self.events.report_requested();
        }
    }

    /// A request failed while free memory was taken out.
    #[cold]
    pub(crate) fn missed(&self) {
        // Relaxed: a number that is compared with what it was.
        self.header.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was. Who takes memory out for the host leaves it alone for a while when this has
    /// changed: else he could take what was waited for again and again.
    pub(crate) fn misses(&self) -> u32 {
        self.header.misses.load(Ordering::Relaxed)
    }

    /// The reporter starts a pass. `SeqCst`: see `freed_block`.
    pub(crate) fn work(&self) {
        let _ = self
            .trigger
            .compare_exchange(SILENT, WORKING, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// The pass is over and the next one fixed: nobody needs to call for it.
    pub(crate) fn rest(&self) {
        let _ = self
            .trigger
            .compare_exchange(WORKING, SILENT, Ordering::AcqRel, Ordering::Relaxed);
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

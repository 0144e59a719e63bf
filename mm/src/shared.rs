//! State that all zones of an allocator share: the mode in which free memory is given back to the
//! host, notifications, and requests to drain the per-CPU caches.

use core::fmt;

use crate::{
    Order, OrderError, ZoneId,
    allocator::Events,
    bitmap::runs,
    frame::Frame,
    header::{HOST_ASLEEP, HOST_AWAKE, Header},
    hints::{Calls, Hint},
    shuffle::Shuffle,
    sync::{AtomicU32, Ordering},
};

/// A freed block wakes no one: reporting is off, or a pass is due anyway.
const SILENT: u32 = 0;
/// The reporter sleeps. The next freed block wakes it.
const WATCHING: u32 = 1;
/// The reporter is in a pass. A block that is freed now causes another pass.
const WORKING: u32 = 2;
/// Freed blocks are noted in the hint lists.
const HINTING: u32 = 3;
/// An attached host takes free memory. A CPU that frees a block wakes the host if it sleeps.
const SHARED: u32 = 4;

/// Value of `Header::reporting_order` while reporting is off.
const OFF: u32 = 255;

/// The state that all zones of an allocator share.
pub(crate) struct Shared<'m> {
    events: &'m dyn Events,
    header: &'m Header,
    /// `SILENT`, `WATCHING`, `WORKING`, `HINTING` or `SHARED`.
    ///
    /// Only `set_mode` changes it to or from `HINTING` and `SHARED`. The other changes are
    /// exchanges that fail if the mode was changed in between.
    trigger: AtomicU32,
    hints: Calls,
    drains: AtomicU32,
    /// Whether the metadata has one mark for each frame that the host may hold memory for.
    frame_marks: bool,
    /// Where searches for free pageblocks start.
    pub(crate) shuffle: Shuffle,
}

impl fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("trigger", &self.trigger)
            .finish_non_exhaustive()
    }
}

impl<'m> Shared<'m> {
    /// Returns the shared state of a new allocator, with reporting off.
    pub(crate) fn new(events: &'m dyn Events, header: &'m Header, frame_marks: bool) -> Self {
        header.reporting_order.store(OFF, Ordering::Relaxed);
        Self {
            events,
            header,
            trigger: AtomicU32::new(SILENT),
            hints: Calls::new(),
            drains: AtomicU32::new(0),
            frame_marks,
            shuffle: Shuffle::off(),
        }
    }

    /// Notifies the owner that `zone` ran low.
    pub(crate) fn low_memory(&self, zone: ZoneId) {
        self.events.low_memory(zone);
    }

    /// Returns the smallest order of free blocks that are reported or hinted, or `None` if neither
    /// is active.
    ///
    /// `Relaxed`: a block that is freed while the order changes is found by the pass that the
    /// change requests.
    #[inline]
    pub(crate) fn reporting_order(&self) -> Option<Order> {
        u8::try_from(self.header.reporting_order.load(Ordering::Relaxed))
            .ok()
            .and_then(Order::new)
    }

    /// Sets the smallest order of free blocks that are reported. `None` turns reporting off. Ends
    /// the other modes. Unless `order` is `None` or a pass is under way, calls
    /// [`Events::report_requested`].
    ///
    /// # Errors
    /// Fails if the order is above 10, or below 9 without frame marks. Nothing is changed then.
    pub(crate) fn set_reporting_order(&self, order: Option<Order>) -> Result<(), OrderError> {
        order.map_or(Ok(()), |order| self.check_order(order))?;
        let before = self.set_mode(order, SILENT);
        // Blocks that are free already wait for a pass, too.
        if order.is_some() && before != WORKING {
            self.events.report_requested();
        }
        Ok(())
    }

    /// Turns hinting on for blocks of `order` and above, with a sweep over all memory first. Ends
    /// the other modes, and calls [`Events::report_requested`].
    ///
    /// # Errors
    /// Fails if the order is above 10, or below 9 without frame marks. Nothing is changed then.
    pub(crate) fn set_hinting_order(&self, order: Order) -> Result<(), OrderError> {
        self.check_order(order)?;
        // Blocks that are free already are in no list.
        self.hints.miss();
        self.set_mode(Some(order), HINTING);
        self.hints.work();
        self.events.report_requested();
        Ok(())
    }

    /// Checks that free memory can be given back from this order on.
    ///
    /// # Errors
    /// Fails if the order is above 10, or below 9 without frame marks.
    fn check_order(&self, order: Order) -> Result<(), OrderError> {
        if order > Order::MAX {
            Err(OrderError::TooLarge(order))
        } else if order < Order::PAGEBLOCK && !self.frame_marks {
            Err(OrderError::NoFrameMarks(order))
        } else {
            Ok(())
        }
    }

    /// Turns the mode on in which an attached host takes free memory. Ends reporting and hinting,
    /// and calls [`Events::report_requested`], so that the owner wakes the host.
    pub(crate) fn set_shared(&self) {
        self.set_mode(None, SHARED);
        self.events.report_requested();
    }

    /// Returns `true` if an attached host takes free memory.
    pub(crate) fn is_shared(&self) -> bool {
        self.trigger.load(Ordering::Acquire) == SHARED
    }

    /// Sets the reporting order and the trigger. Returns the previous trigger.
    fn set_mode(&self, order: Option<Order>, trigger: u32) -> u32 {
        let value = order.map_or(OFF, |order| u32::from(order.get()));
        self.header.reporting_order.store(value, Ordering::Relaxed);
        self.trigger.swap(trigger, Ordering::AcqRel)
    }

    /// Returns `true` if freed blocks are hinted.
    pub(crate) fn is_hinting(&self) -> bool {
        self.trigger.load(Ordering::Acquire) == HINTING
    }

    /// Returns the state by which CPUs wake the hinter.
    pub(crate) fn hints(&self) -> &Calls {
        &self.hints
    }

    /// Returns `true` if the allocator records for each single frame whether the host may hold
    /// memory for it. That is the case while blocks below order 9 are reported.
    #[inline]
    pub(crate) fn exact_marks(&self) -> bool {
        self.header.reporting_order.load(Ordering::Relaxed) < u32::from(Order::PAGEBLOCK.get())
    }

    /// Returns `true` if a reporter waits for free blocks, so that caches give complete pageblocks
    /// back at once.
    ///
    /// Hinting does not wait: a cache gives its frames back when its CPU is idle.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        matches!(self.trigger.load(Ordering::Relaxed), WATCHING | WORKING)
    }

    /// Returns `true` if a reporter waits for free blocks of this order, so that no cache may keep
    /// one.
    #[inline]
    pub(crate) fn awaits(&self, order: Order) -> bool {
        self.listens() && self.gives_back(order)
    }

    /// Returns `true` if free blocks of this order are reported or hinted.
    fn gives_back(&self, order: Order) -> bool {
        self.reporting_order().is_some_and(|least| least <= order)
    }

    /// Wakes the reporter, the hinter or the attached host, depending on the mode, after a whole
    /// pageblock became free. `first` returns its first frame.
    ///
    /// `SeqCst`, here and below: it follows the step that freed the block, which is `SeqCst`, too,
    /// and pairs with the exchange in `work`. So either this load sees that a pass is under way, or
    /// the pass sees the free block.
    #[inline]
    pub(crate) fn freed_block(&self, first: impl FnOnce() -> Frame) {
        match self.trigger.load(Ordering::SeqCst) {
            SILENT => {}
            HINTING => self.hint(Hint::block(first())),
            _ => self.freed(),
        }
    }

    /// Like [`freed_block`](Self::freed_block), for several pageblocks at once. Some of them may
    /// not be free.
    pub(crate) fn freed_blocks(&self, blocks: &[Frame]) {
        match self.trigger.load(Ordering::SeqCst) {
            SILENT => {}
            HINTING => blocks
                .iter()
                .for_each(|&block| self.hint(Hint::block(block))),
            _ => self.freed(),
        }
    }

    /// Like [`freed_block`](Self::freed_block), for an aligned GiB.
    pub(crate) fn freed_gib(&self, first: Frame) {
        match self.trigger.load(Ordering::SeqCst) {
            SILENT => {}
            HINTING => self.hint(Hint::gib(first)),
            _ => self.freed(),
        }
    }

    /// Like [`freed_block`](Self::freed_block), for frames of the group of 64 that contains
    /// `frame`, whose bitmap word has the value `used` now: a bit for each frame still in use.
    ///
    /// Does nothing if the reporting order is 9 or above, or the group has no free run of that
    /// order. For orders 7 and 8, which span several groups, the whole group must be free.
    #[inline]
    pub(crate) fn freed_in_word(&self, frame: Frame, used: u64) {
        if self.trigger.load(Ordering::SeqCst) != SILENT
            && let Some(order) = self.reporting_order()
            && order < Order::PAGEBLOCK
            // A run of a larger order spans several groups. From here it is only visible that this
            // one is free.
            && runs(!used, order.get().min(6)) != 0
        {
            self.freed_block(|| frame);
        }
    }

    /// Like [`freed_block`](Self::freed_block), for a pageblock with `frame` whose largest free run
    /// has the order `freed`. Does nothing if the reporting order is larger.
    pub(crate) fn freed_run(&self, frame: Frame, freed: Order) {
        if self.trigger.load(Ordering::SeqCst) != SILENT && self.gives_back(freed) {
            self.freed_block(|| frame);
        }
    }

    /// Wakes the reporter if it sleeps, as if a block had been freed. Does nothing in the modes
    /// without a reporter.
    pub(crate) fn request_pass(&self) {
        if self.listens() {
            self.freed();
        }
    }

    /// Wakes the attached host if it sleeps.
    ///
    /// `SeqCst` pairs with `Attached::sleep`: either this load sees that the host sleeps, or the
    /// host's check after `sleep` sees the free block.
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

    /// Wakes the reporter or the attached host, once.
    #[cold]
    fn freed(&self) {
        let mut seen = self.trigger.load(Ordering::Relaxed);
        if seen == SHARED {
            return self.freed_for_host();
        }
        // Bounded by the progress of others: a failed exchange means that another one succeeded,
        // and the reporter changes the value only once in a pass.
        while matches!(seen, WATCHING | WORKING) {
            // `AcqRel`: a reporter that sees `SILENT` sees the block free (`pass_is_wanted`).
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

    /// Notes a freed block in the list of this CPU, and wakes the hinter if that is necessary.
    #[cold]
    fn hint(&self, hint: Hint) {
        if self.hints.note(self.events.hints(), hint) {
            self.events.report_requested();
        }
    }

    /// Counts a request that failed while free memory was isolated.
    #[cold]
    pub(crate) fn count_isolation_failure(&self) {
        // `Relaxed`: the counter is only compared with its earlier values.
        self.header
            .isolation_failures
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often a request failed while free memory was isolated.
    ///
    /// Code that isolates memory for the host pauses for a while when this number has changed.
    /// Otherwise it could isolate the missing memory again and again.
    pub(crate) fn isolation_failures(&self) -> u32 {
        self.header.isolation_failures.load(Ordering::Relaxed)
    }

    /// Notes that the reporter starts a pass over free memory. Does nothing in the modes without a
    /// reporter. `SeqCst`: see [`freed_block`](Self::freed_block).
    pub(crate) fn work(&self) {
        let _ = self
            .trigger
            .compare_exchange(SILENT, WORKING, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Notes that a pass of the reporter has ended and the time of the next one is set. So a freed
    /// block need not wake the reporter.
    pub(crate) fn rest(&self) {
        let _ = self
            .trigger
            .compare_exchange(WORKING, SILENT, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Notes that a pass of the reporter has ended with nothing left to report. Returns `false` if
    /// the reporter sleeps from here on. Returns `true` if another pass is necessary: a block was
    /// freed during the pass, or the mode was changed.
    pub(crate) fn finish(&self) -> bool {
        self.trigger
            .compare_exchange(WORKING, WATCHING, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
    }

    /// Returns `true` if a pass of the reporter was requested and is not yet under way, or
    /// reporting is off.
    pub(crate) fn pass_is_wanted(&self) -> bool {
        self.trigger.load(Ordering::Acquire) == SILENT
    }

    /// Returns the number of requests so far to drain the per-CPU caches. It wraps around.
    #[inline]
    pub(crate) fn drains(&self) -> u32 {
        self.drains.load(Ordering::Relaxed)
    }

    /// Requests that every per-CPU cache be drained, by counting the request. Wakes no CPU.
    pub(crate) fn request_drain(&self) {
        self.drains.fetch_add(1, Ordering::Relaxed);
    }
}

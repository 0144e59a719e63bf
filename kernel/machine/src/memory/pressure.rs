//! Low memory: the steps of an allocation that finds no free frame.
//!
//! In this order, the allocation
//! - waits for blocks that are isolated for a report,
//! - has every CPU drain its cache,
//! - frees the unused pages of huge pages on trial,
//! - drops pages that disks or the host have, too,
//! - takes pages back from the balloon,
//! - kills the largest process.
//!
//! An allocation of a pageblock also tries to empty one by moving frames. A process is killed only
//! after several searches in which no thread found memory. A thread that is being killed gets an
//! error at once, so that it can end and free its memory.

use super::helpers::HELPERS;
use super::percpu::{self, Count};
use crate::arch::clock::{self, Nanos};
use crate::arch::interrupt;
use crate::arch::spin::spin_locks_held;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame, Order, Request, Reserve, ZoneKind};
use logic::errno::Errno;

/// The most waits for isolated blocks, a millisecond each. A report is answered within far less.
const ISOLATED_WAITS: u32 = 2000;
/// The most steps of an allocation, besides waits for isolated blocks, before it gives up.
const STEPS: u32 = 4000;
/// The time in nanoseconds for which a step waits for memory that other threads free.
const WAIT: u64 = 2_000_000;
/// The number of failed searches for memory in a row, [`WAIT`] apart, before a process is killed.
const LOOKS: u32 = 16;
/// The number of such searches before a process is killed if other threads found memory in that
/// time, and took it themselves.
const LOOKS_BEHIND_OTHERS: u32 = 500;
/// The number of frames that are requested back from the balloon at a time.
const DEFLATE_FRAMES: u32 = 256;
/// For orders above this no process is killed. The caller does without the block.
const COSTLY: u8 = 3;

/// The error to pass to [`Relief::step`] if the heap has refused an allocation, which needs single
/// frames.
pub const HEAP_EXHAUSTED: AllocError = AllocError::Exhausted {
    order: Order::BASE,
    zone: ZoneKind::Normal,
};

/// The number of successful searches for memory, of all threads.
static FOUND: AtomicU64 = AtomicU64::new(0);

/// Returns whether the caller may block. It may if it runs in a thread, this CPU holds no spin
/// lock, and this CPU does not run the handler of a device's interrupt.
pub fn may_block() -> bool {
    (HELPERS.has_thread)() && spin_locks_held() == 0 && !interrupt::is_in_handler()
}

/// The progress of one allocation through the steps that free memory: which were tried, and how
/// often.
#[derive(Debug)]
pub struct Relief {
    order: Order,
    isolated: u32,
    steps: u32,
    /// The number of failed searches for memory in a row.
    barren: u32,
    /// [`FOUND`] at the first of these searches.
    found: u64,
}

impl Relief {
    /// Makes the state of an allocation of a block of `order` for which no step was tried yet.
    pub const fn new(order: Order) -> Self {
        Self {
            order,
            isolated: 0,
            steps: 0,
            barren: 0,
            found: 0,
        }
    }

    /// Does the next step that may free memory, and waits if necessary. `error` is the error of the
    /// allocation that has just failed. If this succeeds, the caller tries the allocation again.
    ///
    /// # Errors
    /// `ENOMEM` if no further step helps, or the current task is being killed. If the caller may
    /// not block, only the first call succeeds.
    #[cold]
    pub fn step(&mut self, error: AllocError) -> Result<(), Errno> {
        percpu::drain();
        if !may_block() {
            // The drain alone may have helped, once.
            self.steps += 1;
            return if self.steps == 1 {
                Ok(())
            } else {
                Err(Errno::ENOMEM)
            };
        }
        if (HELPERS.killed)() {
            return Err(Errno::ENOMEM);
        }
        percpu::add(Count::Stalls, 1);
        let mut done = Ok(());
        (HELPERS.stalled)(&mut || done = self.relieve(error));
        done
    }

    /// Does the next step that may free memory, after an allocation failed with `error`. May block
    /// the current thread. Fails with `ENOMEM` if no further step helps, or if the current task is
    /// being killed.
    fn relieve(&mut self, error: AllocError) -> Result<(), Errno> {
        if matches!(error, AllocError::Isolated { .. }) {
            self.isolated += 1;
            if self.isolated > ISOLATED_WAITS {
                return Err(Errno::ENOMEM);
            }
            wait(WAIT / 2);
            return Ok(());
        }
        self.steps += 1;
        if self.order == Order::PAGEBLOCK && self.steps > 1 && (HELPERS.make_block)() {
            // There may be more where that came from.
            self.steps = 1;
            return Ok(());
        }
        match self.steps {
            1 => {
                percpu::drain_all();
                (HELPERS.yield_now)();
                Ok(())
            }
            STEPS.. => Err(Errno::ENOMEM),
            _ => self.take_from_others(),
        }
    }

    fn take_from_others(&mut self) -> Result<(), Errno> {
        // The host's limit does not yield to a large block. As on Linux, the balloon deflates where
        // a process would be killed otherwise.
        let deflates = self.order.get() <= COSTLY;
        if (HELPERS.weigh_trials)()
            || (HELPERS.shrink_caches)()
            || (deflates && (HELPERS.deflate)(DEFLATE_FRAMES) > 0)
        {
            // Relaxed (here and below): a count of its own.
            FOUND.fetch_add(1, Ordering::Relaxed);
            self.barren = 0;
            return Ok(());
        }
        let stats = super::allocator().stats();
        if self.order == Order::BASE {
            // Memory has come since the request failed.
            if stats.free_frames > stats.watermarks.low {
                wait(WAIT);
                return Ok(());
            }
        } else if self.order.get() > COSTLY || stats.free_frames > stats.watermarks.high {
            // There is memory, but in pieces; a process more or less does not change that.
            return Err(Errno::ENOMEM);
        }
        // What a process that ends gives back is on its way.
        if !(HELPERS.is_coming)() {
            if !self.is_in_vain() {
                wait(WAIT);
                return Ok(());
            }
            if !(HELPERS.kill)("no frame could be freed") {
                return Err(Errno::ENOMEM);
            }
            if (HELPERS.killed)() {
                return Err(Errno::ENOMEM);
            }
        }
        wait(WAIT);
        Ok(())
    }

    /// Counts a failed search for memory. Returns whether further searches are useless. Memory that
    /// other threads have found since the failed allocation may be in use already, but shows that
    /// there was some.
    fn is_in_vain(&mut self) -> bool {
        let found = FOUND.load(Ordering::Relaxed);
        if self.barren == 0 {
            self.found = found;
        }
        self.barren += 1;
        let enough = if self.found == found {
            LOOKS
        } else {
            LOOKS_BEHIND_OTHERS
        };
        self.barren >= enough
    }
}

/// Frees cached pages, or waits for another thread that frees some, for a caller that cannot use
/// [`Relief`]. Returns `true` if the caller should try its allocation again, and `false` if no page
/// could be freed.
pub fn shrink_caches() -> bool {
    (HELPERS.shrink_caches)()
}

fn wait(nanos: u64) {
    (HELPERS.sleep_until)(Nanos(clock::now().0 + nanos));
}

/// Allocates a block for `request` of the kernel. If no block is free and the caller may block,
/// frees memory or waits for some. If that does not help and `assured` is set, the block may come
/// from the reserve. Returns `None` if there is no memory.
#[inline]
pub(super) fn allocate(request: Request, assured: bool) -> Option<Frame> {
    match percpu::allocate(request) {
        Ok(frame) => Some(frame),
        Err(error) => allocate_slow(request, assured, error),
    }
}

#[cold]
fn allocate_slow(request: Request, assured: bool, mut error: AllocError) -> Option<Frame> {
    let mut relief = Relief::new(request.order);
    while relief.step(error).is_ok() {
        match percpu::allocate(request) {
            Ok(frame) => return Some(frame),
            Err(again) => error = again,
        }
    }
    if assured {
        percpu::allocate(request.reserve(Reserve::Use)).ok()
    } else {
        None
    }
}

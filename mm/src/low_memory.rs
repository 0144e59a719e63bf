//! The edge of low memory: one notification each time that a zone runs low, not one for each
//! request.
//!
//! A zone is *low* from the time when a request finds fewer than `low` free frames, until it has
//! had `high` free frames. Two kinds of CPUs change this state:
//!
//! | CPU | first | then |
//! |---|---|---|
//! | frees frames | raises the count of free frames | reads whether the zone is low |
//! | finds too few | marks the zone as low | reads the count again |
//!
//! So if both happen at once, at least one of them sees the other. No zone stays marked as low
//! after its memory is back. If one did, the next fall would cause no notification.

use crate::{
    Watermarks,
    sync::{AtomicBool, Ordering},
};

/// The flag that a zone is low on memory, and the detection of its edges.
#[derive(Debug)]
pub(crate) struct LowMemory {
    low: AtomicBool,
}

impl LowMemory {
    /// Returns the state of a zone that is not low.
    pub(crate) fn new() -> Self {
        Self {
            low: AtomicBool::new(false),
        }
    }

    /// Returns `true` if the zone is low on memory. The value may be out of date.
    #[inline]
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Ends the low state if the zone is low and has at least `high` free frames. `free` is the
    /// number of free frames after an increase. `high` returns the `high` watermark and is called
    /// only if the zone is low.
    ///
    /// `SeqCst`, like the addition before this call and the exchange in `mark_low`: see the module
    /// documentation.
    #[inline]
    pub(crate) fn clear_low(&self, free: u64, high: impl Fn() -> u64) {
        if load_in_order(&self.low) && free >= high() {
            self.end();
        }
    }

    /// Ends the low state.
    #[cold]
    fn end(&self) {
        // If the zone falls again in this moment, the CPU that finds this notifies once more.
        self.low.store(false, Ordering::SeqCst);
    }

    /// Marks the zone as low if it has fewer than `low` free frames. Returns `true` if the caller
    /// must notify the owner: the zone was not marked before, and has not risen to `high` since.
    ///
    /// `free` loads the count of free frames with `SeqCst`.
    #[cold]
    pub(crate) fn mark_low(&self, marks: Watermarks, free: impl Fn() -> u64) -> bool {
        if self.is_low() || free() >= marks.low || self.low.swap(true, Ordering::SeqCst) {
            return false;
        }
        let back = free() >= marks.high;
        if back {
            self.end();
        }
        !back
    }
}

/// Loads a flag in the total order of all `SeqCst` operations. Loom has that order for exchanges
/// only.
#[inline]
fn load_in_order(flag: &AtomicBool) -> bool {
    #[cfg(ebb_model)]
    return flag.fetch_or(false, Ordering::SeqCst);
    #[cfg(not(ebb_model))]
    flag.load(Ordering::SeqCst)
}

#[cfg(all(test, ebb_model))]
mod model {
    use loom::{model::Builder, sync::Arc, thread};

    use super::*;
    use crate::sync::AtomicU64;

    const MARKS: Watermarks = Watermarks {
        min: 0,
        low: 2,
        high: 3,
    };

    struct Zone {
        free: AtomicU64,
        edge: LowMemory,
        calls: AtomicU64,
    }

    impl Zone {
        fn take(&self) {
            self.free.fetch_sub(1, Ordering::SeqCst);
            if self
                .edge
                .mark_low(MARKS, || self.free.load(Ordering::SeqCst))
            {
                self.calls.fetch_add(1, Ordering::SeqCst);
            }
        }

        fn give(&self) {
            let free = self.free.fetch_add(1, Ordering::SeqCst) + 1;
            self.edge.clear_low(free, || MARKS.high);
        }

        fn calls(&self) -> u64 {
            self.calls.load(Ordering::SeqCst)
        }
    }

    /// Lets two threads change a zone with `free` free frames in all interleavings. After that, the
    /// next fall causes exactly one notification.
    fn explore(free: u64, one: fn(&Zone), other: fn(&Zone)) {
        let mut model = Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let zone = Arc::new(Zone {
                free: AtomicU64::new(free),
                edge: LowMemory::new(),
                calls: AtomicU64::new(0),
            });
            let of_other = Arc::clone(&zone);
            let thread = thread::spawn(move || other(&of_other));
            one(&zone);
            thread.join().expect("no panic");
            let free = zone.free.load(Ordering::SeqCst);
            assert!(
                free < MARKS.high || !zone.edge.is_low(),
                "low with {free} free"
            );
            // If the count is below `low` now, there was a notification.
            if free < MARKS.low {
                assert!(zone.edge.is_low() && zone.calls() >= 1);
            }
            while zone.free.load(Ordering::SeqCst) < MARKS.high {
                zone.give();
            }
            let before = zone.calls();
            for _ in 0..MARKS.high {
                zone.take();
            }
            assert_eq!(zone.calls(), before + 1);
        });
    }

    #[test]
    fn who_frees_and_who_finds_too_few_see_each_other() {
        explore(2, Zone::take, |zone| {
            zone.give();
            zone.give();
        });
    }

    #[test]
    fn two_that_find_too_few_are_told_once() {
        explore(3, |zone| (0..2).for_each(|_| zone.take()), Zone::take);
    }

    #[test]
    fn up_and_down_at_once() {
        let swing = |zone: &Zone| {
            zone.take();
            zone.give();
        };
        explore(2, swing, swing);
    }
}

//! The edge of low memory: one call each time that a zone runs low, not one for each request.
//!
//! A zone is low from when a request finds fewer frames than its `low` mark until it has had as many as its `high` mark.
//! Whoever frees frames says that they are back, whoever finds too few says that they are gone:
//!
//! | who | first | then |
//! |---|---|---|
//! | frees | raises the count of free frames | looks whether the zone is low |
//! | finds too few | makes the zone low | looks at the count once more |
//!
//! So of two at once one sees the other, and no zone stays low with its memory back: the next fall would not be told.

use crate::{
    Watermarks,
    sync::{AtomicBool, Ordering},
};

/// Whether a zone is low.
#[derive(Debug)]
pub(crate) struct LowMemory {
    low: AtomicBool,
}

impl LowMemory {
    /// A zone that is not.
    pub(crate) fn new() -> Self {
        Self {
            low: AtomicBool::new(false),
        }
    }

    /// Whether it is; may be out of date.
    #[inline]
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// So many frames are free now, more than before.
    ///
    /// `SeqCst`, as is the addition before it and the exchange in `fell`: see above.
    #[inline]
    pub(crate) fn rose(&self, free: u64, high: impl Fn() -> u64) {
        if load_in_order(&self.low) && free >= high() {
            self.end();
        }
    }

    #[cold]
    fn end(&self) {
        // If it fell again meanwhile, whoever finds so tells once more.
        self.low.store(false, Ordering::SeqCst);
    }

    /// A request found fewer frames than it needs: whether that is to be told. `free` loads the count with `SeqCst`.
    #[cold]
    pub(crate) fn fell(&self, marks: Watermarks, free: impl Fn() -> u64) -> bool {
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

/// A load in the one order of all `SeqCst` steps. Loom has that order for exchanges only.
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
            if self.edge.fell(MARKS, || self.free.load(Ordering::SeqCst)) {
                self.calls.fetch_add(1, Ordering::SeqCst);
            }
        }

        fn give(&self) {
            let free = self.free.fetch_add(1, Ordering::SeqCst) + 1;
            self.edge.rose(free, || MARKS.high);
        }

        fn calls(&self) -> u64 {
            self.calls.load(Ordering::SeqCst)
        }
    }

    /// Whatever two do at once to a zone of so many frames, it is told when it falls the next time, once.
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
            // What the count says now was told, unless it is between the marks.
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

//! The time of the latest pressure event, which threads store and an instance reads.

use crate::time::Micros;
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(ebb_model))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The time of an instance's latest event, or 0 before the first.
#[derive(Debug)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    /// Returns a mailbox without an event.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Stores the time `event`. Returns whether it is later than all before.
    pub(crate) fn post(&self, event: Micros) -> bool {
        // Release: pairs with the Acquire in `since`, so that a thread that sees the event also
        // sees the stores before it (a changed setting, say). The maximum, because two sources may
        // post at once, and the older event must not hide the later one.
        self.0.fetch_max(event.0, Ordering::Release) < event.0
    }

    /// Returns the time of the latest event, or `None` if it is not later than `seen`.
    pub(crate) fn since(&self, seen: Micros) -> Option<Micros> {
        // Acquire: pairs with the Release in `post`.
        let latest = Micros(self.0.load(Ordering::Acquire));
        (latest > seen).then_some(latest)
    }
}

#[cfg(all(test, ebb_model))]
mod model {
    use super::Latest;
    use crate::time::Micros;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn the_younger_of_two_events_is_never_lost() {
        loom::model(|| {
            let latest = Arc::new(Latest::new());
            let posters = [3, 5].map(|at| {
                let latest = latest.clone();
                thread::spawn(move || latest.post(Micros(at)))
            });
            let mut seen = Micros(0);
            // The worker may look at any moment in between.
            if let Some(event) = latest.since(seen) {
                seen = event;
            }
            let news = posters.map(|poster| poster.join().expect("poster"));
            if let Some(event) = latest.since(seen) {
                assert!(event > seen);
                seen = event;
            }
            assert_eq!(seen, Micros(5));
            assert!(news[1], "the younger is always news");
        });
    }
}

//! The line with an instance's requests that the setting `log_stats` asks for.

use super::Figures;
use crate::engine::Counters;
use crate::knobs::{Knob, Knobs};
use crate::messages::print;
use crate::time::Micros;
use std::time::Duration;

/// Interval of the lines about one instance.
const INTERVAL: Duration = Duration::from_secs(10);

/// Writes one line about an instance's requests to stderr every [`INTERVAL`], while `log_stats` is
/// set. An interval without requests has no line.
#[derive(Debug)]
pub(super) struct StatsLog {
    name: String,
    /// The counters at the last line.
    told: Counters,
    /// The time of the next line. `None` while the setting is off.
    next: Option<Micros>,
}

impl StatsLog {
    /// Makes the log of the instance called `name`. Writes nothing.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            told: Counters::default(),
            next: None,
        }
    }

    /// Writes a line if one is due at `now` by the settings `knobs`. `figures` are those of the
    /// instance now.
    pub(super) fn look(&mut self, now: Micros, knobs: &Knobs, figures: &Figures) {
        if let Some(line) = self.due(now, knobs, figures) {
            print(format_args!("{line}"));
        }
    }

    /// Returns the time of the next line. `figures` are those of the instance now. Returns `None`
    /// if there is nothing to tell.
    pub(super) fn next(&self, figures: &Figures) -> Option<Micros> {
        self.next
            .filter(|_| figures.counters.requests != self.told.requests)
    }

    /// Returns the line that is due at `now`, or `None` if none is.
    fn due(&mut self, now: Micros, knobs: &Knobs, figures: &Figures) -> Option<String> {
        let counters = figures.counters;
        if knobs.get(Knob::LogStats) == 0 {
            self.next = None;
            return None;
        }
        let Some(next) = self.next else {
            self.next = Some(now + INTERVAL);
            self.told = counters;
            return None;
        };
        if now < next {
            return None;
        }
        self.next = Some(now + INTERVAL);
        let told = std::mem::replace(&mut self.told, counters);
        if counters.requests == told.requests {
            return None;
        }
        Some(format!(
            "disk {}: {} reads, {} writes, {} flushes, {} discards, {} without pages; \
             {} of {} grants mapped",
            self.name,
            counters.reads - told.reads,
            counters.writes - told.writes,
            counters.flushes - told.flushes,
            counters.discards - told.discards,
            counters.starved - told.starved,
            figures.persistent_grants,
            knobs.get(Knob::MaxPersistentGrants),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(requests: u64) -> Figures {
        Figures {
            counters: Counters {
                requests,
                reads: requests - 3,
                writes: 2,
                flushes: 1,
                ..Counters::default()
            },
            ..Figures::default()
        }
    }

    #[test]
    fn a_line_tells_the_requests_of_ten_seconds() {
        let knobs = Knobs::default();
        let mut log = StatsLog::new("d");
        let second = |n: u64| Micros(n * 1_000_000);
        assert_eq!(log.due(second(1), &knobs, &figures(5)), None);
        knobs.set(Knob::LogStats, 1).unwrap();
        assert_eq!(log.due(second(2), &knobs, &figures(5)), None);
        assert_eq!(log.due(second(11), &knobs, &figures(9)), None);
        assert_eq!(log.next(&figures(9)), Some(second(12)));
        let line = log.due(second(12), &knobs, &figures(9)).unwrap();
        assert_eq!(
            line,
            "disk d: 4 reads, 0 writes, 0 flushes, 0 discards, 0 without pages; \
             0 of 1056 grants mapped"
        );
        assert_eq!(log.next(&figures(9)), None, "idle");
        assert_eq!(log.due(second(23), &knobs, &figures(9)), None, "idle");
        assert!(log.due(second(34), &knobs, &figures(10)).is_some());
        knobs.set(Knob::LogStats, 0).unwrap();
        assert_eq!(log.due(second(60), &knobs, &figures(20)), None);
    }
}

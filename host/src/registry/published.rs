//! The figures of a run's guest. The thread that watches the guest writes them, and the thread that
//! answers requests reads them.

use super::protocol::{Figures, History, Life, Moment};
use crate::guest::{Sample, Stage};
use crate::machine::{GiveBack, KernelKind};
use crate::text::steers;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The time between two points of the curve.
const INTERVAL: Duration = Duration::from_millis(250);
/// The number of points of the curve, which are five minutes.
const POINTS_MAX: usize = 1200;
/// The number of points over which rates are averaged. It is large enough for a steady figure and
/// small enough to follow changes.
const RATE_POINTS: usize = 8;
/// The largest number of characters of the program's arguments that are published.
const PROGRAM_MAX: usize = 256;

/// The properties of a guest that do not change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The name of the guest.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) program: String,
    pub(crate) kernel: KernelKind,
    /// The accelerator: `KVM` or `TCG`.
    pub(crate) accel: String,
    /// How the guest's free memory returns to the host, until the guest reports another mode.
    pub(crate) give_back: GiveBack,
    /// The host's pages for the guest's memory: `huge`, `base` or `pool`.
    pub(crate) host_pages: &'static str,
    /// The guest's RAM in bytes.
    pub(crate) memory_bytes: u64,
    /// The number of virtual CPUs.
    pub(crate) cpus: u32,
    /// The time at which the guest's CPUs started.
    pub(crate) started: SystemTime,
}

/// The figures of a run's guest at the last sample, and the curve of the last five minutes. One
/// thread stores samples, others read.
#[derive(Debug)]
pub(crate) struct Published {
    facts: Facts,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sample: Sample,
    overhead: Option<u64>,
    pss: Option<u64>,
    curve: VecDeque<Point>,
}

#[derive(Copy, Clone, Debug)]
struct Point {
    at: Duration,
    used: Option<u64>,
    resident: u64,
    faults: Option<u64>,
    reports: Option<u64>,
}

impl Published {
    /// Returns an entry for a guest that has no sample yet. `facts` are its constant properties.
    /// The text of the program and its arguments is shortened to 256 characters and made safe for a
    /// terminal.
    pub(crate) fn new(mut facts: Facts) -> Self {
        facts.program = shorten(&facts.program, PROGRAM_MAX);
        Self {
            facts,
            state: Mutex::default(),
        }
    }

    /// Stores a new sample of the guest, and adds a point to the curve if the last one is 250 ms
    /// old. `overhead` is QEMU's own memory in bytes, `pss` its proportional share of that memory
    /// in bytes; `None` if unknown.
    pub(crate) fn publish(&self, sample: &Sample, overhead: Option<u64>, pss: Option<u64>) {
        // Readers copy a few KiB under the lock, so this wait is short.
        let mut state = self.lock();
        state.sample = *sample;
        state.overhead = overhead;
        state.pss = pss;
        let due = match state.curve.back() {
            Some(last) => sample.at >= last.at + INTERVAL,
            None => true,
        };
        if due {
            if state.curve.len() == POINTS_MAX {
                state.curve.pop_front();
            }
            state.curve.push_back(Point {
                at: sample.at,
                used: sample.used,
                resident: sample.resident,
                faults: sample.faults,
                reports: sample.reports,
            });
        }
    }

    /// Returns the figures of the last sample, with rates over the last eight points of the curve.
    /// Before the first sample, figures that come from samples are 0 or `None`.
    pub(crate) fn figures(&self) -> Figures {
        let (sample, overhead, pss, before) = {
            let state = self.lock();
            let before = state.curve.len().saturating_sub(RATE_POINTS);
            let before = state.curve.get(before).copied();
            (state.sample, state.overhead, state.pss, before)
        };
        let facts = &self.facts;
        let rate = |now: Option<u64>, before: Option<(Duration, Option<u64>)>| {
            let (now, (at, count)) = (now?, before?);
            let count = count?;
            let seconds = sample.at.checked_sub(at)?.as_secs_f64();
            #[expect(clippy::cast_precision_loss, reason = "a rate is for reading")]
            let happened = now.saturating_sub(count) as f64;
            (seconds > 0.0).then(|| (happened / seconds * 10.0).round() / 10.0)
        };
        Figures {
            name: facts.name.clone(),
            program: facts.program.clone(),
            pid: std::process::id(),
            kernel: facts.kernel,
            accel: facts.accel.clone(),
            give_back: sample
                .give_back
                .unwrap_or(facts.give_back)
                .name()
                .to_owned(),
            host_pages: facts.host_pages.to_owned(),
            life: match sample.stage {
                None | Some(Stage::Booting) => Life::Booting,
                Some(Stage::Running) => Life::Running,
                Some(Stage::Exited(_)) => Life::Exited,
                Some(Stage::Panicked) => Life::Panicked,
            },
            standstill: sample.standstill,
            started_s: facts
                .started
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0.0, |since| since.as_secs_f64()),
            up_s: sample.at.as_secs_f64(),
            memory_bytes: facts.memory_bytes,
            cpus: facts.cpus,
            used_bytes: sample.used,
            reclaimed: sample.reclaimed,
            reclaim_failed: sample.reclaim_failed,
            page_cache_bytes: sample.file,
            balloon_bytes: sample.ballooned,
            reserved_bytes: sample.reserved,
            free_bytes: sample.free,
            resident_bytes: sample.resident,
            // Resident memory that is neither in use nor reserved is free memory that has not
            // returned to the host. With Ebb's kernel the page descriptors are resident and not in
            // use either, so the result is a little too large.
            gap_bytes: sample.used.map(|used| {
                let kept = used.saturating_add(sample.reserved.unwrap_or(0));
                sample.resident.saturating_sub(kept)
            }),
            overhead_bytes: overhead,
            overhead_pss_bytes: pss,
            oom_kills: sample.oom.map(|oom| oom.kills),
            oom_last: sample.oom.map(|oom| oom.told()).unwrap_or_default(),
            reported_bytes: sample.reported,
            taken_bytes: sample.taken,
            reports: sample.reports,
            reports_per_s: rate(
                sample.reports,
                before.map(|point| (point.at, point.reports)),
            ),
            faults: sample.faults,
            faults_per_s: rate(sample.faults, before.map(|point| (point.at, point.faults))),
            huge_pages: sample.huge_pages.into_iter().flatten().collect(),
            huge_descriptors_given_up_bytes: sample.given_up,
        }
    }

    /// Returns the curve of the last five minutes, or only the points after `after_ms` milliseconds
    /// since the guest's start. It may have no points.
    pub(crate) fn history(&self, after_ms: Option<u64>) -> History {
        let milliseconds = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let state = self.lock();
        let points = state.curve.iter().map(|point| Moment {
            at_ms: milliseconds(point.at),
            used_bytes: point.used,
            resident_bytes: point.resident,
        });
        let wanted = |moment: &Moment| after_ms.is_none_or(|after| moment.at_ms > after);
        History {
            interval_ms: milliseconds(INTERVAL),
            points: points.filter(wanted).collect(),
        }
    }

    // A panic elsewhere cannot leave the state half-changed, so the poison is ignored.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first `most` characters of `text`. Characters that could control a terminal are
/// replaced by U+FFFD. If `text` is longer, the last of these characters is an ellipsis.
pub(super) fn shorten(text: &str, most: usize) -> String {
    let plain = |c: char| if steers(c) { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(most).map(plain).collect();
    if text.chars().nth(most).is_some() {
        short.pop();
        short.push('…');
    }
    short
}

/// Returns the first 256 characters of `text`, which another process has written, safe for a
/// terminal. Characters that could control one are replaced, and a longer text ends with an
/// ellipsis.
pub(crate) fn harmless(text: &str) -> String {
    shorten(text, PROGRAM_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            name: "job".into(),
            program: "sh -c true".into(),
            kernel: KernelKind::Ebb,
            accel: "TCG".into(),
            give_back: GiveBack::Reporting,
            host_pages: "huge",
            memory_bytes: 1 << 30,
            cpus: 2,
            started: SystemTime::UNIX_EPOCH + Duration::from_secs(5),
        }
    }

    fn sample(seconds: u64, faults: u64) -> Sample {
        Sample {
            at: Duration::from_secs(seconds),
            used: Some(100),
            free: Some(900),
            resident: 130,
            faults: Some(faults),
            stage: Some(Stage::Running),
            ..Sample::default()
        }
    }

    #[test]
    fn rates_are_over_the_last_points() {
        let published = Published::new(facts());
        assert_eq!(published.figures().faults, None, "nothing is known yet");
        published.publish(&sample(0, 1000), None, None);
        assert_eq!(
            published.figures().faults_per_s,
            None,
            "one look is no rate"
        );
        for second in 1..=20 {
            published.publish(&sample(second, 1000 + 300 * second), Some(7), Some(5));
        }
        let figures = published.figures();
        assert_eq!(figures.faults_per_s, Some(300.0));
        assert_eq!(figures.gap_bytes, Some(30));
        assert_eq!(figures.overhead_bytes, Some(7));
        assert_eq!((figures.life, figures.started_s), (Life::Running, 5.0));
        // A counter that goes down gives a rate of 0.
        published.publish(&sample(21, 0), None, None);
        assert_eq!(published.figures().faults_per_s, Some(0.0));
    }

    #[test]
    fn reserved_memory_is_not_free_memory_that_the_host_holds() {
        let published = Published::new(facts());
        let mut told = sample(0, 0);
        (told.ballooned, told.reserved) = (Some(40), Some(25));
        published.publish(&told, None, None);
        let figures = published.figures();
        assert_eq!(
            (figures.balloon_bytes, figures.reserved_bytes),
            (Some(40), Some(25))
        );
        assert_eq!(figures.gap_bytes, Some(5));
        told.reserved = Some(31);
        published.publish(&told, None, None);
        assert_eq!(published.figures().gap_bytes, Some(0));
    }

    #[test]
    fn the_curve_is_bounded_and_can_be_continued() {
        let published = Published::new(facts());
        for second in 0..5000 {
            published.publish(&sample(second, 0), None, None);
            // The time is between two points.
            let mut between = sample(second, 0);
            between.at += Duration::from_millis(100);
            published.publish(&between, None, None);
        }
        let history = published.history(None);
        assert_eq!(history.points.len(), POINTS_MAX);
        assert!(history.points.is_sorted_by_key(|point| point.at_ms));
        let last = history.points.last().unwrap().at_ms;
        assert_eq!(last, 4_999_000);
        assert_eq!(published.history(Some(last - 2000)).points.len(), 2);
        assert!(published.history(Some(u64::MAX)).points.is_empty());
    }

    #[test]
    fn text_is_harmless() {
        assert_eq!(shorten("a\x1b[31mb\n", 99), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(shorten("abcdef", 4), "abc…");
        assert_eq!(shorten("äöü", 3), "äöü");
    }
}

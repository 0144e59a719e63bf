//! Guests that `ebb` did not start, seen through the monitor of their QEMU. Their figures are the
//! statistics of their balloon and the memory of their process.
//!
//! A monitor serves one program at a time. So each query connects again and is short. QEMU's
//! interval for balloon statistics is left unchanged.

use crate::machine::KernelKind;
use crate::qemu::{Balloon, BalloonError, BalloonStats};
use crate::registry::{Figures, GuestId, Life, Presence, checked};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The interval between queries of a guest.
const REFRESH: Duration = Duration::from_millis(1000);
/// The time in which an idle guest has answered.
const ANSWER: Duration = Duration::from_millis(50);
/// The time to wait for a busy guest.
const TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A guest that `ebb` did not start, by the socket of the monitor of its QEMU.
#[derive(Debug)]
pub(super) struct OtherQemu {
    path: PathBuf,
    /// Whether the guest has no driver that answers, because it did not answer the last request.
    has_no_stats: bool,
    /// The last number of page faults, and its time.
    faults: Option<(Instant, u64)>,
}

impl OtherQemu {
    /// Returns the guest whose QEMU has a monitor at the socket `path`. Does not connect, so the
    /// socket need not exist.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            has_no_stats: false,
            faults: None,
        }
    }

    /// Returns the identity of the guest in lists, which is the path of the monitor's socket.
    pub(super) fn id(&self) -> GuestId {
        GuestId::of_socket(self.path.clone())
    }

    /// Connects to the monitor, returns the guest's current figures, and disconnects. Waits up to 2
    /// s for statistics of the balloon; without them, figures of the guest's own use are `None`.
    /// Fails if QEMU is gone, its monitor does not answer, it has no balloon, or the memory of its
    /// process cannot be read.
    pub(super) fn look(&mut self) -> Result<Figures, BalloonError> {
        let mut balloon = Balloon::connect(&self.path)?;
        let before = balloon.memory()?;
        let stats = self.ask(&mut balloon)?;
        let full = balloon.full_memory()?;
        let memory = full.all;
        // The statistics are from a moment between the two answers. Memory in the balloon must not
        // seem to be used, so the larger balloon counts.
        let left = balloon.memory()?.min(before);
        let ballooned = full.balloonable.saturating_sub(left);
        let yields = balloon.yields()?;
        let parts = stats.and_then(|stats| Parts::new(memory, ballooned, yields, stats));
        let name = balloon.name()?.unwrap_or_else(|| {
            let stem = self.path.file_stem().unwrap_or(self.path.as_os_str());
            stem.to_string_lossy().into_owned()
        });
        let up = up(balloon.pid).unwrap_or_default();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let resident = balloon.resident()?;
        let faults = stats.and_then(|stats| stats.faults);
        let figures = Figures {
            name,
            program: format!("QEMU at {}", self.path.display()),
            pid: balloon.pid.and_then(|pid| pid.try_into().ok()).unwrap_or(0),
            kernel: KernelKind::Other,
            accel: if balloon.is_on_kvm()? { "KVM" } else { "TCG" }.to_owned(),
            give_back: "balloon".to_owned(),
            host_pages: String::new(),
            life: Life::Running,
            standstill: None,
            started_s: now.map_or(0.0, |now| now.as_secs_f64()) - up.as_secs_f64(),
            up_s: up.as_secs_f64(),
            memory_bytes: memory,
            cpus: balloon.cpus()?.try_into().unwrap_or(u32::MAX),
            used_bytes: parts.map(|parts| parts.used),
            balloon_bytes: Some(ballooned),
            reserved_bytes: parts.map(|parts| parts.reserved),
            page_cache_bytes: stats.and_then(|stats| stats.files),
            free_bytes: parts.map(|parts| parts.free),
            resident_bytes: resident,
            gap_bytes: parts.map(|parts| {
                let kept = parts.used.saturating_add(parts.reserved);
                resident.saturating_sub(kept)
            }),
            overhead_bytes: None,
            overhead_pss_bytes: None,
            oom_kills: None,
            oom_last: Vec::new(),
            reported_bytes: None,
            taken_bytes: None,
            reports: None,
            reports_per_s: None,
            faults,
            faults_per_s: self.rate(faults),
            reclaimed: None,
            reclaim_failed: None,
            huge_pages: Vec::new(),
            huge_descriptors_given_up_bytes: None,
        };
        Ok(checked(figures))
    }

    /// Returns the newest statistics of the guest. Makes QEMU request them, unless it does so at an
    /// interval. Returns `None` if the guest has reported none. Fails if the monitor fails.
    fn ask(&mut self, balloon: &mut Balloon) -> Result<Option<BalloonStats>, BalloonError> {
        let before = balloon.stats()?;
        if balloon.interval()? != 0 {
            return Ok(before);
        }
        // QEMU requests statistics as soon as the interval is set.
        balloon.set_interval(1)?;
        let stats = self.wait(balloon, before);
        balloon.set_interval(0)?;
        stats
    }

    fn wait(
        &mut self,
        balloon: &mut Balloon,
        before: Option<BalloonStats>,
    ) -> Result<Option<BalloonStats>, BalloonError> {
        let begin = Instant::now();
        loop {
            thread::sleep(LOOK_EVERY);
            let stats = balloon.stats()?;
            // Two answers in the same second may be equal, so a recent answer is accepted after a
            // short wait. An old answer describes an earlier state.
            let fresh = stats.is_some_and(|stats| stats.at.saturating_add(2) > seconds());
            let timeout = if fresh || self.has_no_stats {
                ANSWER
            } else {
                TIMEOUT
            };
            if stats != before || begin.elapsed() >= timeout {
                self.has_no_stats = stats.is_none();
                return Ok(stats);
            }
        }
    }

    /// Returns the page faults per second since the last query. Returns `None` if one of the two
    /// numbers is unknown.
    fn rate(&mut self, faults: Option<u64>) -> Option<f64> {
        let now = faults.map(|faults| (Instant::now(), faults));
        let (then, before) = std::mem::replace(&mut self.faults, now)?;
        let more = faults?.checked_sub(before)?;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        Some(more as f64 / then.elapsed().as_secs_f64().max(1e-3))
    }
}

/// The parts of a guest's memory in bytes. With the balloon they add up to its memory, unless the
/// guest reports wrong numbers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Parts {
    used: u64,
    free: u64,
    /// What the guest's kernel does not manage.
    reserved: u64,
}

impl Parts {
    /// Divides `memory` bytes, of which `ballooned` are in the balloon. `yields` says whether the
    /// guest may take pages back out of it. Returns `None` if `stats` have no free memory. The
    /// guest may report any numbers, so each part is at most `memory`.
    fn new(memory: u64, ballooned: u64, yields: bool, stats: BalloonStats) -> Option<Self> {
        // As long as Linux may take pages back, it counts them as its own, and as used.
        let total = if yields {
            stats.total
        } else {
            stats.total.saturating_add(ballooned)
        };
        let total = total.min(memory);
        let free = stats.free?.min(total);
        Some(Self {
            used: (total - free).saturating_sub(ballooned),
            free,
            reserved: memory - total,
        })
    }
}

/// Returns the current time in seconds since 1970.
fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Returns the time since the process `pid` started. Returns `None` if it is unknown.
fn up(pid: Option<i32>) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid?)).ok()?;
    // The name is in brackets and may contain any character. The start time is the twentieth word
    // after it.
    let ticks: u64 = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
    let start = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Duration::try_from_secs_f64(uptime - start).ok()
}

/// Background threads that query guests that `ebb` did not start, one thread for each guest, so
/// that a stopped guest does not delay another. The threads end some time after this is dropped.
#[derive(Debug, Default)]
pub(super) struct OtherQemus {
    seen: Arc<Mutex<BTreeMap<GuestId, Presence>>>,
    /// Dropping these ends the threads.
    wishes: Vec<Sender<()>>,
}

impl OtherQemus {
    /// Starts a thread for each guest, which queries the guest once a second. Fails if the host
    /// cannot create a thread.
    pub(super) fn start(guests: Vec<OtherQemu>) -> io::Result<Self> {
        let mut others = Self::default();
        for guest in guests {
            let (wish, wished) = channel();
            let seen = Arc::clone(&others.seen);
            thread::Builder::new()
                .name("monitor".into())
                .spawn(move || watch(guest, &wished, &seen))?;
            others.wishes.push(wish);
        }
        Ok(others)
    }

    /// Returns the results of the last queries without waiting: the figures of guests that
    /// answered, and `Silent` for those that did not. Guests whose QEMU is gone or that have not
    /// been queried yet are left out.
    pub(super) fn figures(&self) -> BTreeMap<GuestId, Presence> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn watch(mut guest: OtherQemu, wished: &Receiver<()>, seen: &Mutex<BTreeMap<GuestId, Presence>>) {
    let id = guest.id();
    loop {
        let presence = match guest.look() {
            Ok(figures) => Some(Presence::Here(Box::new(figures))),
            // Another QEMU may start on the same socket later.
            Err(BalloonError::Connect(_) | BalloonError::Closed) => None,
            Err(_) => Some(Presence::Silent),
        };
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match presence {
                Some(presence) => drop(seen.insert(id.clone(), presence)),
                None => drop(seen.remove(&id)),
            }
        }
        match wished.recv_timeout(REFRESH) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_free_reserved_or_in_the_balloon() {
        let stats = |total, free| BalloonStats {
            total,
            available: 0,
            free,
            files: None,
            faults: None,
            at: 1,
        };
        let parts = |ballooned, yields, total, free| {
            let parts = Parts::new(1000, ballooned, yields, stats(total, Some(free)));
            parts.map(
                |Parts {
                     used,
                     free,
                     reserved,
                 }| [used, free, reserved],
            )
        };
        assert_eq!(parts(0, true, 900, 700), Some([200, 700, 100]));
        // The balloon has 300.
        assert_eq!(parts(300, true, 900, 400), Some([200, 400, 100]));
        assert_eq!(parts(300, false, 600, 400), Some([200, 400, 100]));
        assert_eq!(Parts::new(1000, 300, true, stats(900, None)), None);
        // Numbers that cannot be.
        assert_eq!(parts(300, true, u64::MAX, u64::MAX), Some([0, 1000, 0]));
        assert_eq!(parts(0, false, 10, 20), Some([0, 10, 990]));
        assert_eq!(parts(1000, true, 500, 400), Some([0, 400, 500]));
    }

    #[test]
    fn a_process_is_up_for_some_time() {
        let own = i32::try_from(std::process::id()).ok();
        assert!(up(own).is_some_and(|up| up < Duration::from_secs(86400)));
        assert_eq!(up(Some(-1)), None);
        assert_eq!(up(None), None);
    }
}

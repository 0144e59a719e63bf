//! A running guest with stock Linux. Its first process reports on the control port
//! ([`ebb_wire::report`]), and its balloon reports statistics over QEMU.

use crate::guest::oom::{OomKills, Victim};
use crate::guest::running::{Complaint, Guest};
use crate::guest::sample::Sample;
use crate::guest::stage::{Stage, WaitStatus};
use crate::qemu::MonitorSender;
use crate::text::printable;
use ebb_wire::report::{BYTES_MAX, Report};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The QOM path of the balloon device.
const BALLOON: &str = "/machine/peripheral/balloon";
/// The balloon's property for the interval at which QEMU polls the guest's statistics, in seconds.
const INTERVAL: &str = "guest-stats-polling-interval";
/// The balloon's property for the statistics that arrived last.
const STATISTICS: &str = "guest-stats";
/// The interval at which the guest is asked for its statistics. It is long enough to take no
/// noticeable time from the guest.
const POLL: Duration = Duration::from_millis(250);
/// The time after which a guest that is not busy has answered.
const ANSWER: Duration = Duration::from_millis(25);

/// A running guest with a stock kernel, as its reports and its balloon's statistics show it.
#[derive(Debug)]
pub(crate) struct LinuxGuest {
    /// The number of virtual CPUs.
    cpus: u32,
    /// The size of the guest's RAM in bytes.
    memory: u64,
    /// Whether QEMU counts instructions. Guest time is not host time then, so QEMU polls the
    /// statistics by the guest's clock from the start.
    icount: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the guest boots, runs the program, or has ended; `None` before its first report.
    stage: Option<Stage>,
    /// Guest time at which the program started.
    first_user: Option<Duration>,
    awaited_input: bool,
    /// Guest time at which the program ended.
    ended: Option<Duration>,
    program_faults: Option<u64>,
    /// Bytes that the program wrote to stdout and stderr, known once it has exited.
    written: Option<[u64; 2]>,
    /// The OOM kills that the kernel's log names. Their total number is reported again when the
    /// program has ended.
    oom: Option<OomKills>,
    /// Why the guest did not run the program.
    complaint: Option<Complaint>,
    statistics: Option<Statistics>,
    /// The last two sizes of the balloon that QEMU told, in bytes, the later one first.
    balloon: [Option<u64>; 2],
    /// Whether the control port is closed.
    gone: bool,
    /// Whether the virtual CPUs are stopped.
    still: bool,
}

/// The balloon's statistics: amounts in bytes, and a number of page faults.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Statistics {
    /// Used memory and that in the balloon.
    taken: u64,
    free: u64,
    /// The part of the RAM that the kernel does not manage.
    reserved: u64,
    file: Option<u64>,
    faults: Option<u64>,
}

impl Statistics {
    /// Reads QEMU's answer to a query of the statistics, and caps amounts at `memory` bytes.
    /// Returns `None` if the guest has not sent total and free memory yet.
    fn parse(answer: &Value, memory: u64) -> Option<Self> {
        let stats = answer.get("stats")?;
        // QEMU sets a statistic that the guest does not send to all ones.
        let tag = |name: &str| stats.get(name)?.as_u64().filter(|value| *value != u64::MAX);
        let faults = tag("stat-minor-faults").zip(tag("stat-major-faults"));
        let (total, free) = (tag("stat-total-memory")?, tag("stat-free-memory")?);
        Some(Self {
            taken: total.checked_sub(free)?.min(memory),
            free: free.min(memory),
            // The guest has more than its RAM if memory was plugged in.
            reserved: memory.saturating_sub(total),
            file: tag("stat-disk-caches").map(|file| file.min(memory)),
            // Linux includes major faults in this count, although the statistic is named minor
            // faults.
            faults: faults.map(|(minor, _)| minor),
        })
    }
}

impl State {
    /// Returns the bytes that the guest uses and those in its balloon, which are together those
    /// that `statistics` count as taken.
    fn used_and_ballooned(&self, statistics: Statistics) -> (u64, u64) {
        // The statistics are from a moment between the two answers. Memory in the balloon must not
        // seem to be used, so the larger size counts.
        let ballooned = self.balloon.into_iter().max().flatten();
        let ballooned = ballooned.unwrap_or(0).min(statistics.taken);
        (statistics.taken - ballooned, ballooned)
    }
}

impl LinuxGuest {
    /// Creates the view of a guest with `cpus` virtual CPUs and `memory` bytes of RAM. `icount`
    /// says that QEMU counts instructions. Knows nothing of the guest until [`Guest::attend`] is
    /// called.
    pub(crate) fn new(cpus: u32, memory: u64, icount: bool) -> Self {
        Self {
            cpus,
            memory,
            icount,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Reads reports from the control port until it is closed.
    fn listen(&self, port: impl Read) {
        let mut input = BufReader::new(port);
        let mut line = Vec::new();
        loop {
            line.clear();
            match input
                .by_ref()
                .take(BYTES_MAX as u64)
                .read_until(b'\n', &mut line)
            {
                Ok(0) => break,
                Ok(_) => self.take_in(String::from_utf8_lossy(&line).trim_end()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.lock().gone = true;
        self.changed.notify_all();
    }

    /// Records the report in `line`. Ignores a line that is not a report.
    fn take_in(&self, line: &str) {
        let mut state = self.lock();
        // The first report of the guest's end counts; later ones are ignored.
        let ended = matches!(state.stage, Some(Stage::Exited(_))) || state.complaint.is_some();
        match Report::parse(line) {
            _ if ended => {}
            Some(Report::Up) => state.stage = Some(Stage::Booting),
            Some(Report::Running { nanoseconds }) => {
                state.stage = Some(Stage::Running);
                state.first_user = Some(Duration::from_nanos(nanoseconds));
            }
            Some(Report::AwaitsInput) => state.awaited_input = true,
            Some(Report::Ended {
                nanoseconds,
                faults,
            }) => {
                state.ended = Some(Duration::from_nanos(nanoseconds));
                state.program_faults = Some(faults);
            }
            Some(Report::OomKill {
                nanoseconds,
                pid,
                resident,
                name,
            }) => {
                let at = Duration::from_nanos(nanoseconds);
                // The guest cannot have more memory than it was given.
                let resident = resident.min(self.memory);
                let victim = Victim::named(name, at, pid, resident);
                state.oom.get_or_insert_default().add(victim);
            }
            Some(Report::OomKills(kills)) => state.oom.get_or_insert_default().kills = kills,
            Some(Report::Exited { status, written }) => {
                state.stage = Some(Stage::Exited(WaitStatus::from_raw(status)));
                state.written = Some(written);
            }
            Some(Report::CannotRun(why)) => {
                state.complaint = Some(Complaint::CannotRun(printable(why)));
            }
            Some(Report::Failed(why)) => state.complaint = Some(Complaint::Failed(printable(why))),
            None => {}
        }
        self.changed.notify_all();
    }

    /// Asks QEMU for the balloon's size and statistics periodically, until the control port is
    /// closed or QEMU ends. Pauses while the virtual CPUs are stopped.
    fn inquire(&self, mut monitor_sender: MonitorSender) {
        let set = |seconds: u32| {
            json!({"execute": "qom-set", "arguments":
                {"path": BALLOON, "property": INTERVAL, "value": seconds}})
        };
        let size = json!({"execute": "query-balloon"});
        let get = json!({"execute": "qom-get", "arguments":
            {"path": BALLOON, "property": STATISTICS}});
        if !self.wait_until_up() {
            return;
        }
        loop {
            // QEMU asks the guest immediately when the interval is set, but otherwise at most once
            // a second.
            let asked = if self.icount {
                Ok(())
            } else {
                let again = monitor_sender
                    .ask(&set(0))
                    .and_then(|()| monitor_sender.ask(&set(1)));
                thread::sleep(ANSWER);
                again
            };
            let asked = asked
                .and_then(|()| monitor_sender.ask(&size))
                .and_then(|()| monitor_sender.ask(&get));
            if asked.is_err() {
                return;
            }
            let state = self.lock();
            let (state, _) = self
                .changed
                .wait_timeout_while(state, POLL - ANSWER, |state| !state.gone)
                .unwrap_or_else(PoisonError::into_inner);
            let state = self
                .changed
                .wait_while(state, |state| state.still && !state.gone)
                .unwrap_or_else(PoisonError::into_inner);
            if state.gone {
                return;
            }
        }
    }

    // A panic elsewhere cannot leave the state half-changed, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest for LinuxGuest {
    fn stage(&self) -> Option<Stage> {
        self.lock().stage
    }

    fn look(&self) -> Sample {
        let state = self.lock();
        let used = state
            .statistics
            .map(|statistics| state.used_and_ballooned(statistics));
        Sample {
            used: used.map(|(used, _)| used),
            ballooned: used.map(|(_, ballooned)| ballooned),
            reserved: state.statistics.map(|statistics| statistics.reserved),
            free: state.statistics.map(|statistics| statistics.free),
            file: state.statistics.and_then(|statistics| statistics.file),
            faults: state.statistics.and_then(|statistics| statistics.faults),
            oom: state.oom,
            awaited_input: state.awaited_input,
            cpus: self.cpus,
            first_user: state.first_user,
            ended: state.ended,
            program_faults: state.program_faults,
            stage: state.stage,
            ..Sample::default()
        }
    }

    fn attend(
        self: Arc<Self>,
        control: &UnixStream,
        monitor_sender: MonitorSender,
    ) -> io::Result<()> {
        let control = control.try_clone()?;
        let listener = Arc::clone(&self);
        let name = |name: &str| thread::Builder::new().name(name.to_owned());
        name("listen").spawn(move || listener.listen(control))?;
        name("inquire").spawn(move || self.inquire(monitor_sender))?;
        Ok(())
    }

    fn learn(&self, answer: &Value) {
        if let Some(statistics) = Statistics::parse(answer, self.memory) {
            self.lock().statistics = Some(statistics);
        } else if let Some(left) = answer.get("actual").and_then(Value::as_u64) {
            let mut state = self.lock();
            state.balloon = [Some(self.memory.saturating_sub(left)), state.balloon[0]];
        }
    }

    fn set_stopped(&self, still: bool) {
        self.lock().still = still;
        self.changed.notify_all();
    }

    fn wait_until_up(&self) -> bool {
        let state = self
            .changed
            .wait_while(self.lock(), |state| state.stage.is_none() && !state.gone)
            .unwrap_or_else(PoisonError::into_inner);
        state.stage.is_some()
    }

    fn is_to_be_ended(&self, received: [u64; 2]) -> bool {
        let state = self.lock();
        let all_here = |written: [u64; 2]| {
            let pairs = written.iter().zip(received);
            pairs.into_iter().all(|(written, got)| got >= *written)
        };
        state.complaint.is_some() || state.written.is_some_and(all_here)
    }

    fn complaint(&self) -> Option<Complaint> {
        self.lock().complaint.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_its_life() {
        let guest = LinuxGuest::new(2, 1 << 30, false);
        assert_eq!(guest.stage(), None);
        guest.take_in("nonsense");
        assert_eq!(guest.stage(), None);
        guest.take_in("up");
        assert_eq!(guest.stage(), Some(Stage::Booting));
        guest.take_in("running 1500000000");
        assert_eq!(guest.look().first_user, Some(Duration::from_millis(1500)));
        assert!(!guest.look().awaited_input);
        guest.take_in("awaits-input");
        assert!(guest.look().awaited_input);
        guest.take_in("oom-kill 1600000000 57 99999999999 hog");
        let oom = guest.look().oom.expect("told");
        let told = &oom.told()[0];
        assert_eq!((oom.kills, told.pid, told.at_s), (1, 57, 1.6));
        assert_eq!((told.name.as_str(), told.resident_bytes), ("hog", 1 << 30));
        guest.take_in("oom-kills 2");
        assert_eq!(
            guest.look().oom.map(|oom| (oom.kills, oom.told().len())),
            Some((2, 1))
        );
        guest.take_in("ended 1700000000 12");
        let seen = guest.look();
        assert_eq!(seen.ended, Some(Duration::from_millis(1700)));
        assert_eq!(seen.program_faults, Some(12));
        guest.take_in("exited 256 10");
        assert_eq!(guest.stage(), Some(Stage::Running));
        guest.take_in("exited 256 10 0");
        let Some(Stage::Exited(status)) = guest.stage() else {
            panic!("not exited")
        };
        assert_eq!(status.code(), 1);
        assert!(!guest.is_to_be_ended([9, 0]));
        assert!(guest.is_to_be_ended([10, 0]));
        guest.take_in("failed afterwards");
        assert!(guest.complaint().is_none());
    }

    #[test]
    fn one_that_goes_without_a_word_is_noticed() {
        let guest = LinuxGuest::new(1, 1 << 30, false);
        guest.listen([b'x'; 100_000].as_slice());
        assert!(!guest.wait_until_up());
        let guest = LinuxGuest::new(1, 1 << 30, false);
        guest.listen(b"up\ncannot-run no such file\n".as_slice());
        assert!(guest.wait_until_up());
        assert!(
            matches!(guest.complaint(), Some(Complaint::CannotRun(why)) if why == "no such file")
        );
        let guest = LinuxGuest::new(1, 1 << 30, false);
        guest.take_in("failed \x1b[2Jso");
        assert!(matches!(guest.complaint(), Some(Complaint::Failed(why)) if why == "so"));
        assert!(guest.is_to_be_ended([0, 0]));
    }

    #[test]
    fn a_balloon_and_what_linux_reserved_are_neither_used_nor_free() {
        let memory = 1000;
        let guest = LinuxGuest::new(1, memory, false);
        let statistics = |total: u64, free: u64| {
            let stats = json!({"stat-total-memory": total, "stat-free-memory": free});
            json!({ "stats": stats })
        };
        let parts = || {
            let seen = guest.look();
            let parts = [seen.used, seen.ballooned, seen.reserved, seen.free];
            parts.map(|part| part.expect("it is known"))
        };
        assert_eq!(guest.look().ballooned, None);
        guest.learn(&statistics(900, 700));
        assert_eq!(parts(), [200, 0, 100, 700]);
        // The balloon is inflated: it grows before the statistics do, or after them.
        guest.learn(&json!({"actual": 700}));
        assert_eq!(parts(), [0, 200, 100, 700]);
        guest.learn(&statistics(900, 400));
        assert_eq!(parts(), [200, 300, 100, 400]);
        // It is deflated, and the statistics are still those from before.
        guest.learn(&json!({"actual": 1000}));
        assert_eq!(parts(), [200, 300, 100, 400]);
        guest.learn(&json!({"actual": 1000}));
        guest.learn(&statistics(900, 700));
        assert_eq!(parts(), [200, 0, 100, 700]);
        for lie in [0, u64::MAX] {
            guest.learn(&json!({"actual": lie}));
            assert_eq!(parts().iter().sum::<u64>(), memory, "{lie}");
        }
        // Memory was plugged in.
        for _ in 0..2 {
            guest.learn(&json!({"actual": 1000}));
        }
        guest.learn(&statistics(1500, 700));
        assert_eq!(parts(), [800, 0, 0, 700]);
        guest.learn(&json!({}));
        assert_eq!(parts(), [800, 0, 0, 700]);
    }

    #[test]
    fn statistics_are_allegations() {
        let answer = json!({"last-update": 1, "stats": {
            "stat-total-memory": 1000, "stat-free-memory": 400,
            "stat-disk-caches": u64::MAX, "stat-minor-faults": 7, "stat-major-faults": 1}});
        assert_eq!(
            Statistics::parse(&answer, 1 << 30),
            Some(Statistics {
                taken: 600,
                free: 400,
                reserved: (1 << 30) - 1000,
                file: None,
                faults: Some(7)
            })
        );
        let lie = json!({"stats": {"stat-total-memory": u64::MAX - 1, "stat-free-memory": 1_u64 << 40,
            "stat-disk-caches": 1_u64 << 60}});
        assert_eq!(
            Statistics::parse(&lie, 1000),
            Some(Statistics {
                taken: 1000,
                free: 1000,
                reserved: 0,
                file: Some(1000),
                faults: None
            }),
            "it has no more than it was given"
        );
        for bad in [
            json!({}),
            json!({"stats": {"stat-total-memory": 1}}),
            json!({"stats": {"stat-total-memory": 1, "stat-free-memory": 2}}),
            json!({"stats": {"stat-total-memory": u64::MAX, "stat-free-memory": 2}}),
            json!({"stats": 7}),
        ] {
            assert_eq!(Statistics::parse(&bad, 1 << 30), None, "{bad}");
        }
    }
}

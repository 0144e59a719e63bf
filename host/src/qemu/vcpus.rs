//! Stops and resumes a guest's virtual CPUs over QEMU's monitor, and detects that a signal has
//! stopped QEMU itself.
//!
//! QEMU answers when it likes. So the user's wish is stored, and the next command is sent when
//! QEMU's event arrives. For example, a guest that is resumed while QEMU is still stopping it
//! resumes after the stop. No caller waits for QEMU here.
//!
//! QEMU stops a virtual CPU between two instructions. So the memory of a guest whose atomic
//! instructions are not atomic for the host can be taken while its CPUs are held stopped
//! ([`Hold`]).

use super::monitor_sender::MonitorSender;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state of the virtual CPUs that the user wants.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wish {
    /// They stop.
    Pause,
    /// They continue.
    Resume,
}

/// The cause for which the virtual CPUs are stopped.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoppedBy {
    /// QEMU's monitor, for `ebb pause`.
    Ebb,
    /// A signal to QEMU, such as `SIGSTOP`.
    Signal,
}

impl StoppedBy {
    /// The error text for a command to a QEMU that a signal has stopped, which cannot answer.
    pub(crate) const BY_SIGNAL: &str =
        "a signal has stopped QEMU, which cannot be asked; SIGCONT lets it go on";
}

/// Stops, resumes and watches the virtual CPUs of one guest.
#[derive(Debug)]
pub(crate) struct Vcpus {
    pid: u32,
    state: Mutex<State>,
    changed: Condvar,
    /// An eventfd that is readable when the thread that watches the guest should check it at once.
    eventfd: OwnedFd,
}

#[derive(Debug)]
struct State {
    monitor: MonitorSender,
    phase: Phase,
    wish: Wish,
    /// The number of live [`Hold`]s, which keep the CPUs stopped.
    holds: u32,
    /// Whether a signal had stopped QEMU at the last check.
    stopped_by_signal: bool,
    /// When the CPUs stopped, or `None` while they run.
    since: Option<Instant>,
    /// How long the CPUs were stopped, without the time since `since`.
    total: Duration,
    /// Incremented by [`Vcpus::nudge`] and when the CPUs stop.
    nudges: u64,
    /// How often the CPUs have stopped for `ebb pause`.
    pauses: u64,
    /// Whether the guest has ended.
    ended: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
/// The state of the CPUs, according to QEMU's events.
enum Phase {
    Running,
    /// QEMU was asked to stop the CPUs.
    Stopping,
    Stopped,
    /// QEMU was asked to resume the CPUs.
    Resuming,
}

impl State {
    /// Sends QEMU the command that the wish requires, if the CPUs' state and the holds allow it.
    ///
    /// # Errors
    /// If the buffer of QEMU's socket is full, or QEMU has ended.
    fn step(&mut self) -> io::Result<()> {
        let (command, next) = match (self.phase, self.wish) {
            (Phase::Running, Wish::Pause) => ("stop", Phase::Stopping),
            (Phase::Stopped, Wish::Resume) if self.holds == 0 => ("cont", Phase::Resuming),
            _ => return Ok(()),
        };
        self.monitor.ask_now(&json!({ "execute": command }))?;
        self.phase = next;
        Ok(())
    }

    /// Returns what has stopped the CPUs, or `None` if they run.
    fn stopped_by(&self) -> Option<StoppedBy> {
        match self.phase {
            Phase::Stopped => Some(StoppedBy::Ebb),
            _ if self.stopped_by_signal => Some(StoppedBy::Signal),
            _ => None,
        }
    }

    /// Starts or ends the measurement of stopped time, after the state has changed.
    fn count_time(&mut self) {
        match (self.stopped_by().is_some(), self.since) {
            (true, None) => self.since = Some(Instant::now()),
            (false, Some(since)) => {
                self.total += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }
}

impl Vcpus {
    /// Creates the control of the running virtual CPUs of the QEMU with process number `pid`, by
    /// commands over `monitor`.
    ///
    /// # Errors
    /// If the eventfd cannot be created, for example because the process has no descriptor left.
    pub(crate) fn new(monitor: MonitorSender, pid: u32) -> io::Result<Self> {
        Ok(Self {
            pid,
            state: Mutex::new(State {
                monitor,
                phase: Phase::Running,
                wish: Wish::Resume,
                holds: 0,
                stopped_by_signal: false,
                since: None,
                total: Duration::ZERO,
                nudges: 0,
                pauses: 0,
                ended: false,
            }),
            changed: Condvar::new(),
            eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Returns the control of virtual CPUs for a test, and the socket on which its QEMU would read
    /// commands.
    #[cfg(test)]
    pub(crate) fn of_test() -> (Self, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let vcpus = Self::new(MonitorSender::over(ours), std::process::id()).unwrap();
        (vcpus, theirs)
    }

    /// Stores the user's wish and, if the CPUs are not on the way there already, asks QEMU to stop
    /// or resume them. Returns before QEMU does so. A resume is sent only once no [`Hold`] is left.
    ///
    /// # Errors
    /// If the buffer of QEMU's socket is full, or QEMU has ended. The previous wish stays then.
    pub(crate) fn ask(&self, wish: Wish) -> io::Result<()> {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.wish, wish);
        let asked = state.step();
        if asked.is_err() {
            state.wish = before;
        }
        asked
    }

    /// Records QEMU's event that the CPUs have stopped, and wakes all waiting threads. If the wish
    /// is to resume by now, asks QEMU for that. Returns `false`, and changes nothing, if `ebb` had
    /// not asked for a stop.
    pub(crate) fn on_stop_event(&self) -> bool {
        let mut state = self.lock();
        let asked = state.phase == Phase::Stopping;
        if asked {
            self.enter(&mut state, Phase::Stopped);
        }
        asked
    }

    /// Records QEMU's event that the CPUs have resumed, and wakes all waiting threads. If another
    /// client has resumed the CPUs, the user's wish becomes to resume. Changes nothing if the CPUs
    /// were running or are being stopped, as at the guest's start.
    pub(crate) fn on_resume_event(&self) {
        let mut state = self.lock();
        match state.phase {
            Phase::Resuming => self.enter(&mut state, Phase::Running),
            // Another client of this QEMU has resumed the CPUs.
            Phase::Stopped => {
                state.wish = Wish::Resume;
                self.enter(&mut state, Phase::Running);
            }
            Phase::Running | Phase::Stopping => {}
        }
    }

    /// Changes the state, sends the next command, and wakes all waiting threads.
    fn enter(&self, state: &mut State, phase: Phase) {
        state.phase = phase;
        if phase == Phase::Stopped {
            state.pauses += 1;
            // This wakes a thread that waits for a QEMU that a signal had stopped; the cause is
            // another one now.
            state.nudges += 1;
        }
        // If the command cannot be sent now, the next wish sends it.
        let _ = state.step();
        state.count_time();
        self.changed.notify_all();
        self.signal();
    }

    /// Checks now whether a signal has stopped QEMU, and wakes all waiting threads if that has
    /// changed. Returns what has stopped the CPUs, or `None` if they run.
    pub(crate) fn look(&self) -> Option<StoppedBy> {
        let stopped = is_stopped(self.pid);
        let mut state = self.lock();
        if state.stopped_by_signal != stopped {
            state.stopped_by_signal = stopped;
            state.count_time();
            self.changed.notify_all();
        }
        state.stopped_by()
    }

    /// Returns how long the CPUs have been stopped in total, by `ebb` or a signal, the current stop
    /// included. A stop by a signal counts from the check that notices it.
    pub(crate) fn total_stopped(&self) -> Duration {
        let state = self.lock();
        state.total + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Keeps CPUs that `ebb pause` has stopped from resuming, until the returned [`Hold`] is
    /// dropped. A resume waits until then. Does not wait.
    ///
    /// Returns `None` if the CPUs run, are being stopped, or are about to resume. Also returns
    /// `None` if only a signal has stopped QEMU, since a CPU may then be in the middle of an
    /// instruction.
    pub(crate) fn hold(&self) -> Option<Hold<'_>> {
        let mut state = self.lock();
        (state.phase == Phase::Stopped && state.wish == Wish::Pause).then(|| {
            state.holds += 1;
            Hold(self)
        })
    }

    /// Blocks until the CPUs are stopped, and returns what stopped them. Returns `None` if the
    /// guest has ended. Notices a stop by a signal only when another thread calls [`Self::look`].
    pub(crate) fn wait_until_stopped(&self) -> Option<StoppedBy> {
        let state = self
            .changed
            .wait_while(self.lock(), |state| {
                state.stopped_by().is_none() && !state.ended
            })
            .unwrap_or_else(PoisonError::into_inner);
        state.stopped_by().filter(|_| !state.ended)
    }

    /// Blocks while the CPUs are stopped, but at most for `most` if that is given. Also returns if
    /// the guest ends, or once [`Self::nudges`] differs from `nudges`, a number that the caller
    /// read before.
    ///
    /// Returns `true` if the CPUs are still stopped, by `ebb` or a signal, and the guest has not
    /// ended.
    pub(crate) fn wait_while_stopped(&self, nudges: u64, most: Option<Duration>) -> bool {
        let stands = |state: &State| state.stopped_by().is_some() && !state.ended;
        let mut waits = |state: &mut State| stands(state) && state.nudges == nudges;
        let state = self.lock();
        let state = match most {
            Some(most) => {
                let waited = self.changed.wait_timeout_while(state, most, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.changed.wait_while(state, &mut waits);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        stands(&state)
    }

    /// Returns the number of calls of [`Self::nudge`] so far plus the number of stops for `ebb
    /// pause`.
    pub(crate) fn nudges(&self) -> u64 {
        self.lock().nudges
    }

    /// Wakes the threads in [`Self::wait_while_stopped`], which then return, so that their callers
    /// notice another change.
    pub(crate) fn nudge(&self) {
        self.lock().nudges += 1;
        self.changed.notify_all();
    }

    /// Records that the guest has ended, and wakes all waiting threads. Their waits return at once
    /// from then on.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Makes the eventfd readable, so that the thread that watches the guest checks it at once.
    pub(crate) fn signal(&self) {
        // This fails only if the eventfd is readable already and its counter is full.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    /// Returns the eventfd that [`Self::signal`] makes readable, for `poll`.
    pub(crate) fn eventfd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    /// Resets the eventfd. Returns whether [`Self::signal`] was called since the last reset.
    pub(crate) fn take_signal(&self) -> bool {
        // The read fails with `EAGAIN` if the counter is 0.
        rustix::io::read(&self.eventfd, &mut [0; 8]).is_ok()
    }

    // A panic elsewhere cannot leave the state half-changed, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps virtual CPUs that `ebb pause` has stopped from resuming. Dropping this sends QEMU a resume
/// that waited for it.
#[derive(Debug)]
pub(crate) struct Hold<'a>(&'a Vcpus);

impl Hold<'_> {
    /// Returns whether this hold should be dropped: the user wants the CPUs to resume, or the guest
    /// has ended.
    pub(crate) fn is_unwanted(&self) -> bool {
        let state = self.0.lock();
        state.wish == Wish::Resume || state.ended
    }

    /// Returns the number of the current stop for `ebb pause`, counted from 1 for the guest's
    /// first.
    pub(crate) fn pause(&self) -> u64 {
        self.0.lock().pauses
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.holds -= 1;
        // If the buffer of QEMU's socket is full, the next wish sends the command.
        let _ = state.step();
    }
}

/// Returns whether a signal has stopped the process `pid`. Returns `false` if `/proc` does not
/// tell.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stops(&stat))
}

/// Returns whether the contents of a `/proc/PID/stat` describe a stopped process.
fn stops(stat: &str) -> bool {
    // The second field is the program's name, which may contain any character.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with('T'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;

    /// Returns virtual CPUs, and a function that returns the commands that QEMU would read.
    fn vcpus() -> (Vcpus, impl FnMut() -> String) {
        let (vcpus, theirs) = Vcpus::of_test();
        theirs.set_nonblocking(true).unwrap();
        let mut lines = BufReader::new(theirs);
        let read = move || {
            let mut line = String::new();
            let _ = lines.read_line(&mut line);
            line
        };
        (vcpus, read)
    }

    #[test]
    fn a_wish_that_comes_too_early_is_carried_out_later() {
        let (vcpus, mut read) = vcpus();
        vcpus.ask(Wish::Resume).unwrap();
        assert_eq!(read(), "", "they run");
        vcpus.ask(Wish::Pause).unwrap();
        vcpus.ask(Wish::Pause).unwrap();
        assert_eq!(read(), "{\"execute\":\"stop\"}\n");
        assert_eq!(read(), "", "it is asked once");
        // The event of the guest's start may arrive late.
        vcpus.on_resume_event();
        assert_eq!(vcpus.look(), None);
        vcpus.ask(Wish::Resume).unwrap();
        assert_eq!(read(), "", "it has not stopped yet");
        assert!(vcpus.on_stop_event());
        assert_eq!(read(), "{\"execute\":\"cont\"}\n");
        vcpus.ask(Wish::Pause).unwrap();
        assert_eq!(read(), "");
        vcpus.on_resume_event();
        assert_eq!(read(), "{\"execute\":\"stop\"}\n");
        assert!(vcpus.on_stop_event());
        assert_eq!(vcpus.look(), Some(StoppedBy::Ebb));
        assert_eq!(vcpus.wait_until_stopped(), Some(StoppedBy::Ebb));
    }

    #[test]
    fn a_stop_that_was_not_requested_is_told_apart() {
        let (vcpus, _read) = vcpus();
        assert!(!vcpus.on_stop_event());
        assert_eq!(vcpus.look(), None);
    }

    #[test]
    fn cpus_that_are_held_go_on_when_all_let_go() {
        let (vcpus, mut read) = vcpus();
        assert!(vcpus.hold().is_none(), "they run");
        vcpus.ask(Wish::Pause).unwrap();
        assert!(vcpus.on_stop_event());
        read();
        let holds = (vcpus.hold().unwrap(), vcpus.hold().unwrap());
        vcpus.ask(Wish::Resume).unwrap();
        drop(holds.0);
        assert_eq!(read(), "");
        drop(holds.1);
        assert_eq!(read(), "{\"execute\":\"cont\"}\n");
        assert!(vcpus.hold().is_none(), "QEMU lets them go on");
    }

    #[test]
    fn a_monitor_that_is_not_read_makes_no_caller_wait() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut flood = MonitorSender::over(ours.try_clone().unwrap());
        while flood.ask_now(&json!({"execute": "x".repeat(1000)})).is_ok() {}
        let vcpus = Vcpus::new(MonitorSender::over(ours), std::process::id()).unwrap();
        assert!(vcpus.ask(Wish::Pause).is_err());
        drop(theirs);
        assert!(vcpus.ask(Wish::Pause).is_err());
        assert_eq!(vcpus.look(), None);
    }

    #[test]
    fn waiting_ends_with_the_guest_and_by_a_nudge() {
        let (vcpus, _read) = vcpus();
        vcpus.ask(Wish::Pause).unwrap();
        assert!(vcpus.on_stop_event());
        assert!(vcpus.wait_while_stopped(vcpus.nudges(), Some(Duration::from_millis(1))));
        let before = vcpus.nudges();
        vcpus.nudge();
        assert!(vcpus.wait_while_stopped(before, None));
        vcpus.end();
        assert!(!vcpus.wait_while_stopped(vcpus.nudges(), None));
        assert_eq!(vcpus.wait_until_stopped(), None);
    }

    #[test]
    fn the_state_of_a_process_stands_behind_its_name() {
        assert!(stops("7 (a) R) T 1 2"));
        assert!(!stops("7 (T) S 1 2") && !stops("7 (a) t 1") && !stops(""));
    }
}

//! Stops a guest's virtual CPUs and lets them go on, by QEMU's monitor, and notices when a signal
//! has stopped QEMU itself.
//!
//! QEMU answers in its own time, so a wish is put down and carried out as its events come: a guest
//! that is resumed while QEMU still stops it goes on after that. Callers never wait for QEMU here.

use super::inquiries::Inquiries;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a user wants of the virtual CPUs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wish {
    /// They stop.
    Pause,
    /// They go on.
    Resume,
}

/// What has stopped the virtual CPUs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoppedBy {
    /// QEMU's monitor, as `ebb pause` asked.
    Ebb,
    /// A signal to QEMU, such as `SIGSTOP`.
    Signal,
}

impl StoppedBy {
    /// What a user is told who asks a QEMU for something that a signal has stopped.
    pub(crate) const BY_SIGNAL: &str =
        "a signal has stopped QEMU, which cannot be asked; SIGCONT lets it go on";
}

/// The virtual CPUs of one guest.
#[derive(Debug)]
pub(crate) struct Vcpus {
    pid: u32,
    state: Mutex<State>,
    changed: Condvar,
    /// Readable when something has changed that the thread that watches the guest should look at.
    bell: OwnedFd,
}

#[derive(Debug)]
struct State {
    monitor: Inquiries,
    phase: Phase,
    wish: Wish,
    /// Uses of the guest's memory that need the CPUs to stay stopped.
    holds: u32,
    /// A signal has stopped QEMU, when it was last looked at.
    stopped_by_signal: bool,
    since: Option<Instant>,
    total: Duration,
    /// Raised by [`Vcpus::nudge`], and when the CPUs stop.
    nudges: u64,
    /// How often the CPUs have been stopped.
    pauses: u64,
    ended: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// QEMU has been asked to stop them.
    Stopping,
    Stopped,
    /// QEMU has been asked to let them go on.
    Resuming,
}

impl State {
    /// Asks QEMU for what is wanted, if it is time for that.
    ///
    /// # Errors
    /// If QEMU does not read its monitor.
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

    fn stopped_by(&self) -> Option<StoppedBy> {
        match self.phase {
            Phase::Stopped => Some(StoppedBy::Ebb),
            _ if self.stopped_by_signal => Some(StoppedBy::Signal),
            _ => None,
        }
    }

    /// Keeps count of the time for which the CPUs stand still.
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
    /// The virtual CPUs of the QEMU with this process number, which run.
    ///
    /// # Errors
    /// If the host has no descriptor left.
    pub(crate) fn new(monitor: Inquiries, pid: u32) -> io::Result<Self> {
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
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The virtual CPUs of a QEMU whose monitor is what is returned with them.
    #[cfg(test)]
    pub(crate) fn of_test() -> (Self, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let vcpus = Self::new(Inquiries::over(ours), std::process::id()).unwrap();
        (vcpus, theirs)
    }

    /// Has the CPUs stop or go on, as soon as QEMU does so.
    ///
    /// # Errors
    /// If QEMU does not read its monitor. The wish is then forgotten.
    pub(crate) fn ask(&self, wish: Wish) -> io::Result<()> {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.wish, wish);
        let asked = state.step();
        if asked.is_err() {
            state.wish = before;
        }
        asked
    }

    /// QEMU says that the CPUs have stopped. Returns `false` if no wish has asked for it.
    pub(crate) fn have_stopped(&self) -> bool {
        let mut state = self.lock();
        let asked = state.phase == Phase::Stopping;
        if asked {
            self.enter(&mut state, Phase::Stopped);
        }
        asked
    }

    /// QEMU says that the CPUs go on. The first such event, of the start, is passed over.
    pub(crate) fn go_on(&self) {
        let mut state = self.lock();
        match state.phase {
            Phase::Resuming => self.enter(&mut state, Phase::Running),
            // Another monitor of this QEMU has let them go on.
            Phase::Stopped => {
                state.wish = Wish::Resume;
                self.enter(&mut state, Phase::Running);
            }
            Phase::Running | Phase::Stopping => {}
        }
    }

    fn enter(&self, state: &mut State, phase: Phase) {
        state.phase = phase;
        if phase == Phase::Stopped {
            state.pauses += 1;
            // Who waits for a QEMU that a signal had stopped looks again.
            state.nudges += 1;
        }
        // What cannot be asked for now is asked for with the next wish.
        let _ = state.step();
        state.count_time();
        self.changed.notify_all();
        self.ring();
    }

    /// Looks whether a signal has stopped QEMU, and returns what has stopped the CPUs now.
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

    /// For how long the CPUs have stood still in all.
    pub(crate) fn stood_still(&self) -> Duration {
        let state = self.lock();
        state.total + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Keeps CPUs that `ebb pause` has stopped as they are, until what is returned is dropped.
    /// Returns `None` if they run or are to go on, or if a signal has stopped QEMU, which may be within
    /// an instruction then.
    pub(crate) fn hold(&self) -> Option<Hold<'_>> {
        let mut state = self.lock();
        (state.phase == Phase::Stopped && state.wish == Wish::Pause).then(|| {
            state.holds += 1;
            Hold(self)
        })
    }

    /// Waits until the CPUs stand still. Returns `None` when the guest has ended.
    pub(crate) fn wait_until_stopped(&self) -> Option<StoppedBy> {
        let state = self
            .changed
            .wait_while(self.lock(), |state| {
                state.stopped_by().is_none() && !state.ended
            })
            .unwrap_or_else(PoisonError::into_inner);
        state.stopped_by().filter(|_| !state.ended)
    }

    /// Waits until the CPUs go on, the guest has ended, or [`Self::nudge`] was called more often
    /// than `nudges` says, for `most` at most. Returns whether they still stand still.
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

    /// How often [`Self::nudge`] was called.
    pub(crate) fn nudges(&self) -> u64 {
        self.lock().nudges
    }

    /// Ends [`Self::wait_while_stopped`] early, since something else has changed.
    pub(crate) fn nudge(&self) {
        self.lock().nudges += 1;
        self.changed.notify_all();
    }

    /// Ends all waiting: the guest is gone.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Has the thread that watches the guest look at once.
    pub(crate) fn ring(&self) {
        // It fails only where it is readable already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// What [`Self::ring`] makes readable.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Makes the bell quiet again. Returns whether it had rung.
    pub(crate) fn heed(&self) -> bool {
        // It fails if the bell has not rung.
        rustix::io::read(&self.bell, &mut [0; 8]).is_ok()
    }

    // A panic elsewhere cannot leave the state half-changed, so poison says nothing.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the virtual CPUs stopped.
#[derive(Debug)]
pub(crate) struct Hold<'a>(&'a Vcpus);

impl Hold<'_> {
    /// Returns whether the CPUs are to go on, which this delays, or the guest has ended.
    pub(crate) fn is_unwanted(&self) -> bool {
        let state = self.0.lock();
        state.wish == Wish::Resume || state.ended
    }

    /// Returns the number of the pause that lasts: 1 is the guest's first.
    pub(crate) fn pause(&self) -> u64 {
        self.0.lock().pauses
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.holds -= 1;
        // If QEMU does not read, the next wish asks again.
        let _ = state.step();
    }
}

/// Whether a signal has stopped the process `pid`.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stops(&stat))
}

fn stops(stat: &str) -> bool {
    // The second field is a name that may hold anything.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with('T'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;

    /// Virtual CPUs, and what QEMU would read.
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
        // The event of the start comes late.
        vcpus.go_on();
        assert_eq!(vcpus.look(), None);
        vcpus.ask(Wish::Resume).unwrap();
        assert_eq!(read(), "", "it has not stopped yet");
        assert!(vcpus.have_stopped());
        assert_eq!(read(), "{\"execute\":\"cont\"}\n");
        vcpus.ask(Wish::Pause).unwrap();
        assert_eq!(read(), "");
        vcpus.go_on();
        assert_eq!(read(), "{\"execute\":\"stop\"}\n");
        assert!(vcpus.have_stopped());
        assert_eq!(vcpus.look(), Some(StoppedBy::Ebb));
        assert_eq!(vcpus.wait_until_stopped(), Some(StoppedBy::Ebb));
    }

    #[test]
    fn a_stop_that_nobody_asked_for_is_told_apart() {
        let (vcpus, _read) = vcpus();
        assert!(!vcpus.have_stopped());
        assert_eq!(vcpus.look(), None);
    }

    #[test]
    fn cpus_that_are_held_go_on_when_all_let_go() {
        let (vcpus, mut read) = vcpus();
        assert!(vcpus.hold().is_none(), "they run");
        vcpus.ask(Wish::Pause).unwrap();
        assert!(vcpus.have_stopped());
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
    fn a_monitor_that_nobody_reads_makes_nobody_wait() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut flood = Inquiries::over(ours.try_clone().unwrap());
        while flood.ask_now(&json!({"execute": "x".repeat(1000)})).is_ok() {}
        let vcpus = Vcpus::new(Inquiries::over(ours), std::process::id()).unwrap();
        assert!(vcpus.ask(Wish::Pause).is_err());
        drop(theirs);
        assert!(vcpus.ask(Wish::Pause).is_err());
        assert_eq!(vcpus.look(), None);
    }

    #[test]
    fn waiting_ends_with_the_guest_and_by_a_nudge() {
        let (vcpus, _read) = vcpus();
        vcpus.ask(Wish::Pause).unwrap();
        assert!(vcpus.have_stopped());
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

//! Forwards signals that `ebb` receives to the program in the guest, and ends the VM where that is
//! not enough.
//!
//! `SIGTERM` asks the program to end. If it has not ended within the grace period, the VM is
//! killed, so that a hanging guest does not outlive `timeout 60 ebb run …`. A single `SIGINT` may
//! mean anything to a program such as a shell or an editor, so it never kills the VM. A paused
//! guest is resumed for a signal, since its program could not handle it otherwise.

use crate::guest::Guest;
use crate::guest::Stage;
use crate::qemu::{Handle, Vcpus, Wish};
use crate::streams::Control;
use crate::system::without_ignored_hangup;
use crate::text;
use crate::text::raw;
use ebb_wire::terminal::Size;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// This number of signals within [`KILL_WINDOW`] ends the VM, whatever the program does with them.
const KILL_COUNT: usize = 3;
const KILL_WINDOW: Duration = Duration::from_secs(3);
/// A second `SIGTERM` within this time counts as the same one. timeout(1) sends it to its child and
/// then to the child's process group.
const SIGTERM_REPEAT_WINDOW: Duration = Duration::from_secs(1);
/// If `ebb` has not noticed the end of its VM this long after a signal, its main thread hangs, for
/// example in a write to a pipe that is not read. The next signal then ends `ebb` itself.
const NOTICE_MAX: Duration = Duration::from_secs(5);

/// The state that the signal thread shares with the run: the target of signals, and whether a
/// signal has killed the VM.
#[derive(Debug, Default)]
pub(crate) struct Signalled {
    /// The VM is gone. From now on a signal ends `ebb` itself.
    ended: AtomicBool,
    /// The first signal for which the VM was or will be killed, and when it came.
    killed_by: Mutex<Option<(i32, Instant)>>,
    /// The current target of signals.
    target: Mutex<SignalTarget>,
    /// The reason, if the VM was killed while its program ran.
    why: Mutex<Option<String>>,
}

/// The target of signals.
#[derive(Debug, Default)]
enum SignalTarget {
    /// There is no VM yet. A signal is remembered and ends the VM when it starts.
    #[default]
    Nowhere,
    /// QEMU has started but does not answer on QMP yet. A signal kills it.
    Starting(Handle),
    /// The VM runs. Signals go to its program.
    Vm(RunningVm),
}

/// The history of signals, by which each further one is judged.
#[derive(Debug)]
struct SignalHistory {
    /// Time from the first `SIGTERM` to the end of the VM.
    grace: Duration,
    /// Times of the latest signals that were forwarded, at most [`KILL_COUNT`] − 1.
    recent: VecDeque<Instant>,
    /// When the first `SIGTERM` came.
    asked: Option<Instant>,
}

/// The reaction to a signal.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SignalAction {
    /// Forward it to the program.
    Forward,
    /// Forward it to the program, and kill the VM after this time.
    ForwardAndWait(Duration),
    /// Kill the VM, for this reason.
    End(String),
}

impl SignalHistory {
    fn new(grace: Duration) -> Self {
        Self {
            grace,
            recent: VecDeque::with_capacity(KILL_COUNT),
            asked: None,
        }
    }

    /// Returns the reaction to a `signal` that came at `now`, and remembers the signal.
    ///
    /// A second `SIGTERM` after [`SIGTERM_REPEAT_WINDOW`] ends the VM, and so do [`KILL_COUNT`]
    /// signals within [`KILL_WINDOW`].
    fn next_action(&mut self, signal: i32, now: Instant) -> SignalAction {
        let first = match (signal, self.asked) {
            (SIGTERM, None) => {
                self.asked = Some(now);
                true
            }
            (SIGTERM, Some(asked)) if now.duration_since(asked) < SIGTERM_REPEAT_WINDOW => {
                return SignalAction::Forward;
            }
            (SIGTERM, Some(_)) => return SignalAction::End("SIGTERM came again".into()),
            _ => false,
        };
        if self.recent.len() == KILL_COUNT - 1
            && let Some(before) = self.recent.pop_front()
            && now.duration_since(before) <= KILL_WINDOW
        {
            let seconds = KILL_WINDOW.as_secs();
            return SignalAction::End(format!("{KILL_COUNT} signals came within {seconds} s"));
        }
        self.recent.push_back(now);
        if first {
            SignalAction::ForwardAndWait(self.grace)
        } else {
            SignalAction::Forward
        }
    }
}

/// A running VM as a target of signals: the ways to reach its program, its CPUs and QEMU.
#[derive(Clone, Debug)]
pub(crate) struct RunningVm {
    /// Sends signals to the guest's kernel.
    pub(crate) control: Arc<Control>,
    /// Tells in which stage the guest is.
    pub(crate) guest: Arc<dyn Guest>,
    /// Kills or stops QEMU.
    pub(crate) qemu: Handle,
    /// Resumes paused CPUs.
    pub(crate) vcpus: Arc<Vcpus>,
}

impl RunningVm {
    /// Sends `signal` to the program and resumes a paused guest, which could not handle it
    /// otherwise.
    fn forward(&self, signal: i32) {
        self.control.signal(signal);
        // If QEMU does not answer, the signal stays queued until it does.
        let _ = self.vcpus.ask(Wish::Resume);
    }
}

impl Signalled {
    /// Makes signals that end a program kill `qemu`, whose VM is being set up. If such a signal
    /// came earlier, kills `qemu` now.
    pub(crate) fn set_starting(&self, qemu: Handle) {
        let mut current = self.lock_target();
        if self.killed_by().is_some() {
            qemu.kill();
        }
        *current = SignalTarget::Starting(qemu);
    }

    /// Makes signals go to the program in the VM `target`. If a signal came earlier that has to end
    /// the VM, kills its QEMU now.
    pub(crate) fn set_running(&self, target: RunningVm) {
        let mut current = self.lock_target();
        if self.killed_by().is_some() {
            target.qemu.kill();
        }
        *current = SignalTarget::Vm(target);
    }

    fn lock_target(&self) -> MutexGuard<'_, SignalTarget> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the VM that gets `signal`. Returns `None` if there is none yet. In that case
    /// `signal` ends the VM as soon as it exists, except `SIGTSTP` and `SIGWINCH`.
    fn target(&self, signal: i32) -> Option<RunningVm> {
        let is_end = signal != SIGTSTP && signal != SIGWINCH;
        // The signal is remembered under the lock, so that `set_running` sees it.
        match &*self.lock_target() {
            SignalTarget::Vm(target) => return Some(target.clone()),
            SignalTarget::Starting(qemu) if is_end => {
                self.remember(signal);
                qemu.kill();
            }
            SignalTarget::Nowhere if is_end => self.remember(signal),
            SignalTarget::Nowhere | SignalTarget::Starting(_) => {}
        }
        None
    }

    fn remember(&self, signal: i32) {
        let mut killed_by = self.lock_killed_by();
        killed_by.get_or_insert_with(|| (signal, Instant::now()));
    }

    fn lock_killed_by(&self) -> MutexGuard<'_, Option<(i32, Instant)>> {
        self.killed_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the next signal has to end `ebb` itself: the VM has ended, or `ebb` hangs.
    fn ends_ebb(&self) -> bool {
        let killed_by = *self.lock_killed_by();
        // Relaxed: the flag publishes no other memory.
        self.ended.load(Ordering::Relaxed)
            || killed_by.is_some_and(|(_, at)| at.elapsed() >= NOTICE_MAX)
    }

    /// Notes that the VM has ended. From now on a signal restores the terminal and ends `ebb`
    /// itself.
    pub(crate) fn vm_ended(&self) {
        // Relaxed: the flag publishes no other memory.
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Returns the reason, for messages, why a signal killed the VM while its program ran. Returns
    /// `None` if no signal killed it, or if no program ran.
    pub(crate) fn why(&self) -> Option<String> {
        self.lock_why().clone()
    }

    fn lock_why(&self) -> MutexGuard<'_, Option<String>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first signal for which the VM was or will be killed. Returns `None` if there was
    /// none.
    pub(crate) fn killed_by(&self) -> Option<i32> {
        let killed_by = *self.lock_killed_by();
        killed_by.map(|(signal, _)| signal)
    }
}

/// Installs handlers for `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT`, `SIGTSTP` and `SIGWINCH`. From
/// now on these signals are only remembered, until a thread passes the result to [`forward`].
/// `SIGHUP` stays ignored if it is, as under nohup(1).
///
/// # Errors
/// Fails if the host refuses a handler.
pub(crate) fn catch() -> std::io::Result<Signals> {
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH];
    Signals::new(without_ignored_hangup(wanted))
}

/// Handles each signal in `signals`, and returns only if the handlers are closed. Sends it to the
/// guest's program, or kills the VM if no program runs, if signals are repeated, or if the program
/// still runs `grace` after `SIGTERM`. Once the VM has ended, or 5 s after the first signal for
/// which it was killed, ends `ebb` with status 128 plus the signal.
///
/// `SIGTSTP` stops the VM and `ebb` until `ebb` is continued. `SIGWINCH` sends the terminal's size.
pub(crate) fn forward(signals: &mut Signals, shared: &Arc<Signalled>, grace: Duration) {
    let mut history = SignalHistory::new(grace);
    for signal in signals.forever() {
        let target = shared.target(signal);
        if signal == SIGTSTP {
            suspend(target.as_ref().map(|target| &target.qemu));
        }
        if signal == SIGTSTP || signal == SIGWINCH {
            // The window may have got another size while `ebb` was stopped.
            if let Some(target) = target {
                tell_size(&target.control);
            }
            continue;
        }
        if shared.ends_ebb() {
            raw::close();
            std::process::exit(128 + signal);
        }
        let Some(target) = target else {
            continue;
        };
        // While no program runs, a signal could only be lost, so it ends the VM.
        if target.guest.stage() != Some(Stage::Running) {
            kill(signal, shared, &target.qemu);
            continue;
        }
        match history.next_action(signal, Instant::now()) {
            SignalAction::End(why) => end(signal, shared, &target.qemu, why),
            SignalAction::Forward => target.forward(signal),
            SignalAction::ForwardAndWait(grace) => {
                target.forward(signal);
                end_after(grace, signal, shared, &target.qemu);
            }
        }
    }
}

/// Sends the size of the user's terminal to the guest through `control`. Does nothing if `ebb` has
/// no terminal. A guest whose program has no terminal ignores it.
pub(crate) fn tell_size(control: &Control) {
    if let Some((rows, columns)) = raw::window() {
        control.size(Size { rows, columns });
    }
}

/// Starts a thread that kills the VM if it still runs after `grace`.
fn end_after(grace: Duration, signal: i32, shared: &Arc<Signalled>, qemu: &Handle) {
    let (shared, qemu) = (Arc::clone(shared), qemu.clone());
    let body = move || {
        thread::sleep(grace);
        let grace = text::seconds(grace);
        let why = format!("its program went on for {grace} after SIGTERM (--grace)");
        end(signal, &shared, &qemu, why);
    };
    // If there is no thread left, a second `SIGTERM` can still end the VM.
    let _ = thread::Builder::new().name("grace".into()).spawn(body);
}

/// Kills a VM whose program runs, and keeps the first reason `why`. Does nothing if the VM has
/// ended.
fn end(signal: i32, shared: &Signalled, qemu: &Handle, why: String) {
    if !shared.ended.load(Ordering::Relaxed) {
        shared.lock_why().get_or_insert(why);
        kill(signal, shared, qemu);
    }
}

fn kill(signal: i32, shared: &Signalled, qemu: &Handle) {
    shared.remember(signal);
    qemu.kill();
}

/// Handles Ctrl-Z: stops the VM and then `ebb`, and continues both later. The VM has its own
/// process group, so the terminal does not stop it.
fn suspend(qemu: Option<&Handle>) {
    if let Some(qemu) = qemu {
        qemu.pause();
    }
    raw::restore_temporarily();
    // Returns once `ebb` is continued. If `ebb` cannot be stopped, the VM goes on.
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    // Fails if the terminal is gone, which needs no reaction.
    let _ = raw::make_raw();
    if let Some(qemu) = qemu {
        qemu.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    /// Judges signals, given with their times in milliseconds.
    fn actions(signals: &[(i32, u64)]) -> Vec<SignalAction> {
        let mut history = SignalHistory::new(GRACE);
        let start = Instant::now();
        let next_action = |(signal, at): &(i32, u64)| {
            history.next_action(*signal, start + Duration::from_millis(*at))
        };
        signals.iter().map(next_action).collect()
    }

    #[test]
    fn a_second_request_to_end_is_the_last_but_not_its_echo() {
        let actions = actions(&[(SIGTERM, 0), (SIGTERM, 1), (SIGTERM, 900), (SIGTERM, 1100)]);
        let wait = SignalAction::ForwardAndWait(GRACE);
        assert_eq!(
            actions[..3],
            [wait, SignalAction::Forward, SignalAction::Forward]
        );
        assert_eq!(actions[3], SignalAction::End("SIGTERM came again".into()));
    }

    #[test]
    fn other_signals_end_nothing_unless_three_come_at_once() {
        let slow: Vec<_> = (0..20).map(|n| (SIGINT, n * 2000)).collect();
        assert!(actions(&slow).iter().all(|it| *it == SignalAction::Forward));
        let fast = actions(&[(SIGINT, 0), (SIGHUP, 1400), (SIGINT, 2900)]);
        assert_eq!(fast[..2], [SignalAction::Forward, SignalAction::Forward]);
        assert!(matches!(&fast[2], SignalAction::End(why) if why.contains("3 signals")));
    }
}

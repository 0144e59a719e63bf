//! Signals that users send to ebb are meant for the program.
//!
//! `SIGTERM` asks for the end, so the program has a time to end in, and then the VM is ended: a guest
//! that hangs must not outlive `timeout 60 ebb run …`. `SIGINT` may mean anything to a program (a
//! shell, an editor), so one ends nothing but what the program wants it to end. A guest that is paused goes
//! on for the signal, since its program could not heed it otherwise.

use crate::guest::Guest;
use crate::guest::Stage;
use crate::qemu::{Handle, Vcpus, Wish};
use crate::streams::Control;
use crate::text;
use crate::text::raw;
use ebb_wire::terminal::Size;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// So many signals within [`IMPATIENCE`] end the VM, whatever the program does with them.
const INSISTENCE: usize = 3;
const IMPATIENCE: Duration = Duration::from_secs(3);
/// What comes sooner after a `SIGTERM` is the same one: timeout(1) sends it to its child and then to
/// its group, so it comes twice.
const ECHO: Duration = Duration::from_secs(1);

/// What the signal thread and the rest know of each other.
#[derive(Debug, Default)]
pub(crate) struct Signalled {
    /// The VM is gone; what is left is our own.
    ended: AtomicBool,
    /// The signal for which the VM was killed; 0 for none.
    killed_by: AtomicI32,
    /// The VM that there is now.
    aim: Mutex<Aim>,
    /// Why the VM was killed while its program ran.
    why: Mutex<Option<String>>,
}

/// Where signals go.
#[derive(Debug, Default)]
enum Aim {
    /// There is no VM yet: a signal is kept for it.
    #[default]
    Nowhere,
    /// QEMU has started and has not greeted yet: a signal ends it.
    Starting(Handle),
    /// The VM runs.
    Vm(Target),
}

/// Signals that have come so far.
#[derive(Debug)]
struct Patience {
    grace: Duration,
    recent: VecDeque<Instant>,
    /// When the program was first asked to end.
    asked: Option<Instant>,
}

/// What to do about a signal.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    /// It is the program's.
    Forward,
    /// It is the program's, which has from now on until then to end.
    ForwardAndWait(Duration),
    /// It ends the VM.
    End(String),
}

impl Patience {
    fn new(grace: Duration) -> Self {
        Self {
            grace,
            recent: VecDeque::with_capacity(INSISTENCE),
            asked: None,
        }
    }

    /// A signal has come `now`.
    fn judge(&mut self, signal: i32, now: Instant) -> Verdict {
        let first = match (signal, self.asked) {
            (SIGTERM, None) => {
                self.asked = Some(now);
                true
            }
            (SIGTERM, Some(asked)) if now.duration_since(asked) < ECHO => return Verdict::Forward,
            (SIGTERM, Some(_)) => return Verdict::End("SIGTERM came again".into()),
            _ => false,
        };
        if self.recent.len() == INSISTENCE - 1
            && let Some(before) = self.recent.pop_front()
            && now.duration_since(before) <= IMPATIENCE
        {
            let seconds = IMPATIENCE.as_secs();
            return Verdict::End(format!("{INSISTENCE} signals came within {seconds} s"));
        }
        self.recent.push_back(now);
        if first {
            Verdict::ForwardAndWait(self.grace)
        } else {
            Verdict::Forward
        }
    }
}

/// A VM that signals go to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) control: Arc<Control>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) qemu: Handle,
    pub(crate) vcpus: Arc<Vcpus>,
}

impl Target {
    /// Hands a signal to the program. A program that is paused goes on, or it could not heed the signal.
    fn forward(&self, signal: i32) {
        self.control.signal(signal);
        // If QEMU does not read, the signal waits, as it does for a QEMU that was stopped.
        let _ = self.vcpus.ask(Wish::Resume);
    }
}

impl Signalled {
    /// From now on signals end `qemu`, whose VM is not there yet. One that came before ends it now.
    pub(crate) fn aim_at_start(&self, qemu: Handle) {
        let mut current = self.lock_aim();
        if self.killed_by().is_some() {
            qemu.kill();
        }
        *current = Aim::Starting(qemu);
    }

    /// From now on signals go to `target`. One that came before ends its VM now.
    pub(crate) fn aim(&self, target: Target) {
        let mut current = self.lock_aim();
        if self.killed_by().is_some() {
            target.qemu.kill();
        }
        *current = Aim::Vm(target);
    }

    fn lock_aim(&self) -> MutexGuard<'_, Aim> {
        self.aim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the VM that `signal` goes to. If there is none yet, `signal` ends it as soon as there is one.
    fn target(&self, signal: i32) -> Option<Target> {
        let is_end = signal != SIGTSTP && signal != SIGWINCH;
        // What is remembered is so under the lock, so that `aim` cannot miss it.
        match &*self.lock_aim() {
            Aim::Vm(target) => return Some(target.clone()),
            Aim::Starting(qemu) if is_end => {
                self.remember(signal);
                qemu.kill();
            }
            Aim::Nowhere if is_end => self.remember(signal),
            Aim::Nowhere | Aim::Starting(_) => {}
        }
        None
    }

    fn remember(&self, signal: i32) {
        let _ = self
            .killed_by
            .compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    }

    // The atomics stand alone: nobody reads memory on the strength of them. So Relaxed is enough.

    /// From now on a signal ends ebb.
    pub(crate) fn vm_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Why the VM was killed, if that was while its program ran.
    pub(crate) fn why(&self) -> Option<String> {
        self.lock_why().clone()
    }

    fn lock_why(&self) -> MutexGuard<'_, Option<String>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signal for which the VM was killed, if it was.
    pub(crate) fn killed_by(&self) -> Option<i32> {
        match self.killed_by.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal),
        }
    }
}

/// Catches the signals from here on; a thread then has to [`forward`] them.
pub(crate) fn catch() -> std::io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH])
}

/// Hands each signal on, until ebb ends. A program that is asked to end by `SIGTERM` has `grace` to do
/// so.
pub(crate) fn forward(signals: &mut Signals, shared: &Arc<Signalled>, grace: Duration) {
    let mut patience = Patience::new(grace);
    for signal in signals.forever() {
        let target = shared.target(signal);
        if signal == SIGTSTP {
            suspend(target.as_ref().map(|target| &target.qemu));
        }
        if signal == SIGTSTP || signal == SIGWINCH {
            // The window may have changed meanwhile.
            if let Some(target) = target {
                tell_size(&target.control);
            }
            continue;
        }
        if shared.ended.load(Ordering::Relaxed) {
            raw::close();
            std::process::exit(128 + signal);
        }
        let Some(target) = target else {
            continue;
        };
        // Before there is a program, and after it has ended, nobody else could take the signal.
        if target.guest.stage() != Some(Stage::Running) {
            kill(signal, shared, &target.qemu);
            continue;
        }
        match patience.judge(signal, Instant::now()) {
            Verdict::End(why) => end(signal, shared, &target.qemu, why),
            Verdict::Forward => target.forward(signal),
            Verdict::ForwardAndWait(grace) => {
                target.forward(signal);
                end_after(grace, signal, shared, &target.qemu);
            }
        }
    }
}

/// Tells the guest how large the user's terminal is. One whose program has none passes it over.
pub(crate) fn tell_size(control: &Control) {
    if let Some((rows, columns)) = raw::window() {
        control.size(Size { rows, columns });
    }
}

/// Ends a VM whose program has not ended by itself within `grace`.
fn end_after(grace: Duration, signal: i32, shared: &Arc<Signalled>, qemu: &Handle) {
    let (shared, qemu) = (Arc::clone(shared), qemu.clone());
    let body = move || {
        thread::sleep(grace);
        let grace = text::seconds(grace);
        let why = format!("its program went on for {grace} after SIGTERM (--grace)");
        end(signal, &shared, &qemu, why);
    };
    // Without a thread the next SIGTERM does it.
    let _ = thread::Builder::new().name("grace".into()).spawn(body);
}

/// Ends a VM while its program runs, and keeps why.
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

/// Ctrl-Z: the VM is in a process group of its own, so it has to be stopped and continued with us.
fn suspend(qemu: Option<&Handle>) {
    if let Some(qemu) = qemu {
        qemu.pause();
    }
    raw::cook();
    // Returns when somebody continues ebb. If it cannot stop, the VM just goes on.
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    // A terminal that is gone has no settings.
    let _ = raw::make_raw();
    if let Some(qemu) = qemu {
        qemu.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    /// What becomes of signals that come at these times, in milliseconds.
    fn verdicts(signals: &[(i32, u64)]) -> Vec<Verdict> {
        let mut patience = Patience::new(GRACE);
        let start = Instant::now();
        let judge =
            |(signal, at): &(i32, u64)| patience.judge(*signal, start + Duration::from_millis(*at));
        signals.iter().map(judge).collect()
    }

    #[test]
    fn a_second_request_to_end_is_the_last_but_not_its_echo() {
        let told = verdicts(&[(SIGTERM, 0), (SIGTERM, 1), (SIGTERM, 900), (SIGTERM, 1100)]);
        let wait = Verdict::ForwardAndWait(GRACE);
        assert_eq!(told[..3], [wait, Verdict::Forward, Verdict::Forward]);
        assert_eq!(told[3], Verdict::End("SIGTERM came again".into()));
    }

    #[test]
    fn other_signals_end_nothing_unless_three_come_at_once() {
        let slow: Vec<_> = (0..20).map(|n| (SIGINT, n * 2000)).collect();
        assert!(verdicts(&slow).iter().all(|it| *it == Verdict::Forward));
        let fast = verdicts(&[(SIGINT, 0), (SIGHUP, 1400), (SIGINT, 2900)]);
        assert_eq!(fast[..2], [Verdict::Forward, Verdict::Forward]);
        assert!(matches!(&fast[2], Verdict::End(why) if why.contains("3 signals")));
    }
}

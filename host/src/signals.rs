//! Signals that users send to ebb are meant for the program.

use crate::control::Control;
use crate::guest::Guest;
use crate::qemu::Handle;
use crate::stage::Stage;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many signals within [`IMPATIENCE`] end the VM, whatever the program does with them.
const INSISTENCE: usize = 3;
const IMPATIENCE: Duration = Duration::from_secs(3);

/// What the signal thread and the rest know of each other.
#[derive(Debug, Default)]
pub(crate) struct Signalled {
    /// The VM is gone; what is left is our own.
    ended: AtomicBool,
    /// The signal for which the VM was killed; 0 for none.
    killed_by: AtomicI32,
    /// The VM that runs now.
    target: Mutex<Option<Target>>,
}

/// Where signals go.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) control: Arc<Control>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) qemu: Handle,
}

impl Signalled {
    /// From now on signals go there. A VM that was to be killed before it was there is killed now.
    pub(crate) fn aim(&self, target: Target) {
        let mut current = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if self.killed_by().is_some() {
            target.qemu.kill();
        }
        *current = Some(target);
    }

    /// Where signals go now. Before that is known, `signal` is kept for it.
    fn target(&self, signal: i32) -> Option<Target> {
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if target.is_none() && signal != SIGTSTP {
            // Under the lock, so that `aim` cannot miss it.
            self.remember(signal);
        }
        target.clone()
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
    Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP])
}

/// Hands each signal on, until ebb ends.
pub(crate) fn forward(signals: &mut Signals, shared: &Signalled) {
    let mut recent = VecDeque::with_capacity(INSISTENCE);
    for signal in signals.forever() {
        let target = shared.target(signal);
        if signal == SIGTSTP {
            suspend(target.as_ref().map(|target| &target.qemu));
            continue;
        }
        if shared.ended.load(Ordering::Relaxed) {
            std::process::exit(128 + signal);
        }
        let Some(target) = target else {
            continue;
        };
        let now = Instant::now();
        if recent.len() == INSISTENCE - 1 {
            let first: Option<Instant> = recent.pop_front();
            if first.is_some_and(|first| now.duration_since(first) <= IMPATIENCE) {
                kill(signal, shared, &target.qemu);
            }
        }
        recent.push_back(now);
        // Before there is a program, and after it has ended, nobody else could take the signal.
        match target.guest.stage() {
            Some(Stage::Running) => target.control.signal(signal),
            _ => kill(signal, shared, &target.qemu),
        }
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
    // Returns when somebody continues ebb. If it cannot stop, the VM just goes on.
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    if let Some(qemu) = qemu {
        qemu.resume();
    }
}

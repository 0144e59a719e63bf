//! The actions that a program has chosen for its signals.

use super::{DefaultAction, MAX_SIGNAL, SigSet, Signal};
use machine::sync::SpinLock;

/// `sa_handler` for the default action.
pub const SIG_DFL: u64 = 0;
/// `sa_handler` to ignore the signal.
pub const SIG_IGN: u64 = 1;

/// `sa_flags`: no SIGCHLD when a child stops.
pub const SA_NOCLDSTOP: u64 = 1;
/// `sa_flags`: children do not become zombies.
pub const SA_NOCLDWAIT: u64 = 2;
/// `sa_flags`: run on the alternate stack.
pub const SA_ONSTACK: u64 = 0x0800_0000;
/// `sa_flags`: interrupted calls are restarted.
pub const SA_RESTART: u64 = 0x1000_0000;
/// `sa_flags`: the signal is not blocked in its handler.
pub const SA_NODEFER: u64 = 0x4000_0000;
/// `sa_flags`: the handler is used once.
pub const SA_RESETHAND: u64 = 0x8000_0000;
/// One signal's action, laid out as the kernel's `struct sigaction`.
#[derive(Copy, Clone, Debug, Default)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or the handler's address.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// The address that the handler returns to.
    pub restorer: u64,
    /// The signals that are blocked while the handler runs.
    pub mask: SigSet,
}

impl Action {
    /// Returns whether the signal is dropped.
    pub fn ignores(&self, signal: Signal) -> bool {
        self.handler == SIG_IGN
            || self.handler == SIG_DFL && signal.default_action() == DefaultAction::Ignore
            || self.handler == SIG_DFL && signal.default_action() == DefaultAction::Continue
    }

    /// Returns whether the program handles the signal itself.
    pub fn is_handler(&self) -> bool {
        self.handler != SIG_DFL && self.handler != SIG_IGN
    }
}

/// The actions for all signals; shared by processes made with `CLONE_SIGHAND`.
#[derive(Debug)]
pub struct Actions {
    table: SpinLock<[Action; MAX_SIGNAL as usize]>,
}

impl Actions {
    /// Makes default actions for all signals.
    pub const fn new() -> Self {
        const DEFAULT: Action = Action {
            handler: SIG_DFL,
            flags: 0,
            restorer: 0,
            mask: SigSet::EMPTY,
        };
        Self {
            table: SpinLock::new([DEFAULT; MAX_SIGNAL as usize]),
        }
    }

    /// Returns a separate copy, as for a new process.
    pub fn duplicate(&self) -> Self {
        Self {
            table: SpinLock::new(*self.table.lock()),
        }
    }

    /// Returns a copy for a new program: handlers become the default, and ignored signals stay
    /// ignored.
    pub fn after_exec(&self) -> Self {
        let copy = self.duplicate();
        for action in copy.table.lock().iter_mut() {
            let handler = if action.handler == SIG_IGN {
                SIG_IGN
            } else {
                SIG_DFL
            };
            *action = Action {
                handler,
                ..Action::default()
            };
        }
        copy
    }

    /// Returns the action of a signal.
    pub fn get(&self, signal: Signal) -> Action {
        self.table.lock()[signal.index()]
    }

    /// Changes the action of a signal and returns the result of `change`.
    pub fn change<R>(&self, signal: Signal, change: impl FnOnce(&mut Action) -> R) -> R {
        change(&mut self.table.lock()[signal.index()])
    }

    /// Returns the signals that the program ignores, and those that it handles; for
    /// `/proc/PID/status`.
    pub fn summary(&self) -> (SigSet, SigSet) {
        let (mut ignored, mut caught) = (SigSet::EMPTY, SigSet::EMPTY);
        for (action, number) in self.table.lock().iter().zip(1..) {
            let Some(signal) = Signal::new(number) else {
                continue;
            };
            if action.handler == SIG_IGN {
                ignored.insert(signal);
            } else if action.is_handler() {
                caught.insert(signal);
            }
        }
        (ignored, caught)
    }
}

impl Default for Actions {
    fn default() -> Self {
        Self::new()
    }
}

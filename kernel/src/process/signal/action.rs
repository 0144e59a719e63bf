//! The actions that a program has chosen for its signals.

use super::{DefaultAction, MAX_SIGNAL, SigSet, Signal};
use machine::sync::SpinLock;

/// `sa_handler` for the default action.
pub const SIG_DFL: u64 = 0;
/// `sa_handler` to ignore the signal.
pub const SIG_IGN: u64 = 1;

/// `sa_flags`: the parent gets no SIGCHLD when a child stops.
pub const SA_NOCLDSTOP: u64 = 1;
/// `sa_flags`: children do not become zombies.
pub const SA_NOCLDWAIT: u64 = 2;
/// `sa_flags`: run on the alternate stack.
pub const SA_ONSTACK: u64 = 0x0800_0000;
/// `sa_flags`: interrupted calls are restarted.
pub const SA_RESTART: u64 = 0x1000_0000;
/// `sa_flags`: the signal is not blocked in its handler.
pub const SA_NODEFER: u64 = 0x4000_0000;
/// `sa_flags`: the handler is used once, and then becomes the default action.
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
    /// Returns whether `signal` has no effect with this action, because the action or the signal's
    /// default action ignores it. SIGCONT has continued the process already.
    pub fn ignores(&self, signal: Signal) -> bool {
        self.handler == SIG_IGN
            || self.handler == SIG_DFL && signal.default_action() == DefaultAction::Ignore
            || self.handler == SIG_DFL && signal.default_action() == DefaultAction::Continue
    }

    /// Returns whether the action is a handler of the program.
    pub fn is_handler(&self) -> bool {
        self.handler != SIG_DFL && self.handler != SIG_IGN
    }
}

/// The actions of a process for all signals. Processes made with `CLONE_SIGHAND` share them.
#[derive(Debug)]
pub struct Actions {
    table: SpinLock<[Action; MAX_SIGNAL as usize]>,
}

impl Actions {
    /// Returns the default actions for all signals.
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

    /// Returns a separate copy of the actions, as for a new process.
    pub fn duplicate(&self) -> Self {
        Self {
            table: SpinLock::new(*self.table.lock()),
        }
    }

    /// Returns a copy of the actions for a new program. Handlers become the default, and ignored
    /// signals stay ignored.
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

    /// Returns the action for `signal`.
    pub fn get(&self, signal: Signal) -> Action {
        self.table.lock()[signal.index()]
    }

    /// Calls `change` with the action for `signal`, which `change` may modify. Returns the result
    /// of `change`. `change` runs with the lock of the actions held.
    pub fn change<R>(&self, signal: Signal, change: impl FnOnce(&mut Action) -> R) -> R {
        change(&mut self.table.lock()[signal.index()])
    }

    /// Returns the signals that the process ignores by `SIG_IGN`, and those with a handler, for
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

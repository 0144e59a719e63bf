//! What a program wants done with its signals.

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
/// `sa_flags`: calls start again.
pub const SA_RESTART: u64 = 0x1000_0000;
/// `sa_flags`: the signal is not blocked in its handler.
pub const SA_NODEFER: u64 = 0x4000_0000;
/// `sa_flags`: the handler is used once.
pub const SA_RESETHAND: u64 = 0x8000_0000;
/// One signal's action, as the kernel's `struct sigaction` has it.
#[derive(Copy, Clone, Debug, Default)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or the handler's address.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Blocked while the handler runs.
    pub mask: SigSet,
}

impl Action {
    /// Whether the signal would be dropped.
    pub fn ignores(&self, signal: Signal) -> bool {
        self.handler == SIG_IGN
            || self.handler == SIG_DFL && signal.default_action() == DefaultAction::Ignore
            || self.handler == SIG_DFL && signal.default_action() == DefaultAction::Continue
    }

    /// Whether the program handles the signal itself.
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
    /// All default.
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

    /// A copy of its own, as for a new process.
    pub fn duplicate(&self) -> Self {
        Self {
            table: SpinLock::new(*self.table.lock()),
        }
    }

    /// A copy after exec: handlers become the default, ignored signals stay ignored.
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

    /// The action of a signal.
    pub fn get(&self, signal: Signal) -> Action {
        self.table.lock()[signal.index()]
    }

    /// Changes the action of a signal; gives what `change` gives.
    pub fn change<R>(&self, signal: Signal, change: impl FnOnce(&mut Action) -> R) -> R {
        change(&mut self.table.lock()[signal.index()])
    }

    /// The signals that the program ignores, and those that it handles; for `/proc/PID/status`.
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

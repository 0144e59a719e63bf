//! The notice of a message that comes to an empty queue: `mq_notify(3)`.

use crate::process;
use crate::process::signal::{Detail, SI_MESGQ, SigInfo, Signal, send_to_process};
use crate::process::task::Process;
use alloc::sync::{Arc, Weak};

/// What a process is told when a message comes to an empty queue where nobody waits.
#[derive(Copy, Clone, Debug)]
pub enum Notice {
    /// Nothing: it only holds the place.
    Nothing,
    /// A signal with a value; `None` is signal 0, which nobody gets.
    Signal(Option<Signal>, u64),
}

/// The process that is told.
pub(super) struct Registration {
    process: Weak<Process>,
    pub(super) pid: u32,
    pub(super) notice: Notice,
}

impl Registration {
    /// `process` is told.
    pub(super) fn new(process: &Arc<Process>, notice: Notice) -> Self {
        Self {
            process: Arc::downgrade(process),
            pid: process.pid(),
            notice,
        }
    }

    /// Whether the process can be told still.
    pub(super) fn holds(&self) -> bool {
        self.process.strong_count() > 0
    }

    /// Tells the process of a message that the one that runs has sent.
    pub(super) fn tell(self) {
        let (Notice::Signal(Some(signal), value), Some(process)) =
            (self.notice, self.process.upgrade())
        else {
            return;
        };
        let current = process::current();
        let sender = current.process();
        let info = SigInfo {
            signal,
            errno: 0,
            code: SI_MESGQ,
            detail: Detail::Queued {
                pid: sender.pid(),
                uid: sender.credentials().users.real,
                value,
            },
        };
        // A queue of signals that is full loses one, as on Linux.
        let _ = send_to_process(&process, info);
    }
}

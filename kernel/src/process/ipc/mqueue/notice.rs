//! The notice of a message that comes to an empty queue: `mq_notify(3)`.

use crate::fs::OpenFile;
use crate::fs::socket::Socket;
use crate::process;
use crate::process::signal::{Detail, SI_MESGQ, SigInfo, Signal, send_to_process};
use crate::process::task::Process;
use alloc::sync::{Arc, Weak};
use logic::errno::Errno;

/// What a process is told when a message comes to an empty queue where nobody waits.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Nothing: it only holds the place.
    Nothing,
    /// A signal with a value; `None` is signal 0, which nobody gets.
    Signal(Option<Signal>, u64),
    /// The C library, which starts a thread then: by a message of a netlink socket.
    Thread(Courier),
}

/// What a C library waits for that is to start a thread (`SIGEV_THREAD`).
#[derive(Clone, Debug)]
pub struct Courier {
    socket: Weak<OpenFile>,
    cookie: [u8; Courier::BYTES],
}

impl Courier {
    /// Bytes of the message (`NOTIFY_COOKIE_LEN`).
    pub const BYTES: usize = 32;
    /// The last byte of the message that a message has come (`NOTIFY_WOKENUP`).
    const WOKEN: u8 = 1;
    /// The last byte of the message that nothing will be told any more (`NOTIFY_REMOVED`).
    const REMOVED: u8 = 2;

    /// Makes one that sends `cookie` to `socket`.
    ///
    /// # Errors
    /// `ENOTSOCK`; `EINVAL` for a socket that is none of netlink.
    pub fn new(socket: &Arc<OpenFile>, cookie: [u8; Self::BYTES]) -> Result<Self, Errno> {
        let known = socket.file().downcast::<Socket>().ok_or(Errno::ENOTSOCK)?;
        if !known.is_netlink() {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            socket: Arc::downgrade(socket),
            cookie,
        })
    }

    /// Sends the message. A socket that is closed gets none.
    fn send(mut self, what: u8) {
        let Some(file) = self.socket.upgrade() else {
            return;
        };
        if let Some(socket) = file.file().downcast::<Socket>() {
            self.cookie[Self::BYTES - 1] = what;
            socket.receive_from_kernel(&self.cookie);
        }
    }
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
        let (signal, value) = match self.notice {
            Notice::Signal(Some(signal), value) => (signal, value),
            Notice::Thread(courier) => return courier.send(Courier::WOKEN),
            Notice::Signal(None, _) | Notice::Nothing => return,
        };
        let Some(process) = self.process.upgrade() else {
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

    /// Tells a C library that nothing will be told any more.
    pub(super) fn end(self) {
        if let Notice::Thread(courier) = self.notice {
            courier.send(Courier::REMOVED);
        }
    }
}

//! The notification of a message that arrives at an empty queue: `mq_notify(3)`.

use crate::fs::OpenFile;
use crate::fs::socket::Socket;
use crate::process;
use crate::process::signal::{Detail, SI_MESGQ, SigInfo, Signal, send_to_process};
use crate::process::task::Process;
use alloc::sync::{Arc, Weak};
use logic::errno::Errno;

/// How a process is notified of a message that arrives at an empty message queue where no task
/// waits.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The process is not notified. The registration only keeps other processes from registering.
    Nothing,
    /// The process gets a signal with a value. `None` is signal 0, which is not sent.
    Signal(Option<Signal>, u64),
    /// A netlink socket of the C library gets a message, and the library then starts a thread.
    Thread(Courier),
}

/// The netlink socket and the message for a C library that starts a thread (`SIGEV_THREAD`).
#[derive(Clone, Debug)]
pub struct Courier {
    socket: Weak<OpenFile>,
    cookie: [u8; Courier::BYTES],
}

impl Courier {
    /// Size of the message in bytes (`NOTIFY_COOKIE_LEN`).
    pub const BYTES: usize = 32;
    /// The last byte of a message that reports an arrived message (`NOTIFY_WOKENUP`).
    const WOKEN: u8 = 1;
    /// The last byte of a message that reports the end of the registration (`NOTIFY_REMOVED`).
    const REMOVED: u8 = 2;

    /// Returns a courier that sends the message `cookie` to `socket`.
    ///
    /// # Errors
    /// Fails with `ENOTSOCK` if `socket` is no socket, and with `EINVAL` if it is no netlink
    /// socket.
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

    /// Sends the message with `what` as its last byte. A closed socket gets none.
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

/// The process that a message queue notifies of a message, and the kind of notification.
pub(super) struct Registration {
    process: Weak<Process>,
    pub(super) pid: u32,
    pub(super) notice: Notice,
}

impl Registration {
    /// Returns a registration of `process` for `notice`.
    pub(super) fn new(process: &Arc<Process>, notice: Notice) -> Self {
        Self {
            process: Arc::downgrade(process),
            pid: process.pid(),
            notice,
        }
    }

    /// Returns whether the registered process still exists.
    pub(super) fn holds(&self) -> bool {
        self.process.strong_count() > 0
    }

    /// Notifies the registered process of a message that the current process has sent.
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
        // If the queue of signals is full, the signal is lost, as on Linux.
        let _ = send_to_process(&process, info);
    }

    /// Notifies the registered C library, if `notice` is [`Notice::Thread`], that its registration
    /// has ended.
    pub(super) fn end(self) {
        if let Notice::Thread(courier) = self.notice {
            courier.send(Courier::REMOVED);
        }
    }
}

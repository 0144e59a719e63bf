//! The recipients of signals about a descriptor: `F_SETOWN`, `F_SETSIG`, `O_ASYNC`.
//!
//! An open file has an [`Owner`] once one was asked for. The file's
//! [`Notifier`](super::poll::Notifier) has a list of owners. With `O_ASYNC` an owner gets all
//! signals, without it only the signal for urgent bytes. An open file leaves the list before it
//! ends.
//!
//! Files do not know signals and processes. A recipient is a trait object to them ([`Recipient`]),
//! which `process::signal::recipient` implements.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general as raw;
use logic::errno::Errno;
use machine::sched::cond_resched;
use machine::sync::SpinLock;

/// The event that `si_band` of a signal about a descriptor reports, with Linux's numbers (`POLL_IN`
/// and so on).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Band {
    /// Data can be read.
    In = 1,
    /// Data can be written.
    Out = 2,
    /// The descriptor has an error.
    Error = 4,
    /// Urgent data came.
    Urgent = 5,
    /// The other side is gone.
    HangUp = 6,
}

impl Band {
    /// Returns the poll events that the signal's `si_band` contains.
    pub const fn events(self) -> u32 {
        match self {
            Self::In => raw::POLLIN | raw::POLLRDNORM,
            Self::Out => raw::POLLOUT | raw::POLLWRNORM | raw::POLLWRBAND,
            Self::Error => raw::POLLERR,
            Self::Urgent => raw::POLLPRI | raw::POLLRDBAND,
            Self::HangUp => raw::POLLHUP | raw::POLLERR,
        }
    }
}

/// The kind of the recipient of a descriptor's signals, with Linux's numbers (`F_OWNER_TID` and so
/// on).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A thread.
    #[default]
    Thread = 0,
    /// A process.
    Process = 1,
    /// A process group.
    Group = 2,
}

/// A signal to send to a recipient.
#[derive(Copy, Clone, Debug)]
pub struct Notice {
    /// The real and the effective user of the task that named the recipient. They decide whether
    /// the signal may be sent.
    pub users: [u32; 2],
    /// The subject of the signal.
    pub what: What,
}

/// The reason for a signal about a descriptor.
#[derive(Copy, Clone, Debug)]
pub enum What {
    /// An event of a descriptor.
    Descriptor {
        /// The signal of `F_SETSIG`. 0 means SIGIO without details.
        signal: u32,
        /// The descriptor for which signals were requested.
        fd: i32,
        /// The event.
        band: Band,
    },
    /// An urgent byte, which sends SIGURG.
    Urgent,
}

/// A thread, process or process group that can get signals.
pub trait Recipient: Send + Sync {
    /// Returns the number of the thread, process or group, or `None` once that is gone.
    fn number(&self) -> Option<u32>;
    /// Sends the signal if the users of `notice` may do so. The caller holds no spin lock.
    fn tell(&self, notice: Notice);
}

#[derive(Clone, Default)]
struct Setting {
    recipient: Option<Arc<dyn Recipient>>,
    kind: Kind,
    users: [u32; 2],
    signal: u32,
}

impl Setting {
    const fn of_descriptor(&self, fd: i32, band: Band) -> Notice {
        Notice {
            users: self.users,
            what: What::Descriptor {
                signal: self.signal,
                fd,
                band,
            },
        }
    }
}

/// The recipient of signals about one open file, and the settings for them.
#[derive(Default)]
pub struct Owner {
    setting: SpinLock<Setting>,
    /// Whether the owner was ever added to an [`Owners`], so that the end of the open file must
    /// remove it.
    listed: AtomicBool,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

impl Owner {
    fn setting(&self) -> Setting {
        self.setting.lock().clone()
    }

    /// Returns the kind of the recipient and its number. The number is 0 if there is no recipient
    /// or the recipient is gone.
    pub fn named(&self) -> (Kind, u32) {
        let setting = self.setting();
        let number = setting.recipient.and_then(|who| who.number());
        (setting.kind, number.unwrap_or(0))
    }

    /// Sets the recipient and its kind. `None` removes the recipient. `users` are the real and the
    /// effective user of the caller; they are kept only with a `recipient`.
    pub fn name(&self, kind: Kind, recipient: Option<Arc<dyn Recipient>>, users: [u32; 2]) {
        let mut setting = self.setting.lock();
        setting.kind = kind;
        if recipient.is_some() {
            setting.users = users;
        }
        let old = core::mem::replace(&mut setting.recipient, recipient);
        drop(setting);
        drop(old);
    }

    /// Returns whether a recipient is set.
    pub fn is_named(&self) -> bool {
        self.setting.lock().recipient.is_some()
    }

    /// Returns the real and the effective user of the task that set the recipient.
    pub fn users(&self) -> [u32; 2] {
        self.setting.lock().users
    }

    /// Returns the number of the signal to send (`F_GETSIG`). 0 means SIGIO without details.
    pub fn signal(&self) -> u32 {
        self.setting.lock().signal
    }

    /// Sets the number of the signal to send (`F_SETSIG`). 0 means SIGIO without details.
    pub fn set_signal(&self, signal: u32) {
        self.setting.lock().signal = signal;
    }

    fn tell(&self, fd: i32, band: Band) {
        let setting = self.setting();
        if let Some(recipient) = &setting.recipient {
            recipient.tell(setting.of_descriptor(fd, band));
        }
    }

    /// Sends SIGURG to the recipient, if there is one. As on Linux, a signal that was chosen with
    /// `F_SETSIG` is sent too if `O_ASYNC` is set: `fd` is then the descriptor that the signal
    /// names, and otherwise `None`.
    fn tell_urgent(&self, fd: Option<i32>) {
        let setting = self.setting();
        let Some(recipient) = &setting.recipient else {
            return;
        };
        recipient.tell(Notice {
            users: setting.users,
            what: What::Urgent,
        });
        if let Some(fd) = fd
            && setting.signal != 0
        {
            recipient.tell(setting.of_descriptor(fd, Band::Urgent));
        }
    }
}

/// The directions in which an open file transfers bytes. Signals that data can be read or written
/// concern only open files of that direction.
#[derive(Copy, Clone, Debug)]
pub struct Sides {
    /// Whether the open file reads.
    pub reads: bool,
    /// Whether the open file writes.
    pub writes: bool,
}

impl Sides {
    const fn include(self, band: Band) -> bool {
        match band {
            Band::In => self.reads,
            Band::Out => self.writes,
            Band::Error | Band::Urgent | Band::HangUp => true,
        }
    }
}

/// The number of owners after which other tasks may run.
const BREATH: u32 = 64;

#[derive(Clone)]
struct Entry {
    owner: Arc<Owner>,
    sides: Sides,
    /// The descriptor that the signals name (`O_ASYNC`). `None` if the owner gets signals for
    /// urgent bytes only.
    fd: Option<i32>,
}

/// The owners of the open files of one file.
#[derive(Default)]
pub struct Owners {
    /// Whether `entries` is not empty, so that an event without owners takes no lock.
    any: AtomicBool,
    entries: SpinLock<Vec<Entry>>,
}

impl Owners {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            entries: SpinLock::new(Vec::new()),
        }
    }

    /// Sends the signal for the event `band` to the owners with `O_ASYNC` whose open file transfers
    /// bytes in the direction of the event. Call this without a spin lock.
    #[inline]
    pub fn tell(&self, band: Band) {
        // SeqCst: an owner that was added before the event gets the signal.
        if self.any.load(Ordering::SeqCst) {
            self.tell_each(|entry| {
                if let Some(fd) = entry.fd.filter(|_| entry.sides.include(band)) {
                    entry.owner.tell(fd, band);
                }
            });
        }
    }

    /// Sends SIGURG to all owners, for an urgent byte. Owners with `O_ASYNC` and `F_SETSIG` also
    /// get their chosen signal. Call this without a spin lock.
    #[inline]
    pub fn tell_urgent(&self) {
        if self.any.load(Ordering::SeqCst) {
            self.tell_each(|entry| entry.owner.tell_urgent(entry.fd));
        }
    }

    /// Calls `tell` from the last entry to the first, as on Linux. If an entry is removed in
    /// between, no other is skipped.
    #[cold]
    fn tell_each(&self, tell: impl Fn(&Entry)) {
        let mut at = self.entries.lock().len();
        let mut told = 0_u32;
        // One turn for each entry at the start.
        while at > 0 {
            at -= 1;
            let entry = self.entries.lock().get(at).cloned();
            if let Some(entry) = entry {
                tell(&entry);
            }
            told += 1;
            if told.is_multiple_of(BREATH) {
                cond_resched();
            }
        }
    }

    /// Adds `owner` for an open file with the directions `sides`. The owner gets signals for urgent
    /// bytes only. Does nothing if the list has `owner`.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn include(&self, owner: &Arc<Owner>, sides: Sides) -> Result<(), Errno> {
        self.put(owner, sides, None, false)
    }

    /// Adds `owner` for an open file with the directions `sides`, or changes the descriptor of
    /// `owner` if the list has it. The signals name the descriptor `fd`. If `fd` is `None`, the
    /// owner gets signals for urgent bytes only.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn enter(&self, owner: &Arc<Owner>, sides: Sides, fd: Option<i32>) -> Result<(), Errno> {
        self.put(owner, sides, fd, true)
    }

    fn put(
        &self,
        owner: &Arc<Owner>,
        sides: Sides,
        fd: Option<i32>,
        changes: bool,
    ) -> Result<(), Errno> {
        let mut entries = self.entries.lock();
        // Relaxed: read at the end of the open file, when no other task has it.
        owner.listed.store(true, Ordering::Relaxed);
        if let Some(known) = entries
            .iter_mut()
            .find(|one| Arc::ptr_eq(&one.owner, owner))
        {
            if changes {
                known.fd = fd;
            }
            return Ok(());
        }
        entries.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        entries.push(Entry {
            owner: owner.clone(),
            sides,
            fd,
        });
        self.any.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Removes all owners, because the file belongs to other tasks from now on.
    pub fn clear(&self) {
        let mut entries = self.entries.lock();
        let gone = core::mem::take(&mut *entries);
        self.any.store(false, Ordering::SeqCst);
        drop(entries);
        drop(gone);
    }

    /// Removes `owner`, so no more signals go to it.
    pub fn leave(&self, owner: &Arc<Owner>) {
        // Relaxed: see `put`.
        if !owner.listed.load(Ordering::Relaxed) {
            return;
        }
        let mut entries = self.entries.lock();
        let at = entries
            .iter()
            .position(|one| Arc::ptr_eq(&one.owner, owner));
        let gone = at.map(|at| entries.remove(at));
        let memory = entries.is_empty().then(|| core::mem::take(&mut *entries));
        self.any.store(!entries.is_empty(), Ordering::SeqCst);
        drop(entries);
        drop((gone, memory));
    }
}

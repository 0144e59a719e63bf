//! Whom signals tell of a descriptor: `F_SETOWN`, `F_SETSIG`, `O_ASYNC`.
//!
//! An open file has an [`Owner`] once somebody has asked for one. Where the file can tell
//! (its [`Notifier`](super::poll::Notifier)) has a list of owners, with `O_ASYNC` of all signals,
//! without it of the one for urgent bytes. An open file leaves the list before it ends.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general as raw;
use logic::errno::Errno;
use machine::sched::cond_resched;
use machine::sync::SpinLock;

/// What a signal tells, with Linux's numbers (`POLL_IN` and so on).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Band {
    /// There is something to read.
    In = 1,
    /// There is room to write.
    Out = 2,
    /// An error.
    Error = 4,
    /// Something urgent.
    Urgent = 5,
    /// The other side is gone.
    HangUp = 6,
}

impl Band {
    /// `si_band`.
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

/// What an owner is, with Linux's numbers (`F_OWNER_TID` and so on).
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

/// What is told.
#[derive(Copy, Clone, Debug)]
pub struct Notice {
    /// The real and the effective user of who named the owner: whether they may send signals counts.
    pub users: [u32; 2],
    /// Of what.
    pub what: What,
}

/// What a notice is of.
#[derive(Copy, Clone, Debug)]
pub enum What {
    /// Something happened to a descriptor.
    Descriptor {
        /// `F_SETSIG`; 0: SIGIO, without details.
        signal: u32,
        /// The descriptor, when signals were asked for.
        fd: i32,
        /// What happened.
        band: Band,
    },
    /// An urgent byte: SIGURG.
    Urgent,
}

/// Who is told.
pub trait Recipient: Send + Sync {
    /// Its number, as long as it is there.
    fn number(&self) -> Option<u32>;
    /// Sends the signal, if its users allow that. Called without a spin lock.
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

/// Who is told of one open file, and how.
#[derive(Default)]
pub struct Owner {
    setting: SpinLock<Setting>,
    /// It is in a list, or was.
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

    /// What the owner is, and its number: 0 if there is none any more.
    pub fn named(&self) -> (Kind, u32) {
        let setting = self.setting();
        let number = setting.recipient.and_then(|who| who.number());
        (setting.kind, number.unwrap_or(0))
    }

    /// Names the owner; `users` are those of the caller. Nobody: the users stay.
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

    /// Whether somebody is named.
    pub fn is_named(&self) -> bool {
        self.setting.lock().recipient.is_some()
    }

    /// Real and effective user of who named it.
    pub fn users(&self) -> [u32; 2] {
        self.setting.lock().users
    }

    /// The signal (`F_GETSIG`).
    pub fn signal(&self) -> u32 {
        self.setting.lock().signal
    }

    /// Sets that.
    pub fn set_signal(&self, signal: u32) {
        self.setting.lock().signal = signal;
    }

    fn tell(&self, fd: i32, band: Band) {
        let setting = self.setting();
        if let Some(recipient) = &setting.recipient {
            recipient.tell(setting.of_descriptor(fd, band));
        }
    }

    /// As on Linux, who has chosen a signal gets that, too, where all signals are asked for.
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

/// Which signals an open file of a pipe is about.
#[derive(Copy, Clone, Debug)]
pub struct Sides {
    /// It reads.
    pub reads: bool,
    /// It writes.
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

/// Who tells lets others run after so many.
const BREATH: u32 = 64;

#[derive(Clone)]
struct Entry {
    owner: Arc<Owner>,
    sides: Sides,
    /// The descriptor with `O_ASYNC`; `None`: only urgent bytes are told of.
    fd: Option<i32>,
}

/// The owners of the open files of one file.
#[derive(Default)]
pub struct Owners {
    /// Whether there is any, so that those who tell nobody take no lock.
    any: AtomicBool,
    entries: SpinLock<Vec<Entry>>,
}

impl Owners {
    /// Nobody.
    pub const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            entries: SpinLock::new(Vec::new()),
        }
    }

    /// Tells all whom it is about. Call it without a spin lock.
    #[inline]
    pub fn tell(&self, band: Band) {
        // SeqCst: whoever asked for signals before something happened is told of it.
        if self.any.load(Ordering::SeqCst) {
            self.tell_each(|entry| {
                if let Some(fd) = entry.fd.filter(|_| entry.sides.include(band)) {
                    entry.owner.tell(fd, band);
                }
            });
        }
    }

    /// Tells all of an urgent byte.
    #[inline]
    pub fn tell_urgent(&self) {
        if self.any.load(Ordering::SeqCst) {
            self.tell_each(|entry| entry.owner.tell_urgent(entry.fd));
        }
    }

    /// From the last to the first, as on Linux: where one leaves meanwhile, nobody is left out.
    #[cold]
    fn tell_each(&self, tell: impl Fn(&Entry)) {
        let mut at = self.entries.lock().len();
        let mut told = 0_u32;
        // As often as there were entries at the start.
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

    /// Enters an owner who is told of urgent bytes alone, unless it is here already.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn include(&self, owner: &Arc<Owner>, sides: Sides) -> Result<(), Errno> {
        self.put(owner, sides, None, false)
    }

    /// Enters an owner, or changes its descriptor.
    ///
    /// # Errors
    /// `ENOMEM`.
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
        // Relaxed: read at the end of the open file, when nobody else has it.
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

    /// Takes all out: the file is others' from now on.
    pub fn clear(&self) {
        let mut entries = self.entries.lock();
        let gone = core::mem::take(&mut *entries);
        self.any.store(false, Ordering::SeqCst);
        drop(entries);
        drop(gone);
    }

    /// Takes an owner out.
    pub fn leave(&self, owner: &Arc<Owner>) {
        // Relaxed: see `enter`.
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

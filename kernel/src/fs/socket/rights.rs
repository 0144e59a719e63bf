//! Descriptors in flight (`SCM_RIGHTS`): open files that a message in an inbox holds.
//!
//! All descriptors in flight are counted for the users who sent them. A message is refused if its
//! sender's user has more in flight than the sender's `RLIMIT_NOFILE` (`ETOOMANYREFS`). Sockets in
//! flight are listed as well. A socket may be in flight to itself, through any number of others.
//! Only [`super::collect`] finds out that no task can receive it. It relies on one rule:
//! descriptors enter and leave flight with [`FLIGHTS`] locked.

use crate::fs::{FileKind, OpenFile};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::errno::Errno;
use machine::sync::{Mutex, SpinLock, WaitQueue};

/// A socket in flight: its descriptor was sent and is not received yet.
#[derive(Debug)]
pub(super) struct Flight {
    /// The open file of the socket.
    pub(super) file: Weak<OpenFile>,
    /// The number of times that the socket is in flight. A message may carry it several times.
    pub(super) count: usize,
}

/// The sockets in flight, and the number of all descriptors in flight of each user.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// The number of descriptors in flight for each user that sent some, of all file types.
    users: BTreeMap<u32, usize>,
    /// The sockets in flight, by [`key`].
    pub(super) sockets: BTreeMap<usize, Flight>,
}

/// Taken with no spin lock held. The locks of slots and inboxes are taken under it.
pub(super) static FLIGHTS: Mutex<Flights> = Mutex::new(Flights {
    users: BTreeMap::new(),
    sockets: BTreeMap::new(),
});

/// Whether a socket is in flight. Changed with [`FLIGHTS`] locked.
pub(super) static ANY_SOCKETS: AtomicBool = AtomicBool::new(false);

/// Whether the collector must look, because something was closed while a socket was in flight.
pub(super) static WANTED: AtomicBool = AtomicBool::new(false);
/// Where the collector thread of [`super::collect`] waits.
pub(super) static LOOKER: WaitQueue = WaitQueue::new();

/// Wakes the collector thread `ksocketd` if a socket is in flight. Called after a socket was closed
/// or descriptors in flight were dropped, because no task may be able to receive the remaining
/// sockets.
pub(super) fn look_soon() {
    // Relaxed: a later round looks at a socket that was put in flight since.
    if !ANY_SOCKETS.load(Ordering::Relaxed) {
        return;
    }
    // Release: pairs with the Acquire of the collector thread.
    if !WANTED.swap(true, Ordering::Release) {
        LOOKER.wake_one();
    }
}

/// Returns the key of the open file `file` in [`Flights::sockets`]: its address in memory.
pub(super) fn key(file: &Arc<OpenFile>) -> usize {
    Arc::as_ptr(file) as usize
}

/// The files that one message carries. Batches form a list, so that many can be dropped without an
/// allocation.
#[derive(Debug)]
struct Batch {
    files: Vec<Arc<OpenFile>>,
    /// The real user of the sender.
    user: u32,
    next: Option<Box<Self>>,
}

/// The descriptors of one message in flight.
#[derive(Debug)]
pub(super) struct Rights(Option<Box<Batch>>);

/// The place in a message that has the descriptors until they are received. `None` if there are
/// none left.
pub(super) type Slot = SpinLock<Option<Rights>>;

impl Flights {
    fn start(&mut self, batch: &Batch) {
        *self.users.entry(batch.user).or_default() += batch.files.len();
        for file in &batch.files {
            if file.node().kind() == FileKind::Socket {
                let flight = self.sockets.entry(key(file)).or_insert_with(|| Flight {
                    file: Arc::downgrade(file),
                    count: 0,
                });
                flight.count += 1;
            }
        }
        self.note();
    }

    fn note(&self) {
        // Relaxed: the flag only says whether a look is worthwhile.
        ANY_SOCKETS.store(!self.sockets.is_empty(), Ordering::Relaxed);
    }

    /// Takes the files of `batch` out of flight. Returns whether a socket among them is still in
    /// flight elsewhere.
    fn end(&mut self, batch: &Batch) -> bool {
        if let Some(count) = self.users.get_mut(&batch.user) {
            debug_assert!(*count >= batch.files.len(), "what ends has started");
            *count -= batch.files.len();
            if *count == 0 {
                self.users.remove(&batch.user);
            }
        }
        let mut others = false;
        for file in &batch.files {
            if let Some(flight) = self.sockets.get_mut(&key(file)) {
                flight.count -= 1;
                if flight.count == 0 {
                    self.sockets.remove(&key(file));
                } else {
                    others = true;
                }
            }
        }
        self.note();
        others
    }
}

impl Rights {
    /// Puts `files` in flight, unless `user` has more than `limit` descriptors in flight already.
    ///
    /// # Errors
    /// Fails with `ETOOMANYREFS`, and closes the files then.
    pub(super) fn send(files: Vec<Arc<OpenFile>>, user: u32, limit: usize) -> Result<Self, Errno> {
        let mut batch = Box::new(Batch {
            files,
            user,
            next: None,
        });
        let mut flights = FLIGHTS.lock();
        if flights.users.get(&user).is_some_and(|&count| count > limit) {
            drop(flights);
            // The files are not in flight yet. Each reference may be the last by now.
            let files = core::mem::take(&mut batch.files);
            files.into_iter().for_each(OpenFile::close);
            return Err(Errno::ETOOMANYREFS);
        }
        flights.start(&batch);
        Ok(Self(Some(batch)))
    }

    /// Returns the files whose descriptors the message carries.
    pub(super) fn files(&self) -> &[Arc<OpenFile>] {
        self.0.as_ref().map_or(&[], |batch| &batch.files)
    }
}

/// Takes the files of a message out of flight and returns them. Returns an empty list if another
/// task has taken them.
pub(super) fn take(slot: &Slot) -> Vec<Arc<OpenFile>> {
    let mut flights = FLIGHTS.lock();
    let Some(mut rights) = slot.lock().take() else {
        return Vec::new();
    };
    let Some(batch) = rights.0.take() else {
        return Vec::new();
    };
    flights.end(&batch);
    batch.files
}

/// Returns the files of a message, which stay in flight (`MSG_PEEK`). Returns an empty list if
/// another task has taken them.
pub(super) fn peek(slot: &Slot) -> Vec<Arc<OpenFile>> {
    let _flights = FLIGHTS.lock();
    slot.lock()
        .as_ref()
        .map(|rights| rights.files().to_vec())
        .unwrap_or_default()
}

/// Returns the sockets in flight, whose descriptors were sent and were not received yet.
///
/// # Errors
/// Fails with `ENOMEM`.
pub fn on_their_way() -> Result<Vec<Arc<OpenFile>>, Errno> {
    let flights = FLIGHTS.lock();
    let mut all = Vec::new();
    all.try_reserve_exact(flights.sockets.len())
        .map_err(|_| Errno::ENOMEM)?;
    let files = flights.sockets.values();
    all.extend(files.filter_map(|flight| flight.file.upgrade()));
    Ok(all)
}

/// Returns whether a message still has files.
pub(super) fn any(slot: &Slot) -> bool {
    slot.lock().is_some()
}

impl Drop for Rights {
    fn drop(&mut self) {
        let Some(batch) = self.0.take() else { return };
        let others = FLIGHTS.lock().end(&batch);
        if others {
            look_soon();
        }
        close(batch);
    }
}

/// The descriptors of several messages, as a list, so that adding allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Chain(Option<Box<Batch>>);

impl Chain {
    /// Adds the descriptors of one message.
    pub(super) fn add(&mut self, mut rights: Rights) {
        if let Some(mut batch) = rights.0.take() {
            batch.next = self.0.take();
            self.0 = Some(batch);
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        while let Some(mut batch) = self.0.take() {
            self.0 = batch.next.take();
            drop(Rights(Some(batch)));
        }
    }
}

/// The list of files that were not received and must be closed, and whether a task is closing them.
struct Undelivered {
    first: Option<Box<Batch>>,
    closing: bool,
}

static UNDELIVERED: SpinLock<Undelivered> = SpinLock::new(Undelivered {
    first: None,
    closing: false,
});

/// Closes files that were not received. Their inboxes may hold further files, and so on. A task
/// that is closing already closes these as well, one after the other, so nothing recurses.
fn close(mut batch: Box<Batch>) {
    let mut list = UNDELIVERED.lock();
    batch.next = list.first.take();
    list.first = Some(batch);
    if list.closing {
        return;
    }
    list.closing = true;
    while let Some(mut batch) = list.first.take() {
        list.first = batch.next.take();
        drop(list);
        for file in batch.files {
            file.close();
        }
        machine::sched::cond_resched();
        list = UNDELIVERED.lock();
    }
    list.closing = false;
}

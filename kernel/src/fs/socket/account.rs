//! Memory of data that was sent and not received. It is charged to the sender, up to `SO_SNDBUF`,
//! except for messages of UDP, ICMP and netlink. All sockets together have at most a quarter of
//! RAM.
//!
//! No process owns data in flight, so killing a process would not free it.

use crate::fs::owner::Band;
use crate::fs::poll::{Notifier, PollMask};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use machine::memory::{self, PAGE_SIZE};

/// Bytes of memory charged for all sockets.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// The memory that sent data of one socket takes until it is received, and its limit (`SO_SNDBUF`).
/// All accesses are SeqCst, so that a sender that waits for room and a receiver that frees memory
/// see each other's changes in one order.
#[derive(Debug)]
pub(super) struct Account {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// Whether a sender found no room since room was last signalled.
    lacked: AtomicBool,
    /// The notifier of the sending socket, called when there is room again.
    notifier: Arc<Notifier>,
}

/// Memory that counts as used until this value is dropped. The drop may wake a sender, so the
/// caller holds no lock.
#[derive(Debug)]
pub(super) struct Charge {
    account: Option<Arc<Account>>,
    bytes: usize,
}

/// The reason why [`charge`] has charged nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The account is full.
    Full,
    /// All sockets together have reached their limit.
    Memory,
}

impl Account {
    /// Returns a new account with a limit of `limit` bytes. `notifier`, that of the sending socket,
    /// is called when there is room for a waiting sender.
    pub(super) fn new(limit: usize, notifier: Arc<Notifier>) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            lacked: AtomicBool::new(false),
            notifier,
        })
    }

    /// Returns the limit in bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::SeqCst)
    }

    /// Returns the number of charged bytes (`SIOCOUTQ`).
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Sets the limit in bytes, and wakes senders that wait for room.
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::SeqCst);
        self.tell_of_room();
    }

    fn tell_of_room(&self) {
        self.notifier.notify(PollMask::WRITABLE);
        if self.lacked.load(Ordering::SeqCst) && self.is_writable() {
            self.lacked.store(false, Ordering::SeqCst);
            self.notifier.signal(Band::Out);
        }
    }

    /// Records that a sender found no room. If signals are on, one is sent when there is room
    /// again.
    pub(super) fn note_lack(&self) {
        self.lacked.store(true, Ordering::SeqCst);
    }

    /// Returns whether a segment may be charged: less than the limit is in use. The segment itself
    /// may exceed the limit, so that a long message fits at all. The most that can be in use is the
    /// limit plus one segment.
    pub(super) fn has_room(&self) -> bool {
        self.used() < self.limit()
    }

    /// Returns whether the socket polls as writable, which it does while at most a quarter of the
    /// limit is in use. As on Linux a good part must be free, or sender and receiver would take
    /// turns segment by segment.
    pub(super) fn is_writable(&self) -> bool {
        Self::is_quarter(self.used(), self.limit())
    }

    fn is_quarter(used: usize, limit: usize) -> bool {
        used.saturating_mul(4) <= limit
    }
}

/// Returns the limit of all sockets together, in bytes.
fn most() -> usize {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: all tasks store the same value.
    let known = MOST.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let frames = usize::try_from(memory::allocator().managed_frames()).unwrap_or(usize::MAX);
    let most = (frames / 4).saturating_mul(PAGE_SIZE);
    MOST.store(most, Ordering::Relaxed);
    most
}

/// Charges `bytes` bytes to `account`, if there is one, and to the total of all sockets. Returns
/// the charge, which lasts until it is dropped.
///
/// # Errors
/// Fails with [`NoRoom::Full`] if `account` has no room, and with [`NoRoom::Memory`] if the total
/// would exceed its limit.
pub(super) fn charge(account: Option<&Arc<Account>>, bytes: usize) -> Result<Charge, NoRoom> {
    if account.is_some_and(|account| !account.has_room()) {
        return Err(NoRoom::Full);
    }
    let most = most();
    let sum = ALL.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
    if sum > most {
        ALL.fetch_sub(bytes, Ordering::SeqCst);
        return Err(NoRoom::Memory);
    }
    if let Some(account) = account {
        account.used.fetch_add(bytes, Ordering::SeqCst);
    }
    Ok(Charge {
        account: account.cloned(),
        bytes,
    })
}

impl Charge {
    /// Returns the number of bytes charged.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        ALL.fetch_sub(self.bytes, Ordering::SeqCst);
        let Some(account) = &self.account else {
            return;
        };
        let before = account.used.fetch_sub(self.bytes, Ordering::SeqCst);
        let limit = account.limit();
        // A waiting sender saw the account full after it had joined the queue. One of the receivers
        // crosses this mark and wakes it.
        let crossed =
            !Account::is_quarter(before, limit) && Account::is_quarter(before - self.bytes, limit);
        if crossed {
            account.tell_of_room();
        }
    }
}

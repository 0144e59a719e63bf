//! What a socket sent and nobody has received: it is charged to the sender, up to `SO_SNDBUF`, and
//! all sockets together have at most a quarter of RAM.
//!
//! No process owns what is in flight, so killing one would not bring the memory back.

use crate::fs::owner::Band;
use crate::fs::poll::{Notifier, PollMask};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use machine::memory::{self, PAGE_SIZE};

/// Bytes of all sockets.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// A sender's account. SeqCst throughout, so that who waits for room and who gives it back see each
/// other's changes in one order.
#[derive(Debug)]
pub(super) struct Account {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// Somebody found no room since a signal told of some.
    lacked: AtomicBool,
    /// Told when a sender that waited may go on.
    notifier: Arc<Notifier>,
}

/// Memory that counts as used while this exists. Drop it without a lock: it may wake a sender.
#[derive(Debug)]
pub(super) struct Charge {
    account: Option<Arc<Account>>,
    bytes: usize,
}

/// Why nothing was charged.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The account is full.
    Full,
    /// All sockets together have what they may have.
    Memory,
}

impl Account {
    /// With room for `limit` bytes.
    pub(super) fn new(limit: usize, notifier: Arc<Notifier>) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            lacked: AtomicBool::new(false),
            notifier,
        })
    }

    /// How much there is room for.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::SeqCst)
    }

    /// How much is used (`SIOCOUTQ`).
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Makes room for so much.
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

    /// Somebody has found no room: a signal tells when there is some, if signals were asked for.
    pub(super) fn note_lack(&self) {
        self.lacked.store(true, Ordering::SeqCst);
    }

    /// Whether something can be charged. A charge may go over the limit: so the bound is the limit
    /// and one segment, and a long message fits at all.
    pub(super) fn has_room(&self) -> bool {
        self.used() < self.limit()
    }

    /// Whether it polls as writable: not before a good part is free, as on Linux, or sender and
    /// receiver would take turns segment by segment.
    pub(super) fn is_writable(&self) -> bool {
        Self::is_quarter(self.used(), self.limit())
    }

    fn is_quarter(used: usize, limit: usize) -> bool {
        used.saturating_mul(4) <= limit
    }
}

/// What all sockets may have.
fn most() -> usize {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: whoever is first writes what the others would.
    let known = MOST.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let frames = usize::try_from(memory::allocator().managed_frames()).unwrap_or(usize::MAX);
    let most = (frames / 4).saturating_mul(PAGE_SIZE);
    MOST.store(most, Ordering::Relaxed);
    most
}

/// Charges `bytes` to an account, or to nobody but all sockets together.
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
    /// How much it is.
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
        // Who waits has seen it full after it had joined the queue, and one of us crosses this mark.
        let crossed =
            !Account::is_quarter(before, limit) && Account::is_quarter(before - self.bytes, limit);
        if crossed {
            account.tell_of_room();
        }
    }
}

//! What processes share by number, key or name: System V shared memory, semaphores and message
//! queues, and POSIX message queues.
//!
//! Each kind has one lock for its table and its objects. It is held for the steps that `logic` does;
//! callers wait without it, and are told under it ([`sleeper::Sleeper`]). An object's owner and its
//! permission bits say who may use it.

mod budget;
pub mod mqueue;
pub mod msg;
pub mod sem;
pub mod shm;
mod sleeper;

use crate::fs::Timestamp;
use crate::process;
use alloc::vec::Vec;
use budget::Charge;
use logic::credentials::others::IpcOwned;
use logic::errno::Errno;
use logic::ipc_ids::{IpcIds, MAX_PLACES, PRIVATE};
use logic::message_queue::{Message, Party};
use sleeper::Sleeper;

// The numbers of <linux/ipc.h>.
const IPC_CREAT: u32 = 0o1000;
const IPC_EXCL: u32 = 0o2000;

/// To look at what is in an object.
pub const READ: u32 = 4;
/// To change it.
pub const WRITE: u32 = 2;

/// The most objects of a kind that the limits can be set to.
pub const MAX_OBJECTS: u64 = MAX_PLACES as u64;

/// Who made an object, and whose it is.
#[derive(Copy, Clone, Debug)]
pub struct Owner {
    /// Its key; 0 if it has none.
    pub key: i32,
    /// Owner: user and group.
    pub owner: [u32; 2],
    /// Maker: user and group.
    pub maker: [u32; 2],
    /// Permissions.
    pub mode: u32,
    /// When it was made or changed, in seconds since 1970.
    pub changed: i64,
}

impl Owner {
    /// The process that runs makes an object with the flags of `semget` or `msgget`.
    fn new(key: i32, flags: u32) -> Self {
        let task = process::current();
        let credentials = task.credentials();
        let owner = [credentials.users.effective, credentials.groups.effective];
        Self {
            key,
            owner,
            maker: owner,
            mode: flags & 0o777,
            changed: seconds(),
        }
    }

    fn owned(&self) -> IpcOwned {
        IpcOwned {
            owner: self.owner,
            maker: self.maker,
            mode: self.mode,
        }
    }

    /// Whether the calling task may read (4) or change (2) what is in the object.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check(&self, wanted: u32) -> Result<(), Errno> {
        process::current()
            .credentials()
            .may_use_ipc(&self.owned(), wanted)
    }

    /// Whether what the flags of a `get` call ask for is granted to it.
    fn check_get(&self, flags: u32) -> Result<(), Errno> {
        self.check((flags >> 6 | flags >> 3 | flags) & 7)
    }

    /// Whether it may change or remove the object itself.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_change(&self) -> Result<(), Errno> {
        process::current()
            .credentials()
            .may_change_ipc(&self.owned())
    }

    /// `IPC_SET`.
    fn set(&mut self, owner: [u32; 2], permissions: u32) -> Result<(), Errno> {
        if owner.contains(&u32::MAX) {
            return Err(Errno::EINVAL);
        }
        self.owner = owner;
        self.mode = permissions & 0o777;
        self.changed = seconds();
        Ok(())
    }
}

/// Seconds since 1970.
fn seconds() -> i64 {
    Timestamp::now().seconds
}

/// The number of the process that runs.
fn pid() -> u32 {
    process::current().process().pid()
}

/// The object with this key, if the flags are for one that exists; `None` if one is to be made.
fn find<T>(ids: &IpcIds<T>, key: i32, flags: u32) -> Result<Option<i32>, Errno> {
    if key == PRIVATE {
        return Ok(None);
    }
    match ids.find(key) {
        None if flags & IPC_CREAT != 0 => Ok(None),
        None => Err(Errno::ENOENT),
        Some(_) if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 => Err(Errno::EEXIST),
        found => Ok(found),
    }
}

/// What a message says.
#[derive(Debug)]
pub struct Body {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl Body {
    /// The memory that a message takes besides its bytes.
    const BESIDES: u64 = 256;

    /// A message's bytes; `fill` writes them.
    ///
    /// # Errors
    /// `ENOMEM`; those of `fill`.
    pub fn new(
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<Self, Errno> {
        let charge = budget::charge((size as u64).saturating_add(Self::BESIDES))?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(size, 0);
        fill(&mut bytes)?;
        Ok(Self {
            bytes,
            _charge: charge,
        })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What one who waits at a queue of messages is told.
#[derive(Debug)]
enum Told {
    Received(Result<Message<Body>, Errno>),
    Sent(Result<(), Errno>),
}

type QueueSleeper = alloc::sync::Arc<Sleeper<Told>>;

impl Party<Body> for QueueSleeper {
    fn received(self, result: Result<Message<Body>, Errno>) {
        self.tell(Told::Received(result));
    }
    fn sent(self, result: Result<(), Errno>) {
        self.tell(Told::Sent(result));
    }
}

/// How a wait ended that was not told of its end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum BrokenOff {
    TimedOut,
    Interrupted,
}

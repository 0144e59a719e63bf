//! Objects that processes share by number, key or name: System V shared memory, semaphores and
//! message queues, and POSIX message queues.
//!
//! Each kind has one lock for its table and its objects. The lock is held during the steps that
//! `logic` does. Callers wait without the lock and get their result under it
//! ([`sleeper::Sleeper`]). An object's owner and permission bits decide which tasks may use it.

mod budget;
pub mod mqueue;
pub mod msg;
pub mod sem;
pub mod shm;
mod sleeper;

use crate::fs::Timestamp;
use crate::process::{self, caller};
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

/// The right to read the contents of a System V IPC object, for [`Owner::check`].
pub const READ: u32 = 4;
/// The right to change the contents of a System V IPC object, for [`Owner::check`].
pub const WRITE: u32 = 2;

/// The highest value to which the limit on the number of System V IPC objects of one kind can be
/// set.
pub const MAX_OBJECTS: u64 = MAX_PLACES as u64;

/// The key, owner, creator and permissions of a System V IPC object.
#[derive(Copy, Clone, Debug)]
pub struct Owner {
    /// The object's key; 0 if it has none.
    pub key: i32,
    /// The owner: user and group.
    pub owner: [u32; 2],
    /// The creator: user and group.
    pub maker: [u32; 2],
    /// The permission bits. For shared memory, `SHM_DEST` and `SHM_LOCKED` as well.
    pub mode: u32,
    /// The time of creation or of the last change, in seconds since 1970.
    pub changed: i64,
}

impl Owner {
    /// Makes the owner of an object that the current process creates with the flags of a `get`
    /// call.
    fn new(key: i32, flags: u32) -> Self {
        let task = process::current();
        let owner = [task.users().effective, task.groups().effective];
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

    /// Checks that the calling task has the rights in `wanted` to the object's contents. `wanted`
    /// is the sum of [`READ`], [`WRITE`] and 1, the right to execute.
    ///
    /// # Errors
    /// Fails with `EACCES` if the task lacks one of these rights.
    pub fn check(&self, wanted: u32) -> Result<(), Errno> {
        caller::with_credentials(|who| who.may_use_ipc(&self.owned(), wanted))
    }

    /// Checks that the calling task has the rights that the flags of a `get` call request. Fails
    /// with `EACCES` if it lacks one.
    fn check_get(&self, flags: u32) -> Result<(), Errno> {
        self.check((flags >> 6 | flags >> 3 | flags) & 7)
    }

    /// Checks that the calling task may change or remove the object itself. Its owner and its
    /// creator may, and tasks with `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// Fails with `EPERM` if the task may not.
    pub fn check_change(&self) -> Result<(), Errno> {
        caller::with_credentials(|who| who.may_change_ipc(&self.owned()))
    }

    /// `IPC_SET`: changes the owner and the permissions. Fails with `EINVAL` if an ID is -1.
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

/// Returns the time in seconds since 1970.
fn seconds() -> i64 {
    Timestamp::now().seconds
}

/// Returns the number of the current process.
fn pid() -> u32 {
    process::current().process().pid()
}

/// Returns the number of the object with the key `key`. Returns `None` if a `get` call with `flags`
/// must create the object. Fails with `ENOENT` if there is no object and `flags` do not allow to
/// create one, and with `EEXIST` if `flags` demand a new object.
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

/// The contents of a System V or POSIX message. Their memory is charged to the budget of IPC.
#[derive(Debug)]
pub struct Body {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl Body {
    /// The memory that a message takes besides its contents, in bytes.
    const BESIDES: u64 = 256;

    /// Returns the contents of a message of `size` bytes. `fill` writes the bytes, which are zero
    /// at first.
    ///
    /// # Errors
    /// Fails with `ENOMEM`, and with the errors of `fill`.
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

    /// Returns the bytes of the message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The result of a wait at a System V or POSIX message queue.
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

/// The reason why a wait ended without a result.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum BrokenOff {
    TimedOut,
    Interrupted,
}

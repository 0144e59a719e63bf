//! The names of POSIX message queues.

use super::queue::MessageQueue;
use super::size::Size;
use crate::fs::Node;
use crate::process;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use logic::credentials::Owned;
use logic::errno::Errno;
use machine::sync::SpinLock;

/// The directory of the file system `mqueue` on Linux.
const DIRECTORY: Owned = Owned {
    directory: true,
    regular: false,
    permissions: 0o1777,
    uid: 0,
    gid: 0,
};

/// The queues that have names.
static NAMES: SpinLock<BTreeMap<Arc<[u8]>, Arc<MessageQueue>>> = SpinLock::new(BTreeMap::new());

/// The properties of a message queue that [`open`] creates.
#[derive(Copy, Clone, Debug)]
pub struct Making {
    /// Whether a queue with the name must not exist yet.
    pub exclusive: bool,
    /// The permission bits of the new queue.
    pub permissions: u32,
    /// The size of the new queue.
    pub size: Size,
    /// Whether `size` may exceed `fs.mqueue.msg_max` and `fs.mqueue.msgsize_max`.
    pub any_size: bool,
    /// Whether there may be more queues than `fs.mqueue.queues_max` allows.
    pub any_number: bool,
}

/// Checks a name, which is given without a slash in front. Fails with `ENOENT` for an empty name,
/// with `EACCES` for `.`, `..` and a name with a slash, and with `ENAMETOOLONG` for a name of more
/// than 255 bytes.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    const MAX_NAME: usize = 255;
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EACCES),
        _ if name.contains(&b'/') => Err(Errno::EACCES),
        _ if name.len() > MAX_NAME => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

/// Returns the message queue with the name `name`, and whether this call created it. `name` has no
/// slash in front. With `making`, creates the queue if it does not exist. `msgqueue_limit` is the
/// caller's `RLIMIT_MSGQUEUE`, which bounds the bytes of all queues when one is created. The caller
/// checks the permissions of an existing queue.
///
/// # Errors
/// Fails with `ENOENT` if `name` is empty, or if no queue has the name and `making` is `None`.
/// Fails with `EACCES` for a name that no file can have, and with `ENAMETOOLONG` for more than 255
/// bytes. Fails with `EEXIST` if the queue exists but `making` demands a new one. A new queue may
/// fail with `EINVAL` for its size, `ENOSPC` and `EMFILE` at a limit, and `ENOMEM`.
pub fn open(
    name: &[u8],
    making: Option<Making>,
    msgqueue_limit: u64,
) -> Result<(Arc<MessageQueue>, bool), Errno> {
    check_name(name)?;
    let found = NAMES.lock().get(name).cloned();
    let exclusive = making.is_some_and(|making| making.exclusive);
    let new = match (found, making) {
        (Some(_), Some(_)) if exclusive => return Err(Errno::EEXIST),
        (Some(found), _) => return Ok((found, false)),
        (None, None) => return Err(Errno::ENOENT),
        (None, Some(making)) => Arc::new(MessageQueue::new(name, making, msgqueue_limit)?),
    };
    let mut names = NAMES.lock();
    // Another task may have created it in between.
    if let Some(found) = names.get(name) {
        return if exclusive {
            Err(Errno::EEXIST)
        } else {
            Ok((found.clone(), false))
        };
    }
    names.insert(Arc::from(name), new.clone());
    Ok((new, true))
}

/// Removes the name `name` of a message queue (`mq_unlink(3)`). Tasks that have the queue open keep
/// it. `name` has no slash in front.
///
/// # Errors
/// Fails with `ENOENT` if no queue has the name, and with `EPERM` if the calling task neither owns
/// the queue nor has `CAP_FOWNER`. Fails with `EACCES` for a name that no file can have, and with
/// `ENAMETOOLONG` for more than 255 bytes.
pub fn unlink(name: &[u8]) -> Result<(), Errno> {
    check_name(name)?;
    let current = process::current();
    let gone = loop {
        let found = NAMES.lock().get(name).cloned().ok_or(Errno::ENOENT)?;
        // Permissions are as in a sticky directory that all users may write.
        current.with_credentials(|who| who.may_remove(&DIRECTORY, &found.owned()))?;
        let mut names = NAMES.lock();
        // Another queue may have this name now.
        if names.get(name).is_some_and(|now| Arc::ptr_eq(now, &found)) {
            break names.remove(name).ok_or(Errno::ENOENT)?;
        }
    };
    gone.lose_name();
    drop(gone);
    Ok(())
}

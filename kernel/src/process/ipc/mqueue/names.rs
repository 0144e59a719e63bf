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

/// How [`open`] creates a queue.
#[derive(Copy, Clone, Debug)]
pub struct Making {
    /// The name must not exist yet.
    pub exclusive: bool,
    /// Permissions of a new queue.
    pub permissions: u32,
    /// Size of a new queue.
    pub size: Size,
    /// Whether the queue may exceed the limits on size.
    pub any_size: bool,
    /// Whether there may be more queues than `fs.mqueue.queues_max` allows.
    pub any_number: bool,
}

/// Checks a name, which is given without a slash in front.
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

/// Returns the queue with the name `name`, and `true` if this call created it. With `making`,
/// creates the queue if it does not exist.
///
/// # Errors
/// Fails as `mq_open(3)` does.
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

/// Removes the name `name` of a queue (`mq_unlink(3)`). Tasks that have the queue open keep it.
///
/// # Errors
/// Fails as `mq_unlink(3)` does.
pub fn unlink(name: &[u8]) -> Result<(), Errno> {
    check_name(name)?;
    let current = process::current();
    let gone = loop {
        let found = NAMES.lock().get(name).cloned().ok_or(Errno::ENOENT)?;
        // Permissions are as in a sticky directory that all users may write.
        let who = current.credentials();
        who.may_remove(&DIRECTORY, &found.owned())?;
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

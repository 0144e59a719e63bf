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

/// What the file system `mqueue` has as its directory on Linux.
const DIRECTORY: Owned = Owned {
    directory: true,
    regular: false,
    permissions: 0o1777,
    uid: 0,
    gid: 0,
};

/// The queues that have names.
static NAMES: SpinLock<BTreeMap<Arc<[u8]>, Arc<MessageQueue>>> = SpinLock::new(BTreeMap::new());

/// How [`open`] goes about a name.
#[derive(Copy, Clone, Debug)]
pub struct Making {
    /// It must not be there.
    pub exclusive: bool,
    /// Permissions of a new queue.
    pub permissions: u32,
    /// Its size.
    pub size: Size,
    /// Whether it may be larger than everybody's.
    pub any_size: bool,
    /// Whether there may be more queues than `fs.mqueue.queues_max` says.
    pub any_number: bool,
}

/// Checks a name, which has no slash in front.
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

/// The queue of this name, made if that is asked for; says whether it was.
///
/// # Errors
/// As `mq_open(3)`.
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
    // Another may have been faster.
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

/// `mq_unlink(3)`: takes the name away. Who has the queue open keeps it.
///
/// # Errors
/// As `mq_unlink(3)`.
pub fn unlink(name: &[u8]) -> Result<(), Errno> {
    check_name(name)?;
    let current = process::current();
    let gone = loop {
        let found = NAMES.lock().get(name).cloned().ok_or(Errno::ENOENT)?;
        // As in a directory that is sticky and everybody's.
        let who = current.credentials();
        who.may_remove(&DIRECTORY, &found.owned())?;
        let mut names = NAMES.lock();
        // Another queue may have the name by now.
        if names.get(name).is_some_and(|now| Arc::ptr_eq(now, &found)) {
            break names.remove(name).ok_or(Errno::ENOENT)?;
        }
    };
    gone.lose_name();
    drop(gone);
    Ok(())
}

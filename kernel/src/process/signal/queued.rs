//! The number of queued signals of each user (`RLIMIT_SIGPENDING`).

use alloc::collections::BTreeMap;
use machine::sync::SpinLock;

/// The number of queued signals of each user. See [`KEPT`] for users without any.
static USERS: SpinLock<BTreeMap<u32, u64>> = SpinLock::new(BTreeMap::new());

/// A user without queued signals keeps an entry while there are no more entries than this, so that
/// a signal now and then allocates nothing.
const KEPT: usize = 8;

/// One queued signal, or room for that of a timer. It counts for the user with this number until it
/// is dropped.
#[derive(Debug)]
pub(crate) struct Queued(u32);

impl Queued {
    /// Counts one more signal for the user `uid`, who may have `limit`. Returns `None` at the
    /// limit.
    pub(crate) fn count(uid: u32, limit: u64) -> Option<Self> {
        let mut users = USERS.lock();
        match users.get_mut(&uid) {
            Some(queued) if *queued < limit => *queued += 1,
            None if limit > 0 => {
                users.insert(uid, 1);
            }
            _ => return None,
        }
        Some(Self(uid))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut users = USERS.lock();
        let queued = users.get_mut(&self.0).expect("the signal was counted");
        *queued -= 1;
        if *queued == 0 && users.len() > KEPT {
            users.remove(&self.0);
        }
    }
}

/// Returns the number of queued signals of the user `uid`, with one for each POSIX timer.
pub fn queued_of(uid: u32) -> u64 {
    USERS.lock().get(&uid).copied().unwrap_or(0)
}

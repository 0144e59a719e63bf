//! The number of queued signals of each user (`RLIMIT_SIGPENDING`).

use alloc::vec::Vec;
use machine::sync::SpinLock;

/// The users that have queued signals, each with their number.
static USERS: SpinLock<Vec<(u32, u64)>> = SpinLock::new(Vec::new());

/// One queued signal, or room for that of a timer. It counts for the user with this number until it
/// is dropped.
#[derive(Debug)]
pub(crate) struct Queued(u32);

impl Queued {
    /// Counts one more signal for the user `uid`, who may have `limit`. Returns `None` at the limit
    /// or if memory is out.
    pub(crate) fn count(uid: u32, limit: u64) -> Option<Self> {
        let mut users = USERS.lock();
        let known = users.iter().position(|(user, _)| *user == uid);
        if known.map_or(0, |at| users[at].1) >= limit {
            return None;
        }
        match known {
            Some(at) => users[at].1 += 1,
            None => {
                users.try_reserve(1).ok()?;
                users.push((uid, 1));
            }
        }
        Some(Self(uid))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut users = USERS.lock();
        let known = users.iter().position(|(user, _)| *user == self.0);
        let at = known.expect("the signal was counted");
        users[at].1 -= 1;
        if users[at].1 == 0 {
            users.swap_remove(at);
        }
    }
}

/// Returns the number of queued signals of the user `uid`, with one for each POSIX timer.
pub fn queued_of(uid: u32) -> u64 {
    let users = USERS.lock();
    let known = users.iter().find(|(user, _)| *user == uid);
    known.map_or(0, |(_, count)| *count)
}

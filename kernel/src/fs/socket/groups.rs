//! Groups of receivers (`IP_ADD_MEMBERSHIP`): a message to one reaches every socket at its port that
//! joined it, or that takes messages of all groups that the machine is in.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use logic::errno::Errno;
use logic::socket::address::Ip;
use machine::sync::SpinLock;

/// The most groups of one socket (`net.ipv4.igmp_max_memberships`).
pub const MOST_GROUPS: usize = 20;

/// The group that every machine is in.
const EVERYBODY: Ip = Ip::v4([224, 0, 0, 1]);

/// How many sockets are in each group.
static MEMBERS: SpinLock<BTreeMap<Ip, usize>> = SpinLock::new(BTreeMap::new());

/// The groups of a socket.
#[derive(Debug)]
pub(super) struct Groups(SpinLock<Vec<Ip>>);

impl Groups {
    pub(super) const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }
}

/// Whether the machine is in a group.
pub(super) fn has_members(group: Ip) -> bool {
    group == EVERYBODY || MEMBERS.lock().contains_key(&group)
}

fn leave(group: Ip) {
    let mut members = MEMBERS.lock();
    if let Some(count) = members.get_mut(&group) {
        *count -= 1;
        if *count == 0 {
            members.remove(&group);
        }
    }
}

impl Groups {
    /// Joins a group.
    ///
    /// # Errors
    /// `EADDRINUSE`: it is in it. `ENOBUFS`: it is in too many; no memory.
    pub(super) fn join(&self, group: Ip) -> Result<(), Errno> {
        let mut groups = self.0.lock();
        if groups.contains(&group) {
            return Err(Errno::EADDRINUSE);
        }
        if groups.len() >= MOST_GROUPS || groups.try_reserve(1).is_err() {
            return Err(Errno::ENOBUFS);
        }
        groups.push(group);
        *MEMBERS.lock().entry(group).or_default() += 1;
        Ok(())
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: it is not in it.
    pub(super) fn leave(&self, group: Ip) -> Result<(), Errno> {
        let mut groups = self.0.lock();
        let at = groups.iter().position(|one| *one == group);
        groups.swap_remove(at.ok_or(Errno::EADDRNOTAVAIL)?);
        drop(groups);
        leave(group);
        Ok(())
    }

    /// Whether it is in a group.
    pub(super) fn contains(&self, group: Ip) -> bool {
        self.0.lock().contains(&group)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.0.get_mut().drain(..).for_each(leave);
    }
}

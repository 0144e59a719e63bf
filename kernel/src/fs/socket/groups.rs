//! Multicast groups (`IP_ADD_MEMBERSHIP`). A message to a group reaches the sockets at its port
//! that joined it. It also reaches those that receive from all groups of the machine.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use logic::errno::Errno;
use logic::socket::address::Ip;
use machine::sync::SpinLock;

/// The most groups of one socket (`net.ipv4.igmp_max_memberships`).
pub const MOST_GROUPS: usize = 20;

/// The group of all machines.
const EVERYBODY: Ip = Ip::v4([224, 0, 0, 1]);

/// The number of sockets in each group.
static MEMBERS: SpinLock<BTreeMap<Ip, usize>> = SpinLock::new(BTreeMap::new());

/// The groups of a socket.
#[derive(Debug)]
pub(super) struct Groups(SpinLock<Vec<Ip>>);

impl Groups {
    /// Returns an empty set of groups.
    pub(super) const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }
}

/// Returns whether the machine receives messages to `group`: a socket has joined it, or it is the
/// group of all machines.
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
    /// Joins `group`.
    ///
    /// # Errors
    /// Fails with `EADDRINUSE` if the socket is a member already. Fails with `ENOBUFS` if the
    /// socket is in too many groups, or memory is short.
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

    /// Leaves `group`.
    ///
    /// # Errors
    /// Fails with `EADDRNOTAVAIL` if the socket is not a member.
    pub(super) fn leave(&self, group: Ip) -> Result<(), Errno> {
        let mut groups = self.0.lock();
        let at = groups.iter().position(|one| *one == group);
        groups.swap_remove(at.ok_or(Errno::EADDRNOTAVAIL)?);
        drop(groups);
        leave(group);
        Ok(())
    }

    /// Returns whether the socket is a member of `group`.
    pub(super) fn contains(&self, group: Ip) -> bool {
        self.0.lock().contains(&group)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.0.get_mut().drain(..).for_each(leave);
    }
}

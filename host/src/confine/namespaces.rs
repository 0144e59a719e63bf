//! The user, network and IPC namespaces of a QEMU.
//!
//! A forked process creates them and waits while `ebb` writes their user maps. It ends once `ebb`
//! has opened their descriptors. As their owner, `ebb` may enter them and kill the processes in
//! them without any capability of its own.

use super::fork::Forked;
use super::kvm::{self, KvmAccess};
use rustix::fd::OwnedFd;
use rustix::fs::{Dev, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The first user id for QEMUs that root starts. The process number of `ebb` is added, so no two
/// guests share one. No account and no container manager uses these ids.
const FIRST_USER: u32 = 1_900_000_000;
/// The unprivileged user id of most distributions, used if root of a container has no better one.
const NOBODY: u32 = 65534;

/// The user and groups of a QEMU if root runs `ebb`. They differ from those of `ebb`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Ids {
    pub(super) user: u32,
    pub(super) group: u32,
    /// The group that may open `/dev/kvm`, if not every user may.
    kvm_group: Option<u32>,
}

impl Ids {
    fn new(user: u32) -> Self {
        let kvm_group = match kvm::access() {
            KvmAccess::Group(group) => Some(group),
            KvmAccess::Everyone | KvmAccess::Root(_) => None,
        };
        Self {
            user,
            group: user,
            kvm_group,
        }
    }

    /// Returns the ids of the unprivileged user 65534, for a host without user namespaces. Returns
    /// `None` if root, perhaps of a container, cannot become that user or leave its groups.
    pub(super) fn nobody() -> Option<Self> {
        let has = |map: &str| fs::read_to_string(map).is_ok_and(|map| covers(&map, NOBODY));
        let setgroups = fs::read_to_string("/proc/self/setgroups");
        let may_leave_groups = setgroups.is_ok_and(|text| text.trim() == "allow");
        let is_possible =
            may_leave_groups && has("/proc/self/uid_map") && has("/proc/self/gid_map");
        is_possible.then(|| Self::new(NOBODY))
    }

    /// Returns the user id and the group id of a QEMU. If `kvm`, for a QEMU that opens `/dev/kvm`,
    /// the group is the one that may open the device, if there is such a group.
    pub(super) fn of_process(self, kvm: bool) -> (u32, u32) {
        let group = self.kvm_group.filter(|_| kvm).unwrap_or(self.group);
        (self.user, group)
    }

    /// Returns the contents of the user map and the group map.
    fn maps(self) -> [String; 2] {
        let line = |id: u32| format!("{id} {id} 1\n");
        let kvm = self.kvm_group.map(line).unwrap_or_default();
        [line(self.user), line(self.group) + &kvm]
    }
}

/// A forked process that is creating namespaces. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct NamespaceSetup {
    maker: Forked,
    socket: UnixStream,
}

/// The descriptor of a namespace, or the error number if the namespace could not be created.
pub(super) type Made = Result<OwnedFd, Errno>;

/// The user, network, IPC and mount namespaces that a QEMU can enter, as open descriptors.
#[derive(Debug)]
pub(super) struct Namespaces {
    user: OwnedFd,
    pub(super) network: Made,
    pub(super) ipc: Made,
    /// A mount namespace and its `/dev/kvm` for QEMU, if only root may open the host's device.
    mounts: Option<(OwnedFd, OwnedFd)>,
    /// The user and groups of QEMU. `None` if QEMU runs as the user of `ebb`.
    pub(super) ids: Option<Ids>,
}

impl NamespaceSetup {
    /// Starts a process that creates the namespaces, without waiting for it.
    ///
    /// # Errors
    /// If the host cannot create a socket or a process.
    pub(super) fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let is_root = geteuid().is_root();
        let kvm = match kvm::access() {
            KvmAccess::Root(device) if is_root => Some((own_user(), device)),
            _ => None,
        };
        let maker = Forked::start(move || make(theirs, kvm))?;
        Ok(Self {
            maker,
            socket: ours,
        })
    }

    /// Waits until the process has created the namespaces, writes their user and group maps, opens
    /// them, and ends the process. A network or IPC namespace that could not be created is no error
    /// here; see [`Made`].
    ///
    /// # Errors
    /// If the process cannot create a user namespace on this host, the maps cannot be written, or a
    /// namespace cannot be opened.
    pub(super) fn finish(mut self) -> io::Result<Namespaces> {
        let mut result = || {
            let mut bytes = [0; 4];
            self.socket.read_exact(&mut bytes)?;
            Ok::<_, io::Error>(i32::from_le_bytes(bytes))
        };
        match result()? {
            0 => {}
            error => return Err(Errno::from_raw_os_error(error).into()),
        }
        let (network, ipc, mounts) = (result()?, result()?, result()?);
        let folder = format!("/proc/{}", self.maker.pid().as_raw_nonzero());
        let ids = map_users(&folder)?;
        let open = |name: &str| {
            let path = format!("{folder}/ns/{name}");
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        let mounts = if mounts == 0 {
            // The mount namespace is reached through the root of the process while the process
            // exists.
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let device = format!("{folder}/root{}", kvm::DEVICE);
            let device = rustix::fs::open(device, flags, Mode::empty())?;
            Some((open("mnt")?, device))
        } else {
            None
        };
        let made = |error, name| match error {
            0 => open(name),
            error => Err(Errno::from_raw_os_error(error)),
        };
        Ok(Namespaces {
            user: open("user")?,
            network: made(network, "net"),
            ipc: made(ipc, "ipc"),
            mounts,
            ids,
        })
    }
}

/// Creates the namespaces, reports the result of each over `socket`, and waits to be killed. `kvm`
/// is a user and the number of a `/dev/kvm` that only root may open.
fn make(mut socket: UnixStream, kvm: Option<(u32, Dev)>) {
    let mut say = |made: Result<(), Errno>| {
        let error = made.map_or_else(Errno::raw_os_error, |()| 0);
        socket.write_all(&error.to_le_bytes()).is_ok() && error == 0
    };
    // SAFETY: the call is unsafe for threads that share the state that it separates. This process
    // has one thread.
    let unshare = |flags| unsafe { unshare_unsafe(flags) };
    let mounts = kvm.ok_or(Errno::NODEV);
    let mounts = mounts.and_then(|(user, device)| kvm::give_to(user, device));
    let flags = match mounts {
        // The new user namespace gets a copy of the mounts that it owns, so QEMU may enter it.
        Ok(()) => UnshareFlags::NEWUSER | UnshareFlags::NEWNS,
        Err(_) => UnshareFlags::NEWUSER,
    };
    if !say(unshare(flags)) {
        return;
    }
    say(unshare(UnshareFlags::NEWNET));
    say(unshare(UnshareFlags::NEWIPC));
    say(mounts);
    let _ = socket.read(&mut [0]);
}

/// Returns a user id near the end of the largest range in `map`, chosen by this process's number.
/// Root of a container usually has 65536 ids. Returns `None` if the range has fewer than 8192.
fn last_user(map: &str) -> Option<u32> {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.nth(1)?.ok()?))
    });
    let (first, count) = ranges.max_by_key(|(_, count)| *count)?;
    let back = 2 + std::process::id() % 4096;
    let user = first.checked_add(count)?.checked_sub(1 + back)?;
    (count >= 8192).then_some(user)
}

/// Returns the user id for QEMUs of this process, if root runs it.
fn own_user() -> u32 {
    FIRST_USER + std::process::id()
}

/// Returns whether a user or group map contains `id`.
fn covers(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (first, count) = (numbers.next(), numbers.nth(1));
        matches!((first, count), (Some(Ok(first)), Some(Ok(count)))
            if id.checked_sub(first).is_some_and(|inside| inside < count))
    })
}

/// Writes the user and group maps of the namespace of the process with the `/proc` folder `folder`.
/// Returns the ids of QEMU, or `None` if QEMU runs as the user of `ebb`. Fails if the maps cannot
/// be written.
fn map_users(folder: &str) -> io::Result<Option<Ids>> {
    let write = |name: &str, text: &str| fs::write(format!("{folder}/{name}"), text);
    let read = |map: &str| fs::read_to_string(map).unwrap_or_default();
    let (users, groups) = (read("/proc/self/uid_map"), read("/proc/self/gid_map"));
    let candidates = [Some(own_user()), last_user(&users), Some(NOBODY)];
    for user in candidates.into_iter().flatten() {
        // An ordinary user may map only itself, and root of a container only the ids of the
        // container.
        if !geteuid().is_root() || !covers(&users, user) || !covers(&groups, user) {
            continue;
        }
        let ids = Ids::new(user);
        let [users, groups] = ids.maps();
        if write("uid_map", &users)
            .and_then(|()| write("gid_map", &groups))
            .is_ok()
        {
            return Ok(Some(ids));
        }
    }
    // An unprivileged process may map its own group only if it gives up setgroups(2).
    write("setgroups", "deny")?;
    let line = |id: u32| format!("{id} {id} 1\n");
    write("uid_map", &line(geteuid().as_raw()))?;
    write("gid_map", &line(getegid().as_raw()))?;
    Ok(None)
}

impl Namespaces {
    /// Returns the same namespaces with duplicated descriptors.
    ///
    /// # Errors
    /// If the host cannot provide a descriptor.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        let made = |made: &Made| match made {
            Ok(file) => file.try_clone().map(Ok),
            Err(error) => Ok(Err(*error)),
        };
        Ok(Self {
            user: self.user.try_clone()?,
            network: made(&self.network)?,
            ipc: made(&self.ipc)?,
            mounts: match &self.mounts {
                Some((mounts, device)) => Some((mounts.try_clone()?, device.try_clone()?)),
                None => None,
            },
            ids: self.ids,
        })
    }

    /// Returns the `/dev/kvm` in the mount namespace. Returns `None` if QEMU uses the `/dev/kvm` of
    /// the host.
    pub(super) fn kvm(&self) -> Option<BorrowedFd<'_>> {
        self.mounts.as_ref().map(|(_, device)| device.as_fd())
    }

    /// Moves the calling process into the namespaces, except a network or IPC namespace that could
    /// not be created. Enters the mount namespace only if `kvm`, for a QEMU that opens `/dev/kvm`;
    /// this also changes the working folder. The process must have one thread. Allocates nothing,
    /// for use between `fork` and `exec`.
    ///
    /// # Errors
    /// If the kernel refuses. The process may then be in some of the namespaces.
    pub(super) fn enter(&self, kvm: bool) -> Result<(), Errno> {
        let enter = |file: BorrowedFd<'_>, kind| move_into_link_name_space(file, Some(kind));
        // The user namespace comes first, because it gives the rights to enter the others.
        enter(self.user.as_fd(), LinkNameSpaceType::User)?;
        if let Ok(network) = &self.network {
            enter(network.as_fd(), LinkNameSpaceType::Network)?;
        }
        if let Ok(ipc) = &self.ipc {
            enter(ipc.as_fd(), LinkNameSpaceType::InterProcessCommunication)?;
        }
        if let (Some((mounts, _)), true) = (&self.mounts, kvm) {
            enter(mounts.as_fd(), LinkNameSpaceType::Mount)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read() {
        assert!(covers("         0          0 4294967295\n", NOBODY));
        assert!(covers("0 1000 1\n1 100000 65536\n", NOBODY));
        assert!(!covers("0 1000 1\n", NOBODY));
        assert!(covers("0 1000 1\n", 0));
        assert!(!covers("", 0) && !covers("x y z\n", 0));
        let map = "0 1000 1\n1 100000 65536\n";
        let user = last_user(map).unwrap();
        assert!(covers(map, user) && user > 61_000 && user != NOBODY);
        assert_eq!(last_user("0 1000 1\n"), None);
    }

    #[test]
    fn maps_name_the_user_and_who_may_open_kvm() {
        let mut ids = Ids {
            user: 7,
            group: 7,
            kvm_group: None,
        };
        assert_eq!(ids.maps(), ["7 7 1\n", "7 7 1\n"]);
        ids.kvm_group = Some(108);
        assert_eq!(ids.maps(), ["7 7 1\n", "7 7 1\n108 108 1\n"]);
        assert_eq!(ids.of_process(true), (7, 108));
        assert_eq!(ids.of_process(false), (7, 7));
    }
}

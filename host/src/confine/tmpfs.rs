//! Mounts a tmpfs whose files get huge pages, invisible to other processes.
//!
//! The mount is attached to no folder. Only its descriptor reaches it, and it ends with its last
//! open file. Root mounts it directly. For an ordinary user a forked process mounts it in a user
//! and mount namespace of its own, and sends the descriptor.

use super::fork::Forked;
use super::frames::{receive, send};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// The kinds of messages from the forked process: the descriptor of the mount, or the error number.
const MOUNTED: u8 = 0;
const FAILED: u8 = 1;

/// Mounts a tmpfs whose files get huge pages, and returns the descriptor of its root. It is
/// attached to no folder and ends with its last open file. The size of its files is not limited,
/// and none can be executed. If this process may not mount it, a forked process does so in
/// namespaces of its own.
///
/// # Errors
/// The errors of the attempt in namespaces: the host has no such namespaces for this user, or its
/// tmpfs supports no huge pages.
pub(crate) fn huge_tmpfs() -> io::Result<OwnedFd> {
    mounted().or_else(|_| by_namespace())
}

/// Mounts the tmpfs with the rights of the calling process. Fails as fsopen(2) and fsmount(2).
fn mounted() -> Result<OwnedFd, Errno> {
    let files = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in [
        ("huge", "always"),
        ("mode", "700"),
        // No limit is needed: `ebb` sets the size of the only file, and QEMU cannot change it.
        ("size", "0"),
        ("nr_inodes", "0"),
    ] {
        fsconfig_set_string(files.as_fd(), name, value)?;
    }
    fsconfig_create(files.as_fd())?;
    let inert = MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(files.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, inert)
}

/// Has a forked process mount the tmpfs in namespaces of its own. Returns the descriptor, or the
/// error of that process.
fn by_namespace() -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let maker = Forked::start(move || {
        let made = in_namespace();
        // If this fails, the parent sees the end of the socket.
        let _ = match &made {
            Ok(mount) => send(&theirs, MOUNTED, &[], &[mount.as_fd()]),
            Err(error) => {
                let number = error.raw_os_error().unwrap_or_default();
                send(&theirs, FAILED, &number.to_le_bytes(), &[])
            }
        };
    })?;
    let frame = receive(&ours)?;
    drop(maker);
    match (frame.kind, frame.descriptors.into_iter().next()) {
        (MOUNTED, Some(mount)) => Ok(mount),
        _ => {
            let number = frame.bytes.first_chunk().copied().map(i32::from_le_bytes);
            Err(io::Error::from_raw_os_error(number.unwrap_or_default()))
        }
    }
}

/// Moves the calling process to a user and mount namespace with the same user, and mounts the tmpfs
/// there. The process must have one thread.
fn in_namespace() -> io::Result<OwnedFd> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the call is unsafe for threads that share the state that it separates. This process
    // has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)? };
    // An unprivileged process may map its own group only if it gives up setgroups(2).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1\n"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1\n"))?;
    Ok(mounted()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, openat};

    fn has_files(mount: &OwnedFd) {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(mount, ".", flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::fs::ftruncate(&file, 8 << 20).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 8 << 20);
    }

    #[test]
    fn both_ways_lead_to_a_mount() {
        has_files(&huge_tmpfs().unwrap());
        has_files(&by_namespace().unwrap());
    }
}

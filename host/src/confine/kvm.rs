//! Provides `/dev/kvm` to a QEMU that does not run as root, where only root may open the host's
//! device. A second node of the same device, owned by QEMU's user, is bound over the host's in a
//! private mount namespace.

use rustix::fs::{CWD, Dev, FileType, Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The path of the device of KVM on the host.
pub(super) const DEVICE: &str = "/dev/kvm";
/// A folder that exists on every host. The second node is created on a tmpfs that is mounted over
/// it, and nothing remains there.
const PLACE: &str = "/tmp";
const NODE: &str = "/tmp/kvm";

/// The users that may open `/dev/kvm`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum KvmAccess {
    /// Every user may open it, or the device does not exist.
    Everyone,
    /// Root and a group may open it. The operand is the group's id.
    Group(u32),
    /// Only root may open it. The operand is the device number.
    Root(Dev),
}

/// Returns which users may read and write `/dev/kvm`, by its mode and group. Returns `Everyone` if
/// the device does not exist.
pub(super) fn access() -> KvmAccess {
    let Ok(device) = fs::metadata(DEVICE) else {
        return KvmAccess::Everyone;
    };
    match (device.mode(), device.gid()) {
        (mode, _) if mode & 0o006 == 0o006 => KvmAccess::Everyone,
        (mode, group) if mode & 0o060 == 0o060 && group != 0 => KvmAccess::Group(group),
        _ => KvmAccess::Root(device.rdev()),
    }
}

/// Moves the calling process to a new mount namespace in which `/dev/kvm` is a node of the device
/// number `device` that only the user id `user` may open. The process must be root and have one
/// thread.
///
/// # Errors
/// If the kernel refuses. Root of a container may not be allowed to create nodes. The process may
/// then be in the new namespace already.
pub(super) fn give_to(user: u32, device: Dev) -> Result<(), Errno> {
    // SAFETY: the call is unsafe for threads that share their root. This process has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    // Mounts and unmounts of the host propagate to this namespace, so it keeps no file system busy.
    // Nothing propagates back.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("ebb", PLACE, "tmpfs", flags, c"mode=700,size=64k")?;
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, NODE, FileType::CharacterDevice, mode, device)?;
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::fs::chown(NODE, Some(user), Some(group))?;
    mount_bind(NODE, DEVICE)?;
    // This shows the host's folder again. The node stays where it is bound.
    unmount(PLACE, UnmountFlags::DETACH)
}

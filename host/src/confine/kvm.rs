//! Gives a QEMU that does not run as root a `/dev/kvm` where only root may open the host's: another node
//! of the same device, owned by QEMU's user, bound over the host's in a private mount namespace.

use rustix::fs::{CWD, Dev, FileType, Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::os::unix::fs::MetadataExt;

pub(super) const DEVICE: &str = "/dev/kvm";
/// Where the other node is made: a folder that every host has. Nothing is left there.
const PLACE: &str = "/tmp";
const NODE: &str = "/tmp/kvm";

/// Who may open `/dev/kvm`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Openers {
    /// Everyone, or there is no such device.
    Everyone,
    /// Root, and a group.
    Group(u32),
    /// Root alone. The operand is the device's number.
    Root(Dev),
}

/// Returns who may open `/dev/kvm`.
pub(super) fn openers() -> Openers {
    let Ok(device) = fs::metadata(DEVICE) else {
        return Openers::Everyone;
    };
    match (device.mode(), device.gid()) {
        (mode, _) if mode & 0o006 == 0o006 => Openers::Everyone,
        (mode, group) if mode & 0o060 == 0o060 && group != 0 => Openers::Group(group),
        _ => Openers::Root(device.rdev()),
    }
}

/// Moves the calling process, which has one thread, to a mount namespace in which `/dev/kvm` is the node of
/// `device` that `user` alone may open.
///
/// # Errors
/// The kernel's: root of a container may make no nodes.
pub(super) fn give_to(user: u32, device: Dev) -> Result<(), Errno> {
    // SAFETY: the call is unsafe for threads that share their root; this process has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    // The host's mounts and unmounts reach it, so that it keeps none of them busy; none goes back.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("ebb", PLACE, "tmpfs", flags, c"mode=700,size=64k")?;
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, NODE, FileType::CharacterDevice, mode, device)?;
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::fs::chown(NODE, Some(user), Some(group))?;
    mount_bind(NODE, DEVICE)?;
    // The host's folder is seen again; the node stays where it is bound to.
    unmount(PLACE, UnmountFlags::DETACH)
}

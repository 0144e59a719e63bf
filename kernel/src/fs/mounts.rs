//! What is mounted where, and the types of file systems.
//!
//! A mount covers the directory that it stands on (`Node::cover`); the walk of a path goes through
//! to the mounted root. Several on one directory stand on each other.

use super::flags::FileKind;
use super::lookup::{self, same};
use super::node::{NewNode, NodeRef};
use super::text::Text;
use super::tmpfs;
use super::volume::{FileSystem, FileSystemType, Made, Maker, MountFlags, Uses};
use super::watch;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use machine::sync::Mutex;

/// The types that there are, as `/proc/filesystems` lists them. Another one is a line here.
const TYPES: &[FileSystemType] = &[
    tmpfs::TYPE,
    tmpfs::HUGETLBFS,
    of_kernel("devtmpfs", Maker::Mounted),
    of_kernel("devpts", Maker::Mounted),
    of_kernel("proc", Maker::Mounted),
    of_kernel("sysfs", Maker::Mounted),
    of_kernel("hostfs", Maker::Mounted),
    of_kernel("pipefs", Maker::Internal),
    of_kernel("anon_inodefs", Maker::Internal),
];

/// The most mounts at a time.
const MAX_MOUNTS: usize = 10_000;

const fn of_kernel(name: &'static str, maker: Maker) -> FileSystemType {
    FileSystemType { name, maker }
}

/// The names of all types.
pub fn type_names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|kind| kind.name)
}

/// A mounted file system.
pub struct Mount {
    kind: &'static str,
    source: Box<[u8]>,
    top: NodeRef,
    /// The directory that it stands on; `None` for the root of the tree.
    point: Option<NodeRef>,
    /// What can be changed of it, if anything.
    fs: Option<Arc<dyn FileSystem>>,
    /// Who uses it; `None`: it stays for good.
    uses: Option<Arc<Uses>>,
}

/// All mounts, in the order in which they were made.
static MOUNTS: Mutex<Vec<Arc<Mount>>> = Mutex::new(Vec::new());

impl Mount {
    /// Device number, which tells it from every other.
    pub fn device(&self) -> u64 {
        self.top.id().device
    }

    /// That of the file system it stands in; 0 for the root of the tree.
    pub fn device_above(&self) -> u64 {
        self.point.as_ref().map_or(0, |point| point.id().device)
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// What was given as its device.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Where it is.
    pub fn path(&self) -> Vec<u8> {
        lookup::describe(&self.top, None)
    }

    /// How it is mounted.
    pub fn flags(&self) -> MountFlags {
        let fs = self.fs.as_ref();
        fs.map_or(MountFlags::RELATIVE_TIMES, |fs| fs.volume().flags())
    }

    /// Writes the options of its file system, each with a comma before it.
    pub fn show_options(&self, text: &mut Text) -> fmt::Result {
        self.fs.as_ref().map_or(Ok(()), |fs| fs.show_options(text))
    }
}

/// All mounts, in the order in which they were made.
///
/// # Errors
/// `ENOMEM`.
pub fn all() -> Result<Vec<Arc<Mount>>, Errno> {
    let mounts = MOUNTS.lock();
    let mut list = Vec::new();
    list.try_reserve_exact(mounts.len())
        .map_err(|_| Errno::ENOMEM)?;
    list.extend(mounts.iter().cloned());
    Ok(list)
}

/// Enters what the kernel mounts for good: its root directory knows its place already.
///
/// # Errors
/// As `Node::cover`.
pub(super) fn enter_permanent(
    kind: &'static str,
    source: &[u8],
    top: NodeRef,
    point: Option<NodeRef>,
    fs: Option<Arc<dyn FileSystem>>,
) -> Result<(), Errno> {
    if let Some(point) = &point {
        point.cover(Some(top.clone()))?;
    }
    MOUNTS.lock().push(Arc::new(Mount {
        kind,
        source: source.into(),
        top,
        point,
        fs,
        uses: None,
    }));
    Ok(())
}

/// What is mounted with this root directory.
fn with_top(mounts: &[Arc<Mount>], top: &NodeRef) -> Result<usize, Errno> {
    let found = mounts.iter().position(|mount| same(&mount.top, top));
    found.ok_or(Errno::EINVAL)
}

/// Mounts a new file system of type `kind` on the directory `point`.
///
/// # Errors
/// As `mount(2)`.
pub fn mount(
    kind: &[u8],
    source: &[u8],
    point: NodeRef,
    flags: MountFlags,
    options: &[u8],
) -> Result<(), Errno> {
    let kind = TYPES.iter().find(|known| known.name.as_bytes() == kind);
    let kind = kind.ok_or(Errno::ENODEV)?;
    let Made { fs, top } = match kind.maker {
        Maker::Anew(make) => make(options, flags)?,
        Maker::Mounted => return Err(Errno::EBUSY),
        Maker::Internal => return Err(Errno::EINVAL),
    };
    if point.kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    let mut mounts = MOUNTS.lock();
    if mounts.len() >= MAX_MOUNTS {
        return Err(Errno::ENOSPC);
    }
    mounts.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    // Another may have been mounted since the path was walked.
    let point = lookup::through_mounts(point);
    let device = point.id().device;
    if !mounts.iter().any(|mount| mount.device() == device) {
        // It stands in a tree that is unmounted.
        return Err(Errno::EINVAL);
    }
    // Nothing would lead through a mount on the root of the tree.
    let above = point.parent().ok_or(Errno::EBUSY)?;
    let uses = Uses::of(top.clone());
    top.set_place(Some(&above), &point.name());
    fs.volume().count_uses(&uses);
    point.cover(Some(top.clone()))?;
    mounts.push(Arc::new(Mount {
        kind: kind.name,
        source: source.into(),
        top,
        point: Some(point),
        fs: Some(fs),
        uses: Some(uses),
    }));
    Ok(())
}

/// Changes the mount with the root directory `top`; `options` are its file system's, unless only the
/// mount itself is to change.
///
/// # Errors
/// As `mount(2)` with `MS_REMOUNT`.
pub fn remount(
    top: &NodeRef,
    flags: impl FnOnce(MountFlags) -> MountFlags,
    options: Option<&[u8]>,
) -> Result<(), Errno> {
    let mounts = MOUNTS.lock();
    let mount = &mounts[with_top(&mounts, top)?];
    let before = mount.flags();
    let flags = flags(before);
    let Some(fs) = &mount.fs else {
        let same = flags == before && options.is_none_or(<[u8]>::is_empty);
        return if same { Ok(()) } else { Err(Errno::EINVAL) };
    };
    fs.volume().set_flags(flags)?;
    let done = options.map_or(Ok(()), |options| fs.reconfigure(options));
    if done.is_err() {
        // Nothing became read-only that was not before, or it had no writers: this cannot fail.
        let _ = fs.volume().set_flags(before);
    }
    done
}

/// Whether something is mounted with this root directory.
pub fn is_mounted(top: &NodeRef) -> bool {
    with_top(&MOUNTS.lock(), top).is_ok()
}

/// When [`unmount`] does it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// If nobody uses it.
    Unused,
    /// If nobody uses it, and nobody has used it since this was asked before.
    Idle,
    /// Now, with what is mounted below; the files go when the last user does.
    Now,
}

/// Unmounts what has the root directory `top`.
///
/// # Errors
/// `EINVAL` if nothing has, `EBUSY` if it is in use or stays for good, `EAGAIN` for the first time
/// that [`When::Idle`] finds it idle.
pub fn unmount(top: &NodeRef, when: When) -> Result<(), Errno> {
    let mut mounts = MOUNTS.lock();
    let first = with_top(&mounts, top)?;
    let uses = mounts[first].uses.as_ref().ok_or(Errno::EBUSY)?;
    let mut going = alloc::vec![mounts[first].device()];
    // Mounts stand behind those that they stand on, so one turn finds all that are below.
    for mount in &mounts[first + 1..] {
        if going.contains(&mount.device_above()) {
            going.push(mount.device());
        }
    }
    if when != When::Now {
        // The mount has one reference itself.
        if going.len() > 1 || Arc::strong_count(uses) > 1 {
            return Err(Errno::EBUSY);
        }
        if when == When::Idle && !uses.mark_idle() {
            return Err(Errno::EAGAIN);
        }
    }
    let mut gone = Vec::new();
    mounts.retain(|mount| {
        let goes = going.contains(&mount.device());
        if goes {
            gone.push(mount.clone());
        }
        !goes
    });
    for mount in &gone {
        if let Some(point) = &mount.point {
            // Only a directory that was removed refuses, and one that is covered cannot be.
            let _ = point.cover(None);
        }
    }
    drop(mounts);
    if watch::active() {
        gone.iter()
            .for_each(|mount| watch::unmounted(mount.device()));
    }
    gone.into_iter().for_each(leave);
    Ok(())
}

/// Lets go of a mount that stands nowhere any more.
fn leave(mount: Arc<Mount>) {
    // It keeps its name: a path to it that begins nowhere is none.
    mount.top.set_place(None, &mount.top.name());
    // Somebody may be looking at the mount, or still use its files: the last one frees them.
    let Some(mount) = Arc::into_inner(mount) else {
        return;
    };
    let uses = mount.uses;
    drop((mount.top, mount.point, mount.fs));
    if let Some(uses) = uses.and_then(Arc::into_inner) {
        uses.into_top().dismantle();
    }
}

/// Mounts the file system with root `top`, which knows its place, at `name` in the tree's root for
/// good.
///
/// # Errors
/// `EEXIST`, `ENOMEM`.
pub fn mount_permanent(
    kind: &'static str,
    root: &NodeRef,
    name: &[u8],
    top: NodeRef,
    fs: Option<Arc<dyn FileSystem>>,
) -> Result<(), Errno> {
    let point = root.create(name, NewNode::Directory, Beginning::of_root(0o755))?;
    enter_permanent(kind, kind.as_bytes(), top, Some(point), fs)
}

//! The mounts, and the types of file systems.
//!
//! A mount covers the directory or the file that it is mounted on. The walk of a path goes through
//! to the mounted root. Several mounts on one directory are stacked. A file system is mounted as
//! itself once; any further mount of it is a bind mount, of all or a part of it (`bind.rs`).

use super::bind::Bind;
use super::changes::Changes;
use super::file::Place;
use super::flags::FileKind;
use super::lookup;
use super::mount_point::Point;
use super::node::{NewNode, NodeRef, mount_number, same_place, unbound};
use super::text::Text;
use super::tmpfs;
use super::volume::{FileSystem, FileSystemType, Leftover, Made, Maker, MountFlags, Uses};
use super::watch;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use machine::sync::Mutex;

/// The file system types, as `/proc/filesystems` lists them. A new type needs one line here.
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

/// Returns the names of all file system types.
pub fn type_names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|kind| kind.name)
}

/// A mounted file system, or a bind mount.
pub struct Mount {
    kind: &'static str,
    source: Box<[u8]>,
    top: NodeRef,
    /// The mount point. `None` for the root of the tree.
    point: Option<Point>,
    /// The file system, whose flags and options `mount -o remount` changes. `None` if they cannot
    /// change.
    fs: Option<Arc<dyn FileSystem>>,
    /// The uses of the mount. `None` if the mount can never be unmounted.
    uses: Option<Arc<Uses>>,
}

/// The changes of the list of mounts. They are reported to pollers of the files that show the list.
pub static CHANGES: Changes = Changes::new();

/// All mounts, each behind the one that it is mounted on.
static MOUNTS: Mutex<Vec<Arc<Mount>>> = Mutex::new(Vec::new());

impl Mount {
    /// Makes path walks that reach the mount point continue at the root of this mount. Fails as
    /// `Point::cover` does. Does nothing if the mount has no mount point.
    fn cover(&self) -> Result<(), Errno> {
        let point = self.point.as_ref();
        point.map_or(Ok(()), |point| point.cover(Some(self.top.clone())))
    }

    /// Makes walks of paths no longer go through to this mount.
    fn uncover(&self) {
        if let Some(point) = &self.point {
            // Uncovering fails only for a directory that was removed, and a covered directory
            // cannot be removed.
            let _ = point.cover(None);
        }
    }

    /// Returns the number of the mount, which no other mount has.
    pub fn number(&self) -> u64 {
        mount_number(&self.top)
    }

    /// Returns the number of the mount that this one is mounted in. 0 for the root of the tree.
    pub fn number_above(&self) -> u64 {
        self.point
            .as_ref()
            .map_or(0, |point| mount_number(&point.node))
    }

    /// Returns the device number of the file system.
    pub fn device(&self) -> u64 {
        self.top.id().device
    }

    /// Returns the name of the file system's type.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the device of the file system, as it was given to `mount`.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Returns the path of the directory or file that the mount covers, from the root of the tree.
    pub fn path(&self) -> Vec<u8> {
        let Some(point) = &self.point else {
            return b"/".to_vec();
        };
        let mut path = lookup::describe(&point.above, None);
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(&point.name);
        path
    }

    /// Returns the path of the mount's root in its own file system, as `mountinfo` shows it.
    pub fn root_path(&self) -> Vec<u8> {
        Bind::of(&self.top).map_or_else(|| b"/".to_vec(), |bind| bind.root_path())
    }

    /// Returns the flags of the mount.
    pub fn flags(&self) -> MountFlags {
        match Bind::of(&self.top) {
            Some(bind) => bind.volume().flags(),
            None => self.fs_flags(),
        }
    }

    /// Returns the flags of the file system, which hold for all of its mounts.
    pub fn fs_flags(&self) -> MountFlags {
        let fs = self.fs.as_ref();
        fs.map_or(MountFlags::RELATIVE_TIMES, |fs| fs.volume().flags())
    }

    /// Writes the options of the file system to `text`, each with a comma before it.
    ///
    /// # Errors
    /// Fails if `text` does.
    pub fn show_options(&self, text: &mut Text) -> fmt::Result {
        self.fs.as_ref().map_or(Ok(()), |fs| fs.show_options(text))
    }
}

/// Returns all mounts, each behind the one that it is mounted on.
///
/// # Errors
/// Fails with `ENOMEM`.
pub fn all() -> Result<Vec<Arc<Mount>>, Errno> {
    let mounts = MOUNTS.lock();
    let mut list = Vec::new();
    list.try_reserve_exact(mounts.len())
        .map_err(|_| Errno::ENOMEM)?;
    list.extend(mounts.iter().cloned());
    Ok(list)
}

/// Mounts `top`, the root of a file system of the type `kind`, on the directory `point` for good.
/// `point` is `None` for the root of the tree. `top` has its place already. `fs` is the file
/// system, or `None` if its flags and options cannot change.
///
/// # Errors
/// Fails as `Node::cover` does, and with `EBUSY` for the root of the tree.
pub(super) fn enter_permanent(
    kind: &'static str,
    source: &[u8],
    top: NodeRef,
    point: Option<NodeRef>,
    fs: Option<Arc<dyn FileSystem>>,
) -> Result<(), Errno> {
    let mut mounts = MOUNTS.lock();
    let point = match point {
        Some(point) => {
            let point = find_point(&mounts, point, None)?;
            point.cover(Some(top.clone()))?;
            Some(point)
        }
        None => None,
    };
    mounts.push(Arc::new(Mount {
        kind,
        source: source.into(),
        top,
        point,
        fs,
        uses: None,
    }));
    Ok(())
}

/// Returns the index of the mount with the root `top`. Fails with `EINVAL` if there is none.
fn with_top(mounts: &[Arc<Mount>], top: &NodeRef) -> Result<usize, Errno> {
    let found = mounts.iter().position(|mount| same_place(&mount.top, top));
    found.ok_or(Errno::EINVAL)
}

/// Returns the mount with this device number (`Node::mount`). Fails with `EINVAL` if there is none.
fn with_device(mounts: &[Arc<Mount>], device: u64) -> Result<&Arc<Mount>, Errno> {
    let found = mounts.iter().find(|mount| mount.top.mount() == device);
    found.ok_or(Errno::EINVAL)
}

/// Returns the mount point at the directory `point`, or at the file `point` with the name `place`.
/// Fails as `Point::find` does.
fn find_point(mounts: &[Arc<Mount>], point: NodeRef, place: Option<Place>) -> Result<Point, Errno> {
    Point::find(point, place, |device| with_device(mounts, device).is_ok())
}

/// Makes room for `count` more mounts. Fails with `ENOSPC` beyond [`MAX_MOUNTS`] and with `ENOMEM`.
fn reserve(mounts: &mut Vec<Arc<Mount>>, count: usize) -> Result<(), Errno> {
    if mounts.len() + count > MAX_MOUNTS {
        return Err(Errno::ENOSPC);
    }
    mounts.try_reserve(count).map_err(|_| Errno::ENOMEM)
}

/// Mounts a new file system of the type `kind` on the directory `point`. `source` is the device
/// that lists of mounts show.
///
/// # Errors
/// Fails as `mount(2)` does.
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
    reserve(&mut mounts, 1)?;
    let point = find_point(&mounts, point, None)?;
    let uses = Uses::of(top.clone());
    top.set_place(Some(&point.above), &point.name);
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
    drop(mounts);
    CHANGES.note();
    Ok(())
}

/// Makes a bind mount at `point` of `source`, a node in the mount `of`. `origin` is the name of
/// `source` if that is a file. Fails with `EMFILE` if no mount number is free.
fn make_bind(
    of: &Mount,
    source: &NodeRef,
    origin: Option<Place>,
    point: Point,
) -> Result<Arc<Mount>, Errno> {
    let (bind, uses) = Bind::new(source, origin, of.flags())?;
    let top = bind.show(bind.root().clone());
    top.set_place(Some(&point.above), &point.name);
    Ok(Arc::new(Mount {
        kind: of.kind,
        source: of.source.clone(),
        top,
        point: Some(point),
        fs: of.fs.clone(),
        uses: Some(uses),
    }))
}

/// Adds to `made` one bind mount for each mount below `source`. The first of `made` is a bind mount
/// of `source`. Each new mount covers its place in another new one, where no task sees it yet.
/// Fails with `ENOSPC` if there are too many mounts, with `EMFILE` if no mount number is free, with
/// `EINVAL` if a mount cannot be shown in a bind mount, and with `ENOMEM`.
fn make_below(
    mounts: &[Arc<Mount>],
    source: &NodeRef,
    made: &mut Vec<Arc<Mount>>,
) -> Result<(), Errno> {
    let above = source.mount();
    let whole = Bind::of(&made[0].top).ok_or(Errno::EINVAL)?.clone();
    // The roots of the new mounts, by the device number of the mount that they show.
    let mut copies = BTreeMap::from([(above, made[0].top.clone())]);
    for mount in mounts {
        let Some(point) = &mount.point else { continue };
        let Some(parent_top) = copies.get(&point.node.mount()) else {
            continue;
        };
        let parent = Bind::of(parent_top).ok_or(Errno::EINVAL)?;
        if point.node.mount() == above {
            let directory = if point.is_named {
                &point.above
            } else {
                &point.node
            };
            if !whole.shows(&unbound(directory.clone())) {
                continue;
            }
        }
        if mounts.len() + made.len() >= MAX_MOUNTS {
            return Err(Errno::ENOSPC);
        }
        made.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let origin = Bind::of(&mount.top).and_then(|bind| bind.origin().cloned());
        let point = point.in_bind(parent, parent_top)?;
        let copy = make_bind(mount, &mount.top, origin, point)?;
        copies.insert(mount.top.mount(), copy.top.clone());
        made.push(copy.clone());
        copy.cover()?;
    }
    Ok(())
}

/// Mounts the node `source` at `point` as well (`MS_BIND`). If `recursive` is `true`, mounts the
/// mounts below `source` there too. `origin` is the place of `source` and `place` that of `point`,
/// if these are files.
///
/// # Errors
/// Fails as `mount(2)` does with `MS_BIND`.
pub fn bind(
    (source, origin): (NodeRef, Option<Place>),
    (point, place): (NodeRef, Option<Place>),
    recursive: bool,
) -> Result<(), Errno> {
    let is_directory = |node: &NodeRef| node.kind() == FileKind::Directory;
    let mut mounts = MOUNTS.lock();
    let of = with_device(&mounts, source.mount())?.clone();
    let point = find_point(&mounts, point, place)?;
    if source.kind() == FileKind::Symlink || point.node.kind() == FileKind::Symlink {
        return Err(Errno::EINVAL);
    }
    if is_directory(&source) != is_directory(&point.node) {
        return Err(Errno::ENOTDIR);
    }
    // A directory knows its name. The root of a bind mount that is a file has the name of the file
    // that it shows.
    let origin = match Bind::of(&source) {
        Some(shown) if shown.root().id() == source.id() => shown.origin().cloned(),
        _ => origin.filter(|_| !is_directory(&source)),
    };
    let mut made = Vec::new();
    made.push(make_bind(&of, &source, origin, point)?);
    let mut done = Ok(());
    if recursive && is_directory(&source) {
        done = make_below(&mounts, &source, &mut made);
    }
    let done = done
        .and_then(|()| reserve(&mut mounts, made.len()))
        .and_then(|()| made[0].cover());
    if let Err(error) = done {
        drop(mounts);
        made[1..].iter().for_each(|mount| mount.uncover());
        made.into_iter().for_each(leave);
        return Err(error);
    }
    mounts.append(&mut made);
    drop(mounts);
    CHANGES.note();
    Ok(())
}

/// Changes the flags and options of the mount with the root `top`. `flags` returns the new flags
/// for the present ones. `options` are the options of the file system. If `options` is `None` and
/// the mount is a bind mount, only the flags of that mount change.
///
/// # Errors
/// Fails as `mount(2)` does with `MS_REMOUNT`.
pub fn remount(
    top: &NodeRef,
    flags: impl FnOnce(MountFlags) -> MountFlags,
    options: Option<&[u8]>,
) -> Result<(), Errno> {
    let mounts = MOUNTS.lock();
    let mount = &mounts[with_top(&mounts, top)?];
    let before = mount.flags();
    let flags = flags(before);
    let bind = Bind::of(&mount.top);
    if let (Some(bind), None) = (bind, options) {
        bind.volume().set_flags(flags & MountFlags::OF_MOUNT)?;
        CHANGES.note();
        return Ok(());
    }
    let Some(fs) = &mount.fs else {
        let same = flags == before && options.is_none_or(<[u8]>::is_empty);
        return if same { Ok(()) } else { Err(Errno::EINVAL) };
    };
    let fs_before = fs.volume().flags();
    let fs_flags = match bind {
        Some(_) => (fs_before - MountFlags::OF_FILE_SYSTEM) | (flags & MountFlags::OF_FILE_SYSTEM),
        None => flags,
    };
    let bind_before = bind.map(|bind| bind.volume().flags());
    // A mount that becomes read-only does so before the options change, as that may fail. A mount
    // that becomes writable does so afterwards. Until all has succeeded, no file can be written
    // that could not be written before.
    let kept = |before: MountFlags| before & MountFlags::READ_ONLY;
    let set_bind = |flags: MountFlags| bind.map_or(Ok(()), |bind| bind.volume().set_flags(flags));
    let bind_flags = flags & MountFlags::OF_MOUNT;
    fs.volume().set_flags(fs_flags | kept(fs_before))?;
    let done = set_bind(bind_flags | bind_before.map_or(MountFlags::empty(), kept))
        .and_then(|()| options.map_or(Ok(()), |options| fs.reconfigure(options)));
    // These calls make nothing read-only, so they do not fail.
    let (fs_flags, bind_flags) = match done {
        Ok(()) => (fs_flags, bind_flags),
        Err(_) => (fs_before, bind_before.unwrap_or(bind_flags)),
    };
    let _ = fs.volume().set_flags(fs_flags);
    let _ = set_bind(bind_flags);
    CHANGES.note();
    done
}

/// Returns whether `top` is the root of a mount.
pub fn is_mounted(top: &NodeRef) -> bool {
    with_top(&MOUNTS.lock(), top).is_ok()
}

/// The condition under which [`unmount`] removes a mount.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// The mount is unused.
    Unused,
    /// The mount is unused, and has been since the last call with this condition.
    Idle,
    /// Always, together with the mounts below it. The files are freed with their last use.
    Now,
}

/// Unmounts the mount whose root is `top`, as `when` says.
///
/// # Errors
/// Fails with `EINVAL` if `top` is no root of a mount. Fails with `EBUSY` if the mount is in use or
/// is one that the kernel keeps. Fails with `EAGAIN` the first time that [`When::Idle`] finds the
/// mount idle.
pub fn unmount(top: &NodeRef, when: When) -> Result<(), Errno> {
    let mut mounts = MOUNTS.lock();
    let first = with_top(&mounts, top)?;
    let uses = mounts[first].uses.as_ref().ok_or(Errno::EBUSY)?;
    let mut going = BTreeSet::from([mounts[first].number()]);
    // Mounts are behind those that they are mounted on, so one turn finds all that are below.
    for mount in &mounts[first + 1..] {
        if going.contains(&mount.number_above()) {
            going.insert(mount.number());
        }
    }
    if when != When::Now {
        if going.len() > 1 || uses.is_busy() {
            return Err(Errno::EBUSY);
        }
        if when == When::Idle && !uses.mark_idle() {
            return Err(Errno::EAGAIN);
        }
    }
    let mut gone = Vec::new();
    mounts.retain(|mount| {
        let goes = going.contains(&mount.number());
        if goes {
            gone.push(mount.clone());
        }
        !goes
    });
    gone.iter().for_each(|mount| mount.uncover());
    drop(mounts);
    CHANGES.note();
    if watch::active() {
        // A file system that is seen through bind mounts ends with the last of them.
        let is_shown = |mount: &Mount| mount.uses.as_ref().is_some_and(|uses| uses.has_binds());
        gone.iter()
            .filter(|mount| Bind::of(&mount.top).is_none() && !is_shown(mount))
            .for_each(|mount| watch::unmounted(mount.device()));
    }
    gone.into_iter().for_each(leave);
    Ok(())
}

/// Drops a mount that is no longer in the tree.
fn leave(mount: Arc<Mount>) {
    // The root keeps its name, by which `lookup` tells it from the root of the tree. Paths of nodes
    // below it are shown as unreachable.
    mount.top.set_place(None, &mount.top.name());
    let file = Bind::of(&mount.top).map(|bind| bind.root().clone());
    let file = file.filter(|root| root.kind() != FileKind::Directory);
    // Other tasks may be looking at the mount or still use its files. The last of them frees these.
    let Some(mount) = Arc::into_inner(mount) else {
        return;
    };
    let uses = mount.uses;
    drop((mount.top, mount.point, mount.fs));
    let mut last = uses.and_then(Arc::into_inner);
    // A bind mount never shows another bind mount, so there are two turns at most.
    while let Some(uses) = last {
        last = match uses.end() {
            Leftover::Tree(top) => {
                top.dismantle();
                None
            }
            Leftover::Beneath(beneath) => Arc::into_inner(beneath),
            Leftover::Nothing => None,
        };
    }
    if let Some(file) = file {
        file.release_if_last(1);
    }
}

/// Creates the directory `name` in `parent`, and mounts a file system of the type `kind` on it that
/// can never be unmounted. `top` is the root of that file system, and already has its name and
/// parent. `fs` is the file system, or `None` if its flags and options cannot change.
///
/// # Errors
/// Fails as [`Node::create`](super::node::Node::create) and [`enter_permanent`] do.
pub fn mount_permanent(
    kind: &'static str,
    parent: &NodeRef,
    name: &[u8],
    top: NodeRef,
    fs: Option<Arc<dyn FileSystem>>,
) -> Result<(), Errno> {
    let point = parent.create(name, NewNode::Directory, Beginning::of_root(0o755))?;
    enter_permanent(kind, kind.as_bytes(), top, Some(point), fs)
}

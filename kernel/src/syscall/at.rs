//! Paths as calls name them: a directory's descriptor, a path, and flags.

use crate::fs::lookup::{self, Found, LastLink};
use crate::fs::watch::{self, Events};
use crate::fs::{FileKind, NodeRef, OpenFile, permission};
use crate::process::{self, caller};
use crate::vm::uaccess;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_FDCWD};
use logic::credentials::{Credentials, Wanted};
use logic::errno::Errno;
use logic::path::{self, PATH_MAX};

/// Reads a path from the program's memory.
pub(super) fn read_path(address: u64) -> Result<Vec<u8>, Errno> {
    uaccess::read_cstr(address, PATH_MAX)
}

/// Reads a path that is not empty. That comes before anything that the call says besides.
pub(super) fn read_full_path(address: u64) -> Result<Vec<u8>, Errno> {
    let path = read_path(address)?;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    Ok(path)
}

/// Where the walk of `path` starts: the directory behind `fd`, unless the path is absolute.
pub(super) fn start(fd: i32, path: &[u8]) -> Result<NodeRef, Errno> {
    if path::is_absolute(path) {
        return Ok(caller::context().root());
    }
    if fd == AT_FDCWD {
        return Ok(caller::context().cwd());
    }
    let file = caller::place(fd)?;
    if file.node().kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    Ok(file.node().clone())
}

/// Walks the path at `address` from `fd`.
pub(super) fn find(fd: i32, address: u64, last_link: LastLink) -> Result<Found, Errno> {
    let path = read_full_path(address)?;
    let start = start(fd, &path)?;
    let task = process::current();
    lookup::resolve(
        task.credentials(),
        &task.fs().root(),
        &start,
        &path,
        last_link,
    )
}

/// What a call with `AT_EMPTY_PATH` means.
pub(super) enum Target {
    /// The directory that the caller is in.
    Here(NodeRef),
    /// What the path leads to, which is there.
    Path(Found),
    /// The descriptor itself.
    File(Arc<OpenFile>),
}

impl Target {
    /// The node in either case.
    pub(super) fn node(&self) -> &NodeRef {
        match self {
            Self::Here(node) => node,
            Self::Path(found) => found.node.as_ref().expect("it is there"),
            Self::File(file) => file.node(),
        }
    }

    /// `EACCES` unless the caller may do that with it.
    pub(super) fn check(&self, wanted: Wanted) -> Result<(), Errno> {
        permission::check(process::current().credentials(), &**self.node(), wanted)
    }

    /// Tells those who watch it, or the directory that it is in.
    pub(super) fn tell(&self, events: Events) {
        match self {
            Self::Here(node) => {
                if watch::active() {
                    watch::tell_both(node, None, events, false);
                }
            }
            Self::Path(found) => found.tell(events),
            Self::File(file) => file.tell(events),
        }
    }
}

/// A path that must lead to something.
fn existing(found: Found) -> Result<Target, Errno> {
    if found.node.is_none() {
        return Err(Errno::ENOENT);
    }
    Ok(Target::Path(found))
}

/// What the path at `address` leads to from `fd`; it must exist.
pub(super) fn path_target(fd: i32, address: u64, last_link: LastLink) -> Result<Target, Errno> {
    existing(find(fd, address, last_link)?)
}

/// What `fd`, the path at `address` and `flags` mean together; it must exist.
pub(super) fn target(
    fd: i32,
    address: u64,
    flags: u32,
    last_link: LastLink,
) -> Result<Target, Errno> {
    let task = process::current();
    target_as(task.credentials(), fd, address, flags, last_link)
}

/// Finds the same node with the rights of `who`.
pub(super) fn target_as(
    who: &Credentials,
    fd: i32,
    address: u64,
    flags: u32,
    last_link: LastLink,
) -> Result<Target, Errno> {
    let path = match (flags & AT_EMPTY_PATH != 0, address) {
        // A null pointer is an empty path here since Linux 6.11; older programs never pass one.
        (true, 0) => Vec::new(),
        (true, _) => read_path(address)?,
        (false, _) => read_full_path(address)?,
    };
    if path.is_empty() {
        if fd == AT_FDCWD {
            return Ok(Target::Here(caller::context().cwd()));
        }
        return Ok(Target::File(caller::place(fd)?));
    }
    let start = start(fd, &path)?;
    let root = process::current().fs().root();
    existing(lookup::resolve(who, &root, &start, &path, last_link)?)
}

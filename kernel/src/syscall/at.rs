//! The files that calls name by a directory's descriptor, a path, and flags.

use crate::fs::lookup::{self, Found, LastLink};
use crate::fs::watch::{self, Events};
use crate::fs::{Context, FileKind, NodeRef, OpenFile, permission};
use crate::process::caller;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_FDCWD};
use logic::credentials::{Credentials, Wanted};
use logic::errno::Errno;
use logic::path::{self, PATH_MAX};
use machine::uaccess;

/// Reads a path from the program's memory.
///
/// # Errors
/// Fails with `ENAMETOOLONG` if the path and its NUL are longer than `PATH_MAX`, with `EFAULT`, and
/// with `ENOMEM`.
pub(super) fn read_path(address: u64) -> Result<Vec<u8>, Errno> {
    uaccess::read_cstr(address, PATH_MAX)
}

/// Reads a path that is not empty. Calls do this before they check their other arguments.
///
/// # Errors
/// Fails as [`read_path`] does, and with `ENOENT` if the path is empty.
pub(super) fn read_full_path(address: u64) -> Result<Vec<u8>, Errno> {
    let path = read_path(address)?;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    Ok(path)
}

/// Returns the directory at which the walk of `path` starts: the caller's root if `path` is
/// absolute, the working directory if `fd` is `AT_FDCWD`, else the directory behind `fd`.
///
/// # Errors
/// Fails with `EBADF` if `fd` is not open, and with `ENOTDIR` if it is no directory.
pub(super) fn start(fd: i32, path: &[u8]) -> Result<NodeRef, Errno> {
    if path::is_absolute(path) {
        return Ok(caller::with_context(Context::root));
    }
    if fd == AT_FDCWD {
        return Ok(caller::with_context(Context::cwd));
    }
    let file = caller::place(fd)?;
    if file.node().kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    Ok(file.node().clone())
}

/// Walks the path at `address` from the directory behind `fd`, as [`start`] chooses it. Returns
/// where the path leads, also if there is no file yet. `last_link` says whether a link at its end
/// is followed.
///
/// # Errors
/// Fails as [`read_full_path`] and [`start`] do, and with the errors of the walk.
pub(super) fn find(fd: i32, address: u64, last_link: LastLink) -> Result<Found, Errno> {
    let path = read_full_path(address)?;
    let start = start(fd, &path)?;
    let root = caller::with_context(Context::root);
    caller::with_credentials(|who| lookup::resolve(who, &root, &start, &path, last_link))
}

/// The existing file that a call refers to by a path, by a descriptor, or by both.
pub(super) enum Target {
    /// The caller's working directory, for an empty path and `AT_FDCWD`.
    Here(NodeRef),
    /// The existing file at the end of a path.
    Path(Found),
    /// The open file behind a descriptor.
    File(Arc<OpenFile>),
}

impl Target {
    /// Returns the node of the file.
    pub(super) fn node(&self) -> &NodeRef {
        match self {
            Self::Here(node) => node,
            Self::Path(found) => found.node.as_ref().expect("it is there"),
            Self::File(file) => file.node(),
        }
    }

    /// Checks that the caller has the access `wanted` to the file.
    ///
    /// # Errors
    /// Fails with `EACCES`, or with `EROFS` if the caller may not write the file and its file
    /// system is read-only.
    pub(super) fn check(&self, wanted: Wanted) -> Result<(), Errno> {
        caller::with_credentials(|who| permission::check(who, &**self.node(), wanted))
    }

    /// Reports `events` to the watches of the file, and to those of the directory that it is in.
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

/// Returns the file at the end of a path. Fails with `ENOENT` if there is none.
fn existing(found: Found) -> Result<Target, Errno> {
    if found.node.is_none() {
        return Err(Errno::ENOENT);
    }
    Ok(Target::Path(found))
}

/// Finds the existing file that the path at `address` leads to from the directory behind `fd`.
/// `last_link` says whether a link at the end of the path is followed.
///
/// # Errors
/// Fails as [`find`] does, and with `ENOENT` if there is no such file.
pub(super) fn path_target(fd: i32, address: u64, last_link: LastLink) -> Result<Target, Errno> {
    existing(find(fd, address, last_link)?)
}

/// Finds the existing file that `fd`, the path at `address` and `flags` refer to. Of `flags`, only
/// `AT_EMPTY_PATH` has an effect: an empty path or a null pointer then refers to the file behind
/// `fd` itself, or to the working directory if `fd` is `AT_FDCWD`. `last_link` says whether a link
/// at the end of the path is followed.
///
/// # Errors
/// Fails as [`path_target`] does.
pub(super) fn target(
    fd: i32,
    address: u64,
    flags: u32,
    last_link: LastLink,
) -> Result<Target, Errno> {
    caller::with_credentials(|who| target_as(who, fd, address, flags, last_link))
}

/// Finds the same file as [`target`], but walks the path with the rights of `who`.
///
/// # Errors
/// Fails as [`path_target`] does.
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
            return Ok(Target::Here(caller::with_context(Context::cwd)));
        }
        return Ok(Target::File(caller::place(fd)?));
    }
    let start = start(fd, &path)?;
    let root = caller::with_context(Context::root);
    existing(lookup::resolve(who, &root, &start, &path, last_link)?)
}

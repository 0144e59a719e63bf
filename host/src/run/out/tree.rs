//! A file or folder as it comes from the guest. Each name is made once, by a handle of the folder that it is in, and no link is
//! followed: nothing else of the host's can be reached, whatever the guest sends.

use super::destination::Destination;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

const CHUNK: usize = 64 << 10;
/// Linux's limit for where a link leads.
const TARGET_MAX: usize = 4095;

/// What is being copied.
#[derive(Debug)]
pub(super) struct Tree {
    destination: Arc<Destination>,
    /// Its name until it is all here.
    partial: OsString,
    begun: bool,
    /// The folder that was used last, by its names below the destination, which is the folder of no names.
    last: Option<(Vec<OsString>, OwnedFd)>,
}

/// Why an entry could not be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error("cannot write {}: {}", .path.display(), io::Error::from(*.errno))]
    Write { path: PathBuf, errno: Errno },
    /// It came from the guest.
    #[error("{0}")]
    Read(io::Error),
}

impl Tree {
    pub(super) fn new(destination: Arc<Destination>) -> Self {
        Self {
            partial: destination.partial_name(),
            destination,
            begun: false,
            last: None,
        }
    }

    /// Whether something has come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Where what has come is, if anything has.
    pub(super) fn partial(&self) -> Option<PathBuf> {
        self.begun
            .then(|| self.destination.path.with_file_name(&self.partial))
    }

    /// What the guest calls the file at `names`.
    pub(super) fn in_guest(&self, names: &[OsString]) -> PathBuf {
        let mut path = PathBuf::from(OsStr::from_bytes(self.destination.guest.as_bytes()));
        path.extend(names);
        path
    }

    /// Makes the folder at `names`.
    pub(super) fn folder(&mut self, names: &[OsString], mode: u32) -> Result<(), TreeError> {
        // Whoever runs ebb can use and remove it.
        let mode = Mode::from_raw_mode((mode & 0o777) | 0o700);
        let made = self.within(names, |parent, name| sys::mkdirat(parent, name, mode));
        self.begun |= made.is_ok();
        made
    }

    /// Makes the file at `names` with all that `content` has; returns the bytes.
    pub(super) fn file(
        &mut self,
        names: &[OsString],
        mode: u32,
        content: &mut impl Read,
    ) -> Result<u64, TreeError> {
        let mode = Mode::from_raw_mode((mode & 0o777) | 0o600);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = self.within(names, |parent, name| sys::openat(parent, name, flags, mode));
        self.begun |= made.is_ok();
        let mut file = File::from(made?);
        let mut chunk = vec![0; CHUNK];
        let mut bytes = 0;
        loop {
            let read = match content.read(&mut chunk) {
                Ok(0) => return Ok(bytes),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(TreeError::Read(error)),
            };
            file.write_all(&chunk[..read]).map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                self.failed(names, errno)
            })?;
            bytes += read as u64;
        }
    }

    /// Makes the symbolic link at `names`, if it leads to something in this tree; whether it does.
    pub(super) fn link(&mut self, names: &[OsString], target: &[u8]) -> Result<bool, TreeError> {
        let Some(depth) = names.len().checked_sub(1) else {
            return Ok(false);
        };
        if !leads_inside(target, depth) {
            return Ok(false);
        }
        let target = OsStr::from_bytes(target);
        self.within(names, |parent, name| sys::symlinkat(target, parent, name))?;
        Ok(true)
    }

    /// Moves it to its destination, now that all is here.
    pub(super) fn settle(self) -> Result<(), String> {
        let to = &self.destination;
        let moved = || {
            if let Some(mode) = to.permissions() {
                sys::chmodat(&to.folder, &self.partial, mode, AtFlags::empty())?;
            }
            sys::renameat(&to.folder, &self.partial, &to.folder, &to.name)
        };
        moved().map_err(|errno| {
            let partial = to.path.with_file_name(&self.partial);
            let (partial, path) = (partial.display(), to.path.display());
            let why = io::Error::from(errno);
            format!("all of it is in {partial}, which cannot become {path}: {why}")
        })
    }

    /// Does something in the folder of the last of `names`.
    fn within<T>(
        &mut self,
        names: &[OsString],
        make: impl Fn(BorrowedFd<'_>, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, TreeError> {
        let made = match names.split_last() {
            None => make(self.destination.folder.as_fd(), &self.partial),
            Some((name, folder)) => self.enter(folder).and_then(|()| {
                let (_, parent) = self.last.as_ref().ok_or(Errno::NOENT)?;
                make(parent.as_fd(), name)
            }),
        };
        made.map_err(|errno| self.failed(names, errno))
    }

    /// Makes the folder at `names` the last one used.
    fn enter(&mut self, names: &[OsString]) -> Result<(), Errno> {
        if self.last.as_ref().is_some_and(|(last, _)| last == names) {
            return Ok(());
        }
        let open = |parent: BorrowedFd<'_>, name: &OsStr| {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
            sys::openat(parent, name, flags, Mode::empty())
        };
        let mut folder = open(self.destination.folder.as_fd(), &self.partial)?;
        for name in names {
            folder = open(folder.as_fd(), name)?;
        }
        self.last = Some((names.to_vec(), folder));
        Ok(())
    }

    fn failed(&self, names: &[OsString], errno: Errno) -> TreeError {
        let mut path = self.destination.path.with_file_name(&self.partial);
        path.extend(names);
        TreeError::Write { path, errno }
    }
}

/// Whether a link in a folder so deep below the top of a tree leads to something in that tree. `..` may stand at its beginning
/// alone, where it goes up real folders; behind a name it might go up from where another link leads.
fn leads_inside(target: &[u8], depth: usize) -> bool {
    if target.is_empty() || target.len() > TARGET_MAX || target[0] == b'/' || target.contains(&0) {
        return false;
    }
    let mut up = 0;
    let mut named = false;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if named => return false,
            b".." => up += 1,
            _ => named = true,
        }
    }
    up <= depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_inside_or_are_none() {
        for (target, depth) in [
            ("a", 0),
            ("./a//b", 0),
            ("../a", 1),
            ("../../a/b", 2),
            ("..", 1),
            ("...", 0),
        ] {
            assert!(
                leads_inside(target.as_bytes(), depth),
                "{target} at {depth}"
            );
        }
        for (target, depth) in [
            ("", 3),
            ("/", 3),
            ("/a", 3),
            ("..", 0),
            ("../../a", 1),
            ("a/..", 3),
            ("a/../../../..", 1),
            ("../a/../b", 5),
            ("a\0b", 3),
        ] {
            assert!(
                !leads_inside(target.as_bytes(), depth),
                "{target} at {depth}"
            );
        }
        assert!(!leads_inside(&[b'a'; TARGET_MAX + 1], 0));
    }
}

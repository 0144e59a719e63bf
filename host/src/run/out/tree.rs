//! Writes one file or directory that the guest sends.
//!
//! Each name is created once, relative to a descriptor of its directory, and no link is followed.
//! So the guest cannot reach any other file of the host.

use super::destination::Destination;
use crate::text::one_line;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

const CHUNK: usize = 64 << 10;
/// Linux's limit for the length of a link's target.
const TARGET_MAX: usize = 4095;

/// A copy of one file or directory of the guest that is being written, under a temporary name in
/// the directory of its destination.
#[derive(Debug)]
pub(super) struct Tree {
    destination: Arc<Destination>,
    /// The temporary name.
    partial: OsString,
    /// Whether something was created.
    begun: bool,
    /// The file or directory that was created under that name. Other users of the directory may put
    /// another one there.
    made: Option<FileId>,
    /// The open directory, if the copy is one.
    top: Option<OwnedFd>,
    /// The directory below `top` that was used last, by the names that lead to it.
    last: Option<(Vec<OsString>, OwnedFd)>,
}

/// The identity of a file: its device and inode number.
type FileId = (u64, u64);

fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// Opens the directory `name` in `parent`. Fails if it is a symbolic link.
fn open_folder(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    sys::openat(parent, name, flags, Mode::empty())
}

/// Why an entry of the guest's archive could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error("cannot write {}: {}", one_line(.path), io::Error::from(*.errno))]
    Write { path: PathBuf, errno: Errno },
    /// The guest's data could not be read.
    #[error("{0}")]
    Read(io::Error),
}

impl Tree {
    /// Prepares a copy to `destination` under a temporary name. Nothing is created yet.
    pub(super) fn new(destination: Arc<Destination>) -> Self {
        Self {
            partial: destination.partial_name(),
            destination,
            begun: false,
            made: None,
            top: None,
            last: None,
        }
    }

    /// Returns whether a file or directory of the copy was created.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns the host path of the unfinished copy, with its temporary name. Returns `None` if
    /// nothing was created.
    pub(super) fn partial(&self) -> Option<PathBuf> {
        self.begun
            .then(|| self.destination.path.with_file_name(&self.partial))
    }

    /// Returns the path in the guest of the entry at `names` below the copied file or directory.
    pub(super) fn in_guest(&self, names: &[OsString]) -> PathBuf {
        let mut path = PathBuf::from(OsStr::from_bytes(self.destination.guest.as_bytes()));
        path.extend(names);
        path
    }

    /// Creates a directory at `names`, which lead there from the copy's top and are empty for the
    /// top itself. It gets the permissions `mode` (less the umask), and all rights of its owner.
    ///
    /// # Errors
    /// Fails with [`TreeError::Write`] if it cannot be created, for example because the name exists
    /// or its parent was not created.
    pub(super) fn folder(&mut self, names: &[OsString], mode: u32) -> Result<(), TreeError> {
        // The user of `ebb` must be able to use and remove the directory.
        let mode = Mode::from_raw_mode((mode & 0o777) | 0o700);
        let made = self.within(names, |parent, name| sys::mkdirat(parent, name, mode));
        self.begun |= made.is_ok();
        made?;
        if names.is_empty() {
            let opened = self.within(names, |parent, name| {
                let top = open_folder(parent, name)?;
                Ok((file_id(&sys::fstat(&top)?), top))
            });
            let (made, top) = opened?;
            (self.made, self.top) = (Some(made), Some(top));
        }
        Ok(())
    }

    /// Creates a regular file at `names`, which are empty if the copy is a file, with all bytes of
    /// `content`. It gets the permissions `mode` (less the umask), and its owner may read and write
    /// it. Returns the number of bytes written.
    ///
    /// # Errors
    /// Fails with [`TreeError::Write`] if it cannot be created or written, and with
    /// [`TreeError::Read`] if `content` fails. A part of the file may then stay.
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
        if names.is_empty() {
            let stat = sys::fstat(&file).map_err(|errno| self.failed(names, errno))?;
            self.made = Some(file_id(&stat));
        }
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

    /// Creates a symbolic link to `target` at `names`. Returns `false` and creates nothing if the
    /// link would be the whole copy, or if `target` is absolute, leads above the top of the copy,
    /// has `..` after a name, is empty, has a NUL, or is longer than 4095 bytes.
    ///
    /// # Errors
    /// Fails with [`TreeError::Write`] if it cannot be created.
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

    /// Renames the complete copy from its temporary name to its destination. A directory that
    /// replaces an empty one gets the permissions of that one.
    ///
    /// # Errors
    /// Returns a message if it cannot be renamed, or if another program has put something else at
    /// the temporary name or at the destination. The copy then stays wherever it is.
    pub(super) fn commit(self) -> Result<(), String> {
        let to = &self.destination;
        let moved = || {
            // By the descriptor, because the name may lead elsewhere by now.
            if let (Some(mode), Some(top)) = (to.permissions(), &self.top) {
                sys::fchmod(top, mode)?;
            }
            if !self.is_called(&self.partial)? {
                return Ok(false);
            }
            sys::renameat(&to.folder, &self.partial, &to.folder, &to.name)?;
            // It may have been replaced between check and rename.
            self.is_called(&to.name)
        };
        let partial = to.path.with_file_name(&self.partial);
        let (partial, path) = (one_line(&partial), one_line(&to.path));
        match moved() {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!(
                "another program has put something else in place of {partial}; \
                 {path} is not the copy"
            )),
            Err(errno) => {
                let why = io::Error::from(errno);
                Err(format!(
                    "all of it is in {partial}, which cannot become {path}: {why}"
                ))
            }
        }
    }

    /// Returns whether `name` in the destination's directory is the file that was created.
    fn is_called(&self, name: &OsStr) -> Result<bool, Errno> {
        let stat = sys::statat(&self.destination.folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(self.made == Some(file_id(&stat)))
    }

    /// Calls `make` with the directory that holds the last of `names`, and that name.
    fn within<T>(
        &mut self,
        names: &[OsString],
        make: impl Fn(BorrowedFd<'_>, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, TreeError> {
        let made = match names.split_last() {
            None => make(self.destination.folder.as_fd(), &self.partial),
            Some((name, folder)) => self.enter(folder).and_then(|parent| make(parent, name)),
        };
        made.map_err(|errno| self.failed(names, errno))
    }

    /// Opens the directory at `names`, or returns the one that is open. Fails with `ENOTDIR` if the
    /// copy is a file.
    fn enter(&mut self, names: &[OsString]) -> Result<BorrowedFd<'_>, Errno> {
        let top = match &self.top {
            Some(top) => top.as_fd(),
            None if self.begun => return Err(Errno::NOTDIR),
            None => return Err(Errno::NOENT),
        };
        if names.is_empty() {
            return Ok(top);
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != names) {
            self.last = None;
            for (at, name) in names.iter().enumerate() {
                let parent = self.last.as_ref().map_or(top, |(_, folder)| folder.as_fd());
                let folder = open_folder(parent, name)?;
                self.last = Some((names[..=at].to_vec(), folder));
            }
        }
        let (_, folder) = self.last.as_ref().ok_or(Errno::NOENT)?;
        Ok(folder.as_fd())
    }

    fn failed(&self, names: &[OsString], errno: Errno) -> TreeError {
        let mut path = self.destination.path.with_file_name(&self.partial);
        path.extend(names);
        TreeError::Write { path, errno }
    }
}

/// Returns whether a link with this `target` stays in the copy. The link's directory is `depth`
/// levels below the copy's top.
///
/// `..` is allowed only at the beginning, where it leaves real directories. After a name it could
/// start from another link's target.
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
    use super::super::destination;
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    /// A directory that is removed with the test. `victim` in it is private, and `to` is the
    /// directory that a copy replaces.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ebb-tree-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            for (folder, mode) in [("victim", 0o700), ("to", 0o755)] {
                fs::create_dir_all(path.join(folder)).expect("a folder");
                let mode = fs::Permissions::from_mode(mode);
                fs::set_permissions(path.join(folder), mode).expect("its mode");
            }
            Self(path)
        }

        fn tree(&self, name: &str) -> Tree {
            let argument = format!("/copy:{}", self.0.join(name).display()).into();
            let all = destination::all(&[argument]).expect("a place");
            Tree::new(Arc::clone(&all[0]))
        }

        /// Replaces the unfinished copy by `other`, as another guest with a volume there could do.
        fn swap(&self, tree: &Tree, other: impl FnOnce(&Path)) {
            let partial = tree.partial().expect("something has come");
            fs::rename(&partial, self.0.join("away")).expect("it is there");
            other(&partial);
        }

        fn mode(&self, name: &str) -> u32 {
            let metadata = fs::symlink_metadata(self.0.join(name)).expect(name);
            metadata.permissions().mode() & 0o7777
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_gets_the_mode_of_the_one_that_was_there() {
        let scratch = Scratch::new("mode");
        let mut tree = scratch.tree("to");
        tree.folder(&[], 0o700).expect("a folder");
        tree.file(&["x".into()], 0o600, &mut &b"bytes"[..])
            .expect("a file");
        tree.commit().expect("it is all here");
        assert_eq!(scratch.mode("to"), 0o755);
        let bytes = fs::read(scratch.0.join("to/x")).expect("the file");
        assert_eq!(bytes, b"bytes");
    }

    #[test]
    fn a_link_in_place_of_the_copy_changes_nothing() {
        for name in ["to", "new"] {
            let scratch = Scratch::new(&format!("link-{name}"));
            let mut tree = scratch.tree(name);
            tree.folder(&[], 0o700).expect("a folder");
            let victim = scratch.0.join("victim");
            scratch.swap(&tree, |partial| symlink(&victim, partial).expect("a link"));
            // The files go into the directory that was created, although it has another name now.
            tree.file(&["x".into()], 0o600, &mut &b"bytes"[..])
                .expect("a file");
            tree.folder(&["y".into()], 0o700).expect("a folder");
            tree.file(&["y".into(), "z".into()], 0o600, &mut &b""[..])
                .expect("a file");
            let error = tree.commit().expect_err("something else is there");
            assert!(error.contains("something else"), "{error}");
            assert_eq!(scratch.mode("victim"), 0o700);
            let names = fs::read_dir(&victim).expect("a folder").count();
            assert_eq!(names, 0);
            assert!(scratch.0.join("away/y/z").exists());
            let placed = fs::symlink_metadata(scratch.0.join(name));
            assert!(!placed.is_ok_and(|there| there.is_symlink()), "{name}");
        }
    }

    #[test]
    fn another_folder_or_file_is_not_the_copy() {
        let scratch = Scratch::new("other");
        let mut tree = scratch.tree("to");
        tree.folder(&[], 0o700).expect("a folder");
        let victim = scratch.0.join("victim");
        scratch.swap(&tree, |partial| {
            fs::rename(&victim, partial).expect("a folder")
        });
        let partial = tree.partial().expect("something has come");
        tree.file(&["x".into()], 0o600, &mut &b""[..])
            .expect("a file");
        tree.commit().expect_err("it is another folder");
        assert_eq!(fs::read_dir(&partial).expect("a folder").count(), 0);
        let mode = fs::metadata(&partial).expect("a folder").permissions();
        assert_eq!(mode.mode() & 0o7777, 0o700);

        let scratch = Scratch::new("other-file");
        let mut tree = scratch.tree("new");
        tree.file(&[], 0o600, &mut &b"bytes"[..]).expect("a file");
        scratch.swap(&tree, |partial| {
            fs::write(partial, "others").expect("a file")
        });
        tree.commit().expect_err("it is another file");
        assert!(!scratch.0.join("new").exists());
    }

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

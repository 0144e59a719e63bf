//! The folder that contains a kernel's modules. It may belong to another user. So it is opened
//! once, and links in it cannot lead outside of the tree that it belongs to.

use crate::system::opened::own_path;
use crate::system::regular_of;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The maximum number of folder entries that are read in one tree. Debian's kernel has some 5,000.
const ENTRIES_MAX: usize = 200_000;
/// The maximum number of attempts to open a path with `..` while a rename on the host interferes.
const TRIES: u32 = 64;

/// A tree of files, opened once, and a base folder in it. Paths are relative to the base folder.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    /// The path of `root`, for messages.
    path: PathBuf,
    /// The base folder, relative to `root`.
    base: PathBuf,
    /// The number of folder entries that may still be read.
    left: Cell<usize>,
}

impl Tree {
    /// Returns the tree whose top folder is open as `root`. The base folder is the top. At most
    /// 200,000 folder entries are read in a tree.
    ///
    /// # Errors
    /// The host's if the path of `root` cannot be read.
    pub(super) fn of(root: OwnedFd) -> io::Result<Self> {
        let path = std::fs::read_link(own_path(&root))?;
        Ok(Self {
            root,
            path,
            base: PathBuf::new(),
            left: Cell::new(ENTRIES_MAX),
        })
    }

    /// Opens the tree whose top folder has the absolute path `path`, without following any link.
    ///
    /// # Errors
    /// The host's; `ELOOP` if a part of the path is a link by now, `ENOTDIR` if it is no folder.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS;
        let root = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?;
        Self::of(root)
    }

    /// Makes the folder at `base`, relative to the tree's top, the base folder. Returns the
    /// unchanged tree as the error if there is no such folder.
    pub(super) fn below(mut self, base: PathBuf) -> Result<Self, Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        if self.find(&base, flags).is_err() {
            return Err(self);
        }
        self.base = base;
        Ok(self)
    }

    /// Returns the path on the host of `inside`, for messages only, since links may be in it.
    pub(super) fn path(&self, inside: &Path) -> PathBuf {
        let mut path = self.path.clone();
        // `join` with nothing would leave a slash at the end.
        for part in [self.base.as_path(), inside] {
            if !part.as_os_str().is_empty() {
                path.push(part);
            }
        }
        path
    }

    /// Opens the regular file at `inside` for reading. Links lead no higher than the top of the
    /// tree.
    ///
    /// # Errors
    /// The host's; `InvalidInput` if it is not a regular file.
    pub(super) fn file(&self, inside: &Path) -> io::Result<File> {
        regular_of(&self.find(&self.base.join(inside), OFlags::PATH)?)
    }

    /// Returns the first `most` bytes of the text file at `inside`, or all if it has fewer. Returns
    /// `None` if there is no such file, it cannot be read, or these bytes are not UTF-8.
    pub(super) fn text(&self, inside: &str, most: u64) -> Option<String> {
        let mut text = String::new();
        let file = self.file(Path::new(inside)).ok()?;
        file.take(most).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Returns whether there is a regular file at `inside` that can be opened.
    pub(super) fn has_file(&self, inside: &Path) -> bool {
        self.file(inside).is_ok()
    }

    /// Returns the names of the entries of the folder at `inside`, each with `true` if it is a
    /// folder; `false` for a symbolic link. Returns an empty list if the folder is missing or
    /// cannot be read, and fewer names once the tree's limit of entries is reached.
    pub(super) fn entries(&self, inside: &Path) -> Vec<(OsString, bool)> {
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = self.find(&self.base.join(inside), flags);
        let Some(entries) = folder.ok().and_then(|folder| Dir::new(folder).ok()) else {
            return names;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let Some(left) = self.left.get().checked_sub(1) else {
                break;
            };
            self.left.set(left);
            let is_folder = entry.file_type() == FileType::Directory;
            names.push((OsStr::from_bytes(name).to_owned(), is_folder));
        }
        names
    }

    /// Opens the file at `path`, relative to the root. As in a guest with this root, links and `..`
    /// lead no higher than the root.
    fn find(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let open = || rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve);
        for _ in 1..TRIES {
            match open() {
                Err(Errno::AGAIN) => {}
                other => return other,
            }
        }
        open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_lead_nowhere_outside_of_the_tree() {
        let name = format!("ebb-kernel-tree-{}", std::process::id());
        let top = std::env::temp_dir().canonicalize().unwrap().join(name);
        let modules = top.join("tree/lib/modules/6.1");
        fs::create_dir_all(&modules).unwrap();
        fs::create_dir_all(top.join("etc")).unwrap();
        fs::create_dir_all(top.join("tree/etc")).unwrap();
        fs::write(top.join("etc/secret"), "outside").unwrap();
        fs::write(top.join("secret"), "outside").unwrap();
        fs::write(top.join("tree/etc/own"), "inside").unwrap();
        let up = "../".repeat(40);
        for (link, target) in [
            ("out", top.join("etc").display().to_string()),
            ("up", "../../../../etc".to_owned()),
            ("far", format!("{up}{}", top.join("etc").display())),
            ("file", top.join("secret").display().to_string()),
            ("kernels", "/proc/self/root".to_owned()),
            ("etc", "../../../etc".to_owned()),
            ("absolute", "/etc".to_owned()),
        ] {
            symlink(target, modules.join(link)).unwrap();
        }
        let tree = Tree::open(&top.join("tree")).unwrap();
        let tree = tree.below("lib/modules/6.1".into()).unwrap();
        for path in ["out/secret", "up/secret", "far/secret", "file"] {
            assert!(!tree.has_file(Path::new(path)), "{path}");
        }
        assert!(tree.entries(Path::new("out")).is_empty());
        assert!(tree.entries(Path::new("kernels")).is_empty());
        // `..` at the root leads to the root.
        assert!(!tree.has_file(Path::new("../../../../secret")));
        // Links that stay inside lead to the same file as in a guest with this root, and so does
        // `..`.
        for path in ["etc/own", "up/own", "absolute/own", "../../../etc/own"] {
            assert_eq!(tree.text(path, 9).as_deref(), Some("inside"), "{path}");
        }
        let own = [(OsString::from("own"), false)];
        assert_eq!(tree.entries(Path::new("etc")), own);
        assert_eq!(tree.path(Path::new("x")), modules.join("x"));
        assert_eq!(tree.path(Path::new("")), modules);
        // A top folder that is a link by now is refused.
        symlink("tree", top.join("link")).unwrap();
        assert!(Tree::open(&top.join("link")).is_err());
        fs::remove_dir_all(&top).unwrap();
    }
}

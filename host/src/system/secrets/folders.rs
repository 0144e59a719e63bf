//! Determines who may search the folders that lead to a file, and caches the answers for a short
//! time.
//!
//! A path is no proof for an open file, because another user may exchange two folders between the
//! open and the check. So each folder is opened relative to its parent. The last folder must
//! contain the opened file under its name.

use crate::system::opened::facts;
use rustix::fs::{Mode, OFlags, Statx, openat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest number of cached folders. Each has an open descriptor.
const FOLDERS_MAX: usize = 64;

/// How long a folder is cached. Its mode may change on the host.
const FRESH: Duration = Duration::from_secs(1);

/// A folder that was opened from a start folder, one component after the other, and which folders
/// on the way to it not everyone may search.
#[derive(Debug)]
pub(super) struct Folder {
    /// The descriptor, opened with `O_PATH`. `None` for the start folder itself.
    file: Option<OwnedFd>,
    /// The length of the path of the deepest folder that not everyone may search. This folder
    /// itself is included, the start folder is not. 0 if there is none.
    closed: usize,
    /// The same as `closed`, but only for folders that belong to other users.
    closed_of_others: usize,
}

impl Folder {
    /// Returns whether everyone may search those folders on the way to this one that have paths
    /// longer than `all`, and those of other users that have paths longer than `of_others`. Lengths
    /// are in bytes.
    pub(super) fn lets_pass(&self, all: usize, of_others: usize) -> bool {
        self.closed <= all && self.closed_of_others <= of_others
    }
}

/// A cache of the folders below one start folder, by their paths. An entry is used for one second.
///
/// Each cached folder stays open. If its path leads elsewhere by now, the check of its content
/// finds that out.
#[derive(Debug)]
pub(super) struct Folders {
    start: Arc<OwnedFd>,
    /// The path of `start`, without slashes at its ends.
    at: Vec<u8>,
    known: HashMap<Vec<u8>, Arc<Folder>>,
    since: Instant,
}

impl Folders {
    /// Returns an empty cache for the folder `start`, whose path `at` has no slash at its ends.
    /// `at` is empty for the root.
    pub(super) fn new(start: Arc<OwnedFd>, at: &[u8]) -> Self {
        Self {
            start,
            at: at.to_vec(),
            known: HashMap::new(),
            since: Instant::now(),
        }
    }

    /// Returns a second, empty cache for the same start folder.
    pub(super) fn with_empty_cache(&self) -> Self {
        Self::new(self.start.clone(), &self.at)
    }

    /// Returns the folder at `path`, which is the start folder or below it. It must be the folder
    /// that `stat` describes. `is_of_others` says whether a user id belongs to another user.
    ///
    /// # Errors
    /// `EACCES` if `path` leads to another folder or to none, or if a folder cannot be opened.
    pub(super) fn itself(
        &mut self,
        path: &[u8],
        stat: &Statx,
        is_of_others: &dyn Fn(u32) -> bool,
    ) -> Result<Arc<Folder>, Errno> {
        self.twice(|folders| {
            let folder = folders.get(path, is_of_others)?;
            folders.has(&folder, b"", stat).then_some(folder)
        })
    }

    /// Returns the folder that contains the file at `path`, below the start folder. The file must
    /// be the one that `stat` describes. For the path of the start folder, returns the start folder
    /// itself. `is_of_others` says whether a user id belongs to another user.
    ///
    /// # Errors
    /// `EACCES` if `path` leads to another file or to none, or if a folder cannot be opened.
    pub(super) fn above(
        &mut self,
        path: &[u8],
        stat: &Statx,
        is_of_others: &dyn Fn(u32) -> bool,
    ) -> Result<Arc<Folder>, Errno> {
        if path == self.at {
            return self.itself(path, stat, is_of_others);
        }
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match slash {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        self.twice(|folders| {
            let folder = folders.get(above, is_of_others)?;
            folders.has(&folder, name, stat).then_some(folder)
        })
    }

    /// Calls `ask`, and if it returns `None`, calls it again with an empty cache, because a folder
    /// may have been renamed. Fails with `EACCES` if both calls return `None`.
    fn twice(
        &mut self,
        ask: impl Fn(&mut Self) -> Option<Arc<Folder>>,
    ) -> Result<Arc<Folder>, Errno> {
        if self.since.elapsed() >= FRESH {
            self.forget();
        }
        if let Some(folder) = ask(self) {
            return Ok(folder);
        }
        self.forget();
        ask(self).ok_or(Errno::ACCESS)
    }

    fn forget(&mut self) {
        self.known.clear();
        self.since = Instant::now();
    }

    /// Returns whether the entry `name` of `folder` is the file that `stat` describes. With an
    /// empty `name`, the entry is the folder itself.
    fn has(&self, folder: &Folder, name: &[u8], stat: &Statx) -> bool {
        let file = folder.file.as_ref().unwrap_or(&self.start);
        facts(file, name).is_ok_and(|found| identity(&found) == identity(stat))
    }

    /// Returns the folder at `path`, which must be the start folder or below it. Returns `None` if
    /// there is no folder or it cannot be opened.
    fn get(&mut self, path: &[u8], is_of_others: &dyn Fn(u32) -> bool) -> Option<Arc<Folder>> {
        let mut folder = Arc::new(Folder {
            file: None,
            closed: 0,
            closed_of_others: 0,
        });
        if path == self.at {
            return Some(folder);
        }
        if let Some(known) = self.known.get(path) {
            return Some(known.clone());
        }
        let mut begin = self.at.len() + usize::from(!self.at.is_empty());
        let slashes = path.iter().enumerate().skip(begin);
        let slashes = slashes.filter(|(_, byte)| **byte == b'/');
        for end in slashes.map(|(at, _)| at).chain([path.len()]) {
            folder = match self.known.get(&path[..end]) {
                Some(known) => known.clone(),
                None => {
                    let name = &path[begin..end];
                    let above = folder.file.as_ref().unwrap_or(&self.start);
                    let file = open_in(above, name).ok()?;
                    let stat = facts(&file, b"").ok()?;
                    let is_closed = stat.stx_mode & 0o001 == 0;
                    let mut found = Folder {
                        file: Some(file),
                        closed: folder.closed,
                        closed_of_others: folder.closed_of_others,
                    };
                    if is_closed {
                        found.closed = end;
                    }
                    if is_closed && is_of_others(stat.stx_uid) {
                        found.closed_of_others = end;
                    }
                    let found = Arc::new(found);
                    if self.known.len() == FOLDERS_MAX {
                        self.known.clear();
                    }
                    self.known.insert(path[..end].to_vec(), found.clone());
                    found
                }
            };
            begin = end + 1;
        }
        Some(folder)
    }
}

/// Opens the folder `name` in `above` with `O_PATH`.
///
/// # Errors
/// `ENOENT` if `name` is missing; `ENOTDIR` or `ELOOP` if it is a link or no folder; other errors
/// of openat(2).
pub(super) fn open_in(above: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

/// Returns the major and minor device number and the inode number, which together identify a file.
pub(super) fn identity(stat: &Statx) -> (u32, u32, u64) {
    (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_is_told_by_what_it_has_and_not_by_its_path() {
        let name = format!("ebb-folders-{}", std::process::id());
        let top = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&top);
        for folder in ["one/in", "two/in"] {
            fs::create_dir_all(top.join(folder)).unwrap();
            fs::write(top.join(folder).join("file"), "").unwrap();
        }
        let start = rustix::fs::open(&top, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let start = Arc::new(start);
        let stat = |path: &str| facts(&start, path.as_bytes()).unwrap();
        let file = stat("one/in/file");
        let others = &|_| false;
        let mut folders = Folders::new(start.clone(), b"top");
        assert!(folders.above(b"top/one/in/file", &file, others).is_ok());
        assert_eq!(folders.known.len(), 2);
        assert!(
            folders
                .itself(b"top/one/in", &stat("one/in"), others)
                .is_ok()
        );
        assert!(folders.above(b"top", &stat(""), others).is_ok());
        let other = folders.above(b"top/two/in/file", &file, others);
        assert_eq!(other.unwrap_err(), Errno::ACCESS);
        fs::rename(top.join("one"), top.join("three")).unwrap();
        fs::rename(top.join("two"), top.join("one")).unwrap();
        let file = stat("one/in/file");
        assert!(folders.above(b"top/one/in/file", &file, others).is_ok());
        // A cached folder stays valid while it is the right one, even if it was renamed.
        fs::rename(top.join("one"), top.join("two")).unwrap();
        assert!(folders.above(b"top/one/in/file", &file, others).is_ok());
        folders.forget();
        let gone = folders.above(b"top/one/in/file", &file, others);
        assert_eq!(gone.unwrap_err(), Errno::ACCESS);
        for number in 0..2 * FOLDERS_MAX {
            let folder = format!("many-{number}");
            fs::create_dir(top.join(&folder)).unwrap();
            let path = format!("top/{folder}");
            let found = folders.itself(path.as_bytes(), &stat(&folder), others);
            assert!(found.is_ok() && folders.known.len() <= FOLDERS_MAX);
        }
        fs::remove_dir_all(&top).unwrap();
    }
}

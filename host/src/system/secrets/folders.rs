//! Finds out who may search the folders that lead to a file, and keeps the answers for a short time.
//!
//! A name tells nothing of a file that is open: another user may exchange two folders between the
//! opening and a look. So each folder is opened in the one above it, and the last one has to have
//! the opened file under its name.

use crate::system::opened::facts;
use rustix::fs::{Mode, OFlags, Statx, openat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many folders are kept. Each keeps a descriptor open.
const FOLDERS_MAX: usize = 64;

/// How long a folder is kept: the host may change its mode.
const FRESH: Duration = Duration::from_secs(1);

/// A folder that was reached from a start, one folder in the other.
#[derive(Debug)]
pub(super) struct Folder {
    /// Opened for looking at it. `None` is the start itself.
    file: Option<OwnedFd>,
    /// The length of the path of the last folder on the way that not everyone may search. This
    /// folder is on the way, too. 0 if there is none.
    closed: usize,
    /// The same for folders that belong to others.
    closed_of_others: usize,
}

impl Folder {
    /// Returns whether everyone may search the folders on the way that have longer paths than `all`,
    /// and those of others that have longer paths than `of_others`.
    pub(super) fn lets_pass(&self, all: usize, of_others: usize) -> bool {
        self.closed <= all && self.closed_of_others <= of_others
    }
}

/// The folders below one start that were looked at lately, by their paths.
///
/// Each stays open, so that a path that leads elsewhere by now is found out by what the folder has.
#[derive(Debug)]
pub(super) struct Folders {
    start: Arc<OwnedFd>,
    /// The path of `start`, without slashes at its ends.
    at: Vec<u8>,
    known: HashMap<Vec<u8>, Arc<Folder>>,
    since: Instant,
}

impl Folders {
    /// Makes a list for the folder `start`, whose path is `at`.
    pub(super) fn new(start: Arc<OwnedFd>, at: &[u8]) -> Self {
        Self {
            start,
            at: at.to_vec(),
            known: HashMap::new(),
            since: Instant::now(),
        }
    }

    /// Returns a list for the same start that knows no folder.
    pub(super) fn again(&self) -> Self {
        Self::new(self.start.clone(), &self.at)
    }

    /// Returns the folder at `path` if it is the one that `stat` is of.
    ///
    /// # Errors
    /// `EACCES` if another one is there, or none.
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

    /// Returns the folder that has the file at `path`, if that is the one that `stat` is of.
    ///
    /// # Errors
    /// `EACCES` if another one is there, or none.
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

    /// Asks once more without what is known, as a folder may have been renamed since.
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

    /// Returns whether `folder` has the file under this name that `stat` is of. An empty name means
    /// the folder itself.
    fn has(&self, folder: &Folder, name: &[u8], stat: &Statx) -> bool {
        let file = folder.file.as_ref().unwrap_or(&self.start);
        facts(file, name).is_ok_and(|found| identity(&found) == identity(stat))
    }

    /// Returns the folder at `path`, which has to be the start or to lie below it. `None` if there
    /// is no folder.
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

/// Opens a folder for looking at it. Fails if `name` is a link.
///
/// # Errors
/// The host's.
pub(super) fn open_in(above: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

/// Returns what tells a file from all others.
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
        // A folder that is known is kept while it is the right one, whatever its name is by now.
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

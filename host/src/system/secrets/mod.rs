//! Decides which of the host's files a guest may read, and which it may only know of.
//!
//! A secret is shown as it is to anybody on the host. The guest reads its bytes, or the names in
//! it, if everyone may read it. It sees what lies in it if everyone may search it. Secrets are:
//!
//! 1. The system folders. All folders that lead to a file are judged.
//! 2. Known stores of credentials. In a home folder all folders that lead to a file are judged,
//!    elsewhere those below the working folder.
//! 3. Hidden entries of a home folder below the working folder. The folders in that home are
//!    judged.
//! 4. If root runs ebb: what belongs neither to root nor to the owner of the working folder.
//!    Folders of other owners below the working folder are judged.
//!
//! The user has entered the working folder and the folders that lead to it, so only the first rule
//! judges them.
//!
//! | file | what |
//! |---|---|
//! | `stores` | the stores' names |
//! | `homes` | where home folders are |
//! | `folders` | who may search a folder |
//!
//! All paths are real paths on the host, without the slash at their beginning. A hard link to a
//! secret, or a secret that is mounted elsewhere, is judged by the path where it is found.

mod folders;
mod homes;
mod stores;

pub(crate) use homes::Homes;

use crate::system::opened::facts;
use folders::Folders;
use rustix::fs::{CWD, Statx};
use rustix::io::Errno;
use rustix::process::geteuid;

/// System folders: what programs are made of, and how they are set up.
const SYSTEM: [&[u8]; 9] = [
    b"usr", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32", b"etc", b"opt",
];

/// Returns whether `path` is `folder` or lies in it.
pub(crate) fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty()
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Returns whether `path` is a system folder or lies in one.
pub(crate) fn is_of_system(path: &[u8]) -> bool {
    SYSTEM.iter().any(|folder| lies_in(path, folder))
}

/// The rules for one working folder.
#[derive(Debug)]
pub(crate) struct Secrets {
    /// The working folder.
    here: Vec<u8>,
    homes: Homes,
    /// If root runs ebb: root and the owner of the working folder, whose files are no secrets by
    /// rule 4.
    trusted: Option<[u32; 2]>,
    folders: Folders,
}

/// How much of a path is judged. Each field is the length of a path: folders on the judged path
/// that have longer paths are judged, and so is its end. `usize::MAX` judges none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Judged {
    /// Folders that everyone has to be able to search for the guest to see the entry.
    seen: usize,
    /// The same for the guest to read the entry's bytes or names; at most `seen`.
    read: usize,
    /// Folders that are judged in both cases if they belong to others (rule 4).
    of_others: usize,
}

impl Secrets {
    /// Makes the rules for the working folder `here`.
    pub(crate) fn new(here: &[u8], homes: Homes) -> Self {
        let owner = || facts(CWD, &[b"/", here].concat()).map_or(0, |stat| stat.stx_uid);
        Self {
            trusted: geteuid().is_root().then(|| [0, owner()]),
            here: here.to_vec(),
            homes,
            folders: Folders::new(),
        }
    }

    /// Returns the same rules, with no folder known yet.
    pub(crate) fn again(&self) -> Self {
        Self {
            here: self.here.clone(),
            homes: self.homes.clone(),
            trusted: self.trusted,
            folders: Folders::new(),
        }
    }

    /// Returns whether the guest may see the entry at `path`: its name, size and other facts.
    ///
    /// # Errors
    /// The host's, if a folder on the path cannot be looked at.
    pub(crate) fn shows(&mut self, path: &[u8]) -> Result<bool, Errno> {
        let judged = self.judge(path);
        self.may_pass(path, judged.seen, judged.of_others)
    }

    /// Returns whether the guest may see the entries of `folder`. [`Self::shows`] returns the same
    /// for each of them.
    ///
    /// # Errors
    /// The host's, if a folder on the path cannot be looked at.
    pub(crate) fn shows_entries_of(&mut self, folder: &[u8]) -> Result<bool, Errno> {
        // By its own name an entry may be a secret, but no folder is judged more for seeing it.
        let judged = self.judge(folder);
        let inside = [folder, b"/"].concat();
        self.may_pass(&inside, judged.seen, judged.of_others)
    }

    /// Returns whether the guest may read the bytes of the file at `path`, or the names in the
    /// folder there. `stat` has to be of the same file or folder.
    ///
    /// # Errors
    /// The host's, if a folder on the path cannot be looked at.
    pub(crate) fn lets_read(&mut self, path: &[u8], stat: &Statx) -> Result<bool, Errno> {
        let judged = self.judge(path);
        let of_others = path.len() > judged.of_others && self.is_of_others(stat.stx_uid);
        if (path.len() > judged.read || of_others) && stat.stx_mode & 0o004 == 0 {
            return Ok(false);
        }
        self.may_pass(path, judged.read, judged.of_others)
    }

    /// Returns how much of `path` the rules judge.
    fn judge(&self, path: &[u8]) -> Judged {
        let nothing = usize::MAX;
        if is_of_system(path) {
            return Judged {
                seen: 0,
                read: 0,
                of_others: nothing,
            };
        }
        // Linux puts this behind the path of a file that was removed after it was opened.
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let is_below = lies_in(path, &self.here);
        let entered = if is_below { self.here.len() } else { 0 };
        let mut judged = Judged {
            seen: nothing,
            read: nothing,
            of_others: self.trusted.map_or(nothing, |_| entered),
        };
        for start in stores::candidates(path) {
            let above = start.saturating_sub(1);
            let in_home = self.homes.contain(&path[..above]);
            if in_home && above >= entered && path[start..].starts_with(b".") {
                judged.seen = judged.seen.min(above);
                judged.read = judged.read.min(above);
            }
            if let Some(store) = stores::store_at(path, start, in_home) {
                // In a closed home, files are often open to everyone.
                let all = in_home && store.end > entered;
                judged.seen = judged.seen.min(entered.max(store.last.saturating_sub(1)));
                judged.read = judged.read.min(if all { 0 } else { entered });
            }
        }
        judged
    }

    /// Returns whether everyone may search the folders on `path` that are judged: those with paths
    /// longer than `all`, and those of others longer than `of_others`.
    fn may_pass(&mut self, path: &[u8], all: usize, of_others: usize) -> Result<bool, Errno> {
        let first = all.min(of_others);
        if path.len() <= first {
            return Ok(true);
        }
        self.folders.refresh();
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            if at <= first {
                continue;
            }
            let folder = self.folders.get(&path[..at])?;
            let is_judged = at > all || self.is_of_others(folder.owner);
            if is_judged && !folder.is_open {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether root runs ebb and `owner` is none of those that rule 4 trusts.
    fn is_of_others(&self, owner: u32) -> bool {
        self.trusted
            .is_some_and(|trusted| !trusted.contains(&owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Returns how much of `path` is judged for reading it, seen from `here`, where `/h/ann` is the
    /// only home.
    fn read_from(here: &str, path: &str) -> usize {
        let mut homes = Homes::default();
        homes.add(Path::new("/h/ann"));
        let judged = Secrets::new(here.as_bytes(), homes).judge(path.as_bytes());
        assert!(judged.seen >= judged.read);
        judged.read
    }

    #[test]
    fn the_rules_say_from_where_on_a_path_is_judged() {
        for (here, path, from) in [
            ("h/ann", "etc/x", "/"),
            ("etc/x", "etc/x/y", "/"),
            ("h/ann", "h/ann/x/y", ""),
            ("h/ann", "h/ann/.x/y", "h/ann"),
            ("h", "h/ann/.x", "h/ann"),
            ("h/ann/.x", "h/ann/.x/y", ""),
            ("h/ann", "h/ann/x/.y", ""),
            ("h/ann", "h/ann/.ssh/x", "/"),
            ("h/ann/.ssh", "h/ann/.ssh/x", "h/ann/.ssh"),
            ("h/ann", "h/ann/x/.ssh/y", "h/ann"),
            ("h/ann/x", "h/ann/x/.ssh", "h/ann/x"),
            ("h/ann/.config", "h/ann/.config/gh/x", "/"),
            ("h/ann/.config", "h/ann/.config/x", ""),
            ("h/ann", "h/ann/.npmrc", "/"),
            ("h/ann", "h/ann/x/.npmrc", ""),
            ("h/ann", "h/ann/x/.env", ""),
            // As a file's path is told that was removed after it was opened.
            ("h/ann", "h/ann/x/.netrc (deleted)", "h/ann"),
        ] {
            let from = match from {
                "" => usize::MAX,
                "/" => 0,
                folder => folder.len(),
            };
            assert_eq!(read_from(here, path), from, "{path} from {here}");
        }
    }
}

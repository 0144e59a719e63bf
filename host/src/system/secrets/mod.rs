//! Which of the host's files a guest may read, and which it only knows of.
//!
//! A secret is shown as it is to anybody on the host: its bytes, or the names in it, if everyone may read it, and what lies in it if everyone
//! may search it. Four rules say what is judged like that:
//!
//! 1. all of the system folders;
//! 2. known stores of credentials ([`stores`]): in a home folder by all folders that lead there, and elsewhere by those below the
//!    working folder;
//! 3. hidden entries of a home folder below the working folder, by the folders in that home;
//! 4. if root runs ebb, what is neither root's nor of the owner of the working folder.
//!
//! The working folder and the folders that lead to it were entered by the user. They are judged by the first two rules alone.
//!
//! | file | what |
//! |---|---|
//! | `stores` | the stores' names |
//! | `homes` | where home folders are |
//! | `folders` | who may pass a folder |
//!
//! A path here is a real one of the host's, without the slash at its beginning. What it cannot tell is not judged: a hard link, or
//! something mounted, has the path where it is found.

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

/// Whether `path` is `folder` or lies in it.
pub(crate) fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty()
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether `path` is in a system folder.
pub(crate) fn is_of_system(path: &[u8]) -> bool {
    SYSTEM.iter().any(|folder| lies_in(path, folder))
}

/// Judges what a guest may read.
#[derive(Debug)]
pub(crate) struct Secrets {
    /// The working folder.
    here: Vec<u8>,
    homes: Homes,
    /// If root runs ebb: root and the owner of the working folder, whose files are shown as root sees them.
    trusted: Option<[u32; 2]>,
    folders: Folders,
}

/// From where on a path is judged: a folder on it, or its end, is if its path is longer than this. `usize::MAX` judges nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Judged {
    /// For an entry to be seen.
    seen: usize,
    /// For its bytes or names to be read; at most `seen`.
    read: usize,
    /// What belongs to others, for both.
    of_others: usize,
}

impl Secrets {
    /// Judges for a guest that sees this working folder, without the slash at its beginning.
    pub(crate) fn new(here: &[u8], homes: Homes) -> Self {
        let owner = || facts(CWD, &[b"/", here].concat()).map_or(0, |stat| stat.stx_uid);
        Self {
            trusted: geteuid().is_root().then(|| [0, owner()]),
            here: here.to_vec(),
            homes,
            folders: Folders::new(),
        }
    }

    /// The same judge once more.
    pub(crate) fn again(&self) -> Self {
        Self {
            here: self.here.clone(),
            homes: self.homes.clone(),
            trusted: self.trusted,
            folders: Folders::new(),
        }
    }

    /// Whether the entry with this path may be looked at.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn shows(&mut self, path: &[u8]) -> Result<bool, Errno> {
        let judged = self.judge(path);
        self.may_pass(path, judged.seen, judged.of_others)
    }

    /// Whether the entries of the folder with this path may be looked at: [`Self::shows`] says the same of each.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn shows_entries_of(&mut self, folder: &[u8]) -> Result<bool, Errno> {
        // An entry's own name has it judged from there on at most, and no folder that leads to it.
        let judged = self.judge(folder);
        let inside = [folder, b"/"].concat();
        self.may_pass(&inside, judged.seen, judged.of_others)
    }

    /// Whether the bytes of the file with this path, or the names in the folder, may be read.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn are_readable(&mut self, path: &[u8], stat: &Statx) -> Result<bool, Errno> {
        let judged = self.judge(path);
        let of_others = path.len() > judged.of_others && self.is_of_others(stat.stx_uid);
        if (path.len() > judged.read || of_others) && stat.stx_mode & 0o004 == 0 {
            return Ok(false);
        }
        self.may_pass(path, judged.read, judged.of_others)
    }

    /// Applies the rules to a path.
    fn judge(&self, path: &[u8]) -> Judged {
        let nothing = usize::MAX;
        if is_of_system(path) {
            return Judged {
                seen: 0,
                read: 0,
                of_others: nothing,
            };
        }
        // What the host removes after it was opened is told by its path with this behind it.
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
                // The folders of a home may be open because the home is not.
                let all = in_home && store.end > entered;
                judged.seen = judged.seen.min(entered.max(store.last.saturating_sub(1)));
                judged.read = judged.read.min(if all { 0 } else { entered });
            }
        }
        judged
    }

    /// Whether everyone may pass those folders on a path that are judged.
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

    /// Whether root runs ebb, and a file's owner is another one than those whose files it shows.
    fn is_of_others(&self, owner: u32) -> bool {
        self.trusted
            .is_some_and(|trusted| !trusted.contains(&owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// From where on a path is judged for being read, seen from a working folder. The home is `/h/ann`.
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

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
//! | `folders` | who may search the folders that lead to a file |
//!
//! All paths are real paths on the host, without the slash at their beginning. A hard link to a
//! secret, or a secret that is mounted elsewhere, is judged by the path where it is found.
//!
//! A path that was true when a file was opened may lead elsewhere by now. So the folders are judged
//! that have the opened file, one opened in the other. The rules apply to the working folder that
//! was opened at the start, and to no other that takes its name.

mod folders;
mod homes;
mod stores;

pub(crate) use homes::Homes;

use crate::system::opened::facts;
use folders::{Folders, identity, open_in};
use rustix::fs::{CWD, Statx};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::sync::Arc;

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
    /// The same, opened for looking at it.
    working: Arc<OwnedFd>,
    homes: Homes,
    /// If root runs ebb: root and the owner of the working folder, whose files are no secrets by
    /// rule 4.
    trusted: Option<[u32; 2]>,
    /// The folders from the root on.
    from_root: Folders,
    /// Those below the working folder.
    from_here: Folders,
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
    /// Makes the rules for the working folder `working`, whose path is `here`.
    ///
    /// # Errors
    /// The host's, if the working folder or the root cannot be looked at.
    pub(crate) fn new(here: &[u8], working: OwnedFd, homes: Homes) -> Result<Self, Errno> {
        let owner = facts(&working, b"")?.stx_uid;
        let working = Arc::new(working);
        Ok(Self {
            trusted: geteuid().is_root().then_some([0, owner]),
            here: here.to_vec(),
            homes,
            from_root: Folders::new(open_in(CWD, b"/")?.into(), b""),
            from_here: Folders::new(working.clone(), here),
            working,
        })
    }

    /// Returns the same rules, with no folder known yet.
    pub(crate) fn again(&self) -> Self {
        Self {
            here: self.here.clone(),
            working: self.working.clone(),
            homes: self.homes.clone(),
            trusted: self.trusted,
            from_root: self.from_root.again(),
            from_here: self.from_here.again(),
        }
    }

    /// Returns whether the guest may see the entry at `path`: its name, size and other facts. `stat`
    /// has to be of the file that was opened there.
    ///
    /// # Errors
    /// `EACCES` if `path` does not lead to this file any more.
    pub(crate) fn shows(&mut self, path: &[u8], stat: &Statx) -> Result<bool, Errno> {
        let judged = self.judge(path);
        self.may_pass(path, stat, judged.seen, judged.of_others)
    }

    /// Returns whether the guest may see the entries of `folder`. [`Self::shows`] returns the same
    /// for each of them. `stat` has to be of the folder that was opened there.
    ///
    /// # Errors
    /// `EACCES` if `folder` does not lead to this folder any more.
    pub(crate) fn shows_entries_of(&mut self, folder: &[u8], stat: &Statx) -> Result<bool, Errno> {
        // By its own name an entry may be a secret, but no folder is judged more for seeing it.
        let judged = self.judge(folder);
        let (all, of_others) = (judged.seen, judged.of_others);
        if all.min(of_others) == usize::MAX {
            return Ok(true);
        }
        let trusted = self.trusted;
        let is_of_others = |owner| is_of_others(trusted, owner);
        let folders = self.folders(folder, all.min(of_others));
        let found = folders.itself(folder, stat, &is_of_others)?;
        Ok(found.lets_pass(all, of_others))
    }

    /// Returns whether the guest may read the bytes of the file at `path`, or the names in the
    /// folder there. `stat` has to be of the file or folder that was opened there.
    ///
    /// # Errors
    /// `EACCES` if `path` does not lead to this file any more.
    pub(crate) fn lets_read(&mut self, path: &[u8], stat: &Statx) -> Result<bool, Errno> {
        let judged = self.judge(path);
        let of_others = path.len() > judged.of_others && is_of_others(self.trusted, stat.stx_uid);
        if (path.len() > judged.read || of_others) && stat.stx_mode & 0o004 == 0 {
            return Ok(false);
        }
        self.may_pass(path, stat, judged.read, judged.of_others)
    }

    /// Returns whether the folder at `path`, which `stat` is of, is the working folder or leads to
    /// it. Where rule 4 does not apply, the path is enough.
    ///
    /// # Errors
    /// The host's, if a folder on the way cannot be opened.
    pub(crate) fn leads_here(&self, path: &[u8], stat: &Statx) -> Result<bool, Errno> {
        if !lies_in(&self.here, path) {
            return Ok(false);
        }
        if self.trusted.is_none() {
            return Ok(true);
        }
        let names = |path: &[u8]| {
            path.split(|byte| *byte == b'/')
                .filter(|name| !name.is_empty())
                .count()
        };
        let mut folder = self.working.clone();
        for _ in names(path)..names(&self.here) {
            folder = open_in(&*folder, b"..")?.into();
        }
        Ok(identity(&facts(&*folder, b"")?) == identity(stat))
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

    /// Returns whether everyone may search the folders that lead to the file at `path` and are
    /// judged: those with paths longer than `all`, and those of others longer than `of_others`.
    fn may_pass(
        &mut self,
        path: &[u8],
        stat: &Statx,
        all: usize,
        of_others: usize,
    ) -> Result<bool, Errno> {
        let first = all.min(of_others);
        if first == usize::MAX {
            return Ok(true);
        }
        let trusted = self.trusted;
        let is_of_others = |owner| is_of_others(trusted, owner);
        let folder = self.folders(path, first).above(path, stat, &is_of_others)?;
        Ok(folder.lets_pass(all, of_others))
    }

    /// Returns the folders from which the way to `path` begins, if those with paths longer than
    /// `first` are judged.
    fn folders(&mut self, path: &[u8], first: usize) -> &mut Folders {
        if first >= self.here.len() && lies_in(path, &self.here) {
            &mut self.from_here
        } else {
            &mut self.from_root
        }
    }
}

/// Returns whether `owner` is none of those that rule 4 trusts, if the rule applies.
fn is_of_others(trusted: Option<[u32; 2]>, owner: u32) -> bool {
    trusted.is_some_and(|trusted| !trusted.contains(&owner))
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
        let root = open_in(CWD, b"/").unwrap();
        let secrets = Secrets::new(here.as_bytes(), root, homes).unwrap();
        let judged = secrets.judge(path.as_bytes());
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

//! Decides which files of the host a guest may read, and which it may only see.
//!
//! A file that is a secret is treated as for any other user of the host. The guest may read its
//! bytes or names if everyone may read it. The guest sees its entries if everyone may search it.
//! Secrets are:
//!
//! 1. The system folders. All folders that lead to a file are checked. A working folder below
//!    `/var/lib` is not one of them.
//! 2. Known stores of credentials. In a home folder, all folders that lead to a file are checked.
//!    Elsewhere, the folders below the working folder are checked.
//! 3. Hidden entries of a home folder below the working folder. The folders in that home are
//!    checked.
//! 4. If root runs ebb: files that belong neither to root nor to the owner of the working folder.
//!    Folders of other owners below the working folder are checked.
//!
//! The user has entered the working folder and the folders that lead to it, so only the first rule
//! checks them. The same holds for the folder of a toolchain that the user's command is in. But for
//! a store of credentials in it all folders that lead there are checked.
//!
//! | file | what |
//! |---|---|
//! | `stores` | the names of credential stores |
//! | `homes` | the paths of home folders |
//! | `folders` | who may search the folders that lead to a file |
//!
//! All paths are real paths on the host, without the slash at their beginning. A hard link to a
//! secret, or a secret that is mounted elsewhere, is judged by the path where it is found.
//!
//! The path of an opened file may lead elsewhere by now. So the check uses the folders that really
//! contain the opened file, each opened relative to its parent. The rules apply to the working
//! folder that was opened at the start, and not to another folder that takes its name.

mod folders;
mod homes;
mod paths;
mod stores;

pub(crate) use homes::Homes;
pub(crate) use paths::lies_in;

use crate::system::opened::facts;
use folders::{Folders, identity, open_in};
use rustix::fs::{CWD, Statx};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// System folders: programs, libraries and their configuration and data.
const SYSTEM: [&[u8]; 10] = [
    b"usr", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32", b"etc", b"opt", STATE,
];

/// The system folder with the data of programs. Unlike the others, it has home folders of services,
/// which may be working folders.
const STATE: &[u8] = b"var/lib";

/// Returns whether `path`, without a leading slash, is a system folder or below one: `usr`, `bin`,
/// `sbin`, `lib` and its variants, `etc`, `opt` or `var/lib`.
pub(crate) fn is_of_system(path: &[u8]) -> bool {
    SYSTEM.iter().any(|folder| lies_in(path, folder))
}

/// Returns whether a system folder is below the folder `path`, which has no slash at its beginning.
pub(crate) fn leads_to_system(path: &[u8]) -> bool {
    SYSTEM.iter().any(|folder| lies_in(folder, path))
}

/// The rules that decide, for one working folder, which files of the host a guest may see and which
/// it may read. Files that other users may not read are secrets if they are system files, in
/// credential stores, or hidden in a home folder, and if root runs ebb also files of other users.
/// The text at the top of this module lists the rules.
#[derive(Debug)]
pub(crate) struct Secrets {
    /// The path of the working folder.
    here: Vec<u8>,
    /// The working folder, opened with `O_PATH`.
    working: Arc<OwnedFd>,
    homes: Homes,
    /// If root runs ebb: the user ids of root and of the owner of the working folder. Rule 4 does
    /// not make their files secrets.
    trusted: Option<[u32; 2]>,
    /// The paths of further folders that the user has chosen. Like the working folder, they and the
    /// folders that lead to them are not checked.
    shown: Vec<Vec<u8>>,
    /// Cached folders, opened from the root.
    from_root: Folders,
    /// Cached folders, opened from the working folder.
    from_here: Folders,
}

/// The part of a path that is checked. Each field is a length in bytes. Folders with longer paths
/// are checked, and so is the file itself. With `usize::MAX`, nothing is checked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct CheckedPart {
    /// Everyone must be able to search these folders for the guest to see the file.
    seen: usize,
    /// Everyone must be able to search these folders for the guest to read the file; at most
    /// `seen`.
    read: usize,
    /// Folders of other users that are checked in both cases (rule 4).
    of_others: usize,
}

impl Secrets {
    /// Returns the rules for the working folder `working`, opened with `O_PATH`. Its real path is
    /// `here`, without a leading slash. `homes` are the home folders of the host.
    ///
    /// # Errors
    /// If the working folder cannot be examined or the root cannot be opened.
    pub(crate) fn new(here: &[u8], working: OwnedFd, homes: Homes) -> Result<Self, Errno> {
        let owner = facts(&working, b"")?.stx_uid;
        let working = Arc::new(working);
        Ok(Self {
            trusted: geteuid().is_root().then_some([0, owner]),
            here: here.to_vec(),
            homes,
            shown: Vec::new(),
            from_root: Folders::new(open_in(CWD, b"/")?.into(), b""),
            from_here: Folders::new(working.clone(), here),
            working,
        })
    }

    /// Returns the same rules for the same working folder, with a cache of folders of its own that
    /// is empty.
    pub(crate) fn with_empty_cache(&self) -> Self {
        Self {
            here: self.here.clone(),
            working: self.working.clone(),
            homes: self.homes.clone(),
            trusted: self.trusted,
            shown: self.shown.clone(),
            from_root: self.from_root.with_empty_cache(),
            from_here: self.from_here.with_empty_cache(),
        }
    }

    /// Adds a folder that the user has chosen beside the working folder. `folder` is its real path
    /// without a leading slash. Only entries below it are secrets by their place in a home folder.
    /// Further names in it are stores of credentials, such as `pip.conf`. Does nothing for a folder
    /// that the guest sees as a part of the working folder.
    pub(crate) fn show(&mut self, folder: &[u8]) {
        let is_here = !self.here.is_empty() && lies_in(folder, &self.here);
        if !is_here || self.checked_part(folder).seen != usize::MAX {
            self.shown.push(folder.to_vec());
        }
    }

    /// Returns whether `path` is a folder of [`Self::show`] or below one.
    pub(crate) fn is_shown(&self, path: &[u8]) -> bool {
        self.shown.iter().any(|shown| lies_in(path, shown))
    }

    /// Returns whether a folder of [`Self::show`] is `path` or below it.
    pub(crate) fn leads_to_shown(&self, path: &[u8]) -> bool {
        self.shown.iter().any(|shown| lies_in(shown, path))
    }

    /// Returns whether the working folder is below `/var/lib` and `path` is in it. Such a folder is
    /// treated as any other working folder and not as a system folder.
    fn works_in_state(&self, path: &[u8]) -> bool {
        self.here != STATE && lies_in(&self.here, STATE) && lies_in(path, &self.here)
    }

    /// Returns the length of the path of the folder that the user has chosen and that contains
    /// `path`: the working folder or one of [`Self::show`]. Returns 0 if none contains it.
    fn entered(&self, path: &[u8]) -> usize {
        let chosen = self.shown.iter().chain([&self.here]);
        let holding = chosen.filter(|folder| lies_in(path, folder));
        holding.map(Vec::len).max().unwrap_or(0)
    }

    /// Returns the length of the path of the folder of [`Self::show`] that contains `path`. Returns
    /// `None` if there is none, or if the working folder is in it and contains `path` too.
    fn toolchain(&self, path: &[u8]) -> Option<usize> {
        let holding = self.shown.iter().filter(|folder| lies_in(path, folder));
        let longest = holding.map(Vec::len).max()?;
        (!lies_in(path, &self.here) || longest > self.here.len()).then_some(longest)
    }

    /// Returns whether the guest may see the entry at `path`: its name, size and other metadata. If
    /// the rules make it a secret, the result is `true` only if everyone may search the folders
    /// that lead to it. `stat` must describe the file that was opened there.
    ///
    /// # Errors
    /// `EACCES` if `path` does not lead to this file any more, where folders must be checked.
    pub(crate) fn shows(&mut self, path: &[u8], stat: &Statx) -> Result<bool, Errno> {
        let checked = self.checked_part(path);
        self.may_pass(path, stat, checked.seen, checked.of_others)
    }

    /// Returns whether the guest may see the entries of `folder`. For each entry, [`Self::shows`]
    /// returns the same result. `stat` must describe the folder that was opened there.
    ///
    /// # Errors
    /// `EACCES` if the path `folder` does not lead to this folder any more, where folders must be
    /// checked.
    pub(crate) fn shows_entries_of(&mut self, folder: &[u8], stat: &Statx) -> Result<bool, Errno> {
        // An entry may be a secret by its own name, but that adds no folder to the check for seeing
        // it.
        let checked = self.checked_part(folder);
        let (all, of_others) = (checked.seen, checked.of_others);
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
    /// folder there. A secret may be read only if everyone may read it and search the folders that
    /// lead to it. `stat` must describe the file or folder that was opened there.
    ///
    /// # Errors
    /// `EACCES` if `path` does not lead to this file any more, where folders must be checked.
    pub(crate) fn lets_read(&mut self, path: &[u8], stat: &Statx) -> Result<bool, Errno> {
        let checked = self.checked_part(path);
        let of_others = path.len() > checked.of_others && is_of_others(self.trusted, stat.stx_uid);
        if (path.len() > checked.read || of_others) && stat.stx_mode & 0o004 == 0 {
            return Ok(false);
        }
        self.may_pass(path, stat, checked.read, checked.of_others)
    }

    /// Returns whether the folder at `path` is the working folder or one of its parents. `stat`
    /// must describe the folder that was opened there. If root runs ebb, the folders themselves are
    /// compared, otherwise only their paths.
    ///
    /// # Errors
    /// If a parent of the working folder cannot be opened or examined.
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

    /// Returns which part of `path` the rules check.
    fn checked_part(&self, path: &[u8]) -> CheckedPart {
        let nothing = usize::MAX;
        if is_of_system(path) && !self.works_in_state(path) {
            return CheckedPart {
                seen: 0,
                read: 0,
                of_others: nothing,
            };
        }
        // Linux appends this to the path of a file that was removed after it was opened.
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let entered = self.entered(path);
        let mut checked = CheckedPart {
            seen: nothing,
            read: nothing,
            of_others: self.trusted.map_or(nothing, |_| entered),
        };
        let toolchain = self.toolchain(path);
        for start in stores::candidates(path) {
            let above = start.saturating_sub(1);
            let in_home = self.homes.contain(&path[..above]);
            if in_home && above >= entered && path[start..].starts_with(b".") {
                checked.seen = checked.seen.min(above);
                checked.read = checked.read.min(above);
            }
            let in_toolchain = toolchain.is_some_and(|toolchain| start > toolchain);
            if let Some(store) = stores::store_at(path, start, in_home, in_toolchain) {
                // In a closed home folder, single files are often open to everyone.
                let all = store.end > entered && (in_home || in_toolchain) && !store.is_installed;
                checked.seen = checked.seen.min(entered.max(store.last.saturating_sub(1)));
                checked.read = checked.read.min(if all { 0 } else { entered });
            }
        }
        checked
    }

    /// Returns whether everyone may search the checked folders that lead to the file at `path`.
    /// Checked are folders with paths longer than `all`, and those of other users with paths longer
    /// than `of_others`. Fails with `EACCES` if `path` does not lead to the file of `stat` any
    /// more.
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

    /// Returns the cache whose start folder is used for `path`: the working folder if every checked
    /// folder is below it, else the root. Folders with paths longer than `first` are checked.
    fn folders(&mut self, path: &[u8], first: usize) -> &mut Folders {
        if first >= self.here.len() && lies_in(path, &self.here) {
            &mut self.from_here
        } else {
            &mut self.from_root
        }
    }
}

/// Returns whether rule 4 applies and `owner` is not one of the `trusted` users.
fn is_of_others(trusted: Option<[u32; 2]>, owner: u32) -> bool {
    trusted.is_some_and(|trusted| !trusted.contains(&owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Returns which part of `path` is checked for reading, with the working folder `here`.
    /// `/h/ann` is the only home folder.
    fn read_from(here: &str, path: &str) -> usize {
        let mut homes = Homes::default();
        homes.add(Path::new("/h/ann"));
        let root = open_in(CWD, b"/").unwrap();
        let secrets = Secrets::new(here.as_bytes(), root, homes).unwrap();
        let checked = secrets.checked_part(path.as_bytes());
        assert!(checked.seen >= checked.read);
        checked.read
    }

    #[test]
    fn a_folder_that_is_shown_is_judged_as_the_working_folder() {
        let root = open_in(CWD, b"/").unwrap();
        let mut homes = Homes::default();
        homes.add(Path::new("/h/ann"));
        let mut secrets = Secrets::new(b"srv/job", root, homes).unwrap();
        let version = b"h/ann/.pyenv/versions/3";
        assert_eq!(secrets.checked_part(version).read, 5);
        secrets.show(version);
        let read = |path: &[u8]| secrets.checked_part(path).read;
        assert_eq!(read(b"h/ann/.pyenv/versions/3/bin/python"), usize::MAX);
        assert_eq!(read(b"h/ann/.pyenv/versions/3/.netrc"), 0);
        assert_eq!(read(b"h/ann/.pyenv/versions/4"), 5);
        assert!(secrets.is_shown(version) && !secrets.is_shown(b"h/ann/.pyenv"));
        assert!(secrets.leads_to_shown(b"h/ann") && !secrets.leads_to_shown(b"h/bob"));
    }

    #[test]
    fn settings_with_passwords_in_a_toolchain_are_secrets() {
        let mut homes = Homes::default();
        homes.add(Path::new("/h/ann"));
        let root = open_in(CWD, b"/").unwrap();
        let mut secrets = Secrets::new(b"h/ann/job", root, homes).unwrap();
        let top = "h/ann/tools/x";
        secrets.show(top.as_bytes());
        secrets.show(b"h/ann/job/venv");
        let read = |path: &str| secrets.checked_part(path.as_bytes()).read;
        for name in [
            "pip.conf",
            ".condarc",
            "condarc.d/x",
            "etc/npmrc",
            ".npmrc",
            ".pypirc",
        ] {
            assert_eq!(read(&format!("{top}/{name}")), 0, "{name}");
            // The guest sees the other folders as parts of projects.
            let other = format!("h/ann/job/venv/{name}");
            assert_eq!(read(&other) == usize::MAX, name != ".pypirc", "{name}");
        }
        assert_eq!(read(&format!("{top}/conf/settings.xml")), top.len());
        assert_eq!(read(&format!("{top}/lib/settings.xml")), usize::MAX);
        assert_eq!(read("h/ann/job/pip.conf"), usize::MAX);
    }

    #[test]
    fn the_rules_say_from_where_on_a_path_is_judged() {
        for (here, path, from) in [
            ("h/ann", "etc/x", "/"),
            ("etc/x", "etc/x/y", "/"),
            ("h/ann", "var/lib/x", "/"),
            ("var/lib", "var/lib/x", "/"),
            ("var/lib/x", "var/lib/x/y", ""),
            ("var/lib/x", "var/lib/z", "/"),
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
            // Linux reports the path of a removed file in this way.
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

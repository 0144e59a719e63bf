//! Finds files of the host that the program's arguments name and that the guest does not see.

use crate::archive::{GuestPath, Initramfs};
use crate::text::one_line;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most arguments that are looked at.
const ARGUMENTS_MAX: usize = 64;
/// The most files that a message names.
const NAMED_MAX: usize = 3;
/// A folder in one of the guest's own folders in which users of the host have files.
const SHARED_MEMORY: &str = "/dev/shm";
/// Folders of the guest's own, where it never sees files of the host.
const OWN: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Returns whether the guest has something of its own at `path`, or below it, rather than what the
/// host has there.
pub(super) fn is_of_guest(path: &Path) -> bool {
    let is_shared = path.starts_with(SHARED_MEMORY) && path != Path::new(SHARED_MEMORY);
    OWN.iter().any(|folder| path.starts_with(folder)) && !is_shared
}

/// Files of the host that arguments of the program name and that the guest does not see.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Unseen(Vec<PathBuf>);

impl Unseen {
    /// Examines the arguments in `program` behind the program's name. `tree` has the packed files.
    /// `is_seen` returns whether the guest sees a file at a path without packing.
    ///
    /// An argument counts if it has a slash and names an existing file, or a new file in an
    /// existing folder. It may be the value of an option, as in `--input=/data/x`.
    pub(super) fn find(
        program: &[OsString],
        tree: &Initramfs,
        is_seen: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Self {
        let mut found = Vec::new();
        for argument in program.iter().skip(1).take(ARGUMENTS_MAX) {
            let Some(path) = named(argument) else {
                continue;
            };
            let Some(place) = existing(&path) else {
                continue;
            };
            let is_own = is_of_guest(&place);
            let parsed = GuestPath::parse(place.as_os_str().as_bytes());
            let is_packed = parsed.is_ok_and(|path| tree.get(&path).is_some());
            let is_there = is_own || is_packed || is_seen(place.as_os_str().as_bytes());
            if !is_there && !found.contains(&path) {
                found.push(path);
            }
        }
        Self(found)
    }

    /// Returns a message for the user whose program has failed. Returns `None` if the guest sees
    /// all files that the arguments name.
    pub(super) fn message(&self) -> Option<String> {
        let names: Vec<_> = self
            .0
            .iter()
            .take(NAMED_MAX)
            .map(|path| one_line(path).to_string())
            .collect();
        (!names.is_empty()).then(|| {
            format!(
                "ebb: the guest does not see {}\n  help: --file SRC packs a copy, --volume SRC:DST \
                 shares a folder, and the folder that ebb is run in is seen",
                names.join(", ")
            )
        })
    }
}

/// Returns the absolute path that an argument or the value of an option names. Returns `None` if it
/// has no slash.
fn named(argument: &OsStr) -> Option<PathBuf> {
    let bytes = argument.as_bytes();
    let bytes = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if bytes.starts_with(b"-") => &bytes[at + 1..],
        _ if bytes.starts_with(b"-") => return None,
        _ => bytes,
    };
    if !bytes.contains(&b'/') {
        return None;
    }
    std::path::absolute(OsStr::from_bytes(bytes)).ok()
}

/// Returns `path` if it exists on the host, or else its folder if that exists. Returns `None` if
/// neither exists, or for entries of the host's root.
fn existing(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return Some(path.to_owned());
    }
    let folder = path.parent()?;
    (folder.parent().is_some() && folder.exists()).then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_exist_only_here_are_named() {
        let words = [
            "cat",
            "/etc/passwd",
            "--from=/etc/group",
            "/etc/new",
            "no/such/file",
            "-/etc/shadow",
            "/dev/null",
            "/etc/passwd",
            "passwd",
            "/new",
        ];
        let program = words.map(OsString::from);
        let tree = Initramfs::default();
        let found = Unseen::find(&program, &tree, &mut |_| false);
        let names = ["/etc/passwd", "/etc/group", "/etc/new"].map(PathBuf::from);
        assert_eq!(found, Unseen(names.into()));
        let text = found.message().unwrap();
        assert!(
            text.contains("/etc/passwd, /etc/group, /etc/new\n"),
            "{text}"
        );
        let all = Unseen::find(&program, &tree, &mut |_| true);
        assert_eq!(all.message(), None);
    }
}

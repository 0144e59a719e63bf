//! The folders in which commands without a slash are looked for.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The environment variable `PATH` of programs in guests that see no files of the host: folders
/// with colons between them.
pub(crate) const GUEST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The most folders that are taken from one `PATH`.
const FOLDERS_MAX: usize = 256;

/// The folders in which the guest looks for commands, and whether a command is first resolved as
/// the shell of the user who runs `ebb` does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CommandPath {
    folders: Vec<PathBuf>,
    /// Whether the folders of the host's `PATH` come first.
    follows_shell: bool,
}

impl Default for CommandPath {
    /// Returns the folders of [`GUEST_PATH`].
    fn default() -> Self {
        Self::given(OsStr::new(GUEST_PATH))
    }
}

impl CommandPath {
    /// Returns the folders of `path`, which has the format of `PATH`. Ignores relative folders.
    pub(crate) fn given(path: &OsStr) -> Self {
        let mut own = Self {
            folders: Vec::new(),
            follows_shell: false,
        };
        own.append(path);
        own
    }

    /// Returns the folders of the host's `PATH`, and behind them those of [`GUEST_PATH`].
    pub(crate) fn of_shell() -> Self {
        let mut own = Self::given(&env::var_os("PATH").unwrap_or_default());
        own.append(OsStr::new(GUEST_PATH));
        own.follows_shell = true;
        own
    }

    /// Returns the folders of `path` only, as those of the user's shell.
    #[cfg(test)]
    pub(super) fn of_test_shell(path: &OsStr) -> Self {
        Self {
            follows_shell: true,
            ..Self::given(path)
        }
    }

    fn append(&mut self, path: &OsStr) {
        for folder in env::split_paths(path).take(FOLDERS_MAX) {
            // A colon in a name would make two folders of it.
            let is_plain = folder.is_absolute() && !folder.as_os_str().as_bytes().contains(&b':');
            if is_plain && !self.folders.contains(&folder) {
                self.folders.push(folder);
            }
        }
    }

    /// Returns whether a command is first resolved as the user's shell does.
    pub(super) fn follows_shell(&self) -> bool {
        self.follows_shell
    }

    /// Returns the folders in their order.
    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Replaces the folder `old` by `new`. If `new` comes before it already, `old` is removed.
    pub(super) fn replace(&mut self, old: &Path, new: &Path) {
        let Some(at) = self.folders.iter().position(|folder| folder == old) else {
            return;
        };
        if self.folders[..at].iter().any(|folder| folder == new) {
            self.folders.remove(at);
        } else {
            self.folders[at] = new.to_owned();
        }
    }

    /// Returns the paths at which the command `name` can be, in the order of the folders.
    pub(super) fn places(&self, name: &OsStr) -> Vec<PathBuf> {
        self.folders
            .iter()
            .map(|folder| folder.join(name))
            .collect()
    }

    /// Returns the guest's variable `PATH`. Of the host's folders it has those for which `is_seen`
    /// returns `true`.
    pub(crate) fn value(&self, mut is_seen: impl FnMut(&Path) -> bool) -> OsString {
        let of_guest = Self::default();
        let kept = self.folders.iter().filter(|folder| {
            !self.follows_shell || of_guest.folders.contains(folder) || is_seen(folder)
        });
        let words: Vec<&OsStr> = kept.map(|folder| folder.as_os_str()).collect();
        words.join(OsStr::new(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_keep_their_order() {
        let mut path = CommandPath::given(OsStr::new("/b:here:/a:/b:"));
        assert_eq!(path.value(|_| false), "/b:/a");
        assert_eq!(
            path.places(OsStr::new("x")),
            ["/b/x", "/a/x"].map(PathBuf::from)
        );
        path.replace(Path::new("/b"), Path::new("/c"));
        assert_eq!(path.value(|_| false), "/c:/a");
        path.replace(Path::new("/a"), Path::new("/c"));
        path.replace(Path::new("/no"), Path::new("/d"));
        assert_eq!(path.value(|_| false), "/c");
    }

    #[test]
    fn a_guest_gets_the_folders_of_the_host_that_it_sees() {
        let mut path = CommandPath::given(OsStr::new("/opt/x/bin:/usr/bin:/home/ann/bin"));
        path.append(OsStr::new(GUEST_PATH));
        path.follows_shell = true;
        let value = path.value(|folder| folder.starts_with("/opt"));
        assert_eq!(
            value,
            "/opt/x/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
        );
        assert_eq!(CommandPath::default().value(|_| false), GUEST_PATH);
    }
}

//! Finds the home folders of the host.

use super::paths::lies_in;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The largest number of lines of `/etc/passwd` that are read. Homes in later lines are found if
/// they are in `/home`.
const LINES_MAX: usize = 4096;

/// The paths of the home folders of a host, without a leading slash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    each: HashSet<Vec<u8>>,
    /// Folders in which every folder is a home.
    parents: HashSet<Vec<u8>>,
}

impl Homes {
    /// Returns the home folders of the host: `$HOME`, those in the first 4096 lines of
    /// `/etc/passwd`, and each folder in `/home`. A file that cannot be read counts as empty.
    pub(crate) fn of_host() -> Self {
        let mut homes = Self::default();
        enter(&mut homes.parents, Path::new("/home"));
        if let Some(home) = std::env::var_os("HOME") {
            homes.add(&PathBuf::from(home));
        }
        let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
        for line in passwd.split(|byte| *byte == b'\n').take(LINES_MAX) {
            if let Some(home) = line.split(|byte| *byte == b':').nth(5) {
                homes.add(Path::new(OsStr::from_bytes(home)));
            }
        }
        homes
    }

    /// Adds the home folder `home`, by this path and by its real path if it exists. Ignores a
    /// relative path, and `/`, which `/etc/passwd` names for services.
    pub(crate) fn add(&mut self, home: &Path) {
        enter(&mut self.each, home);
    }

    /// Returns whether the folder at the path `folder`, without a leading slash, is a home folder.
    /// Returns `false` for a folder below a home folder, unless it is one itself.
    pub(super) fn contain(&self, folder: &[u8]) -> bool {
        let above = folder.iter().rposition(|byte| *byte == b'/');
        let above = above.map_or(&b""[..], |slash| &folder[..slash]);
        self.each.contains(folder) || self.parents.contains(above)
    }

    /// Returns whether the folder at the path `folder`, without a leading slash, is a home folder
    /// or has one below it.
    pub(crate) fn are_in(&self, folder: &[u8]) -> bool {
        let mut known = self.each.iter().chain(&self.parents);
        self.contain(folder) || known.any(|known| lies_in(known, folder))
    }
}

/// Adds `folder` to `folders` by its path, and by its real path if links lead to it.
fn enter(folders: &mut HashSet<Vec<u8>>, folder: &Path) {
    let real = folder.canonicalize();
    for path in [Some(folder.to_owned()), real.ok()].into_iter().flatten() {
        let path = path.into_os_string().into_vec();
        let path = path.strip_suffix(b"/").unwrap_or(&path);
        if let Some(path) = path.strip_prefix(b"/").filter(|path| !path.is_empty()) {
            folders.insert(path.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_homes_are_known() {
        let homes = Homes::of_host();
        // `/etc/passwd` always names the second one.
        for home in [&b"home/ann"[..], b"root"] {
            assert!(homes.contain(home), "{}", String::from_utf8_lossy(home));
        }
        for other in [&b""[..], b"home", b"home/ann/work", b"usr"] {
            assert!(!homes.contain(other), "{}", String::from_utf8_lossy(other));
        }
        for (folder, are_in) in [
            (&b"home/ann"[..], true),
            (b"home", true),
            (b"", true),
            (b"root", true),
            (b"home/ann/work", false),
            (b"homes", false),
        ] {
            assert_eq!(homes.are_in(folder), are_in, "{folder:?}");
        }
    }

    #[test]
    fn a_home_is_known_by_its_real_path_too() {
        let folder = std::env::temp_dir().join(format!("ebb-homes-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("real")).unwrap();
        std::os::unix::fs::symlink("real", folder.join("link")).unwrap();
        let mut homes = Homes::default();
        homes.add(&folder.join("link/"));
        homes.add(Path::new("/"));
        homes.add(Path::new("relative"));
        let real = folder.join("real").canonicalize().unwrap();
        assert!(homes.contain(&real.as_os_str().as_bytes()[1..]));
        assert!(!homes.contain(b"") && !homes.contain(b"relative"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

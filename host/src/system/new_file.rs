//! Creates files and folders with unpredictable names, so that another user cannot place a link or
//! file there first.

use std::collections::hash_map::RandomState;
use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The number of names that are tried. It is very unlikely that even one is taken.
const NAMES_MAX: usize = 16;

/// Creates a file in `folder` with the permission bits `mode`, less the umask. Its name is
/// unpredictable, begins with `prefix` and ends with `.new`. Returns the new file, open for reading
/// and writing, and its path.
///
/// # Errors
/// If the file cannot be created; `AlreadyExists` if 16 names are taken.
pub(crate) fn new_file(folder: &Path, prefix: &str, mode: u32) -> io::Result<(File, PathBuf)> {
    first_free(
        || name(prefix),
        |name| {
            let path = folder.join(name);
            // open(2) with `O_EXCL` creates a new file or fails. It does not follow a link either.
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&path)?;
            Ok((file, path))
        },
    )
}

/// Creates a folder in `folder` that only this user can enter. Its name is unpredictable, begins
/// with `prefix` and ends with `.new`. Returns its path.
///
/// # Errors
/// If the folder cannot be created; `AlreadyExists` if 16 names are taken.
pub(crate) fn new_folder(folder: &Path, prefix: &str) -> io::Result<PathBuf> {
    first_free(
        || name(prefix),
        |name| {
            let path = folder.join(name);
            DirBuilder::new().mode(0o700).create(&path)?;
            Ok(path)
        },
    )
}

/// Returns an unpredictable name that begins with `prefix` and ends with `.new`.
pub(super) fn name(prefix: &str) -> String {
    // `RandomState` has random keys from the system.
    let random = RandomState::new().build_hasher().finish();
    format!("{prefix}.{random:016x}.new")
}

/// Calls `make` with names from `name` until its result is not `AlreadyExists`, at most 16 times.
/// Returns the last result of `make`, also an error.
pub(super) fn first_free<T>(
    mut name: impl FnMut() -> String,
    mut make: impl FnMut(&str) -> io::Result<T>,
) -> io::Result<T> {
    for _ in 1..NAMES_MAX {
        match make(&name()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    make(&name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn names_that_are_taken_are_passed_over_and_links_not_followed() {
        let folder = new_folder(&std::env::temp_dir(), "ebb-new-file").unwrap();
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let victim = folder.join("victim");
        symlink(&victim, folder.join("link")).unwrap();
        fs::write(folder.join("file"), "kept").unwrap();
        let mut names = ["link", "file", "free"].map(str::to_owned).into_iter();
        let made = first_free(
            || names.next().unwrap(),
            |name| {
                File::options()
                    .write(true)
                    .create_new(true)
                    .open(folder.join(name))
            },
        );
        assert!(made.is_ok() && folder.join("free").exists() && !victim.exists());
        let taken = first_free(
            || "link".into(),
            |name| {
                File::options()
                    .write(true)
                    .create_new(true)
                    .open(folder.join(name))
            },
        );
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let (file, path) = new_file(&folder, "a", 0o600).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_ne!(path, new_file(&folder, "a", 0o600).unwrap().1);
        fs::remove_dir_all(&folder).unwrap();
    }
}

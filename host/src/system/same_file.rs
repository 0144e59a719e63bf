//! Tells whether two paths that the user named lead to one file, or one into the other.

use super::resolved_name::ResolvedName;
use rustix::fs::fstat;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns whether a file created at `one` and a file created at `other` would be the same regular
/// file. Neither path need exist. Links are followed. Returns `false` for pipes and devices, to
/// which several writers may write, and for paths at which no file can be created.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    if let (Ok(one), Ok(other)) = (one.metadata(), other.metadata()) {
        return one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// Returns whether a file created at `path` would lie in `folder`, or in a folder below it. Links
/// are followed. Returns `false` if `folder` is no folder, and if no file can be created at `path`.
pub(crate) fn is_inside(path: &Path, folder: &Path) -> bool {
    let resolved = ResolvedName::find(path).ok();
    let Some(file) = resolved.and_then(|resolved| resolved.path().ok()) else {
        return false;
    };
    let Ok(folder) = folder.canonicalize() else {
        return false;
    };
    let parent = file.parent();
    folder.is_dir() && parent.is_some_and(|parent| parent.starts_with(folder))
}

/// Returns the device and inode number of the folder of `path`, and its name there. Returns `None`
/// if there is no such folder.
fn place(path: &Path) -> Option<(u64, u64, OsString)> {
    let resolved = ResolvedName::find(path).ok()?;
    let folder = fstat(&resolved.folder).ok()?;
    Some((folder.st_dev, folder.st_ino, resolved.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::new_folder;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_of_one_file_are_found_whether_it_exists_or_not() {
        let folder = new_folder(&std::env::temp_dir(), "ebb-same-file").unwrap();
        let path = |name: &str| folder.join(name);
        fs::write(path("there"), "").unwrap();
        fs::hard_link(path("there"), path("again")).unwrap();
        fs::write(path("other"), "").unwrap();
        symlink("there", path("link")).unwrap();
        symlink("new", path("leads-to-new")).unwrap();
        symlink(&folder, path("folder")).unwrap();
        for (one, other, is_same) in [
            ("there", "there", true),
            ("there", "./there", true),
            ("there", "again", true),
            ("there", "link", true),
            ("there", "folder/link", true),
            ("new", "folder/./new", true),
            ("new", "leads-to-new", true),
            ("there", "other", false),
            ("there", "new", false),
            ("new", "newer", false),
            ("none/new", "none/new", false),
            ("/dev/null", "/dev/null", false),
        ] {
            assert_eq!(
                is_same_file(&path(one), &path(other)),
                is_same,
                "{one} {other}"
            );
            assert_eq!(
                is_same_file(&path(other), &path(one)),
                is_same,
                "{other} {one}"
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_in_a_folder_are_found_by_any_path() {
        let folder = new_folder(&std::env::temp_dir(), "ebb-inside").unwrap();
        let path = |name: &str| folder.join(name);
        fs::create_dir_all(path("out/below")).unwrap();
        fs::create_dir(path("outer")).unwrap();
        fs::write(path("file"), "").unwrap();
        symlink("out/below", path("link")).unwrap();
        symlink("out/new", path("leads-into")).unwrap();
        symlink("new", path("out/leads-inside")).unwrap();
        for (file, into, inside) in [
            ("out/new", "out", true),
            ("out/below/new", "out", true),
            ("link/new", "out", true),
            ("leads-into", "out", true),
            ("out/leads-inside", "out", true),
            ("out/../out/new", "link/..", true),
            ("outer/new", "out", false),
            ("new", "out", false),
            ("out", "out", false),
            ("missing/new", "missing", false),
            ("new", "file", false),
        ] {
            assert_eq!(is_inside(&path(file), &path(into)), inside, "{file} {into}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

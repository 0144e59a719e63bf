//! The folders in which loaders look for libraries, from the configuration files of this host.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The configuration file of glibc's loader, a list of folders.
const GLIBC: &str = "/etc/ld.so.conf";
/// The path of the configuration file of musl's loader, a list of folders.
pub(super) const MUSL: &str = "/etc/ld-musl-x86_64.path";
/// The largest depth of files that include each other.
const DEPTH_MAX: usize = 8;
/// Folders that loaders always search.
const ALWAYS: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// Returns the folders that a program's loader searches last, in this order, each once. They are
/// those of the loader's configuration on this host, and five standard folders. `is_musl` selects
/// the configuration of musl instead of glibc's. A file that cannot be read counts as empty.
pub(super) fn configured(is_musl: bool) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if is_musl {
        let text = fs::read_to_string(MUSL).unwrap_or_default();
        let lines = text.split(['\n', ':']).map(str::trim);
        folders.extend(
            lines
                .filter(|line| line.starts_with('/'))
                .map(PathBuf::from),
        );
    } else {
        include(Path::new(GLIBC), DEPTH_MAX, &mut folders);
    }
    folders.extend(ALWAYS.map(PathBuf::from));
    let mut seen = BTreeSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// Returns the folders in `LD_LIBRARY_PATH` of `ebb`, which loaders search first, here and in the
/// guest. Makes relative folders absolute. Returns an empty list if the variable is not set.
pub(super) fn of_environment() -> Vec<PathBuf> {
    let text = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    env::split_paths(&text)
        .filter_map(|folder| std::path::absolute(folder).ok())
        .collect()
}

/// Adds to `folders` the folders that the glibc configuration file `path` lists, and those of the
/// files that it includes, down to `depth` levels.
fn include(path: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    let text = fs::read_to_string(path).unwrap_or_default();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.strip_prefix("include") {
            Some(rest) if rest.starts_with([' ', '\t']) => {
                for pattern in rest.split_whitespace() {
                    let beside = path.parent().unwrap_or(Path::new("/")).join(pattern);
                    for file in matching(&beside) {
                        include(&file, depth, folders);
                    }
                }
            }
            _ if line.starts_with('/') => folders.push(line.into()),
            _ => {}
        }
    }
}

/// Returns the files whose names match `pattern`, sorted. Only the last component may contain a
/// `*`, and only one. Without a `*`, returns `pattern` itself.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Some((start, end)) = name.split_once('*') else {
        return vec![pattern.to_owned()];
    };
    let entries = pattern
        .parent()
        .and_then(|folder| fs::read_dir(folder).ok());
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut found: Vec<_> = names
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let rest = name
                .strip_prefix(start)
                .and_then(|rest| rest.strip_suffix(end));
            rest.is_some() && !name.starts_with('.')
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_read_and_circles_end() {
        let folder = env::temp_dir().join(format!("ebb-loader-{}", std::process::id()));
        fs::create_dir_all(folder.join("more")).unwrap();
        let main = "# first\n/a\ninclude more/*.conf\n/b # last\nincluded\n";
        fs::write(folder.join("main"), main).unwrap();
        fs::write(folder.join("more/1.conf"), "/one\ninclude ../main\n").unwrap();
        fs::write(folder.join("more/2.conf"), "/two\n").unwrap();
        fs::write(folder.join("more/3.old"), "/three\n").unwrap();
        let mut found = Vec::new();
        include(&folder.join("main"), 2, &mut found);
        fs::remove_dir_all(&folder).unwrap();
        let expected = ["/a", "/one", "/two", "/b"].map(PathBuf::from);
        assert_eq!(found, expected);
    }

    #[test]
    fn the_folders_of_this_host_are_found() {
        let found = configured(false);
        assert!(found.contains(&PathBuf::from("/usr/lib")));
        assert!(found.iter().any(|folder| folder.join("libc.so.6").exists()));
    }
}

//! Finds programs of the host.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Returns the path of the first executable file called `name` in the folders of `PATH`. Ignores
/// relative folders in `PATH`. If `PATH` is not set, searches `/usr/local/bin`, `/usr/bin` and
/// `/bin`. Returns `None` if there is no such file.
pub(crate) fn search_path(name: &OsStr) -> Option<PathBuf> {
    search_path_all(name).into_iter().next()
}

/// Returns the paths of all executable files called `name` in the folders of `PATH`, as
/// [`search_path`] searches them, in their order.
pub(crate) fn search_path_all(name: &OsStr) -> Vec<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path)
        .filter(|entry| entry.is_absolute())
        .map(|entry| entry.join(name))
        .filter(|file| {
            file.metadata()
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .collect()
}

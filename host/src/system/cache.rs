//! The user's cache folder, for files that can be fetched or made again.

use std::env;
use std::path::PathBuf;

/// Returns the path of ebb's cache folder of this user, `$XDG_CACHE_HOME/ebb` or
/// `$HOME/.cache/ebb`. Does not create it. Returns `None` if neither variable is an absolute path.
pub(super) fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let directory =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(directory.join("ebb"))
}

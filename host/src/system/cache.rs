//! The user's folder of what can be had again.

use std::env;
use std::path::PathBuf;

/// Where ebb keeps what it can get again, for this user.
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

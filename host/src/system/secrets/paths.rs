//! Compares paths without a leading slash.

/// Returns whether `path` is `folder` or below it. Neither has a slash at its beginning. Every path
/// is below an empty `folder`, the root.
pub(crate) fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty()
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

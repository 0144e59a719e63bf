//! A directory that is being listed, between two answers.

use crate::system::FolderNames;

/// A directory that is being listed, with the position of the next name. It lets the next request
/// continue without reading the directory from its beginning.
#[derive(Debug)]
pub(super) struct Listing {
    /// The handle of the folder.
    pub(super) folder: u64,
    /// The names, with the position of the next one.
    pub(super) names: FolderNames,
}

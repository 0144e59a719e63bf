//! A directory that is being listed, between two answers.

use crate::system::FolderNames;

/// The progress of a directory's listing.
#[derive(Debug)]
pub(super) struct Listing {
    /// The handle of the folder.
    pub(super) folder: u64,
    /// The names, with the position of the next one.
    pub(super) names: FolderNames,
}

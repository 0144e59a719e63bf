//! A folder that is being listed, between two answers.

use crate::system::FolderNames;

/// How far the listing of a folder is.
#[derive(Debug)]
pub(super) struct Listing {
    /// The handle of the folder.
    pub(super) folder: u64,
    pub(super) names: FolderNames,
}

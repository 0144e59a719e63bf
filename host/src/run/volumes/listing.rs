//! A folder that is being listed: its names, as they were when that began.

/// The names of a folder.
#[derive(Debug)]
pub(super) struct Listing {
    /// The handle of the folder.
    pub(super) folder: u64,
    pub(super) names: Vec<Name>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) name: Box<[u8]>,
    pub(super) mode: u32,
    pub(super) inode: u64,
}

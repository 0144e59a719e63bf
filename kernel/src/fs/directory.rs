//! An open directory of any file system.

use super::file::{File, Seeks};
use super::flags::OpenFlags;
use super::io::ByteSink;
use super::node::{DirEntry, Node};
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};

/// A directory that can be listed.
pub trait Listing: Node {
    /// Calls `emit` with each entry from the listing offset `offset` on, until `emit` returns
    /// `false`. `offset` advances with each entry for which `emit` returned `true`.
    ///
    /// # Errors
    /// Fails with `ENOENT` if the directory is gone.
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno>;
}

/// An open directory.
#[derive(Debug)]
pub struct OpenDirectory<D>(pub Arc<D>);

impl<D: Listing> File for OpenDirectory<D> {
    fn read(&self, _: &mut dyn ByteSink, _: &mut u64, _: OpenFlags) -> SysResult {
        Err(Errno::EISDIR)
    }
    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.0.list(offset, emit)
    }
}

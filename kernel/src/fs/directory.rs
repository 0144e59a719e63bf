//! A directory that is open, of whichever file system.

use super::file::File;
use super::flags::OpenFlags;
use super::io::ByteSink;
use super::node::{DirEntry, Node};
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};

/// A directory that can be listed.
pub trait Listing: Node {
    /// Lists it from `offset` on, which moves with each entry that `emit` takes (`true`).
    ///
    /// # Errors
    /// `ENOENT`: it is gone.
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno>;
}

/// An open one.
#[derive(Debug)]
pub struct OpenDirectory<D>(pub Arc<D>);

impl<D: Listing> File for OpenDirectory<D> {
    fn read(&self, _: &mut dyn ByteSink, _: &mut u64, _: OpenFlags) -> SysResult {
        Err(Errno::EISDIR)
    }
    fn seekable(&self) -> bool {
        true
    }
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.0.list(offset, emit)
    }
}

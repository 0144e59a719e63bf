//! What can be mapped besides private anonymous memory.

use super::hugetlb::{HugeFile, Promises};
use super::pages::Wish;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::Range;
use ebb_mm::Frame;
use logic::errno::Errno;
use machine::memory::FrameRef;
use machine::memory::hugetlb::PageSize;

pub use super::mappings::Mappings;

/// What [`PageSource::relocate`] does with the file's place for the page, under the lock that all
/// who look for the page take: the old frame, which is to be dropped without it; `None`: it stays.
pub fn relocate_in(place: Option<&mut FrameRef>, from: Frame, to: FrameRef) -> Option<FrameRef> {
    // With the lock held nobody gets a reference to the frame but from one that there is.
    let place = place.filter(|place| place.frame() == from && place.references() == 1)?;
    to.copy_from(place);
    Some(core::mem::replace(place, to))
}

/// What a file has where one huge page may show it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Block {
    /// A huge block, of whose frames the caller has got a reference to each.
    Shared(Frame),
    /// None yet: [`PageSource::make_block`] may help.
    Possible,
    /// None.
    None,
}

/// What a mappable file offers. tmpfs files implement it; shared anonymous memory is one too.
pub trait PageSource: Send + Sync {
    /// The page with this number: made (of zeros) where the file has a hole, with a huge block
    /// around it where the file may have such and the mapping's `wish` is not against it. May wait
    /// for memory; called without a spin lock held.
    ///
    /// # Errors
    /// `None` is beyond the end of the file (the program gets `SIGBUS`), `ENOMEM`/`ENOSPC` when no
    /// page could be made.
    fn page(&self, index: u64, wish: Wish) -> Result<Option<FrameRef>, Errno>;

    /// Pages that are there already, from the one with this number on, each in its place. Called
    /// with a spin lock held: does not wait and makes nothing. May leave out what it likes.
    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        let _ = (first, pages);
    }

    /// Puts a frame in the place of another that holds a page of the file, with its bytes, if
    /// nobody but the file has that one. Whether it did.
    fn relocate(&self, index: u64, from: Frame, to: FrameRef) -> bool {
        let _ = (index, from, to);
        false
    }

    /// Whether mappings of it had better be aligned for huge pages.
    fn has_blocks(&self) -> bool {
        false
    }

    /// Has a huge block be the 2 MiB around a page, if the file may have such and has nothing
    /// there. May wait; called without a spin lock held.
    fn make_block(&self, index: u64, wish: Wish) {
        let _ = (index, wish);
    }

    /// The huge block that the 2 MiB from page `first` on are. Called with a spin lock held: does
    /// not wait.
    fn share_block(&self, first: u64, wish: Wish) -> Block {
        let _ = (first, wish);
        Block::None
    }

    /// Frees the bytes (`MADV_REMOVE`).
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file cannot.
    fn punch(&self, range: Range<u64>) -> Result<(), Errno> {
        let _ = range;
        Err(Errno::EOPNOTSUPP)
    }

    /// Has what was stored be stable (`msync`). May wait; called without a spin lock held.
    ///
    /// # Errors
    /// What could not be written.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// The file, if it is one of huge pages.
    fn as_huge(&self) -> Option<&HugeFile> {
        None
    }

    /// How many of its pages are in memory; 0 where nobody counts them.
    fn resident(&self) -> u64 {
        0
    }

    /// Who maps it. The file keeps this and calls [`Mappings::invalidate`] *after* it has dropped
    /// pages (truncate, hole), so that nobody goes on using them.
    fn mappings(&self) -> &Mappings;
}

/// Who counts in how many spaces a file is mapped: System V shared memory does.
pub trait Attachment: Send + Sync {
    /// A child gets the mapping, too; its own attachment. Called with a spin lock held.
    fn inherit(&self) -> Arc<dyn Attachment>;
    /// The last area of the mapping is gone from its space.
    fn leave(&self);
}

/// What a file is called in `/proc/PID/maps`.
#[derive(Clone, Debug)]
pub struct MappedName {
    /// Its path.
    pub path: Arc<[u8]>,
    /// Its inode number.
    pub inode: u64,
    /// Its device number.
    pub device: u64,
}

/// A file as a mapping knows it; one for each `mmap` call, shared by what it is split into. Who
/// only looks takes `source` and `name` out of it: an extra reference would keep a file from being
/// sealed.
pub struct MappedFile {
    /// Where the pages come from.
    pub source: Arc<dyn PageSource>,
    /// What it is called.
    pub name: MappedName,
    /// Counted as shared memory (`RssShmem`) rather than as file pages.
    pub shmem: bool,
    /// Whether `mprotect` may allow instruction fetches.
    pub executable: bool,
    /// What stays as long as the mapping does.
    pub hold: Option<Arc<dyn Any + Send + Sync>>,
    /// Who counts the spaces that map it, if anybody does.
    attachment: Option<Arc<dyn Attachment>>,
    /// Counted in [`Mappings`] as one that may store to the file.
    stores: bool,
    /// Pages that are kept for a private mapping.
    promises: Option<Promises>,
}

impl MappedFile {
    /// A file, with what it is called in `/proc/PID/maps`.
    pub fn new(source: Arc<dyn PageSource>, path: Arc<[u8]>, inode: u64, device: u64) -> Self {
        Self {
            source,
            name: MappedName {
                path,
                inode,
                device,
            },
            shmem: false,
            executable: true,
            hold: None,
            attachment: None,
            stores: false,
            promises: None,
        }
    }

    /// Has the mapping be counted; `attachment` is told when it is gone from its space.
    pub fn attach(&mut self, attachment: Arc<dyn Attachment>) {
        self.attachment = Some(attachment);
    }

    /// Whether the spaces that map it are counted: then each has a `MappedFile` of its own.
    pub(super) fn is_attached(&self) -> bool {
        self.attachment.is_some()
    }

    /// The same file for a child, if it is counted once more there.
    pub(super) fn for_child(&self) -> Option<Self> {
        let attachment = self.attachment.as_ref()?.inherit();
        Some(Self {
            source: self.source.clone(),
            name: self.name.clone(),
            shmem: self.shmem,
            executable: self.executable,
            hold: self.hold.clone(),
            attachment: Some(attachment),
            // Whose spaces are counted is never sealed.
            stores: false,
            // A child was promised nothing.
            promises: None,
        })
    }

    /// The same file for another mapping in the same space.
    pub(super) fn again(&self) -> Self {
        self.for_child().unwrap_or_else(|| Self {
            source: self.source.clone(),
            name: self.name.clone(),
            shmem: self.shmem,
            executable: self.executable,
            hold: self.hold.clone(),
            attachment: None,
            stores: false,
            promises: None,
        })
    }

    /// Makes it a mapping that may store to the file, until the last area of it is gone.
    ///
    /// # Errors
    /// `EPERM`: the file is sealed against it.
    pub(super) fn claim_stores(&mut self) -> Result<(), Errno> {
        self.source.mappings().claim_stores()?;
        self.stores = true;
        Ok(())
    }

    /// Has huge pages kept for a private mapping of these bytes.
    ///
    /// # Errors
    /// `ENOMEM`: the pool has not as many.
    pub(super) fn promise(&mut self, owner: u64, range: &Range<u64>) -> Result<(), Errno> {
        if let Some(huge) = self.source.as_huge() {
            self.promises = Some(Promises::new(owner, huge, range)?);
        }
        Ok(())
    }

    /// What is kept for it.
    pub(super) fn promises(&self) -> Option<&Promises> {
        self.promises.as_ref()
    }

    /// Whether two are the same file.
    pub(super) fn same_source(&self, source: *const ()) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(&self.source), source)
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.stores {
            self.source.mappings().release_stores();
        }
        if let Some(attachment) = self.attachment.take() {
            attachment.leave();
        }
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedFile")
            .field("inode", &self.name.inode)
            .finish_non_exhaustive()
    }
}

impl Backing {
    /// The size of its pages, if it is a file of huge ones.
    pub(super) fn huge_size(&self) -> Option<PageSize> {
        match self {
            Self::File { file, .. } => Some(file.source.as_huge()?.page_size()),
            _ => None,
        }
    }
}

/// What a new mapping shows.
#[derive(Debug)]
pub enum Backing {
    /// Zeros, private.
    Anonymous,
    /// Zeros, shared with children.
    SharedAnonymous {
        /// Whether `mprotect` may allow stores, or the mapping have them.
        writable: bool,
    },
    /// A file.
    File {
        /// The file.
        file: MappedFile,
        /// Where in it, in bytes; a multiple of the page size.
        offset: u64,
        /// Stores reach the file.
        shared: bool,
        /// Whether the descriptor allows stores (matters for shared mappings).
        writable: bool,
    },
}

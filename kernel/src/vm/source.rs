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

/// Replaces the frame `from` in a file's place for a page by `to`, for [`PageSource::relocate`].
/// The caller holds the lock of all lookups of the page. Returns the old frame, to be dropped
/// without the lock, or `None` if it stays.
pub fn relocate_in(place: Option<&mut FrameRef>, from: Frame, to: FrameRef) -> Option<FrameRef> {
    // With the lock held, new references to the frame come from existing ones alone.
    let place = place.filter(|place| place.frame() == from && place.references() == 1)?;
    to.copy_from(place);
    Some(core::mem::replace(place, to))
}

/// What a file has where one huge page may show it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Block {
    /// A huge block. The caller has got a reference to each of its frames.
    Shared(Frame),
    /// None yet: [`PageSource::make_block`] may help.
    Possible,
    /// None.
    None,
}

/// What a mappable file offers. tmpfs files implement it; shared anonymous memory is one too.
pub trait PageSource: Send + Sync {
    /// Returns the page `index`. In a hole it allocates a page of zeros, with a huge block around
    /// it if the file may have one and the mapping's `wish` allows it. May wait for memory. The
    /// caller holds no spin lock. Returns `None` beyond the end of the file (the program gets
    /// `SIGBUS`).
    ///
    /// # Errors
    /// `ENOMEM` or `ENOSPC` if no page could be allocated.
    fn page(&self, index: u64, wish: Wish) -> Result<Option<FrameRef>, Errno>;

    /// Fills `pages` with the present pages from `first` on, each in its place. May leave any of
    /// them out. The caller holds a spin lock, so this neither waits nor allocates.
    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        let _ = (first, pages);
    }

    /// Replaces the frame `from` of a page by `to`, and copies its bytes, if the file has the only
    /// reference to it. Returns whether it did.
    fn relocate(&self, index: u64, from: Frame, to: FrameRef) -> bool {
        let _ = (index, from, to);
        false
    }

    /// Whether mappings of it had better be aligned for huge pages.
    fn has_blocks(&self) -> bool {
        false
    }

    /// Allocates a huge block for the 2 MiB around a page, if the file may have one and has no page
    /// there. May wait. The caller holds no spin lock.
    fn make_block(&self, index: u64, wish: Wish) {
        let _ = (index, wish);
    }

    /// Returns the huge block of the 2 MiB from page `first` on. The caller holds a spin lock, so
    /// this does not wait.
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

    /// Writes stored bytes to stable storage (`msync`). May wait. The caller holds no spin lock.
    ///
    /// # Errors
    /// Those of the write.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// The file, if it is one of huge pages.
    fn as_huge(&self) -> Option<&HugeFile> {
        None
    }

    /// Returns the number of its pages in memory, or 0 if they are not counted.
    fn resident(&self) -> u64 {
        0
    }

    /// Returns its mappings. The file calls [`Mappings::invalidate`] *after* it has dropped pages
    /// (truncate, hole), so that no mapping goes on using them.
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

/// The file of a mapping: one for each `mmap` call, shared by the areas that the mapping is split
/// into. Code that only reads clones `source` and `name`: an extra reference would keep a file from
/// being sealed.
pub struct MappedFile {
    /// Where the pages come from.
    pub source: Arc<dyn PageSource>,
    /// Its name.
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
    /// Returns a file with its name in `/proc/PID/maps`.
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

    /// Counts the mapping: `attachment` is notified when the mapping has left its space.
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

    /// Returns its reservation in the pool of huge pages.
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

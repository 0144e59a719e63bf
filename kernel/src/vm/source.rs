//! The files that can be mapped, and the backing of new mappings.

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

/// The result of [`PageSource::share_block`]: whether one huge page can map a region of 2 MiB of a
/// file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Block {
    /// The file has a huge block. The caller now owns a reference to each of its frames.
    Shared(Frame),
    /// The file has no huge block yet. [`PageSource::make_block`] may create one.
    Possible,
    /// The file cannot have a huge block there.
    None,
}

/// A file that can be mapped, such as a file of tmpfs, of a disk or of the host, or shared
/// anonymous memory.
pub trait PageSource: Send + Sync {
    /// Returns page `index` of the file. If the file has no such page in memory, reads it or
    /// allocates a zeroed one. Allocates a huge block around it if the file may have one and the
    /// mapping's `wish` allows it. May wait. The caller holds no spin lock. Returns `None` behind
    /// the end of the file; the program gets `SIGBUS` then.
    ///
    /// # Errors
    /// Fails with `ENOMEM` or `ENOSPC` if no page could be allocated, and with the error of the
    /// read.
    fn page(&self, index: u64, wish: Wish) -> Result<Option<FrameRef>, Errno>;

    /// Sets each element of `pages` to a reference to its page, if that page is in memory: the
    /// first element is page `first`. The file may leave out any page. The caller passes only
    /// `None` elements. It holds a spin lock, so this neither waits nor allocates.
    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        let _ = (first, pages);
    }

    /// Returns whether mappings of the file should be aligned for huge pages.
    fn has_blocks(&self) -> bool {
        false
    }

    /// Allocates a huge block for the 2 MiB around page `index`, if the file may have one, the
    /// mapping's `wish` allows it, and no page there is in memory. May wait. The caller holds no
    /// spin lock.
    fn make_block(&self, index: u64, wish: Wish) {
        let _ = (index, wish);
    }

    /// Finds the huge block that holds the 2 MiB from page `first` on, and takes a reference to
    /// each of its frames for the caller. If there is none, returns whether [`Self::make_block`]
    /// may create one with the mapping's `wish`. Does not wait, because the caller holds a spin
    /// lock.
    fn share_block(&self, first: u64, wish: Wish) -> Block {
        let _ = (first, wish);
        Block::None
    }

    /// Frees the bytes of `range` (`MADV_REMOVE`).
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if the file cannot free bytes, and with `EPERM` if it is sealed
    /// against stores.
    fn punch(&self, range: Range<u64>) -> Result<(), Errno> {
        let _ = range;
        Err(Errno::EOPNOTSUPP)
    }

    /// Writes stored bytes to stable storage (`msync`). May wait. The caller holds no spin lock.
    ///
    /// # Errors
    /// Fails with the errors of the write.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Returns the file as a file of huge pages, or `None` if it is another kind of file.
    fn as_huge(&self) -> Option<&HugeFile> {
        None
    }

    /// Returns the number of the file's pages in memory, or 0 if they are not counted.
    fn resident(&self) -> u64 {
        0
    }

    /// Returns the file's mappings. The file calls [`Mappings::invalidate`] *after* it has dropped
    /// pages (truncate, hole), so that no mapping continues to use them.
    fn mappings(&self) -> &Mappings;
}

/// The attachment of one mapping to a file that counts its mappings, as System V shared memory
/// does. The code that creates a value counts the mapping.
pub trait Attachment: Send + Sync {
    /// Counts one more mapping of the file, of a child of `fork` or in the same space, and returns
    /// its attachment.
    fn inherit(&self) -> Arc<dyn Attachment>;
    /// Uncounts the mapping. Called when the last area of the mapping has left its space.
    fn leave(&self);
}

/// The name of a file in `/proc/PID/maps`.
#[derive(Clone, Debug)]
pub struct MappedName {
    /// The path of the file.
    pub path: Arc<[u8]>,
    /// The inode number of the file.
    pub inode: u64,
    /// The device number of the file.
    pub device: u64,
}

/// The file of a mapping. There is one for each `mmap` call, shared by the areas that the mapping
/// is split into. Code that only reads clones `source` and `name`, because an extra reference would
/// keep a file from being sealed.
pub struct MappedFile {
    /// The source of the pages.
    pub source: Arc<dyn PageSource>,
    /// The name of the file.
    pub name: MappedName,
    /// Whether the pages count as shared memory (`RssShmem`), not as file pages.
    pub shmem: bool,
    /// Whether `mprotect` may allow instruction fetches.
    pub executable: bool,
    /// Whether the mapping is from a descriptor for writing.
    pub writable: bool,
    /// A value that must exist as long as the mapping, if any.
    pub hold: Option<Arc<dyn Any + Send + Sync>>,
    /// The attachment of this mapping, if the file counts its mappings.
    attachment: Option<Arc<dyn Attachment>>,
    /// Whether [`Mappings`] counts this mapping as one that may store to the file.
    stores: bool,
    /// The reservation of pages of the pool for a private mapping. `None` if there is none.
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
            writable: false,
            hold: None,
            attachment: None,
            stores: false,
            promises: None,
        }
    }

    /// Records `attachment`, which counts this mapping for the file. [`Attachment::leave`] is
    /// called when the last area of the mapping has left the space.
    pub fn attach(&mut self, attachment: Arc<dyn Attachment>) {
        self.attachment = Some(attachment);
    }

    /// Returns whether the file counts its mappings ([`Self::attach`]). Each space has a separate
    /// `MappedFile` then.
    pub(super) fn is_attached(&self) -> bool {
        self.attachment.is_some()
    }

    /// Returns a separate `MappedFile` for the child's copy of the mapping, if the file counts its
    /// mappings. Returns `None` if the child can share this one.
    pub(super) fn for_child(&self) -> Option<Self> {
        let attachment = self.attachment.as_ref()?.inherit();
        Some(Self {
            source: self.source.clone(),
            name: self.name.clone(),
            shmem: self.shmem,
            executable: self.executable,
            writable: self.writable,
            hold: self.hold.clone(),
            attachment: Some(attachment),
            // A file that counts its mappings is never sealed.
            stores: false,
            // The parent keeps the reservation.
            promises: None,
        })
    }

    /// Returns a new `MappedFile` of the same file, for another mapping in the same space.
    pub(super) fn again(&self) -> Self {
        self.for_child().unwrap_or_else(|| Self {
            source: self.source.clone(),
            name: self.name.clone(),
            shmem: self.shmem,
            executable: self.executable,
            writable: self.writable,
            hold: self.hold.clone(),
            attachment: None,
            stores: false,
            promises: None,
        })
    }

    /// Makes this a mapping that may store to the file, until its last area is gone.
    ///
    /// # Errors
    /// Fails with `EPERM` if the file is sealed against stores.
    pub(super) fn claim_stores(&mut self) -> Result<(), Errno> {
        self.source.mappings().claim_stores()?;
        self.stores = true;
        Ok(())
    }

    /// Reserves huge pages for a private mapping of the bytes `range`, for the space number
    /// `owner`. Does nothing for other files.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if the pool does not have this number of free pages, the file system of
    /// the file may not have them, or memory is short.
    pub(super) fn promise(&mut self, owner: u64, range: &Range<u64>) -> Result<(), Errno> {
        if let Some(huge) = self.source.as_huge() {
            self.promises = Some(Promises::new(owner, huge, range)?);
        }
        Ok(())
    }

    /// Returns the mapping's reservation in the pool of huge pages, or `None` if [`Self::promise`]
    /// has made none.
    pub(super) fn promises(&self) -> Option<&Promises> {
        self.promises.as_ref()
    }

    /// Returns whether the file's source is at the address `source`.
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
    /// Returns the page size of a file of huge pages. Returns `None` for other files.
    pub(super) fn huge_size(&self) -> Option<PageSize> {
        match self {
            Self::File { file, .. } => Some(file.source.as_huge()?.page_size()),
            _ => None,
        }
    }
}

/// The content of a new mapping.
#[derive(Debug)]
pub enum Backing {
    /// Private memory, all zero.
    Anonymous,
    /// Memory shared with children, all zero.
    SharedAnonymous {
        /// Whether the mapping may have the right to store, now or later by `mprotect`.
        writable: bool,
    },
    /// A file.
    File {
        /// The file.
        file: MappedFile,
        /// The offset in the file in bytes, a multiple of the page size.
        offset: u64,
        /// Whether stores reach the file (`MAP_SHARED`).
        shared: bool,
        /// Whether the descriptor allows stores, which matters for shared mappings.
        writable: bool,
    },
}

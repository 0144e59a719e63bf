//! Pages of another domain, which grant references name. The hypervisor maps or copies them.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;

/// Size of a granted page in bytes, in every blkif layout that this back-end supports.
pub const GRANT_BYTES: usize = 4096;

/// The number of a Xen domain.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DomainId(pub u16);

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {}", self.0)
    }
}

/// The number by which a domain names a page that it grants. It comes from the other domain and may
/// name no page.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GrantRef(pub u32);

/// One copy between a granted page and local memory.
#[derive(Copy, Clone, Debug)]
pub struct Transfer {
    /// The granted page.
    pub grant: GrantRef,
    /// First byte in the page.
    pub offset: u16,
    /// Length in bytes. The range must end inside the page.
    pub bytes: u16,
    /// Address of the local memory.
    pub local: *mut u8,
    /// Set by [`Grants::copy`]: whether the bytes were copied.
    pub done: bool,
}

/// The direction of a copy between granted pages and local memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From granted pages to local memory.
    FromGrants,
    /// From local memory to granted pages.
    ToGrants,
}

/// The hypervisor's operations on granted pages.
pub trait Grants: fmt::Debug {
    /// Maps the pages `grants` of `domain` at consecutive addresses, writable if `write` is set.
    /// Returns the address of the first page, and the index for [`Self::unmap`].
    ///
    /// # Errors
    /// Fails if one of the pages is not granted for this access, if there is none or too many for
    /// one call, or if memory is short. No page is then mapped.
    fn map(
        &self,
        domain: DomainId,
        grants: &[GrantRef],
        write: bool,
    ) -> io::Result<(NonNull<u8>, u64)>;

    /// Unmaps the `pages` pages at `base` that one call of [`Self::map`] has mapped. `index` is the
    /// one that it returned.
    ///
    /// # Safety
    /// The values must be those of an existing mapping, which no code uses any more.
    unsafe fn unmap(&self, base: NonNull<u8>, pages: u32, index: u64);

    /// Carries out `transfers` with pages of `domain`, and sets `done` of each. A transfer is not
    /// done if its page is not granted for this access; the others are done nevertheless.
    ///
    /// # Safety
    /// Local memory must be valid for the bytes of each transfer, and writable if the direction is
    /// from grants.
    unsafe fn copy(&self, domain: DomainId, direction: Direction, transfers: &mut [Transfer]);
}

/// Pages of another domain that are mapped at consecutive addresses while this value lives.
#[derive(Debug)]
pub struct Mapping {
    grants: Rc<dyn Grants>,
    base: NonNull<u8>,
    pages: u32,
    index: u64,
}

impl Mapping {
    /// Maps the pages `refs` of `domain` by `grants`, writable if `write` is set.
    ///
    /// # Errors
    /// See [`Grants::map`].
    pub fn new(
        grants: &Rc<dyn Grants>,
        domain: DomainId,
        refs: &[GrantRef],
        write: bool,
    ) -> io::Result<Self> {
        let pages = u32::try_from(refs.len()).map_err(io::Error::other)?;
        let (base, index) = grants.map(domain, refs, write)?;
        Ok(Self {
            grants: grants.clone(),
            base,
            pages,
            index,
        })
    }

    /// Returns the address of the first page. It is valid for [`Self::bytes`] bytes while this
    /// value lives. The other domain may write to the pages at any time.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the size of all pages in bytes.
    pub fn bytes(&self) -> usize {
        self.pages as usize * GRANT_BYTES
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and the address was borrowed from this value.
        unsafe { self.grants.unmap(self.base, self.pages, self.index) };
    }
}

//! Another domain's pages: named by grant references, mapped or copied by the hypervisor.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;

/// Bytes of a granted page, on every ABI of blkif that is spoken here.
pub const GRANT_BYTES: usize = 4096;

/// A domain by its number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DomainId(pub u16);

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {}", self.0)
    }
}

/// What a domain calls a page that it lets another one use. An allegation: it may name nothing.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GrantRef(pub u32);

/// Bytes to be copied between a granted page and memory of ours.
#[derive(Copy, Clone, Debug)]
pub struct Transfer {
    /// The page.
    pub grant: GrantRef,
    /// First byte in it.
    pub offset: u16,
    /// How many; they end inside of the page.
    pub bytes: u16,
    /// Our memory.
    pub local: *mut u8,
    /// Whether it was copied.
    pub done: bool,
}

/// Which way bytes are copied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the granted pages.
    FromGrants,
    /// To the granted pages.
    ToGrants,
}

/// What the hypervisor does for us with pages of others.
pub trait Grants: fmt::Debug {
    /// Maps pages of `domain` next to each other. Returns where, and what to unmap them by.
    ///
    /// # Errors
    /// If one of them is not granted to us in this way, or there is no room.
    fn map(
        &self,
        domain: DomainId,
        grants: &[GrantRef],
        write: bool,
    ) -> io::Result<(NonNull<u8>, u64)>;

    /// Undoes [`Self::map`].
    ///
    /// # Safety
    /// The values are those of a mapping that exists, and nothing uses it any more.
    unsafe fn unmap(&self, base: NonNull<u8>, pages: u32, index: u64);

    /// Copies, and says of each transfer whether it was done: it is not if its page is not granted
    /// to us in this way. One that is not done keeps no other from it.
    ///
    /// # Safety
    /// The local memory is valid for its bytes, and for writing if the direction is from grants.
    unsafe fn copy(&self, domain: DomainId, direction: Direction, transfers: &mut [Transfer]);
}

/// Pages of another domain in our address space, while this lives.
#[derive(Debug)]
pub struct Mapping {
    grants: Rc<dyn Grants>,
    base: NonNull<u8>,
    pages: u32,
    index: u64,
}

impl Mapping {
    /// Maps `refs`, next to each other.
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

    /// Where the pages begin. Valid for [`Self::bytes`] while this lives. The other domain may
    /// write to them at any time.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// All of their bytes.
    pub fn bytes(&self) -> usize {
        self.pages as usize * GRANT_BYTES
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped them, and who borrowed the address did so from this value.
        unsafe { self.grants.unmap(self.base, self.pages, self.index) };
    }
}

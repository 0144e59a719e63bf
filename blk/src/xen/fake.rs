//! A simulated domain in this process, for tests: pages that can be granted, rings in them, event
//! channels and a xenstore.

use super::evtchn::{Events, Port};
use super::front::{self, SharedWords};
use super::grants::{Direction, DomainId, GRANT_BYTES, GrantRef, Grants, Mapping, Transfer};
use super::protocol::Abi;
use super::store::{Store, StoreError, Transaction, WatchEvent};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

/// The number of the simulated domain that grants pages.
pub(super) const DOMAIN: DomainId = DomainId(7);

/// The memory of a simulated domain, all of whose pages are granted. The grant number N names its
/// page N.
#[derive(Debug)]
pub(super) struct FakeGrants {
    memory: OwnedFd,
    pages: u32,
    /// The mapping of all pages as the domain itself sees them.
    own: NonNull<u8>,
    /// Grants that the domain has revoked.
    pub(super) revoked: RefCell<BTreeSet<GrantRef>>,
    /// Number of pages that the back-end has mapped.
    pub(super) mapped: Cell<u32>,
    /// Number of copy calls.
    pub(super) copies: Cell<u32>,
}

impl FakeGrants {
    /// Makes a domain with `pages` pages, all of which are granted.
    pub(super) fn new(pages: u32) -> Rc<Self> {
        let memory = memfd_create("fake-domain", MemfdFlags::CLOEXEC).unwrap();
        let bytes = pages as usize * GRANT_BYTES;
        rustix::fs::ftruncate(&memory, bytes as u64).unwrap();
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of the new mapping, so no other memory is
        // affected.
        let own = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                rw,
                MapFlags::SHARED,
                &memory,
                0,
            )
        };
        Rc::new(Self {
            memory,
            pages,
            own: NonNull::new(own.unwrap().cast()).unwrap(),
            revoked: RefCell::default(),
            mapped: Cell::new(0),
            copies: Cell::new(0),
        })
    }

    /// Fails if `grant` names no page or is revoked.
    fn granted(&self, grant: GrantRef) -> io::Result<()> {
        if grant.0 >= self.pages || self.revoked.borrow().contains(&grant) {
            return Err(io::Error::other(format!("no grant {}", grant.0)));
        }
        Ok(())
    }

    /// Returns the domain's own address of a byte.
    fn at(&self, grant: GrantRef, offset: usize) -> *mut u8 {
        assert!(offset <= GRANT_BYTES);
        let start = grant.0 as usize * GRANT_BYTES + offset;
        self.own.as_ptr().wrapping_add(start)
    }

    /// Writes `bytes` to the page `grant` from `offset` on, as the domain itself. Panics if the
    /// page is not granted or too short.
    pub(super) fn fill(&self, grant: GrantRef, offset: usize, bytes: &[u8]) {
        assert!(self.granted(grant).is_ok() && offset + bytes.len() <= GRANT_BYTES);
        // SAFETY: the assertion checked that the bytes are inside the page, and `bytes` does not
        // overlap it.
        unsafe {
            self.at(grant, offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        };
    }

    /// Returns the contents of the page `grant`, as the domain itself sees it.
    pub(super) fn page(&self, grant: GrantRef) -> Vec<u8> {
        let mut bytes = vec![0; GRANT_BYTES];
        // SAFETY: the range is a whole page of the mapping.
        unsafe {
            self.at(grant, 0)
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), GRANT_BYTES);
        };
        bytes
    }

    /// Returns the word at `offset` in bytes of the page `grant`, as the domain itself sees it.
    /// Panics if `offset` is not a multiple of 4.
    pub(super) fn word(&self, grant: GrantRef, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: the word is inside the mapping, aligned, and lives as long as `self`.
        unsafe { &*self.at(grant, offset).cast() }
    }
}

impl Drop for FakeGrants {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping with this length.
        let _ = unsafe { munmap(self.own.as_ptr().cast(), self.pages as usize * GRANT_BYTES) };
    }
}

impl Grants for FakeGrants {
    fn map(
        &self,
        domain: DomainId,
        grants: &[GrantRef],
        write: bool,
    ) -> io::Result<(NonNull<u8>, u64)> {
        assert_eq!(domain, DOMAIN);
        for grant in grants {
            self.granted(*grant)?;
        }
        let bytes = grants.len() * GRANT_BYTES;
        let protection = if write {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        // SAFETY: all mappings are new: a reservation of address space first, then the pages over
        // it.
        let base = unsafe {
            let base = mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )?;
            for (index, grant) in grants.iter().enumerate() {
                mmap(
                    base.cast::<u8>().add(index * GRANT_BYTES).cast(),
                    GRANT_BYTES,
                    protection,
                    MapFlags::SHARED | MapFlags::FIXED,
                    &self.memory,
                    u64::from(grant.0) * GRANT_BYTES as u64,
                )?;
            }
            base
        };
        let pages = u32::try_from(grants.len()).unwrap();
        self.mapped.set(self.mapped.get() + pages);
        Ok((NonNull::new(base.cast()).unwrap(), 0))
    }

    unsafe fn unmap(&self, base: NonNull<u8>, pages: u32, _index: u64) {
        // SAFETY: the caller guarantees that `map` made this mapping.
        unsafe { munmap(base.as_ptr().cast(), pages as usize * GRANT_BYTES) }.unwrap();
        self.mapped.set(self.mapped.get() - pages);
    }

    unsafe fn copy(&self, domain: DomainId, direction: Direction, transfers: &mut [Transfer]) {
        assert_eq!(domain, DOMAIN);
        self.copies.set(self.copies.get() + 1);
        for transfer in transfers {
            transfer.done = self.granted(transfer.grant).is_ok();
            if !transfer.done {
                continue;
            }
            let bytes = usize::from(transfer.bytes);
            assert!(usize::from(transfer.offset) + bytes <= GRANT_BYTES);
            let foreign = self.at(transfer.grant, transfer.offset.into());
            // SAFETY: the range is inside the page, and the caller guarantees that local memory is
            // valid.
            unsafe {
                match direction {
                    Direction::FromGrants => transfer.local.copy_from(foreign, bytes),
                    Direction::ToGrants => transfer.local.copy_to(foreign, bytes),
                }
            }
        }
    }
}

/// Simulated event channels, which record their use.
#[derive(Debug, Default)]
pub(super) struct FakeEvents {
    /// Ports that are bound.
    pub(super) bound: RefCell<BTreeSet<Port>>,
    /// Ports that were notified, in order.
    pub(super) notified: RefCell<Vec<Port>>,
    /// Ports that were unmasked, in order.
    pub(super) unmasked: RefCell<Vec<Port>>,
    /// Ports that [`Events::pending`] returns next.
    pub(super) pending: RefCell<Vec<Port>>,
    next: Cell<u32>,
}

impl Events for FakeEvents {
    fn bind(&self, domain: DomainId, remote: u32) -> io::Result<Port> {
        assert_eq!(domain, DOMAIN);
        if remote == 0 {
            return Err(io::Error::other("no such port"));
        }
        self.next.set(self.next.get() + 1);
        let port = Port(self.next.get());
        self.bound.borrow_mut().insert(port);
        Ok(port)
    }

    fn unbind(&self, port: Port) {
        assert!(self.bound.borrow_mut().remove(&port), "{port:?} unbound");
    }

    fn notify(&self, port: Port) {
        self.notified.borrow_mut().push(port);
    }

    fn unmask(&self, port: Port) {
        self.unmasked.borrow_mut().push(port);
    }

    fn pending(&self) -> Vec<Port> {
        self.pending.take()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The pages of a domain that hold a ring.
#[derive(Debug)]
pub(super) struct RingPages {
    domain: Rc<FakeGrants>,
    /// The grant of the first page.
    pub(super) first: GrantRef,
    pages: u32,
}

impl SharedWords for RingPages {
    fn word(&self, offset: usize) -> &AtomicU32 {
        let page = u32::try_from(offset / GRANT_BYTES).unwrap();
        let page = GrantRef(self.first.0 + page);
        self.domain.word(page, offset % GRANT_BYTES)
    }

    fn bytes(&self) -> usize {
        self.pages as usize * GRANT_BYTES
    }
}

/// The front-end's side of a ring in a simulated domain.
pub(super) type FrontRing = front::FrontRing<RingPages>;

impl FrontRing {
    /// Makes a ring in `pages` pages of `domain` from the grant `first` on.
    pub(super) fn new(domain: &Rc<FakeGrants>, first: u32, pages: u32, abi: Abi) -> Self {
        let memory = RingPages {
            domain: domain.clone(),
            first: GrantRef(first),
            pages,
        };
        Self::over(memory, abi)
    }

    /// Maps the pages of the ring, as the back-end does. Panics if they are not granted.
    pub(super) fn map(&self) -> Mapping {
        let RingPages {
            domain,
            first,
            pages,
        } = self.memory();
        let grants: Rc<dyn Grants> = domain.clone();
        let refs: Vec<_> = (0..*pages).map(|n| GrantRef(first.0 + n)).collect();
        Mapping::new(&grants, DOMAIN, &refs, true).unwrap()
    }

    /// Takes all answers that have arrived: id, operation and status of each.
    pub(super) fn answers(&mut self) -> Vec<(u64, u8, i16)> {
        let answers = std::iter::from_fn(|| self.answer());
        answers.map(|a| (a.id, a.operation, a.status)).collect()
    }
}

/// A simulated xenstore without watches. Tests call the code that reads it after each change.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeStore(Rc<RefCell<BTreeMap<String, String>>>, Rc<Cell<usize>>);

impl FakeStore {
    /// Sets the value at `path`.
    pub(crate) fn set(&self, path: &str, value: &str) {
        self.0.borrow_mut().insert(path.into(), value.into());
    }

    /// Returns the value at `path`, or an empty text if it does not exist.
    pub(crate) fn get(&self, path: &str) -> String {
        self.0.borrow().get(path).cloned().unwrap_or_default()
    }

    /// Returns the number of transactions that have begun and not ended.
    pub(crate) fn open_transactions(&self) -> usize {
        self.1.get()
    }

    /// Returns whether the store has no value at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Removes all values whose path begins with the text `folder`.
    pub(crate) fn remove(&self, folder: &str) {
        self.0
            .borrow_mut()
            .retain(|path, _| !path.starts_with(folder));
    }
}

impl Store for FakeStore {
    fn read(&mut self, _: Transaction, path: &str) -> Result<Option<String>, StoreError> {
        Ok(self.0.borrow().get(path).cloned())
    }

    fn write(&mut self, _: Transaction, path: &str, value: &str) -> Result<(), StoreError> {
        if path.len() + 1 + value.len() > 4096 {
            return Err(StoreError::Refused {
                operation: "write",
                path: path.into(),
                why: "E2BIG".into(),
            });
        }
        self.set(path, value);
        Ok(())
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, StoreError> {
        let folder = format!("{path}/");
        let store = self.0.borrow();
        let below = store.keys().filter_map(|key| key.strip_prefix(&folder));
        let names: BTreeSet<_> = below.filter_map(|rest| rest.split('/').next()).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    fn watch(&mut self, _: &str, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(&mut self) -> Result<Transaction, StoreError> {
        self.1.update(|open| open + 1);
        Ok(Transaction(1))
    }

    fn commit(&mut self, _: Transaction) -> Result<bool, StoreError> {
        self.1.update(|open| open - 1);
        Ok(true)
    }

    fn abort(&mut self, _: Transaction) -> Result<(), StoreError> {
        self.1.update(|open| open - 1);
        Ok(())
    }

    fn event(&mut self) -> Result<Option<WatchEvent>, StoreError> {
        Ok(None)
    }
}

//! A domain in this process, for tests: pages that can be granted, rings in them, event channels.

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

/// The domain that grants.
pub(super) const DOMAIN: DomainId = DomainId(7);

/// A domain's memory. Grant N is its page N.
#[derive(Debug)]
pub(super) struct FakeGrants {
    memory: OwnedFd,
    pages: u32,
    /// All of it as the domain itself sees it.
    own: NonNull<u8>,
    /// Grants that were taken back.
    pub(super) revoked: RefCell<BTreeSet<GrantRef>>,
    /// Pages that are mapped by the back-end.
    pub(super) mapped: Cell<u32>,
    /// Calls to copy.
    pub(super) copies: Cell<u32>,
}

impl FakeGrants {
    pub(super) fn new(pages: u32) -> Rc<Self> {
        let memory = memfd_create("fake-domain", MemfdFlags::CLOEXEC).unwrap();
        let bytes = pages as usize * GRANT_BYTES;
        rustix::fs::ftruncate(&memory, bytes as u64).unwrap();
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
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

    fn granted(&self, grant: GrantRef) -> io::Result<()> {
        if grant.0 >= self.pages || self.revoked.borrow().contains(&grant) {
            return Err(io::Error::other(format!("no grant {}", grant.0)));
        }
        Ok(())
    }

    fn at(&self, grant: GrantRef, offset: usize) -> *mut u8 {
        assert!(offset <= GRANT_BYTES);
        let start = grant.0 as usize * GRANT_BYTES + offset;
        self.own.as_ptr().wrapping_add(start)
    }

    /// The domain writes into a page of its own.
    pub(super) fn fill(&self, grant: GrantRef, offset: usize, bytes: &[u8]) {
        assert!(self.granted(grant).is_ok() && offset + bytes.len() <= GRANT_BYTES);
        // SAFETY: inside of the page, and `bytes` is elsewhere.
        unsafe {
            self.at(grant, offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        };
    }

    /// The domain reads a page of its own.
    pub(super) fn page(&self, grant: GrantRef) -> Vec<u8> {
        let mut bytes = vec![0; GRANT_BYTES];
        // SAFETY: a whole page of the mapping.
        unsafe {
            self.at(grant, 0)
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), GRANT_BYTES);
        };
        bytes
    }

    /// A word of a page, as the domain sees it.
    pub(super) fn word(&self, grant: GrantRef, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: inside of the mapping, aligned, and as long-lived as it.
        unsafe { &*self.at(grant, offset).cast() }
    }
}

impl Drop for FakeGrants {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
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
        // SAFETY: new mappings: address space first, the pages over it.
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
        // SAFETY: says the caller.
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
            // SAFETY: inside of the page; local memory is valid, says the caller.
            unsafe {
                match direction {
                    Direction::FromGrants => transfer.local.copy_from(foreign, bytes),
                    Direction::ToGrants => transfer.local.copy_to(foreign, bytes),
                }
            }
        }
    }
}

/// Event channels that lead nowhere.
#[derive(Debug, Default)]
pub(super) struct FakeEvents {
    pub(super) bound: RefCell<BTreeSet<Port>>,
    pub(super) notified: RefCell<Vec<Port>>,
    pub(super) unmasked: RefCell<Vec<Port>>,
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

/// Pages of a domain that a ring lies in.
#[derive(Debug)]
pub(super) struct RingPages {
    domain: Rc<FakeGrants>,
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

/// A front-end's side of a ring in a domain.
pub(super) type FrontRing = front::FrontRing<RingPages>;

impl FrontRing {
    /// Over `pages` from grant `first` on.
    pub(super) fn new(domain: &Rc<FakeGrants>, first: u32, pages: u32, abi: Abi) -> Self {
        let memory = RingPages {
            domain: domain.clone(),
            first: GrantRef(first),
            pages,
        };
        Self::over(memory, abi)
    }

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

    /// All answers that are there: id, operation, status.
    pub(super) fn answers(&mut self) -> Vec<(u64, u8, i16)> {
        let answers = std::iter::from_fn(|| self.answer());
        answers.map(|a| (a.id, a.operation, a.status)).collect()
    }
}

/// xenstore without watches: tests look whenever they changed something.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeStore(Rc<RefCell<BTreeMap<String, String>>>);

impl FakeStore {
    pub(crate) fn set(&self, path: &str, value: &str) {
        self.0.borrow_mut().insert(path.into(), value.into());
    }

    pub(crate) fn get(&self, path: &str) -> String {
        self.0.borrow().get(path).cloned().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

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
        Ok(Transaction(1))
    }

    fn commit(&mut self, _: Transaction) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn event(&mut self) -> Result<Option<WatchEvent>, StoreError> {
        Ok(None)
    }
}

//! A domain in this process, for tests: pages that can be granted, event channels, a front-end's
//! side of a ring.

use super::evtchn::{Events, Port};
use super::grants::{Direction, DomainId, GRANT_BYTES, GrantRef, Grants, Mapping, Transfer};
use super::protocol::Abi;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// A front-end's side of a ring in the first pages of its domain.
#[derive(Debug)]
pub(super) struct FrontRing {
    pub(super) domain: Rc<FakeGrants>,
    pub(super) first: GrantRef,
    pages: u32,
    abi: Abi,
    size: u32,
    produced: u32,
    consumed: u32,
}

impl FrontRing {
    pub(super) fn new(domain: &Rc<FakeGrants>, first: u32, pages: u32, abi: Abi) -> Self {
        let fit = (pages as usize * GRANT_BYTES - 64) / abi.entry_bytes();
        let front = Self {
            domain: domain.clone(),
            first: GrantRef(first),
            pages,
            abi,
            size: 1 << fit.ilog2(),
            produced: 0,
            consumed: 0,
        };
        front.word(4).store(1, Ordering::Relaxed);
        front.word(12).store(1, Ordering::Relaxed);
        front
    }

    pub(super) fn map(&self) -> Mapping {
        let grants: Rc<dyn Grants> = self.domain.clone();
        let refs: Vec<_> = (0..self.pages)
            .map(|n| GrantRef(self.first.0 + n))
            .collect();
        Mapping::new(&grants, DOMAIN, &refs, true).unwrap()
    }

    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        let page = u32::try_from(offset / GRANT_BYTES).unwrap();
        let page = GrantRef(self.first.0 + page);
        self.domain.word(page, offset % GRANT_BYTES)
    }

    fn entry(&self, index: u32) -> usize {
        64 + (index & (self.size - 1)) as usize * self.abi.entry_bytes()
    }

    /// Puts a request into the ring, without telling of it.
    pub(super) fn put(&mut self, raw: &[u8]) {
        let at = self.entry(self.produced);
        for (index, word) in raw.as_chunks::<4>().0.iter().enumerate() {
            self.word(at + index * 4)
                .store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        }
        self.produced = self.produced.wrapping_add(1);
    }

    /// Tells of what was put.
    pub(super) fn push(&self) {
        self.word(0).store(self.produced, Ordering::Release);
    }

    /// The next answer: id, operation, status.
    pub(super) fn answer(&mut self) -> Option<(u64, u8, i16)> {
        if self.word(8).load(Ordering::Acquire) == self.consumed {
            return None;
        }
        let at = self.entry(self.consumed);
        let word = |n: usize| self.word(at + n * 4).load(Ordering::Relaxed);
        let id = u64::from(word(0)) | u64::from(word(1)) << 32;
        let [operation, _, low, high] = word(2).to_ne_bytes();
        self.consumed = self.consumed.wrapping_add(1);
        Some((id, operation, i16::from_ne_bytes([low, high])))
    }

    /// All answers that are there.
    pub(super) fn answers(&mut self) -> Vec<(u64, u8, i16)> {
        std::iter::from_fn(|| self.answer()).collect()
    }
}

/// A request as a front-end writes it. `segments` are grant, first and last sector.
pub(super) fn data(
    abi: Abi,
    write: bool,
    id: u64,
    sector: u64,
    segments: &[(u32, u8, u8)],
) -> Vec<u8> {
    let mut raw = vec![0; abi.entry_bytes()];
    let id_at = if abi == Abi::X86_64 { 8 } else { 4 };
    raw[0] = write.into();
    raw[1] = u8::try_from(segments.len()).unwrap();
    raw[id_at..id_at + 8].copy_from_slice(&id.to_le_bytes());
    raw[id_at + 8..id_at + 16].copy_from_slice(&sector.to_le_bytes());
    for (index, segment) in segments.iter().enumerate() {
        let at = id_at + 16 + index * 8;
        raw[at..at + 8].copy_from_slice(&table_entry(*segment));
    }
    raw
}

/// A segment as it lies in a request or a table.
pub(super) fn table_entry((grant, first, last): (u32, u8, u8)) -> [u8; 8] {
    let mut raw = [0; 8];
    raw[..4].copy_from_slice(&grant.to_le_bytes());
    (raw[4], raw[5]) = (first, last);
    raw
}

/// A request by way of a table in page `table`.
pub(super) fn indirect(
    abi: Abi,
    write: bool,
    id: u64,
    sector: u64,
    (table, count): (u32, u16),
) -> Vec<u8> {
    let mut raw = data(abi, write, id, sector, &[]);
    let id_at = if abi == Abi::X86_64 { 8 } else { 4 };
    (raw[0], raw[1]) = (6, write.into());
    raw[2..4].copy_from_slice(&count.to_le_bytes());
    raw[id_at + 20..id_at + 24].copy_from_slice(&table.to_le_bytes());
    raw
}

//! `/dev/xen/gntalloc`: pages of this domain that another domain may use.

use ebb_blk::xen::front::SharedWords;
use ebb_blk::xen::grants::{DomainId, GRANT_BYTES, GrantRef};
use rustix::fs::{Mode, OFlags, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Computes an ioctl command: `_IOC(_IOC_NONE, 'G', number, bytes)` of Linux.
const fn command(number: u64, bytes: usize) -> libc::c_ulong {
    (bytes as u64) << 16 | (b'G' as u64) << 8 | number
}

/// The command that allocates and grants pages. The size in the command is that of one reference,
/// however many there are.
const ALLOC_GREF: libc::c_ulong = command(5, 24);
const DEALLOC_GREF: libc::c_ulong = command(6, 16);
/// The flag that lets the other domain write.
const WRITABLE: u64 = 1;

/// The access that the other domain gets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The open device.
#[derive(Debug)]
pub(crate) struct Gntalloc(OwnedFd);

impl Gntalloc {
    /// Opens the device. Fails if it does not exist.
    pub(crate) fn open() -> io::Result<Arc<Self>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        open("/dev/xen/gntalloc", flags, Mode::empty())
            .map(|fd| Arc::new(Self(fd)))
            .map_err(Into::into)
    }

    /// Calls `ioctl`. Fails if that does.
    ///
    /// # Safety
    /// `words` must be the structure that `command` expects.
    unsafe fn call(&self, command: libc::c_ulong, words: &mut [u64]) -> io::Result<()> {
        // SAFETY: the caller guarantees that `words` suits the command.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), command, words.as_mut_ptr()) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Ends the grant of `count` pages at `index`.
    fn forget(&self, index: u64, count: usize) {
        let mut words = [index, count as u64];
        // SAFETY: the command takes an index and a count. It fails only for pages that were not
        // allocated.
        let _ = unsafe { self.call(DEALLOC_GREF, &mut words) };
    }

    /// Allocates zeroed pages, grants them to `domain` and maps them at consecutive addresses.
    /// Fails if the kernel refuses.
    pub(crate) fn grant(
        self: &Arc<Self>,
        domain: DomainId,
        count: usize,
        access: Access,
    ) -> io::Result<Pages> {
        let writable = if access == Access::Write { WRITABLE } else { 0 };
        // Domain and flags of 16 bits, the count, the index that comes back, then the references
        // that come back, of 32 bits each.
        let mut words = vec![0; 2 + count.div_ceil(2)];
        words[0] = u64::from(domain.0) | writable << 16 | (count as u64) << 32;
        // SAFETY: this is the command's structure, with space for `count` references behind it.
        unsafe { self.call(ALLOC_GREF, &mut words)? };
        let halves = words[2..]
            .iter()
            .flat_map(|pair| [*pair as u32, (*pair >> 32) as u32]);
        let refs = halves.take(count).map(GrantRef).collect();
        let (index, bytes) = (words[1], count * GRANT_BYTES);
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of the new mapping, so no other memory is
        // affected.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                rw,
                MapFlags::SHARED,
                &self.0,
                index,
            )
        };
        let base = base.map_err(io::Error::from);
        let base =
            base.and_then(|base| NonNull::new(base.cast()).ok_or(io::ErrorKind::Other.into()));
        Ok(Pages {
            base: base.inspect_err(|_| self.forget(index, count))?,
            device: self.clone(),
            refs,
            index,
        })
    }
}

/// Pages that another domain may use while this value lives. When it is dropped, the grants end: at
/// once if the other domain has not mapped the pages, else as soon as it unmaps them.
#[derive(Debug)]
pub(crate) struct Pages {
    device: Arc<Gntalloc>,
    base: NonNull<u8>,
    refs: Vec<GrantRef>,
    index: u64,
}

// SAFETY: this value alone owns the mapping, and accesses it by atomic words only.
unsafe impl Send for Pages {}
// SAFETY: all accesses through a shared reference are atomic.
unsafe impl Sync for Pages {}

impl Pages {
    /// Returns the grant references of the pages.
    pub(crate) fn refs(&self) -> &[GrantRef] {
        &self.refs
    }

    /// Returns the grant reference of page number `index`.
    pub(crate) fn gref(&self, index: usize) -> u32 {
        self.refs[index].0
    }

    /// Writes `bytes`, whose length is a multiple of 4, at `offset`.
    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        for (index, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
            self.word(offset + index * 4)
                .store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Reads into `bytes`, whose length is a multiple of 4, at `offset`.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        for (index, word) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *word = self
                .word(offset + index * 4)
                .load(Ordering::Relaxed)
                .to_ne_bytes();
        }
    }
}

impl SharedWords for Pages {
    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes());
        // SAFETY: the word is inside the mapping, aligned, and lives as long as `self`. All
        // accesses are atomic.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    fn bytes(&self) -> usize {
        self.refs.len() * GRANT_BYTES
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `grant` made the mapping, and references to it borrow `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes()) };
        self.device.forget(self.index, self.refs.len());
    }
}

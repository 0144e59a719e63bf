//! Calls that `std` does not have, with their errors.

use crate::Failure;
use crate::mapping::PAGE_BYTES;

/// What a call answered, or its error under `what`.
pub(super) fn checked(what: &str, answer: libc::c_long) -> Result<libc::c_long, Failure> {
    if answer < 0 {
        return Err(Failure::last_os(what));
    }
    Ok(answer)
}

/// Raises a limit of this process to `value`, the hard one, too, where it is lower.
pub(super) fn raise_limit(limit: libc::__rlimit_resource_t, value: u64) -> Result<(), Failure> {
    let mut now = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `now` is a place for the answer.
    let answer = unsafe { libc::getrlimit(limit, &raw mut now) };
    checked("getrlimit", answer.into())?;
    if now.rlim_cur >= value {
        return Ok(());
    }
    now.rlim_cur = value;
    now.rlim_max = now.rlim_max.max(value);
    // SAFETY: `now` is a structure to read.
    let answer = unsafe { libc::setrlimit(limit, &raw const now) };
    checked("setrlimit", answer.into())?;
    Ok(())
}

/// A range of addresses that is reserved, for mappings that others make in it.
#[derive(Debug)]
pub(super) struct Reserved {
    start: *mut libc::c_void,
    bytes: usize,
}

impl Reserved {
    /// Takes so many pages of addresses, with nothing mapped there.
    pub(super) fn new(pages: usize) -> Result<Self, Failure> {
        let bytes = pages * PAGE_BYTES;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Failure::last_os(format!("mmap of {bytes} bytes")));
        }
        Ok(Self { start, bytes })
    }

    fn at(&self, page: usize, pages: usize) -> *mut libc::c_void {
        assert!((page + pages) * PAGE_BYTES <= self.bytes, "in the range");
        // SAFETY: just checked.
        unsafe { self.start.byte_add(page * PAGE_BYTES) }
    }

    /// Maps pages of zeros, readable and writable.
    pub(super) fn map(&self, page: usize, pages: usize) -> Result<(), Failure> {
        // SAFETY: the range is this value's own, and nobody holds a reference into it.
        let start = unsafe {
            libc::mmap(
                self.at(page, pages),
                pages * PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Failure::last_os("mmap of pages at a place"));
        }
        Ok(())
    }

    /// Unmaps pages.
    pub(super) fn unmap(&self, page: usize, pages: usize) -> Result<(), Failure> {
        // SAFETY: the range is this value's own, and nobody holds a reference into it.
        let answer = unsafe { libc::munmap(self.at(page, pages), pages * PAGE_BYTES) };
        checked("munmap", answer.into())?;
        Ok(())
    }

    /// Makes pages readable, and writable too or not.
    pub(super) fn protect(&self, page: usize, pages: usize, write: bool) -> Result<(), Failure> {
        let rights = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        // SAFETY: the range is this value's own, and nobody holds a reference into it.
        let answer = unsafe { libc::mprotect(self.at(page, pages), pages * PAGE_BYTES, rights) };
        checked("mprotect", answer.into())?;
        Ok(())
    }

    /// Writes a byte into each page.
    pub(super) fn touch(&self, page: usize, pages: usize) {
        for page in page..page + pages {
            // SAFETY: the caller has mapped the page writable; a byte fits.
            unsafe { self.at(page, 1).cast::<u8>().write_volatile(1) };
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

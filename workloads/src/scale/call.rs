//! System calls that `std` does not have.

use crate::Failure;
use crate::mapping::PAGE_BYTES;

/// Returns `answer`, the result of a system call. If it is negative, fails with `System`: the
/// calling thread's `errno` and the call's name `what`.
pub(super) fn checked(what: &str, answer: libc::c_long) -> Result<libc::c_long, Failure> {
    if answer < 0 {
        return Err(Failure::last_os(what));
    }
    Ok(answer)
}

/// Raises the soft limit `limit` of this process to at least `value`, and the hard limit if it is
/// lower. Fails with `System` if the system refuses.
pub(super) fn raise_limit(limit: libc::__rlimit_resource_t, value: u64) -> Result<(), Failure> {
    let mut now = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `now` is writable memory for the answer.
    let answer = unsafe { libc::getrlimit(limit, &raw mut now) };
    checked("getrlimit", answer.into())?;
    if now.rlim_cur >= value {
        return Ok(());
    }
    now.rlim_cur = value;
    now.rlim_max = now.rlim_max.max(value);
    // SAFETY: `now` is a structure that the call only reads.
    let answer = unsafe { libc::setrlimit(limit, &raw const now) };
    checked("setrlimit", answer.into())?;
    Ok(())
}

/// A reserved range of addresses, in which an experiment maps pages. It is unmapped when this value
/// is dropped. Page numbers count from the start of the range.
#[derive(Debug)]
pub(super) struct Reserved {
    start: *mut libc::c_void,
    bytes: usize,
}

impl Reserved {
    /// Reserves addresses for `pages` pages, which are not accessible. Fails with `System` if
    /// `mmap` fails.
    pub(super) fn new(pages: usize) -> Result<Self, Failure> {
        let bytes = pages * PAGE_BYTES;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
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

    /// Returns the address of page `page`. Panics if the `pages` pages from there on are not in the
    /// range.
    fn at(&self, page: usize, pages: usize) -> *mut libc::c_void {
        assert!((page + pages) * PAGE_BYTES <= self.bytes, "in the range");
        // SAFETY: the assertion has checked that the result is in the range.
        unsafe { self.start.byte_add(page * PAGE_BYTES) }
    }

    /// Maps `pages` pages of zeros, readable and writable, from page `page` on, in place of earlier
    /// ones. Fails with `System` if `mmap` fails. Panics if the pages are not in the range.
    pub(super) fn map(&self, page: usize, pages: usize) -> Result<(), Failure> {
        // SAFETY: this value owns the range, and no reference into it exists.
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

    /// Unmaps `pages` pages from page `page` on. Their addresses are then no longer reserved. Fails
    /// with `System` if `munmap` fails. Panics if the pages are not in the range.
    pub(super) fn unmap(&self, page: usize, pages: usize) -> Result<(), Failure> {
        // SAFETY: this value owns the range, and no reference into it exists.
        let answer = unsafe { libc::munmap(self.at(page, pages), pages * PAGE_BYTES) };
        checked("munmap", answer.into())?;
        Ok(())
    }

    /// Makes `pages` pages from page `page` on readable, and also writable if `write` is `true`.
    /// Fails with `System` if `mprotect` fails. Panics if the pages are not in the range.
    pub(super) fn protect(&self, page: usize, pages: usize, write: bool) -> Result<(), Failure> {
        let rights = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        // SAFETY: this value owns the range, and no reference into it exists.
        let answer = unsafe { libc::mprotect(self.at(page, pages), pages * PAGE_BYTES, rights) };
        checked("mprotect", answer.into())?;
        Ok(())
    }

    /// Writes a byte into each of `pages` pages from page `page` on. They must be mapped and
    /// writable. Panics if they are not in the range.
    pub(super) fn touch(&self, page: usize, pages: usize) {
        for page in page..page + pages {
            // SAFETY: the caller has mapped the page writable, and a byte fits into it.
            unsafe { self.at(page, 1).cast::<u8>().write_volatile(1) };
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: this value owns the range.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

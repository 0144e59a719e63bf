//! Zeroed memory from the host, resident only where it was touched.
#![allow(unsafe_code, reason = "maps memory")]

use std::{io, ptr::NonNull};

const PAGE: usize = 4096;

/// An anonymous memory mapping.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    whole: (usize, usize),
}

// SAFETY: the mapping is owned and not tied to a thread. The users of the memory synchronise their
// accesses.
unsafe impl Send for Mapping {}
// SAFETY: no method changes the mapping through `&self`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes, aligned to `align`. Panics if there is no address space.
    pub fn new(bytes: usize, align: usize) -> Self {
        let whole = bytes + align;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(
            address != libc::MAP_FAILED,
            "no {whole} bytes of address space: {}",
            io::Error::last_os_error()
        );
        // Huge pages would count memory that is not used. SAFETY: advice for the mapping just made.
        unsafe { libc::madvise(address, whole, libc::MADV_NOHUGEPAGE) };
        let skip = address.addr().next_multiple_of(align) - address.addr();
        // SAFETY: `skip` is below `align`, and the mapping is longer by `align` than requested.
        let base = unsafe { address.cast::<u8>().add(skip) };
        Self {
            base: NonNull::new(base).expect("a mapping is not at 0"),
            bytes,
            whole: (address.expose_provenance(), whole),
        }
    }

    /// Returns the start of the memory.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns how many of its bytes are resident, in whole pages.
    pub fn resident(&self) -> u64 {
        let mut pages = vec![0u8; self.bytes.div_ceil(PAGE)];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let done =
            unsafe { libc::mincore(self.base.as_ptr().cast(), self.bytes, pages.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|&&page| page & 1 != 0).count() as u64 * PAGE as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (address, bytes) = self.whole;
        // SAFETY: mapped in `new`, and no reference to it is left.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(address), bytes) };
    }
}

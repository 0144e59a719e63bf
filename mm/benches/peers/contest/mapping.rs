//! Zeroed memory from the host, present only where it is touched.
#![allow(unsafe_code, reason = "maps memory")]

use std::{io, ptr::NonNull};

const PAGE: usize = 4096;

/// Anonymous memory.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    whole: (usize, usize),
}

// SAFETY: it is memory, owned and not tied to a thread; what is shared in it is its users' affair.
unsafe impl Send for Mapping {}
// SAFETY: as above: no method changes it through `&self`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// So many bytes, aligned. Panics if there is no address space.
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
        // Huge pages would count memory as used that is not.
        // SAFETY: advice for the mapping just made.
        unsafe { libc::madvise(address, whole, libc::MADV_NOHUGEPAGE) };
        let skip = address.addr().next_multiple_of(align) - address.addr();
        // SAFETY: `skip` is below `align`, by which the mapping is longer than asked for.
        let base = unsafe { address.cast::<u8>().add(skip) };
        Self {
            base: NonNull::new(base).expect("a mapping is not at 0"),
            bytes,
            whole: (address.expose_provenance(), whole),
        }
    }

    /// Where it starts.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many of its bytes are in memory, in whole pages.
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
        // SAFETY: mapped in `new`, and nobody refers to it any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(address), bytes) };
    }
}

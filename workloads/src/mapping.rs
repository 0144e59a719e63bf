//! A private anonymous mapping that is unmapped when it is dropped.

use crate::Failure;
use std::ptr::NonNull;

/// Bytes of a base page on x86-64.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Which page size the kernel may use for a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// Whatever the kernel does by default.
    Default,
    /// Base pages only (`MADV_NOHUGEPAGE`).
    Base,
}

/// A private anonymous mapping, readable and writable.
#[derive(Debug)]
pub(crate) struct Anonymous {
    start: NonNull<u8>,
    bytes: usize,
}

impl Anonymous {
    /// Maps `bytes` bytes of zeros; no page is touched.
    ///
    /// # Errors
    /// [`Failure::System`] where `mmap` fails.
    pub(crate) fn map(bytes: usize, pages: PageSize) -> Result<Self, Failure> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Failure::last_os(format!("mmap of {bytes} bytes")));
        }
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| Failure::Unsupported("mmap gave address 0".to_owned()))?;
        let mapping = Self { start, bytes };
        if pages == PageSize::Base {
            // A kernel without huge pages answers EINVAL, which is as good: base pages it is.
            // SAFETY: the range is this mapping; the advice changes no contents.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        }
        Ok(mapping)
    }

    /// Writes one byte into every base page.
    pub(crate) fn touch(&mut self) {
        let mut offset = 0;
        while offset < self.bytes {
            // SAFETY: `offset` is inside the mapping, which this value owns. Volatile, so that
            // the compiler keeps every single write.
            unsafe { self.start.as_ptr().add(offset).write_volatile(1) };
            offset += PAGE_BYTES;
        }
    }

    /// Checks that every touched page has what [`Anonymous::touch`] wrote.
    ///
    /// # Errors
    /// [`Failure::Wrong`] with the number of pages that lost it.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.count_lost() {
            0 => Ok(()),
            lost => Err(Failure::Wrong(format!(
                "{lost} touched pages lost what was written"
            ))),
        }
    }

    /// Reads one byte of every base page and counts the pages whose byte is not 1.
    fn count_lost(&self) -> usize {
        (0..self.bytes)
            .step_by(PAGE_BYTES)
            // SAFETY: `offset` is inside the mapping, which this value owns.
            .filter(|&offset| unsafe { self.start.as_ptr().add(offset).read_volatile() } != 1)
            .count()
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `map` got, and no reference into it is left.
        let status = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        assert_eq!(
            status,
            0,
            "munmap of a whole own mapping: {}",
            std::io::Error::last_os_error()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_keep_what_was_written() {
        let mut mapping = Anonymous::map(3 * PAGE_BYTES + 1, PageSize::Base).expect("map");
        assert_eq!(mapping.count_lost(), 4);
        assert!(mapping.check().is_err());
        mapping.touch();
        mapping.check().expect("what was written");
    }
}

//! Mappings that are unmapped when they are dropped.

use crate::Failure;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Bytes of a base page on x86-64.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of a huge page on x86-64, and of the sections that can become one.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Which page size the kernel may use for a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// Whatever the kernel does by default.
    Default,
    /// Base pages only (`MADV_NOHUGEPAGE`).
    Base,
    /// Huge pages where they can be had (`MADV_HUGEPAGE`); begins at a multiple of their size.
    Huge,
    /// Huge pages of the kernel's pool (`MAP_HUGETLB`); there must be enough of them.
    Pool,
}

/// A mapping, readable and writable.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// First of the `mapped` bytes; `bytes` of them from `skipped` on are for use.
    start: NonNull<u8>,
    mapped: usize,
    skipped: usize,
    bytes: usize,
}

// SAFETY: it owns its memory as a Vec does, and is changed through `&mut self` alone.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of zeros; no page is touched.
    ///
    /// # Errors
    /// [`Failure::System`] where `mmap` fails; [`Failure::Unsupported`] where the kernel knows no
    /// huge pages and they were asked for.
    pub(crate) fn anonymous(bytes: usize, pages: PageSize) -> Result<Self, Failure> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if pages == PageSize::Pool {
            return Self::map(bytes, 0, kind | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, -1);
        }
        let slack = if pages == PageSize::Huge {
            HUGE_BYTES
        } else {
            0
        };
        let mapping = Self::map(bytes, slack, kind, -1)?;
        let advice = match pages {
            PageSize::Default | PageSize::Pool => return Ok(mapping),
            PageSize::Base => libc::MADV_NOHUGEPAGE,
            PageSize::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: the range is this mapping's own; the advice changes no contents.
        let status = unsafe { libc::madvise(mapping.first().cast(), bytes, advice) };
        // A kernel without huge pages refuses both; for base pages that is as good.
        if status != 0 && pages == PageSize::Huge {
            return Err(Failure::Unsupported("transparent huge pages".to_owned()));
        }
        Ok(mapping)
    }

    /// Maps the first `bytes` bytes of `file`; what is written stays private.
    ///
    /// # Errors
    /// [`Failure::System`] where `mmap` fails.
    pub(crate) fn of_file(file: &File, bytes: usize) -> Result<Self, Failure> {
        Self::map(bytes, 0, libc::MAP_PRIVATE, file.as_raw_fd())
    }

    /// Maps the first `bytes` bytes of `file`; what is written is written into the file.
    ///
    /// # Errors
    /// [`Failure::System`] where `mmap` fails.
    pub(crate) fn of_shared_file(file: &File, bytes: usize) -> Result<Self, Failure> {
        Self::map(bytes, 0, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(bytes: usize, slack: usize, flags: i32, descriptor: i32) -> Result<Self, Failure> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes + slack,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                descriptor,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Failure::last_os(format!("mmap of {bytes} bytes")));
        }
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| Failure::Wrong("mmap gave address 0".to_owned()))?;
        let beyond = start.as_ptr().addr() % HUGE_BYTES;
        let skipped = if slack == 0 || beyond == 0 {
            0
        } else {
            HUGE_BYTES - beyond
        };
        Ok(Self {
            start,
            mapped: bytes + slack,
            skipped,
            bytes,
        })
    }

    /// The addresses for use.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let first = self.first().addr();
        first..first + self.bytes
    }

    fn first(&self) -> *mut u8 {
        // SAFETY: `skipped` is less than the slack that was mapped in front.
        unsafe { self.start.as_ptr().add(self.skipped) }
    }

    /// All of it.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are inside the mapping, which this value owns, and zero or written.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.bytes) }
    }

    /// Writes one byte into every base page.
    pub(crate) fn touch(&mut self) {
        self.touch_part(0..self.bytes);
    }

    /// Writes one byte into every base page of a part that begins with a page.
    pub(crate) fn touch_part(&mut self, part: Range<usize>) {
        self.touch_each(PAGE_BYTES, part);
    }

    /// Writes one byte into every `step` bytes of a part.
    pub(crate) fn touch_each(&mut self, step: usize, part: Range<usize>) {
        for offset in part.step_by(step) {
            self.write(offset, 1);
        }
    }

    /// Writes one byte.
    pub(crate) fn write(&mut self, offset: usize, byte: u8) {
        assert!(offset < self.bytes, "inside the mapping");
        // SAFETY: `offset` is inside the mapping, which this value owns. Volatile, so that the
        // compiler keeps every single write.
        unsafe { self.first().add(offset).write_volatile(byte) };
    }

    /// Reads one byte.
    pub(crate) fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.bytes, "inside the mapping");
        // SAFETY: as in `write`.
        unsafe { self.first().add(offset).read_volatile() }
    }

    /// Checks that every touched page has what [`Mapping::touch`] wrote.
    ///
    /// # Errors
    /// [`Failure::Wrong`] with the number of pages that lost it.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.check_each(PAGE_BYTES)
    }

    /// The same of [`Mapping::touch_each`] of all of it.
    ///
    /// # Errors
    /// As [`Mapping::check`].
    pub(crate) fn check_each(&self, step: usize) -> Result<(), Failure> {
        let lost = (0..self.bytes)
            .step_by(step)
            .filter(|&offset| self.read(offset) != 1)
            .count();
        match lost {
            0 => Ok(()),
            lost => Err(Failure::Wrong(format!(
                "{lost} touched pages lost what was written"
            ))),
        }
    }

    /// Frees the pages of a part; what is touched there again is zero.
    ///
    /// # Errors
    /// [`Failure::System`] where `madvise` fails.
    pub(crate) fn free(&mut self, part: Range<usize>) -> Result<(), Failure> {
        assert!(part.end <= self.bytes, "inside the mapping");
        // SAFETY: the range is inside the mapping, which this value owns, and nothing refers to it.
        let status = unsafe {
            libc::madvise(
                self.first().add(part.start).cast(),
                part.len(),
                libc::MADV_DONTNEED,
            )
        };
        if status != 0 {
            return Err(Failure::last_os(format!(
                "madvise(MADV_DONTNEED) of {} bytes",
                part.len()
            )));
        }
        Ok(())
    }

    /// Whether every page of a part is in memory.
    ///
    /// # Errors
    /// [`Failure::System`] where `mincore` fails.
    pub(crate) fn is_resident(&self, part: Range<usize>) -> Result<bool, Failure> {
        assert!(part.end <= self.bytes, "inside the mapping");
        let mut pages = vec![0_u8; part.len().div_ceil(PAGE_BYTES)];
        // SAFETY: the range is inside the mapping, and `pages` has a byte for each page of it.
        let status = unsafe {
            libc::mincore(
                self.first().add(part.start).cast(),
                part.len(),
                pages.as_mut_ptr(),
            )
        };
        if status != 0 {
            return Err(Failure::last_os("mincore"));
        }
        Ok(pages.iter().all(|page| page & 1 == 1))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `map` got, and no reference into it is left.
        let status = unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
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
    fn touched_pages_keep_what_was_written_until_they_are_freed() {
        let mut mapping = Mapping::anonymous(3 * PAGE_BYTES + 1, PageSize::Base).expect("map");
        assert!(mapping.check().is_err());
        mapping.touch();
        mapping.check().expect("what was written");
        assert!(mapping.is_resident(0..3 * PAGE_BYTES).expect("mincore"));
        mapping.free(PAGE_BYTES..2 * PAGE_BYTES).expect("free");
        assert_eq!(mapping.read(PAGE_BYTES), 0);
        assert_eq!(mapping.read(0), 1);
    }

    #[test]
    fn huge_mappings_begin_at_a_huge_page() {
        // A kernel without huge pages may refuse; nothing can be said of it then.
        let Ok(mapping) = Mapping::anonymous(2 * HUGE_BYTES, PageSize::Huge) else {
            return;
        };
        assert!(mapping.addresses().start.is_multiple_of(HUGE_BYTES));
        assert_eq!(mapping.addresses().len(), 2 * HUGE_BYTES);
    }
}

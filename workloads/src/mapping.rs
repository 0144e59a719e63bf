//! Memory mappings that are unmapped when they are dropped.

use crate::Failure;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Size of a base page on x86-64 in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Size of a huge page on x86-64 in bytes, and of the aligned ranges that can become one.
pub(crate) const HUGE_BYTES: usize = 2 << 20;
/// Size of the largest pages of the kernel's pools on x86-64 in bytes.
pub(crate) const GIGANTIC_BYTES: usize = 1 << 30;

/// The size of the pages that the kernel may use for an anonymous mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// The kernel's default.
    Default,
    /// Base pages only (`MADV_NOHUGEPAGE`).
    Base,
    /// Huge pages if possible (`MADV_HUGEPAGE`). The mapping begins at a multiple of their size.
    Huge,
    /// Huge pages of the kernel's pool (`MAP_HUGETLB`). The pool must have enough of them.
    Pool,
    /// The same with pages of 1 GiB.
    GiganticPool,
}

/// A readable and writable mapping, which is unmapped when this value is dropped. Offsets count
/// bytes of its usable part.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// The first of the `mapped` bytes. The usable part has `bytes` bytes, `skipped` bytes further
    /// on.
    start: NonNull<u8>,
    mapped: usize,
    skipped: usize,
    bytes: usize,
}

// SAFETY: a mapping owns its memory as a Vec does, and changes it through `&mut self` alone.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of zeros, in pages of the size `pages`. Touches no page.
    /// For [`PageSize::Pool`] `bytes` must be a multiple of 2 MiB, and of 1 GiB for
    /// [`PageSize::GiganticPool`].
    ///
    /// # Errors
    /// [`Failure::System`] if `mmap` fails, also if the kernel has no such pool or too few pages in
    /// it, for [`PageSize::Pool`] and [`PageSize::GiganticPool`]. [`Failure::Unsupported`] for
    /// [`PageSize::Huge`] if the kernel has no transparent huge pages.
    pub(crate) fn anonymous(bytes: usize, pages: PageSize) -> Result<Self, Failure> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let of_the_pool = match pages {
            PageSize::Pool => Some(libc::MAP_HUGE_2MB),
            PageSize::GiganticPool => Some(libc::MAP_HUGE_1GB),
            PageSize::Default | PageSize::Base | PageSize::Huge => None,
        };
        if let Some(size) = of_the_pool {
            return Self::map(bytes, 0, kind | libc::MAP_HUGETLB | size, -1);
        }
        let slack = if pages == PageSize::Huge {
            HUGE_BYTES
        } else {
            0
        };
        let mapping = Self::map(bytes, slack, kind, -1)?;
        let advice = match pages {
            PageSize::Default | PageSize::Pool | PageSize::GiganticPool => return Ok(mapping),
            PageSize::Base => libc::MADV_NOHUGEPAGE,
            PageSize::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: the range belongs to this mapping, and the advice changes no contents.
        let status = unsafe { libc::madvise(mapping.first().cast(), bytes, advice) };
        // A kernel without huge pages refuses both advices. It uses base pages anyway.
        if status != 0 && pages == PageSize::Huge {
            return Err(Failure::Unsupported("transparent huge pages".to_owned()));
        }
        Ok(mapping)
    }

    /// Maps the first `bytes` bytes of `file`. Writes to the mapping do not change the file.
    /// Touches no page.
    ///
    /// # Errors
    /// [`Failure::System`] if `mmap` fails.
    pub(crate) fn of_file(file: &File, bytes: usize) -> Result<Self, Failure> {
        Self::map(bytes, 0, libc::MAP_PRIVATE, file.as_raw_fd())
    }

    /// Maps the first `bytes` bytes of `file`. Writes to the mapping change the file. Touches no
    /// page.
    ///
    /// # Errors
    /// [`Failure::System`] if `mmap` fails.
    pub(crate) fn of_shared_file(file: &File, bytes: usize) -> Result<Self, Failure> {
        Self::map(bytes, 0, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Maps `bytes` bytes, and `slack` bytes more to align the usable part to a huge page.
    fn map(bytes: usize, slack: usize, flags: i32, descriptor: i32) -> Result<Self, Failure> {
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
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

    /// Returns the virtual addresses of the usable part of the mapping.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let first = self.first().addr();
        first..first + self.bytes
    }

    /// Returns a pointer to the first usable byte.
    fn first(&self) -> *mut u8 {
        // SAFETY: `skipped` is less than the slack that was mapped additionally.
        unsafe { self.start.as_ptr().add(self.skipped) }
    }

    /// Returns the bytes of the usable part of the mapping.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are inside the mapping, which this value owns, and are initialised.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.bytes) }
    }

    /// Writes the byte 1 at the start of every base page of the mapping.
    pub(crate) fn touch(&mut self) {
        self.touch_part(0..self.bytes);
    }

    /// Writes the byte 1 at the start of every base page of `part`, a range of offsets that must
    /// begin at a page. Panics if `part` leads beyond the mapping.
    pub(crate) fn touch_part(&mut self, part: Range<usize>) {
        self.touch_each(PAGE_BYTES, part);
    }

    /// Writes the byte 1 at every `step`-th byte of `part`, a range of offsets. Panics if `step` is
    /// 0 or `part` leads beyond the mapping.
    pub(crate) fn touch_each(&mut self, step: usize, part: Range<usize>) {
        for offset in part.step_by(step) {
            self.write(offset, 1);
        }
    }

    /// Writes `byte` at `offset`. Panics if that is outside the mapping.
    pub(crate) fn write(&mut self, offset: usize, byte: u8) {
        assert!(offset < self.bytes, "inside the mapping");
        // SAFETY: `offset` is inside the mapping, which this value owns. Volatile, so that the
        // compiler keeps every single write.
        unsafe { self.first().add(offset).write_volatile(byte) };
    }

    /// Returns the byte at `offset`. Panics if that is outside the mapping.
    pub(crate) fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.bytes, "inside the mapping");
        // SAFETY: `offset` is inside the mapping, which this value owns.
        unsafe { self.first().add(offset).read_volatile() }
    }

    /// Checks that every base page of the mapping begins with the byte 1 that [`Mapping::touch`]
    /// wrote.
    ///
    /// # Errors
    /// [`Failure::Wrong`] with the number of pages that do not.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.check_each(PAGE_BYTES)
    }

    /// Checks that every `step`-th byte of the mapping is the 1 that [`Mapping::touch_each`] wrote.
    /// Panics if `step` is 0.
    ///
    /// # Errors
    /// [`Failure::Wrong`] with the number of bytes that differ.
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

    /// Frees the pages of `part`, a range of offsets that must begin at a page. Pages of an
    /// anonymous mapping read as zeros afterwards. Panics if `part` leads beyond the mapping.
    ///
    /// # Errors
    /// [`Failure::System`] if `madvise` fails.
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

    /// Returns whether every page of `part`, a range of offsets that must begin at a page, is
    /// resident. Panics if `part` leads beyond the mapping.
    ///
    /// # Errors
    /// [`Failure::System`] if `mincore` fails.
    pub(crate) fn is_resident(&self, part: Range<usize>) -> Result<bool, Failure> {
        assert!(part.end <= self.bytes, "inside the mapping");
        let mut pages = vec![0_u8; part.len().div_ceil(PAGE_BYTES)];
        // SAFETY: the range is inside the mapping, and `pages` has a byte for each of its pages.
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
        // SAFETY: the range is exactly the one that `map` got, and no reference into it is left.
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
        // A kernel without huge pages may refuse. The test then checks nothing.
        let Ok(mapping) = Mapping::anonymous(2 * HUGE_BYTES, PageSize::Huge) else {
            return;
        };
        assert!(mapping.addresses().start.is_multiple_of(HUGE_BYTES));
        assert_eq!(mapping.addresses().len(), 2 * HUGE_BYTES);
    }
}

//! The memory of a pool: an anonymous mapping in which only pages that were touched are resident.

use crate::pool::{Backing, PAGE_BYTES, PageIndex};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

/// The memory of a pool: an anonymous mapping of a fixed number of pages. A page becomes resident
/// at its first use.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    pages: u32,
}

// SAFETY: this value alone owns the mapping, and a mapping is not tied to a thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Reserves address space for `pages` pages of [`PAGE_BYTES`]. No page is resident yet.
    ///
    /// # Errors
    /// Fails if `mmap` fails.
    pub fn new(pages: u32) -> io::Result<Self> {
        let bytes = (pages.max(1) as usize) * PAGE_BYTES;
        // SAFETY: the kernel chooses the address of the new mapping, so no other memory is
        // affected.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        // With huge pages, one touched page would make 511 others resident. A kernel without huge
        // pages refuses the advice and does not need it.
        // SAFETY: the range is the mapping just made, and the advice does not change contents.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxNoHugepage) };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { base, pages })
    }

    /// Returns the address of `page` in this process. It is valid for [`PAGE_BYTES`] bytes while
    /// the arena lives. The page becomes resident when that memory is touched.
    ///
    /// # Panics
    /// If the arena has no such page.
    pub fn address(&self, page: PageIndex) -> NonNull<u8> {
        assert!(page.0 < self.pages, "page {} of {}", page.0, self.pages);
        // SAFETY: the assertion checked that the page lies inside the mapping.
        unsafe { self.base.add(page.0 as usize * PAGE_BYTES) }
    }
}

impl Backing for Arena {
    fn release(&mut self, first: PageIndex, count: u32) {
        let end = first.0.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.pages),
            "pages {}+{count} of {}",
            first.0,
            self.pages
        );
        let start = self.address(first).as_ptr().cast::<c_void>();
        // SAFETY: the range lies inside the mapping, and the pool calls this only for pages that no
        // request holds, so their contents may be lost. The call fails only on locked memory; then
        // the pages stay resident, as the lock demands.
        let _ = unsafe { madvise(start, count as usize * PAGE_BYTES, Advice::LinuxDontNeed) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = (self.pages.max(1) as usize) * PAGE_BYTES;
        // SAFETY: `new` made the mapping with this length, and only this function unmaps it.
        let result = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::pool::Pool;

    /// Returns the resident bytes of the mapping that starts at `address`, from `/proc/self/smaps`.
    fn resident_bytes(address: usize) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            if let Some((range, _)) = line.split_once(' ')
                && let Some((from, to)) = range.split_once('-')
                && let (Ok(from), Ok(to)) = (
                    usize::from_str_radix(from, 16),
                    usize::from_str_radix(to, 16),
                )
            {
                inside = (from..to).contains(&address);
            }
            if inside && let Some(rest) = line.strip_prefix("Rss:") {
                return rest
                    .trim()
                    .trim_end_matches(" kB")
                    .parse::<usize>()
                    .unwrap()
                    * 1024;
            }
        }
        panic!("no mapping at {address:#x}");
    }

    #[test]
    fn what_the_pool_lets_go_is_not_resident_any_more() {
        let arena = Arena::new(64).unwrap();
        let base = arena.address(PageIndex(0)).as_ptr();
        let mut pool = Pool::new(arena, 64);
        let before = resident_bytes(base as usize);
        let batch = pool.take(48).unwrap();
        for page in batch.pages() {
            // SAFETY: the test took the page from the pool and has not put it back.
            unsafe {
                pool.backing()
                    .address(*page)
                    .as_ptr()
                    .write_bytes(0xa5, PAGE_BYTES)
            };
        }
        let busy = resident_bytes(base as usize);
        assert!(busy >= before + 48 * PAGE_BYTES, "{before} then {busy}");
        pool.put(batch);
        pool.shrink(16);
        let shrunk = resident_bytes(base as usize);
        assert_eq!(busy - shrunk, 32 * PAGE_BYTES);
        pool.shrink(0);
        assert_eq!(busy - resident_bytes(base as usize), 48 * PAGE_BYTES);
    }
}

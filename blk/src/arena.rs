//! The memory behind a pool: address space that holds pages only where they were touched.

use crate::pool::{Backing, PAGE_BYTES, PageIndex};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

/// Anonymous memory for a fixed number of pages, resident where it is used.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    pages: u32,
}

// SAFETY: the mapping belongs to this value alone and is not tied to the thread that made it.
unsafe impl Send for Arena {}

impl Arena {
    /// Address space for `pages` pages. Nothing is resident yet.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn new(pages: u32) -> io::Result<Self> {
        let bytes = (pages.max(1) as usize) * PAGE_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        // One touched page must not make 511 others resident.
        // SAFETY: the range is the mapping just made; the advice changes no contents.
        // A kernel without huge pages does not know the advice, and does not need it.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxNoHugepage) };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { base, pages })
    }

    /// Where `page` lies. Valid for [`PAGE_BYTES`] while the arena lives.
    ///
    /// # Panics
    /// If the arena has no such page.
    pub fn address(&self, page: PageIndex) -> NonNull<u8> {
        assert!(page.0 < self.pages, "page {} of {}", page.0, self.pages);
        // SAFETY: checked to lie inside of the mapping.
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
        // SAFETY: the range lies inside of the mapping, and the pool vouches that nobody uses
        // these pages: losing their contents is what is asked for.
        // It can fail only on memory that is locked; then the pages stay, as locking asked for.
        let _ = unsafe { madvise(start, count as usize * PAGE_BYTES, Advice::LinuxDontNeed) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = (self.pages.max(1) as usize) * PAGE_BYTES;
        // SAFETY: the mapping was made by `new` with this length and nobody else unmaps it.
        let result = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::pool::Pool;

    /// Resident bytes of the mapping that starts at `address`, from the kernel's own account.
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
            // SAFETY: the page was taken from the pool and is ours until it is put back.
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

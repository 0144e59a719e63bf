//! Locked memory. Pages are never swapped out here, so a lock faults them in, counts them, and
//! keeps calls from dropping them.

use super::backing::Bytes;
use super::map::page_range;
use super::protect::NONE;
use super::{AddressSpace, MapFlags, VmaFlags};
use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering};
use logic::errno::Errno;
use machine::arch::USER_END;

/// Whether and how pages are locked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Lock {
    /// The pages are not locked.
    None,
    /// The pages are locked, and mapped now.
    Now,
    /// The pages that are mapped are locked now, and the others when they are mapped.
    OnFault,
}

/// How the pages of later mappings are locked (`mlockall` with `MCL_FUTURE`).
#[derive(Debug)]
pub(super) struct FutureLock(AtomicU8);

impl FutureLock {
    /// Returns the initial state: later mappings are not locked.
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(Lock::None as u8))
    }

    // Relaxed (both): a value of its own.
    fn set(&self, lock: Lock) {
        self.0.store(lock as u8, Ordering::Relaxed);
    }

    fn get(&self) -> Lock {
        match self.0.load(Ordering::Relaxed) {
            1 => Lock::Now,
            2 => Lock::OnFault,
            _ => Lock::None,
        }
    }
}

impl AddressSpace {
    /// Locks the pages of a range, or unlocks them with [`Lock::None`] (`mlock2(2)`, `munlock(2)`).
    /// The range is extended to whole pages. Areas below the first gap are changed even if the call
    /// fails.
    ///
    /// # Errors
    /// Fails with `EINVAL` for a range that wraps around. Fails with `ENOMEM` if a part is not
    /// mapped, there would be too many areas, or a page cannot be mapped. Fails with `EINTR` if the
    /// task is being killed.
    pub fn lock_pages(&self, start: u64, bytes: u64, lock: Lock) -> Result<(), Errno> {
        let end = start.checked_add(bytes).ok_or(Errno::EINVAL)?;
        let from = start & !4095;
        let range = page_range(from, end - from, Errno::ENOMEM)?;
        if range.is_empty() {
            return Ok(());
        }
        // As on Linux, what lies below a hole is done.
        let until = if self.covers(&range) {
            range.end
        } else {
            self.covered_until(&range)
        };
        self.mark(range.start..until, lock)?;
        if until < range.end {
            return Err(Errno::ENOMEM);
        }
        if lock == Lock::Now {
            self.bring_in(range)?;
        }
        Ok(())
    }

    /// Checks a range for `msync(2)`. All of the range must be mapped. With `invalidate`, no page
    /// of it may be locked.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned start, with `ENOMEM` if a part is not mapped, and with
    /// `EBUSY` for locked pages.
    pub fn check_sync(&self, start: u64, bytes: u64, invalidate: bool) -> Result<(), Errno> {
        let range = page_range(start, bytes, Errno::ENOMEM)?;
        if invalidate {
            let mut any_locked = false;
            self.for_areas(range.clone(), |area| {
                any_locked |= area.flags.contains(VmaFlags::LOCKED);
                !any_locked
            });
            if any_locked {
                return Err(Errno::EBUSY);
            }
        }
        if range.is_empty() || self.covers(&range) {
            Ok(())
        } else {
            Err(Errno::ENOMEM)
        }
    }

    /// Writes the files of the shared mappings in a range to stable storage. Each file is written
    /// as a whole. Skips parts that are not mapped.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned start, with `ENOMEM` for a range that leaves the user's
    /// half, and with the error of a file that cannot be written.
    pub fn sync_files(&self, start: u64, bytes: u64) -> Result<(), Errno> {
        let range = page_range(start, bytes, Errno::ENOMEM)?;
        self.each_piece(range, |piece| match &piece.backing {
            Bytes::File(file, _) if piece.flags.contains(VmaFlags::SHARED) => file.source.sync(),
            _ => Ok(()),
        })
    }

    fn mark(&self, range: Range<u64>, lock: Lock) -> Result<(), Errno> {
        if lock == Lock::None {
            self.set_flags(range, VmaFlags::LOCKED, NONE, |_| true)
        } else {
            self.set_flags(range, NONE, VmaFlags::LOCKED, |_| true)
        }
    }

    fn bring_in(&self, range: Range<u64>) -> Result<(), Errno> {
        self.each_piece(range, |piece| {
            if piece.flags.intersects(VmaFlags::RIGHTS) {
                self.populate(piece.range, piece.flags.contains(VmaFlags::WRITE))
                    .map_err(|error| match error {
                        // Beyond the file's end.
                        Errno::EFAULT => Errno::ENOMEM,
                        other => other,
                    })
            } else {
                // Locked, and never there.
                Err(Errno::ENOMEM)
            }
        })
    }

    /// `mlockall(2)`: applies `current` to the present mappings and `future` to later ones.
    ///
    /// # Errors
    /// Does not fail in practice, since no area is split.
    pub fn lock_all(&self, current: Lock, future: Lock) -> Result<(), Errno> {
        self.future_lock.set(future);
        if current == Lock::None {
            return Ok(());
        }
        self.mark(0..USER_END, current)?;
        if current == Lock::Now {
            // As on Linux, what cannot be had now comes later, or not.
            let mut at = 0;
            while let Some(range) = self.area_from(at) {
                at = range.end;
                let _ = self.bring_in(range);
            }
        }
        Ok(())
    }

    /// Returns the range of the first area that ends behind `at`. Returns `None` if there is none.
    fn area_from(&self, at: u64) -> Option<Range<u64>> {
        let state = self.state.lock();
        let area = state.areas.next_from(at)?;
        Some(area.start..area.end)
    }

    /// Unlocks all pages, now and for later mappings (`munlockall(2)`).
    ///
    /// # Errors
    /// Does not fail in practice, since no area is split.
    pub fn unlock_all(&self) -> Result<(), Errno> {
        self.future_lock.set(Lock::None);
        self.mark(0..USER_END, Lock::None)
    }

    /// Returns the flags for a new mapping with `flags`, and whether its pages are mapped at once.
    /// Applies what `mlockall(2)` requested for later mappings.
    pub(super) fn locked_in_future(&self, flags: MapFlags) -> (MapFlags, bool) {
        let now = flags.intersects(MapFlags::POPULATE | MapFlags::LOCKED);
        match self.future_lock.get() {
            Lock::None => (flags, now),
            lock => (flags | MapFlags::LOCKED, now || lock == Lock::Now),
        }
    }
}

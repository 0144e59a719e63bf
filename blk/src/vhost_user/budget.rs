//! Limits on the guest memory that one disk, and all disks of a process together, may map.
//!
//! A front-end can pass a sparse file of any length. Mapped whole, it would use the address space
//! that other disks need for their guests' memory, and this process for its own.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of bytes of guest memory that one disk may map: 4 TiB.
pub const MAX_DISK_MEMORY_BYTES: u64 = 4 << 40;
/// Maximum number of bytes of guest memory that all disks of a process together may map: 64 TiB,
/// half of a process's address space on x86-64. While a disk replaces its memory table, both tables
/// count.
pub const MAX_PROCESS_MEMORY_BYTES: u64 = 64 << 40;

/// The budget of guest memory of all disks of this process.
pub(super) static OF_PROCESS: Budget = Budget::new(MAX_PROCESS_MEMORY_BYTES);

/// A limit on bytes of guest memory, and the number of bytes taken.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    taken: AtomicU64,
}

/// A number of bytes of guest memory that counts as mapped until this value is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: &'static Budget,
    bytes: u64,
}

impl Budget {
    const fn new(limit: u64) -> Self {
        Self {
            limit,
            taken: AtomicU64::new(0),
        }
    }

    /// Counts `bytes` of guest memory of one disk as mapped, until the result is dropped. Maps
    /// nothing.
    ///
    /// # Errors
    /// Fails if `bytes` is above the limit of one disk, or the sum for all disks above that of the
    /// process.
    pub(super) fn take(&'static self, bytes: u64) -> io::Result<Share> {
        if bytes > MAX_DISK_MEMORY_BYTES {
            return Err(io::Error::other(format!(
                "{bytes} bytes of guest memory; a disk may map {MAX_DISK_MEMORY_BYTES}"
            )));
        }
        let fits = |taken: u64| {
            let sum = taken.checked_add(bytes)?;
            (sum <= self.limit).then_some(sum)
        };
        // Relaxed: the number orders no other memory access.
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map_err(|taken| {
            let limit = self.limit;
            io::Error::other(format!(
                "{bytes} bytes of guest memory; all disks of this process may map {limit}, and \
                 {taken} are mapped"
            ))
        })?;
        Ok(Share { of: self, bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Relaxed: as in `take`.
        self.of.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn disks_share_what_a_process_may_map() {
        static BUDGET: Budget = Budget::new(100);
        let (first, second) = (BUDGET.take(60).unwrap(), BUDGET.take(40).unwrap());
        let why = BUDGET.take(1).unwrap_err().to_string();
        assert!(why.contains("may map 100, and 100 are mapped"), "{why}");
        drop(first);
        assert!(BUDGET.take(61).is_err());
        let third = BUDGET.take(60).unwrap();
        drop((second, third));
        assert_eq!(BUDGET.taken.load(Ordering::Relaxed), 0);
    }
}

//! Uses all free memory of the guest once, so that the host has memory for all of it. The series on
//! free page reporting did so with memhog before each test.

use crate::mapping::{HUGE_BYTES, Mapping, PageSize};
use crate::{Failure, meminfo};

/// The part of the free memory that stays unused, as its reciprocal. With less a stock kernel
/// reclaims, or ends the program.
const RESERVE_PART: usize = 32;
/// The least memory that stays unused, in bytes. It is above the watermarks of a stock kernel.
const RESERVE_BYTES: usize = 128 << 20;

/// Touches nearly all free memory, by a thread for each CPU, and frees it once all is touched.
/// Leaves a thirty-second of it untouched, and 128 MiB at least. All threads have ended on return.
///
/// # Errors
/// [`Failure::Unsupported`] if the guest does not say how much memory is free,
/// [`Failure::System`] if the memory cannot be mapped.
pub(crate) fn of_all_memory() -> Result<(), Failure> {
    let free = meminfo::free_kib()
        .and_then(|kib| usize::try_from(kib << 10).ok())
        .ok_or_else(|| Failure::Unsupported("MemFree in /proc/meminfo".to_owned()))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = part_bytes(free, threads);
    if part == 0 {
        return Ok(());
    }
    let touch = || -> Result<Mapping, Failure> {
        let mut mapping = Mapping::anonymous(part, PageSize::Default)?;
        mapping.touch();
        Ok(mapping)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(touch)).collect();
        let mappings: Result<Vec<Mapping>, Failure> = threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(mapping) => mapping,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect();
        mappings.map(drop)
    })
}

/// Returns the bytes that each of `threads` threads touches of `free` free bytes, in whole huge
/// pages.
fn part_bytes(free: usize, threads: usize) -> usize {
    let reserve = (free / RESERVE_PART).max(RESERVE_BYTES);
    let part = free.saturating_sub(reserve) / threads;
    part - part % HUGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_memory_stays_free() {
        assert_eq!(part_bytes(1 << 30, 1), 896 << 20);
        assert_eq!(part_bytes(8 << 30, 2), (8 << 30) / 32 * 31 / 2);
        assert_eq!(part_bytes(100 << 20, 1), 0);
        assert_eq!(part_bytes((128 << 20) + HUGE_BYTES, 2), 0);
    }
}

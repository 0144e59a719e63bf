//! Sets of CPUs.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The greatest number of CPUs that the kernel supports.
pub const MAX_CPUS: usize = 64;

/// A set of CPUs that several CPUs may change at once.
///
/// Changes and reads are sequentially consistent. Users add a CPU to the set and then read page
/// tables, or change page tables and then read the set. That needs a full barrier on both sides.
#[derive(Default)]
pub struct CpuSet(AtomicU64);

impl CpuSet {
    /// Makes an empty set.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes a set from `mask`: bit N is CPU N.
    pub const fn from_mask(mask: u64) -> Self {
        Self(AtomicU64::new(mask))
    }

    /// Adds CPU `cpu`.
    #[inline]
    pub fn insert(&self, cpu: usize) {
        debug_assert!(cpu < MAX_CPUS);
        self.0.fetch_or(1 << cpu, Ordering::SeqCst);
    }

    /// Removes CPU `cpu`.
    #[inline]
    pub fn remove(&self, cpu: usize) {
        debug_assert!(cpu < MAX_CPUS);
        self.0.fetch_and(!(1 << cpu), Ordering::SeqCst);
    }

    /// Returns whether CPU `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < MAX_CPUS && self.mask() & (1 << cpu) != 0
    }

    /// Returns the set as a mask: bit N is CPU N.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns whether more than one CPU is in the set.
    #[inline]
    pub fn has_several(&self) -> bool {
        let mask = self.mask();
        mask & mask.wrapping_sub(1) != 0
    }

    /// Replaces the whole set by that of `mask`: bit N is CPU N.
    #[inline]
    pub fn set_mask(&self, mask: u64) {
        self.0.store(mask, Ordering::SeqCst);
    }

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.mask() == 0
    }

    /// Returns the number of CPUs in the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.mask().count_ones() as usize
    }

    /// Returns an iterator over the numbers of the CPUs that are in the set now, in ascending
    /// order.
    pub fn iter(&self) -> Cpus {
        Cpus(self.mask())
    }
}

impl Clone for CpuSet {
    fn clone(&self) -> Self {
        Self::from_mask(self.mask())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({:#x})", self.mask())
    }
}

/// Iterates over the numbers of the CPUs in a set, in ascending order.
#[derive(Clone, Debug)]
pub struct Cpus(u64);

impl Cpus {
    /// Returns an iterator over the CPUs in `mask` (bit N is CPU N), in ascending order.
    pub const fn of(mask: u64) -> Self {
        Self(mask)
    }
}

impl Iterator for Cpus {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let cpu = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(cpu)
    }
}

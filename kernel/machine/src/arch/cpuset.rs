//! Sets of CPUs.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// CPUs that the kernel can run on.
pub const MAX_CPUS: usize = 64;

/// A set of CPUs that several CPUs may change at once.
///
/// Changes are sequentially consistent: users pair "I am in the set" with a later look at page
/// tables (and the other way round), which needs a full barrier on both sides.
#[derive(Default)]
pub struct CpuSet(AtomicU64);

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A set from its bits: bit N is CPU N.
    pub const fn from_mask(mask: u64) -> Self {
        Self(AtomicU64::new(mask))
    }

    /// Adds a CPU.
    #[inline]
    pub fn insert(&self, cpu: usize) {
        debug_assert!(cpu < MAX_CPUS);
        self.0.fetch_or(1 << cpu, Ordering::SeqCst);
    }

    /// Takes a CPU out.
    #[inline]
    pub fn remove(&self, cpu: usize) {
        debug_assert!(cpu < MAX_CPUS);
        self.0.fetch_and(!(1 << cpu), Ordering::SeqCst);
    }

    /// Whether the CPU is in the set.
    #[inline]
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < MAX_CPUS && self.mask() & (1 << cpu) != 0
    }

    /// The set as bits: bit N is CPU N.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether more than one CPU is in the set.
    #[inline]
    pub fn has_several(&self) -> bool {
        let mask = self.mask();
        mask & mask.wrapping_sub(1) != 0
    }

    /// Replaces the whole set.
    #[inline]
    pub fn set_mask(&self, mask: u64) {
        self.0.store(mask, Ordering::SeqCst);
    }

    /// Whether no CPU is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.mask() == 0
    }

    /// CPUs in the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.mask().count_ones() as usize
    }

    /// The CPUs of the set as it is now, ascending.
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

/// Ascending CPU numbers of a set.
#[derive(Clone, Debug)]
pub struct Cpus(u64);

impl Cpus {
    /// The CPUs of a mask, ascending.
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

//! What a lock is to code that knows no machine: the kernel has its own, models have theirs.

use core::ops::DerefMut;

/// Mutual exclusion around a value.
pub trait Lock {
    /// What it guards.
    type Value;
    /// Holds it; dropping it opens the lock.
    type Guard<'a>: DerefMut<Target = Self::Value>
    where
        Self: 'a;

    /// Takes the lock.
    fn lock(&self) -> Self::Guard<'_>;
}

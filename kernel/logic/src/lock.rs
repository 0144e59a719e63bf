//! A lock for code that needs no hardware. The kernel implements it with its own locks, tests with
//! theirs.

use core::ops::DerefMut;

/// Mutual exclusion around a value.
pub trait Lock {
    /// The value that the lock guards.
    type Value;
    /// Holds the lock; dropping the guard releases the lock.
    type Guard<'a>: DerefMut<Target = Self::Value>
    where
        Self: 'a;

    /// Takes the lock, and waits until it is free. Dropping the guard releases the lock.
    fn lock(&self) -> Self::Guard<'_>;
}

//! The locks as tests on the host have them: those of the standard library, or loom's, with the
//! kernel's names.

#[cfg(loom)]
use loom::sync as host;
use std::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use std::sync as host;

/// A lock, blocking or not: a model sees no difference.
#[derive(Debug)]
pub struct Mutex<T>(host::Mutex<T>);

/// As [`Mutex`].
pub type SpinLock<T> = Mutex<T>;

/// Holds a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T>(host::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    /// An open lock.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self(host::Mutex::new(value))
    }

    /// An open lock.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self(host::Mutex::new(value))
    }

    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // A test that panics with a lock held has failed already.
        MutexGuard(
            self.0
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

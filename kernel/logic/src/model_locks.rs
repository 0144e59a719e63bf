//! The lock of tests on the host: a mutex of the standard library, or of loom.

use crate::lock::Lock;
#[cfg(ebb_model)]
use loom::sync as host;
use std::ops::{Deref, DerefMut};
#[cfg(not(ebb_model))]
use std::sync as host;

/// A lock, spinning or sleeping: a model sees no difference.
#[derive(Debug)]
pub(crate) struct Mutex<T>(host::Mutex<T>);

/// Holds a [`Mutex`] locked.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(host::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    /// Returns an open lock around `value`.
    #[cfg(not(ebb_model))]
    pub(crate) const fn new(value: T) -> Self {
        Self(host::Mutex::new(value))
    }

    /// Returns an open lock around `value`.
    #[cfg(ebb_model)]
    pub(crate) fn new(value: T) -> Self {
        Self(host::Mutex::new(value))
    }
}

impl<T> Lock for Mutex<T> {
    type Value = T;
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn lock(&self) -> MutexGuard<'_, T> {
        // A test that panics with a lock held has failed already, so poison is ignored.
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

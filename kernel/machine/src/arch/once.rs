//! Cells that are written once.

use super::spin::SpinLock;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// A cell that is set at most once and read without a lock afterwards.
pub struct Once<T> {
    ready: AtomicBool,
    setting: SpinLock<()>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: `value` is written once under `setting`, before `ready` is set, and only read afterwards.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Makes an empty cell.
    pub const fn new() -> Self {
        Self {
            ready: AtomicBool::new(false),
            setting: SpinLock::new(()),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Returns the value, or `None` if the cell is empty.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: pairs with the Release in `set`, so the value is seen whole.
        if self.ready.load(Ordering::Acquire) {
            // SAFETY: `ready` is set only after the value was written, and it is never written
            // again.
            Some(unsafe { (*self.value.get()).assume_init_ref() })
        } else {
            None
        }
    }

    /// Sets the value.
    ///
    /// # Errors
    /// `value` itself, if the cell was set before.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _guard = self.setting.lock();
        if self.ready.load(Ordering::Relaxed) {
            return Err(value);
        }
        // SAFETY: `setting` is held and `ready` is false, so no other CPU reads or writes the
        // value.
        unsafe { (*self.value.get()).write(value) };
        // Release: pairs with the Acquire in `get`.
        self.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the value. If the cell is empty, sets it to the result of `init` first. `init` runs
    /// under a spin lock, so it must be short and must not block.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let guard = self.setting.lock();
        if !self.ready.load(Ordering::Relaxed) {
            // SAFETY: `setting` is held and `ready` is false, so no other CPU reads or writes the
            // value.
            unsafe { (*self.value.get()).write(init()) };
            self.ready.store(true, Ordering::Release);
        }
        drop(guard);
        // SAFETY: set just now or by another CPU under the lock that we held.
        unsafe { (*self.value.get()).assume_init_ref() }
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if *self.ready.get_mut() {
            // SAFETY: `ready` is set only after the value was written, and this is the only
            // reference to the cell.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}

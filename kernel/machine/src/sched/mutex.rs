//! The lock that blocks: for what is held while user memory is copied, or memory is waited for.

use super::wait_queue::{Interrupted, WaitQueue};
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use logic::lock::Lock;

/// Mutual exclusion between threads. The holder may block; never take it with a spin lock held.
pub struct Mutex<T: ?Sized> {
    locked: AtomicBool,
    queue: WaitQueue,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out access to one thread at a time, so `T: Send` is all that is needed.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            queue: WaitQueue::new(),
            value: UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting until it is free, whatever signals come.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // Acquire: pairs with the Release of the guard's drop.
        if self.locked.swap(true, Ordering::Acquire) {
            self.queue
                .wait_uninterruptible(|| !self.locked.swap(true, Ordering::Acquire));
        }
        MutexGuard { mutex: self }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Acquire: as in `lock`.
        (!self.locked.swap(true, Ordering::Acquire)).then(|| MutexGuard { mutex: self })
    }

    /// Takes the lock, waiting until it is free.
    ///
    /// # Errors
    /// [`Interrupted`]: the thread is being killed.
    pub fn lock_killable(&self) -> Result<MutexGuard<'_, T>, Interrupted> {
        // Acquire: as in `lock`.
        if self.locked.swap(true, Ordering::Acquire) {
            self.queue
                .wait_killable(|| !self.locked.swap(true, Ordering::Acquire))?;
        }
        Ok(MutexGuard { mutex: self })
    }
}

impl<T> Lock for Mutex<T> {
    type Value = T;
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn lock(&self) -> MutexGuard<'_, T> {
        Self::lock(self)
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = self.locked.load(Ordering::Relaxed);
        f.debug_struct("Mutex")
            .field("locked", &locked)
            .finish_non_exhaustive()
    }
}

/// Holds a [`Mutex`]; dropping it opens the lock.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that this thread holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes the borrow unique.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`. A waiter that queues up after this store finds
        // the lock open when it tests; one that did so before is woken.
        self.mutex.locked.store(false, Ordering::Release);
        self.mutex.queue.wake_one();
    }
}

impl<T: ?Sized> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}

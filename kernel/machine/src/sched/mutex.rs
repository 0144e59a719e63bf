//! The lock that blocks: for what is held while user memory is copied, or memory is waited for.

use super::wait_queue::{Interrupted, WaitQueue};
use crate::arch::{cpu_id, ipi, spin};
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use logic::lock::Lock;

/// How often a thread looks at a lock that is held before it blocks: for 0.1 ms on QEMU's translator.
/// To block, and be woken by another CPU, takes longer than most holders do, who may have to wait until
/// other CPUs have flushed their TLBs.
const LOOKS: u32 = 5000;

/// Nobody holds it.
const OPEN: u32 = 0;

/// What this CPU is in [`Mutex::holder`].
#[inline]
fn own() -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "at most 64 CPUs")]
    let cpu = cpu_id() as u32;
    cpu + 1
}

/// Mutual exclusion between threads. The holder may block; never take it with a spin lock held.
pub struct Mutex<T: ?Sized> {
    /// One more than the CPU that its holder took it on, or [`OPEN`].
    holder: AtomicU32,
    /// A thread looks whether the lock opens soon.
    looking: AtomicBool,
    queue: WaitQueue,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out access to one thread at a time, so `T: Send` is all that is needed.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            holder: AtomicU32::new(OPEN),
            looking: AtomicBool::new(false),
            queue: WaitQueue::new(),
            value: UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting until it is free, whatever signals come.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.take() && !self.take_soon() {
            self.queue.wait_uninterruptible(|| self.take());
        }
        MutexGuard { mutex: self }
    }

    /// Takes the lock if it is open.
    #[inline]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release of the guard's drop.
        self.holder
            .compare_exchange(OPEN, own(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Looks for a while whether the holder, who may run on another CPU, lets go. One thread at a time
    /// does: where there are more CPUs than cores of the host, the holder needs one.
    #[cold]
    fn take_soon(&self) -> bool {
        // Relaxed (both): it guards nothing.
        if self.looking.swap(true, Ordering::Relaxed) {
            return false;
        }
        let taken = self.look();
        self.looking.store(false, Ordering::Relaxed);
        taken
    }

    fn look(&self) -> bool {
        let own = own();
        let mut turns = 0;
        for _ in 0..LOOKS {
            // Relaxed: a hint; `take` decides.
            match self.holder.load(Ordering::Relaxed) {
                OPEN if self.take() => return true,
                // Whoever took it on this CPU does not run now.
                holder if holder == own => return false,
                _ => {}
            }
            ipi::poll_mailbox();
            spin::relax(&mut turns);
        }
        false
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.take().then(|| MutexGuard { mutex: self })
    }

    /// Takes the lock, waiting until it is free.
    ///
    /// # Errors
    /// [`Interrupted`]: the thread is being killed.
    pub fn lock_killable(&self) -> Result<MutexGuard<'_, T>, Interrupted> {
        if !self.take() && !self.take_soon() {
            self.queue.wait_killable(|| self.take())?;
        }
        Ok(MutexGuard { mutex: self })
    }

    /// Takes the lock, waiting until it is free.
    ///
    /// # Errors
    /// [`Interrupted`]: a signal came.
    pub fn lock_interruptible(&self) -> Result<MutexGuard<'_, T>, Interrupted> {
        if !self.take() && !self.take_soon() {
            self.queue.wait(|| self.take())?;
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
        let locked = self.holder.load(Ordering::Relaxed) != OPEN;
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
        // Release: pairs with the Acquire in `take`. A waiter that queues up after this store finds
        // the lock open when it tests; one that did so before is woken.
        self.mutex.holder.store(OPEN, Ordering::Release);
        self.mutex.queue.wake_one();
    }
}

impl<T: ?Sized> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}

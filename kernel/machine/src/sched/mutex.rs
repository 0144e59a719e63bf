//! A lock that blocks, for holders that copy user memory or wait for memory.

use super::wait_queue::{Interrupted, WaitQueue};
use crate::arch::{cpu_id, ipi, spin};
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use logic::lock::Lock;
use logic::sched::holder::Holder;

/// The number of times that a thread polls a held lock before it blocks: for 0.1 ms on QEMU's
/// translator. Blocking, and a wake-up by another CPU, take longer than most holders hold a lock. A
/// holder may have to wait until other CPUs have flushed their TLBs.
const LOOKS: u32 = 5000;

/// Returns the number of this CPU.
#[inline]
fn own() -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "at most 64 CPUs")]
    let cpu = cpu_id() as u32;
    cpu
}

/// Mutual exclusion between threads. The holder may block. Never take it with a spin lock held.
pub struct Mutex<T: ?Sized> {
    holder: Holder,
    /// A thread polls the lock.
    looking: AtomicBool,
    queue: WaitQueue,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives access to one thread at a time, so `T: Send` suffices.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// Makes an open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            holder: Holder::new(),
            looking: AtomicBool::new(false),
            queue: WaitQueue::new(),
            value: UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting until it is free. Signals do not interrupt the wait.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.take() && !self.take_soon() {
            let holder = &self.holder;
            self.queue
                .wait_uninterruptible(|| holder.take_waiting(own()));
        }
        MutexGuard { mutex: self }
    }

    /// Takes the lock if it is open. Returns whether it did.
    #[inline]
    fn take(&self) -> bool {
        self.holder.take(own())
    }

    /// Polls the lock for a while, because the holder may run on another CPU and release it soon.
    /// Only one thread polls at a time: if there are more CPUs than cores of the host, the holder
    /// needs a core. Returns whether it took the lock.
    #[cold]
    fn take_soon(&self) -> bool {
        // Relaxed (both): the flag guards no data.
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
            match self.holder.cpu() {
                None if self.take() => return true,
                // A holder that took it on this CPU does not run now.
                Some(cpu) if cpu == own => return false,
                _ => {}
            }
            ipi::poll_mailbox();
            spin::relax(&mut turns);
        }
        false
    }

    /// Takes the lock if it is free. Returns `None` if it is not. Does not wait.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.take().then(|| MutexGuard { mutex: self })
    }

    /// Takes the lock, waiting until it is free. Only SIGKILL interrupts the wait.
    ///
    /// # Errors
    /// [`Interrupted`] if the thread is killed before the lock is free. The thread does not hold
    /// the lock then.
    pub fn lock_killable(&self) -> Result<MutexGuard<'_, T>, Interrupted> {
        if !self.take() && !self.take_soon() {
            let holder = &self.holder;
            self.queue.wait_killable(|| holder.take_waiting(own()))?;
        }
        Ok(MutexGuard { mutex: self })
    }

    /// Takes the lock, waiting until it is free. A signal that the thread would act on interrupts
    /// the wait.
    ///
    /// # Errors
    /// [`Interrupted`] if such a signal arrives before the lock is free. The thread does not hold
    /// the lock then.
    pub fn lock_interruptible(&self) -> Result<MutexGuard<'_, T>, Interrupted> {
        if !self.take() && !self.take_soon() {
            let holder = &self.holder;
            self.queue.wait(|| holder.take_waiting(own()))?;
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
        let locked = self.holder.cpu().is_some();
        f.debug_struct("Mutex")
            .field("locked", &locked)
            .finish_non_exhaustive()
    }
}

/// The right to use the value of a locked [`Mutex`]. Dropping it opens the lock.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves that this thread holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves that this thread holds the lock, and `&mut self` makes the
        // borrow unique.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.holder.release() {
            self.mutex.queue.wake_one();
        }
    }
}

impl<T: ?Sized> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}

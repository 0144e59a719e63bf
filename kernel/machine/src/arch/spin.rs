//! The spin lock.

use super::{clock, ipi, percpu};
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, Ordering};
use logic::lock::Lock;

/// The number of turns after which a spinning CPU pauses.
const TURNS_A_PAUSE: u32 = 64;

/// Spends the time between two polls of a value that another CPU changes. `turns` counts the calls
/// of a loop, and starts at 0.
///
/// Pauses only once in 64 turns. A pause saves power, but QEMU's translator leaves the guest's code
/// at each one and takes its global lock, which the other CPU needs to reach its devices.
#[inline]
pub fn relax(turns: &mut u32) {
    *turns = turns.wrapping_add(1);
    if turns.is_multiple_of(TURNS_A_PAUSE) {
        core::hint::spin_loop();
    }
}

/// The value of a free lock.
const OPEN: u8 = 0;

/// A spin lock: mutual exclusion between CPUs.
///
/// Interrupts are off in kernel mode, so the holder is never interrupted on its own CPU. A spinning
/// CPU keeps answering TLB shoot-downs, since the holder may be waiting for that answer. A CPU that
/// has spun for long halts, so that the host can give its core to a holder that does not run.
pub struct SpinLock<T: ?Sized> {
    /// [`OPEN`], or the mark of the CPU that holds the lock. For a moment, or longer if two CPUs
    /// collide, it is the mark of a CPU that tries to take the lock.
    holder: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives access to one CPU at a time, so `T: Send` suffices.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// Makes an open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            holder: AtomicU8::new(OPEN),
            value: UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Takes the lock, spinning until it is free. Serves requests of other CPUs
    /// ([`ipi::poll_mailbox`]) in that time, and halts if it takes long. Interrupts are off in
    /// kernel mode, so they need not be disabled. Until the guard is dropped, the current thread
    /// must not block and must not take the lock again.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        // Acquire: pairs with the Release of the guard's drop.
        let before = self.holder.swap(percpu::mark(), Ordering::Acquire);
        if before != OPEN {
            self.lock_contended(before);
        }
        percpu::count_spin_lock();
        SpinGuard { lock: self }
    }

    /// Restores `holder`, the mark of the CPU that holds the lock, after an exchange of this CPU
    /// has replaced it. Only such an exchange writes this CPU's mark while it does not hold the
    /// lock. So if this CPU's mark is still there, the lock is still held.
    #[cold]
    fn restore(&self, holder: u8) {
        // Relaxed: nothing is taken or let go.
        let _ = self.holder.compare_exchange(
            percpu::mark(),
            holder,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    #[cold]
    fn lock_contended(&self, before: u8) {
        self.restore(before);
        // Most waits end before the clock is read, which takes the translator long.
        let mut since = None;
        let mut turns = 0;
        loop {
            // Relaxed: only a hint; the exchange below decides.
            let holder = self.holder.load(Ordering::Relaxed);
            if holder == OPEN {
                // Acquire: as in `lock`.
                let taken = self.holder.compare_exchange(
                    OPEN,
                    percpu::mark(),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    return;
                }
            }
            ipi::poll_mailbox();
            relax(&mut turns);
            if holder == OPEN || !turns.is_multiple_of(TURNS_A_PAUSE) {
                continue;
            }
            let now = clock::now();
            if now.saturating_sub(*since.get_or_insert(now)) > ipi::SPIN_TIME {
                ipi::wait_for_cpu(usize::from(holder) - 1);
                since = None;
            }
        }
    }

    /// Takes the lock if it is free right now. Returns `None` if it is not, also if this CPU holds
    /// it. Costs less than [`Self::try_lock`] if the lock is mostly free.
    #[inline]
    pub fn lock_now(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: as in `lock`.
        let before = self.holder.swap(percpu::mark(), Ordering::Acquire);
        if before != OPEN {
            self.restore(before);
            return None;
        }
        percpu::count_spin_lock();
        Some(SpinGuard { lock: self })
    }

    /// Takes the lock if it is free right now. Returns `None` if it is not, also if this CPU holds
    /// it. Costs less than [`Self::lock_now`] if the lock is often held.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Relaxed: a hint that spares the exclusive cache line; `lock_now` decides.
        if self.holder.load(Ordering::Relaxed) != OPEN {
            return None;
        }
        self.lock_now()
    }

    /// Returns the value. The exclusive borrow shows that the lock is free.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = self.holder.load(Ordering::Relaxed) != OPEN;
        f.debug_struct("SpinLock")
            .field("locked", &locked)
            .finish_non_exhaustive()
    }
}

impl<T> Lock for SpinLock<T> {
    type Value = T;
    type Guard<'a>
        = SpinGuard<'a, T>
    where
        T: 'a;

    fn lock(&self) -> SpinGuard<'_, T> {
        Self::lock(self)
    }
}

/// The right to use the value of a locked [`SpinLock`]. Dropping it opens the lock.
pub struct SpinGuard<'a, T: ?Sized> {
    lock: &'a SpinLock<T>,
}

impl<T: ?Sized> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that this CPU holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the proof that this CPU holds the lock, and `&mut self` makes the
        // borrow unique.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        percpu::uncount_spin_lock();
        // Release: pairs with the Acquire in `lock`.
        self.lock.holder.store(OPEN, Ordering::Release);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SpinGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Returns the number of spin locks that this CPU holds. While it is not 0, the current task must
/// not block, and an allocation must not wait for memory.
#[inline]
pub fn spin_locks_held() -> u32 {
    percpu::spin_locks()
}

/// Panics if this CPU holds a spin lock, in builds with assertions. Code that is about to block
/// calls this.
#[inline]
pub fn assert_no_spin_lock_held() {
    debug_assert_eq!(
        percpu::spin_locks(),
        0,
        "a task blocks while it holds a spin lock"
    );
}

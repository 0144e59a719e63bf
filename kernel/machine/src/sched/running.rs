//! The thread and the task that run on this CPU, and the values that only the task itself uses.

use super::owner::{Carrier, OWNER, Owned};
use super::thread::Thread;
use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use logic::own::{Own, Token};

/// The thread that runs on this CPU. A thread stays alive while it runs. This value cannot leave
/// the stack of the thread that obtained it, so it is always valid.
#[derive(Copy, Clone)]
pub struct Current {
    thread: NonNull<Thread>,
    _not_send: PhantomData<*mut ()>,
}

impl Current {
    /// Returns the thread's address, for lists of waiters, whose entries end before the thread
    /// does.
    #[inline]
    pub(super) fn as_non_null(self) -> NonNull<Thread> {
        self.thread
    }

    /// Returns a counted reference to the thread.
    pub(super) fn hold(self) -> Owned {
        (OWNER.hold)(self)
    }
}

impl Deref for Current {
    type Target = Thread;
    #[inline]
    fn deref(&self) -> &Thread {
        // SAFETY: the running thread stays alive, and the reference does not leave its stack; see
        // the type.
        unsafe { self.thread.as_ref() }
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: a thread that runs is one of the scheduler.
        unsafe { (OWNER.describe)(self, f) }
    }
}

/// Returns the thread that runs on this CPU.
#[inline]
pub fn current() -> Current {
    let thread = crate::arch::current_thread() as *mut Thread;
    debug_assert!(!thread.is_null(), "no thread runs on this CPU yet");
    // SAFETY: set before the first thread runs, and no code calls this earlier.
    let thread = unsafe { NonNull::new_unchecked(thread) };
    Current {
        thread,
        _not_send: PhantomData,
    }
}

/// Returns whether this CPU already runs a thread. Returns `false` in early boot.
#[inline]
pub fn started() -> bool {
    crate::arch::current_thread() != 0
}

/// A task that this CPU switches: no other CPU runs it.
#[derive(Debug)]
pub struct Switched<'t, T>(&'t T);

impl<'t, T> Switched<'t, T> {
    /// Returns `task` as one that this CPU switches.
    ///
    /// # Safety
    /// No other CPU runs the task as long as the value lives.
    pub(super) unsafe fn new(task: &'t T) -> Self {
        Self(task)
    }

    /// Calls `look` with the value in `field`, one of this task's own values, and returns its
    /// result.
    ///
    /// # Panics
    /// If the value that `field` returns is not a part of the task.
    #[inline(always)]
    pub fn with<V, R>(
        &self,
        field: for<'a> fn(&'a T) -> &'a Own<V>,
        look: impl FnOnce(&V) -> R + Send,
    ) -> R {
        let own = part(self.0, field);
        // SAFETY: the value is this task's, which this CPU switches.
        unsafe { own.with(look) }
    }
}

impl<T> Deref for Switched<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.0
    }
}

/// Returns the value that `field` finds in `task`. The check costs nothing where the compiler knows
/// `field`, so callers are inlined.
///
/// # Panics
/// If the value is not a part of the task.
#[inline(always)]
fn part<T, V>(task: &T, field: for<'a> fn(&'a T) -> &'a Own<V>) -> &Own<V> {
    let own = field(task);
    let offset = (&raw const *own)
        .addr()
        .wrapping_sub((&raw const *task).addr());
    assert!(offset < size_of::<T>(), "not an own value of this task");
    own
}

/// The task that runs on this CPU. The task stays alive while it runs. This value cannot leave the
/// task's own stack, so it is always valid.
pub struct Running<T> {
    task: NonNull<T>,
    _not_send: PhantomData<*mut ()>,
}

impl<T> Copy for Running<T> {}

impl<T> Clone for Running<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Carrier> Running<T> {
    /// Returns the task that runs on this CPU.
    #[inline]
    #[must_use]
    pub fn current() -> Self {
        Self::from(current())
    }

    /// Returns a counted reference to the task.
    #[must_use]
    pub fn to_arc(self) -> Arc<T> {
        // SAFETY: every task is in an `Arc`, and the CPU holds a reference to the running one.
        unsafe {
            Arc::increment_strong_count(self.task.as_ptr());
            Arc::from_raw(self.task.as_ptr())
        }
    }

    /// Calls `look` with the value in `field`, one of this task's own values, and returns its
    /// result.
    ///
    /// # Panics
    /// If the value that `field` returns is not a part of the task.
    #[inline(always)]
    pub fn with<V, R>(
        self,
        field: for<'a> fn(&'a T) -> &'a Own<V>,
        look: impl FnOnce(&V) -> R + Send,
    ) -> R {
        let own = part(&*self, field);
        // SAFETY: the caller runs as the task, because `self` does not leave its stack, and the
        // value is the task's.
        unsafe { own.with(look) }
    }

    /// Replaces the value in `field`, one of this task's own values, by `new`, and returns the
    /// former value.
    ///
    /// # Panics
    /// If the value that `field` returns is not a part of the task.
    #[inline]
    pub fn replace<V>(
        self,
        field: for<'a> fn(&'a T) -> &'a Own<V>,
        new: V,
        token: &mut Token,
    ) -> V {
        let own = part(&*self, field);
        // SAFETY: the caller runs as the task, and the value is the task's. The token is this
        // task's, because neither leaves the stack of its task.
        unsafe { own.replace(new, token) }
    }
}

impl<T: Carrier> From<Current> for Running<T> {
    #[inline]
    fn from(thread: Current) -> Self {
        Self {
            // Every thread that runs is the first field of a task.
            task: thread.as_non_null().cast(),
            _not_send: PhantomData,
        }
    }
}

impl<T: Carrier> Deref for Running<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the running task stays alive, and the reference does not leave its stack; see the
        // type.
        unsafe { self.task.as_ref() }
    }
}

impl<T: Carrier> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

//! The threads' owner: the upper half, whose tasks each start with a thread.
//!
//! The upper half names the type of its tasks with [`own_threads!`](crate::own_threads). Then every
//! thread that the scheduler knows is the first field of such a task, so this module turns threads
//! into tasks.

use super::running::{Current, Running, Switched};
use super::thread::Thread;
use crate::arch::clock::Nanos;
use alloc::sync::Arc;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

/// A task: a structure of the upper half around a thread, with the callbacks that the scheduler
/// needs.
pub trait Task: fmt::Debug + Send + Sync + Sized + 'static {
    /// Makes the idle task of this CPU, whose thread has no separate stack.
    fn idle() -> Arc<Self>;
    /// Switches the state that user code sees besides its registers, from `previous` to `next`.
    /// `previous` is still the current task, and `next` does not run yet.
    fn switch(previous: Switched<'_, Self>, next: Switched<'_, Self>);
    /// The first code of a new task, which runs as the current task on its own stack. When it
    /// returns, a user task enters user mode, and a kernel task ends.
    fn begin();
    /// Called when a slice of the task begins at `now`. Returns the time at which [`Self::tick`]
    /// must be called, or `None` if no call is needed.
    fn wants_tick(&self, now: Nanos) -> Option<Nanos>;
    /// Called when the timer has interrupted the task at `now`. Returns the time at which to call
    /// this again, or `None` if no further call is needed.
    fn tick(&self, now: Nanos) -> Option<Nanos>;
    /// Starts a kernel task with this name that runs `body`. Panics if there is no memory.
    fn spawn(name: &'static str, body: fn());
    /// Called during long work while the current thread holds no spin lock. Delayed work may be
    /// done here.
    fn at_ease();
    /// Called when this CPU has nothing to run and is about to halt.
    fn resting();
}

/// A task to which the scheduler's threads belong. [`own_threads!`](crate::own_threads) implements
/// this.
///
/// # Safety
/// The first field is a [`Thread`], at offset 0. No other type of the kernel implements this.
pub unsafe trait Carrier: Task {}

/// Makes `$task`, whose field `$thread` is a [`Thread`] at offset 0, the type of the tasks to which
/// all threads belong. The linker refuses a second call.
#[macro_export]
macro_rules! own_threads {
    ($task:ty, $thread:ident) => {
        const _: () = {
            assert!(::core::mem::offset_of!($task, $thread) == 0);
            // A raw pointer, so that the field is a thread itself, and not what it leads to.
            const fn _is_thread(task: &$task) -> *const $crate::sched::Thread {
                &raw const task.$thread
            }
            // SAFETY: asserted above. The name of the static exists once.
            unsafe impl $crate::sched::owner::Carrier for $task {}
            #[unsafe(export_name = "ebb_thread_owner")]
            static OWNER: $crate::sched::owner::Owner = $crate::sched::owner::Owner::of::<$task>();
        };
    };
}

/// The callbacks of the type that [`own_threads!`](crate::own_threads) names. The linker binds the
/// static as [`OWNER`], so a callback costs no more than any other call.
#[derive(Debug)]
pub struct Owner {
    /// See [`Task::idle`].
    pub(super) idle: fn() -> Owned,
    /// Makes another reference to a thread that runs.
    pub(super) hold: fn(Current) -> Owned,
    /// Releases the reference that an [`Owned`] stands for.
    ///
    /// # Safety
    /// The caller owns the reference and does not use the thread any more.
    release: unsafe fn(NonNull<Thread>),
    /// Switches from the first thread to the second, see [`Task::switch`].
    ///
    /// # Safety
    /// Both are threads of the scheduler. This CPU runs the first, and the second runs nowhere.
    pub(super) switch: unsafe fn(&Thread, &Thread),
    /// See [`Task::begin`].
    pub(super) begin: fn(),
    /// See [`Task::wants_tick`].
    pub(super) wants_tick: fn(Current, Nanos) -> Option<Nanos>,
    /// See [`Task::tick`].
    pub(super) tick: fn(Current, Nanos) -> Option<Nanos>,
    /// See [`Task::spawn`].
    pub(super) spawn: fn(&'static str, fn()),
    /// See [`Task::at_ease`].
    pub(super) at_ease: fn(),
    /// See [`Task::resting`].
    pub(super) resting: fn(),
    /// Formats the task of the thread.
    ///
    /// # Safety
    /// The thread is one of the scheduler.
    pub(super) describe: unsafe fn(&Thread, &mut fmt::Formatter<'_>) -> fmt::Result,
}

unsafe extern "Rust" {
    /// See [`Owner`].
    #[link_name = "ebb_thread_owner"]
    pub(super) safe static OWNER: Owner;
}

impl Owner {
    /// Returns the callbacks for tasks of type `T`.
    #[must_use]
    pub const fn of<T: Carrier>() -> Self {
        Self {
            idle: || Owned::new(T::idle()),
            hold: |thread| Owned::new(Running::<T>::from(thread).to_arc()),
            release: release::<T>,
            switch: switch::<T>,
            begin: T::begin,
            wants_tick: |thread, now| Running::<T>::from(thread).wants_tick(now),
            tick: |thread, now| Running::<T>::from(thread).tick(now),
            spawn: T::spawn,
            at_ease: T::at_ease,
            resting: T::resting,
            // SAFETY: the contract of the field.
            describe: |thread, f| fmt::Debug::fmt(unsafe { task_of::<T>(thread) }, f),
        }
    }
}

/// Returns the task that starts with `thread`.
///
/// # Safety
/// The thread is one of the scheduler, so it is the first field of a task.
#[inline]
unsafe fn task_of<T: Carrier>(thread: &Thread) -> &T {
    // SAFETY: the caller's promise; only `Owned::new` hands threads to the scheduler.
    unsafe { NonNull::from(thread).cast::<T>().as_ref() }
}

/// Drops the reference to the task of `thread`.
///
/// # Safety
/// The contract of [`Owner::release`].
unsafe fn release<T: Carrier>(thread: NonNull<Thread>) {
    // SAFETY: `Owned::new` made the pointer, and the caller owns the reference.
    drop(unsafe { Arc::from_raw(thread.cast::<T>().as_ptr()) });
}

/// Calls [`Task::switch`] with the tasks of both threads.
///
/// # Safety
/// The contract of [`Owner::switch`].
unsafe fn switch<T: Carrier>(previous: &Thread, next: &Thread) {
    // SAFETY: the caller's promise.
    let (previous, next) = unsafe { (task_of::<T>(previous), task_of::<T>(next)) };
    // SAFETY: this CPU switches both.
    unsafe { T::switch(Switched::new(previous), Switched::new(next)) };
}

/// A counted reference to a thread. Dropping it releases the reference.
pub struct Owned(NonNull<Thread>);

// SAFETY: this is a reference, and CPUs may share threads.
unsafe impl Send for Owned {}
// SAFETY: this is a reference, and CPUs may share threads.
unsafe impl Sync for Owned {}

impl Owned {
    /// Makes an `Owned` from a counted reference to `task`.
    #[must_use]
    pub fn new<T: Carrier>(task: Arc<T>) -> Self {
        let thread = Arc::into_raw(task).cast::<Thread>().cast_mut();
        // SAFETY: the pointer of an `Arc` is not null. A carrier starts with its thread.
        Self(unsafe { NonNull::new_unchecked(thread) })
    }

    /// Makes an `Owned` from a pointer that [`Self::into_raw`] returned.
    ///
    /// # Safety
    /// The caller owns the reference that the pointer stands for, and hands it over.
    pub(super) unsafe fn from_raw(thread: NonNull<Thread>) -> Self {
        Self(thread)
    }

    /// Returns the pointer to the thread without dropping the reference. The caller then owns the
    /// reference.
    pub(super) fn into_raw(self) -> NonNull<Thread> {
        ManuallyDrop::new(self).0
    }

    /// Returns the pointer to the thread. The reference stays with `self`.
    pub(super) fn as_ptr(&self) -> *mut Thread {
        self.0.as_ptr()
    }
}

impl Deref for Owned {
    type Target = Thread;
    #[inline]
    fn deref(&self) -> &Thread {
        // SAFETY: the reference keeps the thread alive.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: this owns the reference, and does not use it any more.
        unsafe { (OWNER.release)(self.0) };
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: `new` was called with the thread.
        unsafe { (OWNER.describe)(self, f) }
    }
}

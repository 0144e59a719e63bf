//! The state of a thread in one word, and the CPU that may change it.
//!
//! ```text
//!              wake: nothing to do                    picked by a CPU
//!   Running ------------------------ ... Runnable ------------------> Running
//!      | prepare      ^ cancel            ^   ^
//!      v              |                   |   | wake (the waker enqueues)
//!   Parking ----------+                   |   |
//!      |  | wake                          |  Blocked
//!      |  v                               |   ^
//!      | Woken -- switched out -----------+   |
//!      |        (its old CPU enqueues)        |
//!      +-- switched out ----------------------+
//!   Running -- exit --> Dead
//!   New -- start (its maker enqueues) --> Runnable
//! ```
//!
//! A CPU that switches away from a thread settles the word only *after* the thread's registers are
//! saved. The thread that runs next on that CPU calls [`ThreadState::switched_out`] for that. So
//! the registers of a `Runnable` or `Blocked` thread are saved, and any CPU may continue it. A
//! `Parking` or `Woken` thread belongs to its CPU. A wake-up between `prepare` and the saving
//! leaves `Woken` behind and is not lost.
//!
//! Orderings: each change that hands the thread from one CPU to another is at least AcqRel, so that
//! the new CPU sees what the old one saved. `prepare` and the waker's read of the word are SeqCst.
//! The waiter writes the word and then reads its condition; the waker writes the condition and then
//! reads the word. One of the two must see the other's write.

#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};

/// The state of a thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// On a CPU.
    Running = 0,
    /// On a run queue.
    Runnable = 1,
    /// On a CPU, about to block.
    Parking = 2,
    /// On a CPU, about to block, and already woken.
    Woken = 3,
    /// Waits for a wake-up; nothing else continues it.
    Blocked = 4,
    /// Ended. Its stack is freed as soon as its CPU has left it.
    Dead = 5,
    /// Has never run. Its creator starts it; a wake-up before that does nothing.
    New = 6,
}

impl State {
    const fn of(word: u32) -> Self {
        match word {
            0 => Self::Running,
            1 => Self::Runnable,
            2 => Self::Parking,
            3 => Self::Woken,
            4 => Self::Blocked,
            5 => Self::Dead,
            _ => Self::New,
        }
    }
}

/// What a CPU must do with the thread that it has switched away from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Put the thread on a run queue. Its word is `Runnable`.
    Enqueue,
    /// Nothing: the thread waits.
    Nothing,
    /// Drop the CPU's reference: the thread is dead.
    Bury,
}

/// The word that holds a [`State`].
#[derive(Debug)]
pub struct ThreadState(AtomicU32);

impl ThreadState {
    /// Returns a word with this `state`, for tests that try all interleavings.
    #[cfg(ebb_model)]
    pub fn new(state: State) -> Self {
        Self(AtomicU32::new(state as u32))
    }

    /// Returns a word with this `state`. A thread is `New` until its creator starts it.
    #[cfg(not(ebb_model))]
    pub const fn new(state: State) -> Self {
        Self(AtomicU32::new(state as u32))
    }

    /// Returns the state at this moment.
    pub fn get(&self) -> State {
        // Relaxed: for statistics.
        State::of(self.0.load(Ordering::Relaxed))
    }

    fn change(&self, from: State, to: State) -> Result<(), State> {
        self.0
            .compare_exchange(from as u32, to as u32, Ordering::SeqCst, Ordering::SeqCst)
            .map(drop)
            .map_err(State::of)
    }

    /// Announces that the running thread is about to block. From now on, a wake-up of the thread is
    /// not lost. The thread must then check its condition once more before it blocks.
    pub fn prepare(&self) {
        // Only the thread itself leaves Running and Woken, and a waker can only change Parking to
        // Woken. So the swap can hide nothing but a wake-up of an earlier `prepare`, which the
        // caller's next test of its condition covers.
        let before = State::of(self.0.swap(State::Parking as u32, Ordering::SeqCst));
        debug_assert!(
            matches!(before, State::Running | State::Parking | State::Woken),
            "a thread blocks that does not run"
        );
        fence(Ordering::SeqCst);
    }

    /// Cancels [`Self::prepare`]: the running thread does not block after all.
    pub fn cancel(&self) {
        self.0.store(State::Running as u32, Ordering::SeqCst);
    }

    /// Returns whether the running thread has called [`Self::prepare`] and was not woken since.
    pub fn is_parking(&self) -> bool {
        // Acquire: pairs with the waker's change to Woken, so the waker's earlier writes are seen.
        self.0.load(Ordering::Acquire) == State::Parking as u32
    }

    /// Makes a thread that has never run runnable and returns `true`. The caller must then put the
    /// thread on a run queue. Returns `false` if the thread was started before.
    pub fn start(&self) -> bool {
        self.change(State::New, State::Runnable).is_ok()
    }

    /// Wakes the thread if it is blocked or about to block. Returns `true` if it was blocked: the
    /// caller must put the thread on a run queue. Returns `false` otherwise.
    pub fn wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let mut state = State::of(self.0.load(Ordering::SeqCst));
        // Each iteration follows another CPU's progress through the states, so the loop ends after
        // a few.
        loop {
            let to = match state {
                State::Parking => State::Woken,
                State::Blocked => State::Runnable,
                State::Running | State::Runnable | State::Woken | State::Dead | State::New => {
                    return false;
                }
            };
            match self.change(state, to) {
                Ok(()) => return to == State::Runnable,
                Err(now) => state = now,
            }
        }
    }

    /// Marks the thread as running. The CPU has taken it from a run queue.
    pub fn picked(&self) {
        let was = self.change(State::Runnable, State::Running);
        debug_assert!(was.is_ok(), "a thread is picked that is {was:?}");
    }

    /// Settles the state after the CPU has left the thread and saved its registers. Returns what
    /// the CPU must do with the thread.
    pub fn switched_out(&self) -> Left {
        let mut state = State::of(self.0.load(Ordering::SeqCst));
        // At most two iterations: only Parking can change concurrently, and only to Woken.
        loop {
            let (to, left) = match state {
                State::Running | State::Woken => (State::Runnable, Left::Enqueue),
                State::Parking => (State::Blocked, Left::Nothing),
                State::Dead => return Left::Bury,
                State::Runnable | State::Blocked | State::New => {
                    unreachable!("a thread that was left is {state:?}")
                }
            };
            match self.change(state, to) {
                Ok(()) => return left,
                Err(now) => state = now,
            }
        }
    }

    /// Marks the running thread as dead.
    pub fn die(&self) {
        self.0.store(State::Dead as u32, Ordering::SeqCst);
    }
}

//! The one word that says what a thread is doing, and who may move it.
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
//! saved ([`ThreadState::switched_out`], called by whoever runs next on that CPU). So a thread that is
//! `Runnable` or `Blocked` is saved whole and any CPU may continue it; one that is `Parking` or
//! `Woken` belongs to its CPU. A wake-up between `prepare` and the saving leaves `Woken` behind and
//! is not lost.
//!
//! Orderings: each change that hands the thread from one CPU to another is AcqRel, so that the new
//! CPU sees what the old one saved. `prepare` is SeqCst, and the waker's look at the word is too:
//! the waiter writes the word and reads its condition, the waker writes the condition and reads
//! the word; one of the two must see the other.

#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};

/// What a thread is doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// On a CPU.
    Running = 0,
    /// On a run queue.
    Runnable = 1,
    /// On a CPU, about to block.
    Parking = 2,
    /// On a CPU, was about to block, and was woken already.
    Woken = 3,
    /// Waits; only a wake-up continues it.
    Blocked = 4,
    /// Ended; its stack goes as soon as its CPU has left it.
    Dead = 5,
    /// Has never run; its maker starts it, and a wake-up before that does nothing.
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

/// What a CPU must do with the thread that it has left.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Put it on a run queue: the word says Runnable.
    Enqueue,
    /// Nothing: it waits.
    Nothing,
    /// Drop the CPU's reference: it is dead.
    Bury,
}

/// The word.
#[derive(Debug)]
pub struct ThreadState(AtomicU32);

impl ThreadState {
    /// A state for tests that try all interleavings.
    #[cfg(ebb_model)]
    pub fn new(state: State) -> Self {
        Self(AtomicU32::new(state as u32))
    }

    /// A new thread's state; `New` until its maker starts it.
    #[cfg(not(ebb_model))]
    pub const fn new(state: State) -> Self {
        Self(AtomicU32::new(state as u32))
    }

    /// The state at this moment.
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

    /// The running thread is about to block.
    pub fn prepare(&self) {
        // Only the thread itself leaves Running, Parking and Woken, so a swap cannot hide another's
        // change but a wake-up of an earlier `prepare`, which the test that follows covers.
        let before = State::of(self.0.swap(State::Parking as u32, Ordering::SeqCst));
        debug_assert!(
            matches!(before, State::Running | State::Parking | State::Woken),
            "a thread blocks that does not run"
        );
        fence(Ordering::SeqCst);
    }

    /// The running thread does not block after all.
    pub fn cancel(&self) {
        self.0.store(State::Running as u32, Ordering::SeqCst);
    }

    /// Whether the running thread has announced that it blocks and was not woken since.
    pub fn is_parking(&self) -> bool {
        // Acquire: pairs with the waker's change to Woken, so what it did before is seen.
        self.0.load(Ordering::Acquire) == State::Parking as u32
    }

    /// The maker of a new thread starts it, and then puts it on a run queue. False: it was started before.
    pub fn start(&self) -> bool {
        self.change(State::New, State::Runnable).is_ok()
    }

    /// A wake-up. True: the caller must put the thread on a run queue.
    pub fn wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let mut state = State::of(self.0.load(Ordering::SeqCst));
        // Each turn follows another CPU's progress through the states; it ends after a few.
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

    /// A CPU takes the thread from a run queue to run it.
    pub fn picked(&self) {
        let was = self.change(State::Runnable, State::Running);
        debug_assert!(was.is_ok(), "a thread is picked that is {was:?}");
    }

    /// The CPU has left the thread and its registers are saved.
    pub fn switched_out(&self) -> Left {
        let mut state = State::of(self.0.load(Ordering::SeqCst));
        // At most two turns: only Parking can change under us, and only to Woken.
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

    /// The running thread ends.
    pub fn die(&self) {
        self.0.store(State::Dead as u32, Ordering::SeqCst);
    }
}

//! Whether a tick has to look at timers. Who sets a timer arms it; a look that finds none disarms
//! it, unless it was armed meanwhile. Pure logic; a loom model runs this very file.

#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicU32, Ordering};

/// The bit of the word that says that it is armed. Above it is a count of how often that was done.
const ARMED: u32 = 1;
/// One in the count.
const ONCE: u32 = 2;

/// A flag that is raised by many threads and lowered by a look that may be out of date.
#[derive(Debug)]
pub struct Armed(AtomicU32);

/// The word as it was when a look began.
#[derive(Copy, Clone, Debug)]
pub struct Look(u32);

impl Armed {
    /// Returns one that is not armed.
    #[cfg(not(ebb_model))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns one that is not armed.
    #[cfg(ebb_model)]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Arms it. The caller has set a timer before.
    pub fn arm(&self) {
        let once_more = |word: u32| Some(word.wrapping_add(ONCE) | ARMED);
        // Release: the timer comes before it; pairs with the Acquire in `look`. Always `Ok`.
        let _ = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, once_more);
    }

    /// Returns whether it is armed.
    #[inline]
    pub fn is_armed(&self) -> bool {
        // Relaxed: a tick that comes too late for it is followed by another one.
        self.0.load(Ordering::Relaxed) & ARMED != 0
    }

    /// Begins a look: call it before the first timer is looked at.
    pub fn look(&self) -> Look {
        // Acquire: pairs with the Release in `arm`.
        Look(self.0.load(Ordering::Acquire))
    }

    /// Disarms it after a look that found no timer. Returns `false`, and leaves it armed, if it was
    /// armed since the look began: that timer may not have been seen.
    pub fn disarm(&self, look: Look) -> bool {
        // Relaxed: nothing is published; the count alone decides.
        let disarmed = self.0.compare_exchange(
            look.0,
            look.0 & !ARMED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        disarmed.is_ok()
    }
}

impl Default for Armed {
    fn default() -> Self {
        Self::new()
    }
}

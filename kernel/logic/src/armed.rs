//! A flag that says whether a tick must look at timers. Setting a timer arms the flag. A look that
//! finds no timer disarms the flag, unless a timer was set since the look began. Pure logic; a loom
//! model runs this very file.

#[cfg(not(ebb_model))]
use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(ebb_model)]
use loom::sync::atomic::{AtomicU32, Ordering};

/// The bit of the word that says that the flag is armed. The bits above it count calls of
/// [`Armed::arm`].
const ARMED: u32 = 1;
/// One call in the count.
const ONCE: u32 = 2;

/// A flag that is set whenever a timer is set, and cleared after a look at the timers that found
/// none. Any number of threads may set it at the same time.
#[derive(Debug)]
pub struct Armed(AtomicU32);

/// The state of the flag when a look at the timers began, for [`Armed::disarm`].
#[derive(Copy, Clone, Debug)]
pub struct Look(u32);

impl Armed {
    /// Returns a flag that is not armed.
    #[cfg(not(ebb_model))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns a flag that is not armed.
    #[cfg(ebb_model)]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Arms the flag, so that the next tick looks at the timers. The caller must have set its timer
    /// before the call.
    pub fn arm(&self) {
        let once_more = |word: u32| Some(word.wrapping_add(ONCE) | ARMED);
        // Release: the timer is set before; pairs with the Acquire in `look`. Always `Ok`.
        let _ = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, once_more);
    }

    /// Returns whether the flag is armed, so that a tick must look at the timers.
    #[inline]
    pub fn is_armed(&self) -> bool {
        // Relaxed: a tick that misses the change is followed by another tick.
        self.0.load(Ordering::Relaxed) & ARMED != 0
    }

    /// Begins a look at the timers. Returns the state of the flag for [`Self::disarm`]. The caller
    /// must look at the first timer only after this call.
    pub fn look(&self) -> Look {
        // Acquire: pairs with the Release in `arm`.
        Look(self.0.load(Ordering::Acquire))
    }

    /// Clears the flag after the look `look` found no timer. Returns `false` and changes nothing if
    /// the flag was armed or disarmed since the look began. The look may have missed a timer that
    /// was set since.
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

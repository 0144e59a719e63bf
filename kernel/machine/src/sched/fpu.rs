//! The floating-point state of a user thread: x87, MXCSR and AVX.
//!
//! Only the thread itself uses its state, and the CPU that switches it. The functions for the
//! thread are methods of [`Current`]. None of them calls code that could use the state again.

use super::running::Current;
use super::thread::Thread;
use crate::arch::UserFrame;
use crate::arch::fpu::{FpuState, SIGNAL_IMAGE_BYTES, TraceImage};
use alloc::boxed::Box;
use core::cell::UnsafeCell;

/// The state of one thread; see the module.
pub(super) struct OwnFpu(UnsafeCell<Box<FpuState>>);

// SAFETY: only one CPU at a time uses the cell; see the module. Threads change CPUs under the
// scheduler's locks.
unsafe impl Sync for OwnFpu {}

impl OwnFpu {
    pub(super) fn new(state: Box<FpuState>) -> Self {
        Self(UnsafeCell::new(state))
    }

    /// Returns an exclusive reference to the state.
    ///
    /// # Safety
    /// The caller is the thread itself, or the CPU that switches it. No other reference to the
    /// state is in use.
    #[expect(clippy::mut_from_ref, reason = "that is what the contract is about")]
    #[inline]
    unsafe fn get(&self) -> &mut FpuState {
        // SAFETY: the caller is the thread or its CPU, and no other reference is in use.
        unsafe { &mut *self.0.get() }
    }
}

/// Saves the state of `previous` if it is a user thread, which this CPU still runs.
///
/// # Safety
/// This CPU switches from `previous`.
#[inline]
pub(super) unsafe fn leave(previous: &Thread) {
    if let Some(fpu) = &previous.fpu {
        // SAFETY: this CPU still runs the thread, so no other code uses its state.
        unsafe { fpu.get() }.save();
    }
}

/// Loads the state of `next` if it is a user thread.
///
/// # Safety
/// This CPU switches to `next`, which does not run yet.
#[inline]
pub(super) unsafe fn enter(next: &Thread) {
    if let Some(fpu) = &next.fpu {
        // SAFETY: the thread does not run yet, and this CPU owns it.
        unsafe { fpu.get() }.restore();
    }
}

/// The floating-point state of a user thread.
///
/// # Panics
/// All of these panic in a kernel thread.
impl Current {
    /// Calls `operation` with the state. `operation` must not use the state in another way.
    fn on_fpu<R>(self, operation: impl FnOnce(&mut FpuState) -> R) -> R {
        let fpu = self.fpu.as_ref().expect("a user thread");
        // SAFETY: the running thread uses its own state. The functions below, which are the only
        // callers, pass operations of `FpuState` alone, so no other reference is in use.
        operation(unsafe { fpu.get() })
    }

    /// Returns a copy of the state as it is now.
    pub fn fpu_copy(self) -> Box<FpuState> {
        // Allocated first: an allocation may block, and a switch uses the state.
        let place = Box::new_uninit();
        self.on_fpu(|state| {
            state.save();
            Box::write(place, state.clone())
        })
    }

    /// Gives the thread the state with which a new program starts.
    pub fn fpu_reset(self) {
        self.on_fpu(FpuState::reset);
    }

    /// Writes the state to `image`, as the frame of a signal handler has it. Returns the number of
    /// bytes. `frame` is the frame of the entry from user mode.
    pub fn fpu_signal_image(
        self,
        frame: &UserFrame,
        image: &mut [u8; SIGNAL_IMAGE_BYTES],
    ) -> usize {
        self.on_fpu(|state| state.signal_image(frame, image))
    }

    /// Restores the state from `image`, which a program may have changed.
    pub fn fpu_set_signal_image(self, frame: &mut UserFrame, image: &[u8]) {
        self.on_fpu(|state| state.set_signal_image(frame, image));
    }

    /// Returns the unmasked x87 exceptions that are pending, as bits of the status word.
    pub fn fpu_pending_x87(self) -> u32 {
        self.on_fpu(FpuState::pending_x87)
    }

    /// Returns the unmasked SSE exceptions that are pending, as bits of MXCSR.
    pub fn fpu_pending_sse(self) -> u32 {
        self.on_fpu(FpuState::pending_sse)
    }

    /// Returns the state as a tracer sees it.
    pub fn fpu_trace_image(self, frame: &UserFrame) -> TraceImage {
        self.on_fpu(|state| TraceImage::of(state, frame))
    }

    /// Sets the state to that of `image`.
    pub fn fpu_load(self, image: &TraceImage, frame: &mut UserFrame) {
        self.on_fpu(|state| image.load(state, frame));
    }
}

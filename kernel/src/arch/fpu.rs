//! x87, MXCSR and AVX state of user programs; xmm0–15 are in the [`UserFrame`].

use super::UserFrame;

/// Bytes of the legacy FXSAVE image that signal frames carry.
pub const FXSAVE_BYTES: usize = 512;

/// A task's FPU state while it does not run.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct FpuState {
    area: [u8; 832],
}

impl FpuState {
    /// The state that a new program starts with.
    pub fn new() -> Self {
        Self { area: [0; 832] }
    }

    /// Saves the registers; call when the task stops running on this CPU, and before a clone.
    pub fn save(&mut self) {
        unimplemented!()
    }

    /// Loads the registers; call before the task runs in user mode.
    pub fn restore(&mut self) {
        unimplemented!()
    }

    /// Puts the current task's registers into the state of a new program (exec).
    pub fn reset(&mut self) {
        unimplemented!()
    }

    /// The FXSAVE image of the current task for a signal frame, xmm from its frame.
    pub fn to_fxsave(&mut self, frame: &UserFrame) -> [u8; FXSAVE_BYTES] {
        let _ = frame;
        unimplemented!()
    }

    /// Takes the current task's state from a signal frame's image, which may hold anything.
    pub fn from_fxsave(&mut self, frame: &mut UserFrame, image: &[u8; FXSAVE_BYTES]) {
        let _ = (frame, image);
        unimplemented!()
    }
}

impl Default for FpuState {
    fn default() -> Self {
        Self::new()
    }
}

//! The x87, MXCSR and AVX state of programs. xmm0–15 are in the [`UserFrame`].
//!
//! The state stays in the registers while the kernel runs, which does not touch it. It is saved
//! when the CPU switches to another task. It is loaded only if the registers no longer hold it.

use super::UserFrame;
use super::features::{self, Feature};
use super::percpu::{cpu_id, fpu_owner, set_fpu_owner};
use core::arch::asm;

/// The size of the legacy FXSAVE image in bytes.
pub const FXSAVE_BYTES: usize = 512;
/// The size of the XSAVE image in bytes: the legacy part, the header, and the upper halves of ymm.
pub const XSAVE_BYTES: usize = 512 + 64 + 256;
/// The size of the largest image in a signal frame in bytes: XSAVE and the closing magic number.
pub const SIGNAL_IMAGE_BYTES: usize = XSAVE_BYTES + 4;

const X87: u64 = 1;
const SSE: u64 = 2;
const AVX: u64 = 4;
/// MXCSR of a new program: all exceptions masked.
const MXCSR_DEFAULT: u32 = 0x1f80;
/// x87 control word of a new program.
const FCW_DEFAULT: u16 = 0x37f;
/// The bits of exceptions in the x87's words, and in MXCSR.
const EXCEPTIONS: u32 = 0x3f;
/// The bits of MXCSR that may be set. Loading any other bit faults.
pub const MXCSR_MASK: u32 = 0xffff;

/// Offsets in the FXSAVE image.
mod at {
    /// The control and status register of SSE.
    pub(super) const MXCSR: usize = 24;
    /// The bits of MXCSR that the CPU supports.
    pub(super) const MXCSR_MASK: usize = 28;
    /// xmm0, followed by the others.
    pub(super) const XMM: usize = 160;
    /// Linux's `_fpx_sw_bytes` in the image of a signal frame.
    pub(super) const SOFTWARE: usize = 464;
    /// The bits of the state components in the image, in XSAVE's header.
    pub(super) const XSTATE_BV: usize = 512;
    /// The upper half of ymm0, followed by the others.
    pub(super) const YMM_HIGH: usize = 576;
}

/// Linux's `FP_XSTATE_MAGIC1`: an XSAVE image follows.
const MAGIC1: u32 = 0x4650_5853;
/// Linux's `FP_XSTATE_MAGIC2`, behind the XSAVE image.
const MAGIC2: u32 = 0x4650_5845;

/// A task's FPU state while it does not run.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct FpuState {
    area: [u8; XSAVE_BYTES],
    /// The number of the CPU that last saved or loaded this state; `NOWHERE` if there is none.
    cpu: usize,
}

const NOWHERE: usize = usize::MAX;

impl Clone for FpuState {
    fn clone(&self) -> Self {
        Self {
            area: self.area,
            cpu: NOWHERE,
        }
    }
}

fn mask() -> u64 {
    if features::has(Feature::Avx) {
        X87 | AVX
    } else {
        X87 | SSE
    }
}

fn put(area: &mut [u8], at: usize, bytes: &[u8]) {
    area[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u32_at(area: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&area[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(area: &[u8], at: usize) -> u64 {
    u64::from(u32_at(area, at)) | u64::from(u32_at(area, at + 4)) << 32
}

impl FpuState {
    /// Makes the state with which a new program starts.
    pub fn new() -> Self {
        let mut area = [0; XSAVE_BYTES];
        put(&mut area, 0, &FCW_DEFAULT.to_le_bytes());
        put(&mut area, at::MXCSR, &MXCSR_DEFAULT.to_le_bytes());
        // No part noted as present: XRSTOR gives x87 and ymm their first state.
        Self { area, cpu: NOWHERE }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Saves the FPU registers of this CPU in this state. Call this on the state of the task that
    /// stops running on this CPU, and on the current task's state before that state is cloned.
    pub fn save(&mut self) {
        self.store();
        self.cpu = cpu_id();
        set_fpu_owner(self.address());
    }

    fn store(&mut self) {
        let area = self.area.as_mut_ptr();
        // SAFETY: the area is aligned and large enough for the parts asked for.
        unsafe {
            if features::has(Feature::Xsave) {
                let mask = mask();
                // MXCSR apart: CPUs save and load it with AVX, too, but QEMU's translator with SSE
                // alone, which the user frame has already.
                asm!("xsave64 [{area}]", "stmxcsr [{area} + {mxcsr}]", area = in(reg) area,
                     mxcsr = const at::MXCSR, in("eax") mask as u32, in("edx") 0,
                     options(nostack));
            } else {
                asm!("fxsave64 [{}]", in(reg) area, options(nostack));
            }
        }
    }

    /// Loads this state into the FPU registers of this CPU, unless they still hold it. Call this
    /// before the task runs in user mode.
    pub fn restore(&mut self) {
        let cpu = cpu_id();
        if fpu_owner() == self.address() && self.cpu == cpu {
            return;
        }
        self.load();
        self.cpu = cpu;
        set_fpu_owner(self.address());
    }

    fn load(&self) {
        let area = self.area.as_ptr();
        // SAFETY: the area came from the CPU, or was made harmless by `sanitize`; the kernel's own
        // xmm are declared as changed.
        unsafe {
            if features::has(Feature::Xsave) {
                asm!("xrstor64 [{area}]", "ldmxcsr [{area} + {mxcsr}]", area = in(reg) area,
                     mxcsr = const at::MXCSR, in("eax") mask() as u32, in("edx") 0,
                     out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                     out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                     out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                     out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                     options(nostack, readonly));
            } else {
                asm!("fxrstor64 [{}]", in(reg) area,
                     out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                     out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                     out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                     out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                     options(nostack, readonly));
            }
        }
    }

    /// Resets this state and the FPU registers to those of a new program (exec). This must be the
    /// state of the current task.
    pub fn reset(&mut self) {
        *self = Self::new();
        self.restore_now();
    }

    fn restore_now(&mut self) {
        self.load();
        self.cpu = cpu_id();
        set_fpu_owner(self.address());
    }

    /// Saves the current task's FPU registers in this state, which must be that task's. Returns the
    /// pending, unmasked x87 exceptions, as bits of the x87 status word.
    pub fn pending_x87(&mut self) -> u32 {
        self.save();
        let word = u32_at(&self.area, 0);
        let (status, control) = (word >> 16, word);
        status & !control & EXCEPTIONS
    }

    /// Saves the current task's FPU registers in this state, which must be that task's. Returns the
    /// pending, unmasked SSE exceptions, as bits of MXCSR.
    pub fn pending_sse(&mut self) -> u32 {
        self.save();
        let word = u32_at(&self.area, at::MXCSR);
        word & !(word >> 7) & EXCEPTIONS
    }

    /// Writes the image of the current task's registers for a signal frame into `image`. Returns
    /// its length in bytes. The image is what Linux puts at `fpstate`, a 64-byte aligned address.
    /// `self` is the current task's state, and `frame` has its xmm registers.
    #[inline]
    pub fn signal_image(
        &mut self,
        frame: &UserFrame,
        image: &mut [u8; SIGNAL_IMAGE_BYTES],
    ) -> usize {
        self.save();
        image[..XSAVE_BYTES].copy_from_slice(&self.area);
        put(image, at::MXCSR_MASK, &MXCSR_MASK.to_le_bytes());
        let (places, _) = image[at::XMM..].as_chunks_mut();
        for (place, xmm) in places.iter_mut().zip(&frame.xmm) {
            *place = xmm.to_le_bytes();
        }
        put(image, at::SOFTWARE, &[0; 48]);
        if !features::has(Feature::Avx) {
            return FXSAVE_BYTES;
        }
        let present = u64_at(image, at::XSTATE_BV) & (X87 | AVX) | SSE;
        put(image, at::XSTATE_BV, &present.to_le_bytes());
        put(image, at::SOFTWARE, &MAGIC1.to_le_bytes());
        put(
            image,
            at::SOFTWARE + 4,
            &(SIGNAL_IMAGE_BYTES as u32).to_le_bytes(),
        );
        put(image, at::SOFTWARE + 8, &(X87 | SSE | AVX).to_le_bytes());
        put(
            image,
            at::SOFTWARE + 16,
            &(XSAVE_BYTES as u32).to_le_bytes(),
        );
        put(image, XSAVE_BYTES, &MAGIC2.to_le_bytes());
        SIGNAL_IMAGE_BYTES
    }

    /// Returns whether the legacy image of a signal frame announces an XSAVE image in the form of
    /// [`Self::signal_image`]. The caller then reads all [`SIGNAL_IMAGE_BYTES`].
    ///
    /// # Panics
    /// If `legacy` is shorter than [`FXSAVE_BYTES`].
    pub fn is_extended(legacy: &[u8]) -> bool {
        features::has(Feature::Avx)
            && u32_at(legacy, at::SOFTWARE) == MAGIC1
            && u32_at(legacy, at::SOFTWARE + 4) as usize == SIGNAL_IMAGE_BYTES
            && u32_at(legacy, at::SOFTWARE + 16) as usize == XSAVE_BYTES
    }

    /// Sets the current task's FPU registers, and the xmm registers in `frame`, from the `image` of
    /// a signal frame. The image may contain any values, because invalid bits are cleared. If it
    /// has only the legacy part, the upper halves of ymm become zero.
    ///
    /// # Panics
    /// If `image` is shorter than [`FXSAVE_BYTES`].
    pub fn set_signal_image(&mut self, frame: &mut UserFrame, image: &[u8]) {
        let area = &mut self.area;
        area[..FXSAVE_BYTES].copy_from_slice(&image[..FXSAVE_BYTES]);
        let mut present = X87 | SSE;
        if image.len() >= SIGNAL_IMAGE_BYTES && u32_at(image, XSAVE_BYTES) == MAGIC2 {
            present = u64_at(image, at::XSTATE_BV) & (X87 | SSE | AVX);
            put(area, at::YMM_HIGH, &image[at::YMM_HIGH..XSAVE_BYTES]);
        } else {
            area[at::YMM_HIGH..].fill(0);
        }
        if present & SSE != 0 {
            let (places, _) = image[at::XMM..].as_chunks();
            for (xmm, place) in frame.xmm.iter_mut().zip(places) {
                *xmm = u128::from_le_bytes(*place);
            }
        } else {
            frame.xmm = [0; 16];
        }
        // A reserved bit of MXCSR, or of the header, would fault in the kernel.
        let mxcsr = u32_at(area, at::MXCSR) & MXCSR_MASK;
        put(area, at::MXCSR, &mxcsr.to_le_bytes());
        area[at::XSTATE_BV..at::YMM_HIGH].fill(0);
        put(area, at::XSTATE_BV, &(present & mask()).to_le_bytes());
        self.restore_now();
    }
}

/// The image of a stopped thread's FPU registers, for its tracer: XSAVE's standard form, with the
/// value of XCR0 in the bytes for software.
#[derive(Clone, Debug)]
pub struct TraceImage([u8; XSAVE_BYTES]);

impl TraceImage {
    /// Makes the image of the current task, from its FPU `state` and its user `frame`.
    pub fn of(state: &mut FpuState, frame: &UserFrame) -> Self {
        let mut all = [0; SIGNAL_IMAGE_BYTES];
        state.signal_image(frame, &mut all);
        let mut image = [0; XSAVE_BYTES];
        image.copy_from_slice(&all[..XSAVE_BYTES]);
        put(&mut image, at::SOFTWARE, &[0; 48]);
        let parts = u64_at(&image, at::XSTATE_BV) & (X87 | AVX) | SSE;
        put(&mut image, at::XSTATE_BV, &parts.to_le_bytes());
        put(&mut image, at::SOFTWARE, &Self::parts().to_le_bytes());
        Self(image)
    }

    /// Returns the state components that the CPU saves, as bits of XCR0.
    pub fn parts() -> u64 {
        X87 | SSE | if features::has(Feature::Avx) { AVX } else { 0 }
    }

    /// Returns the whole image, or `None` if the CPU does not have XSAVE with AVX.
    pub fn extended(&self) -> Option<&[u8; XSAVE_BYTES]> {
        features::has(Feature::Avx).then_some(&self.0)
    }

    /// Returns the legacy part of the image, as FXSAVE stores it.
    pub fn legacy(&self) -> [u8; FXSAVE_BYTES] {
        let mut legacy = [0; FXSAVE_BYTES];
        legacy.copy_from_slice(&self.0[..FXSAVE_BYTES]);
        legacy[at::SOFTWARE..].fill(0);
        legacy
    }

    /// Replaces the whole image by `image`, and returns `true`. Returns `false`, and changes
    /// nothing, if the CPU could not load `image`: a reserved bit is set in MXCSR or in the header.
    pub fn set_extended(&mut self, image: &[u8; XSAVE_BYTES]) -> bool {
        let header = &image[at::XSTATE_BV + 8..at::YMM_HIGH];
        let good = u32_at(image, at::MXCSR) & !MXCSR_MASK == 0
            && u64_at(image, at::XSTATE_BV) & !Self::parts() == 0
            && header.iter().all(|&byte| byte == 0);
        if good {
            self.0 = *image;
            put(&mut self.0, at::SOFTWARE, &[0; 48]);
            put(&mut self.0, at::SOFTWARE, &Self::parts().to_le_bytes());
        }
        good
    }

    /// Replaces the legacy part of the image by `legacy`, and returns `true`. Returns `false`, and
    /// changes nothing, if a reserved bit of MXCSR is set in `legacy`.
    pub fn set_legacy(&mut self, legacy: &[u8; FXSAVE_BYTES]) -> bool {
        if u32_at(legacy, at::MXCSR) & !MXCSR_MASK != 0 {
            return false;
        }
        self.0[..at::SOFTWARE].copy_from_slice(&legacy[..at::SOFTWARE]);
        let parts = u64_at(&self.0, at::XSTATE_BV) | X87 | SSE;
        put(&mut self.0, at::XSTATE_BV, &parts.to_le_bytes());
        true
    }

    /// Loads the image into the FPU registers of the current task: into its FPU `state`, and into
    /// the xmm registers in its user `frame`.
    pub fn load(&self, state: &mut FpuState, frame: &mut UserFrame) {
        let mut image = [0; SIGNAL_IMAGE_BYTES];
        image[..XSAVE_BYTES].copy_from_slice(&self.0);
        put(&mut image, XSAVE_BYTES, &MAGIC2.to_le_bytes());
        state.set_signal_image(frame, &image);
    }
}

impl Default for FpuState {
    fn default() -> Self {
        Self::new()
    }
}

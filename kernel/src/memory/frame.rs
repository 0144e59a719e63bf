//! Counted references to frames.

use super::PAGE_SIZE;
use crate::arch::phys_to_virt;
use core::fmt;
use core::ptr::NonNull;

/// (landing) what the memmap holds for a frame.
#[repr(C, align(64))]
struct Descriptor([u64; 8]);

/// A reference to a frame: a clone counts one more, a drop one less, and the last one frees it.
///
/// The frame may be mapped by programs, which write it while the kernel looks: its bytes are
/// reached through raw pointers and copies, never through Rust references.
pub struct FrameRef(NonNull<Descriptor>);

// SAFETY: the reference count is atomic; the contents are only reached through raw pointers.
unsafe impl Send for FrameRef {}
// SAFETY: as above.
unsafe impl Sync for FrameRef {}

impl FrameRef {
    /// The physical address of its first byte.
    pub fn address(&self) -> u64 {
        (self.0.as_ptr() as u64 - crate::arch::MEMMAP_BASE) / 64 * PAGE_SIZE as u64
    }

    /// Its first byte in the physmap.
    pub fn as_ptr(&self) -> *mut u8 {
        phys_to_virt(self.address())
    }

    /// How many references there are at this moment (mappings count too).
    pub fn references(&self) -> u32 {
        1
    }

    /// Copies bytes out of it, from `offset` on; both must lie within the frame.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= PAGE_SIZE && to.len() <= PAGE_SIZE - offset);
        // SAFETY: the range is inside the frame (asserted), which lives as long as `self`.
        unsafe {
            core::ptr::copy_nonoverlapping(self.as_ptr().add(offset), to.as_mut_ptr(), to.len())
        }
    }

    /// Copies bytes into it, from `offset` on; both must lie within the frame.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset <= PAGE_SIZE && from.len() <= PAGE_SIZE - offset);
        // SAFETY: as in `read`.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), self.as_ptr().add(offset), from.len())
        }
    }

    /// Zeroes bytes `offset..offset + len` of it, which must lie within the frame.
    pub fn zero(&self, offset: usize, len: usize) {
        assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset);
        // SAFETY: as in `read`.
        unsafe { core::ptr::write_bytes(self.as_ptr().add(offset), 0, len) }
    }
}

impl Clone for FrameRef {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl Drop for FrameRef {
    fn drop(&mut self) {}
}

impl fmt::Debug for FrameRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameRef({:#x})", self.address())
    }
}

//! Counted references to frames.

use super::clear::{clear_allocated, copy_page};
use super::hugetlb;
use super::memmap::{self, Descriptor, Kind};
use super::percpu::{self, Local};
use crate::arch::layout::PAGE_SIZE;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame, Mobility, Order, Request, Reserve};

/// A counted reference to a frame; the last drop frees it. A reference to a part of a huge page of
/// the pool is one to that page.
///
/// The frame may be mapped by programs, which write it while the kernel reads. So its bytes are
/// reached through raw pointers and copies, never through Rust references.
pub struct FrameRef(NonNull<Descriptor>);

// SAFETY: the reference count is atomic; the contents are only reached through raw pointers.
unsafe impl Send for FrameRef {}
// SAFETY: as above.
unsafe impl Sync for FrameRef {}

impl FrameRef {
    /// A fresh frame with any contents; does not wait.
    #[inline]
    pub fn try_new(kind: Kind, mobility: Mobility, reserve: Reserve) -> Result<Self, AllocError> {
        Self::try_new_on(percpu::this(), kind, mobility, reserve)
    }

    /// The same where this CPU's own is at hand.
    #[inline]
    pub fn try_new_on(
        this: &Local,
        kind: Kind,
        mobility: Mobility,
        reserve: Reserve,
    ) -> Result<Self, AllocError> {
        let frame = this.allocate(Request::new(Order::BASE, mobility).reserve(reserve))?;
        Ok(Self::take(this, frame, kind))
    }

    /// Allocates a frame of zeros from this CPU's cache; does not wait. A frame that was never used
    /// since the host gave it zeroed is not cleared again.
    #[inline]
    pub fn try_zeroed_on(
        this: &Local,
        kind: Kind,
        mobility: Mobility,
        reserve: Reserve,
    ) -> Result<Self, AllocError> {
        let request = Request::new(Order::BASE, mobility).reserve(reserve);
        // SAFETY: the frame is ours alone.
        let clear = |frame| unsafe { clear_allocated(memmap::frame_ptr(frame)) };
        let frame = this.allocate_zeroed(request, clear)?;
        Ok(Self::take(this, frame, kind))
    }

    /// The first reference to a frame that was just allocated.
    #[inline]
    fn take(this: &Local, frame: Frame, kind: Kind) -> Self {
        this.add(kind.count(), 1);
        Descriptor::get(frame).take(kind, Order::BASE);
        Self(Descriptor::of(frame))
    }

    /// Takes over a counted reference of another owner.
    ///
    /// # Safety
    /// That owner gives the reference up.
    #[inline]
    pub unsafe fn from_counted(frame: Frame) -> Self {
        Self(Descriptor::of(frame))
    }

    /// Returns a new reference to a frame. Another reference exists, and is not dropped during the
    /// call.
    #[inline]
    pub fn new_reference(frame: Frame) -> Self {
        let descriptor = Descriptor::get(frame);
        if descriptor.is_huge_page() {
            hugetlb::get_reference(frame);
        } else {
            descriptor.get_reference();
        }
        Self(Descriptor::of(frame))
    }

    /// Clones a reference to a frame that is not part of a huge page of the pool, without checking
    /// that.
    #[inline]
    pub fn clone_of_base(&self) -> Self {
        debug_assert!(!self.descriptor().is_huge_page());
        self.descriptor().get_reference();
        Self(self.0)
    }

    /// Notes whose page of private memory this is, as [`Descriptor::set_owner`].
    #[inline]
    pub fn set_owner(&self, owner: u64) {
        self.descriptor().set_owner(owner);
    }

    /// Gives the reference up without dropping it: the caller holds it in another form.
    #[inline]
    pub fn into_counted(self) -> Frame {
        let frame = self.frame();
        core::mem::forget(self);
        frame
    }

    #[inline]
    fn descriptor(&self) -> &Descriptor {
        // SAFETY: descriptors are mapped for good and all fields are atomic.
        unsafe { self.0.as_ref() }
    }

    /// The frame.
    #[inline]
    pub fn frame(&self) -> Frame {
        Descriptor::frame(self.0)
    }

    /// The physical address of its first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        self.frame().address()
    }

    /// Its first byte in the physmap.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        memmap::frame_ptr(self.frame())
    }

    /// How many references there are at this moment (mappings count too).
    pub fn references(&self) -> u32 {
        if self.descriptor().is_huge_page() {
            return hugetlb::references(self.frame());
        }
        self.descriptor().references()
    }

    /// Whether it is private memory of a program.
    pub fn is_private(&self) -> bool {
        self.descriptor().kind() == Some(Kind::Anonymous)
    }

    /// Copies bytes out of it, from `offset` on; both must lie within the frame.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= PAGE_SIZE && to.len() <= PAGE_SIZE - offset);
        // SAFETY: the range is inside the frame (asserted), which lives as long as `self`.
        unsafe {
            core::ptr::copy_nonoverlapping(self.as_ptr().add(offset), to.as_mut_ptr(), to.len());
        }
    }

    /// Copies bytes into it, from `offset` on; both must lie within the frame.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset <= PAGE_SIZE && from.len() <= PAGE_SIZE - offset);
        // SAFETY: as in `read`.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), self.as_ptr().add(offset), from.len());
        }
    }

    /// Stores `word` at `offset`, a multiple of 8 within the frame, so that no reader sees a part
    /// of it.
    pub fn store_word(&self, offset: usize, word: u64) {
        assert!(offset.is_multiple_of(size_of::<u64>()) && offset < PAGE_SIZE);
        // SAFETY: as in `read`; the place is aligned.
        let place = unsafe { AtomicU64::from_ptr(self.as_ptr().add(offset).cast()) };
        // Relaxed: a value of its own.
        place.store(word, Ordering::Relaxed);
    }

    /// Copies all bytes of another frame, and the owner in its descriptor.
    pub fn copy_from(&self, other: &Self) {
        self.set_owner(other.descriptor().owner());
        // SAFETY: both frames are allocated, and `self`, which is written, is not `other`.
        unsafe { copy_page(self.as_ptr(), other.as_ptr()) };
    }

    /// The first reference to a frame that was just allocated, as one of a page of a file.
    ///
    /// # Safety
    /// The frame is the caller's alone, and in use for nothing.
    pub unsafe fn of_file(frame: Frame) -> Self {
        Self::take(percpu::this(), frame, Kind::File)
    }

    /// Zeroes bytes `offset..offset + len` of it, which must lie within the frame.
    pub fn zero(&self, offset: usize, len: usize) {
        assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset);
        // SAFETY: as in `read`.
        unsafe { core::ptr::write_bytes(self.as_ptr().add(offset), 0, len) }
    }
}

impl Clone for FrameRef {
    #[inline]
    fn clone(&self) -> Self {
        Self::new_reference(self.frame())
    }
}

impl Drop for FrameRef {
    #[inline]
    fn drop(&mut self) {
        if self.descriptor().is_huge_page() {
            hugetlb::release(self.frame());
        } else {
            memmap::release(self.frame());
        }
    }
}

impl fmt::Debug for FrameRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameRef({:#x})", self.address())
    }
}

//! Counted references to frames.

use super::clear::{clear_allocated, copy_page};
use super::hugetlb;
use super::memmap::{self, Descriptor, Kind};
use super::percpu::{self, Local};
use super::targets::Target;
use crate::arch::layout::PAGE_SIZE;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::{AllocError, Frame, Mobility, Order, Request, Reserve};

/// A counted reference to a frame. Dropping the last reference frees the frame. If the frame is
/// part of a huge page of a pool (`hugetlb`), the reference counts for that whole page.
///
/// Programs may map the frame and write to it while the kernel reads. So its bytes are accessed
/// through raw pointers and copies, never through Rust references.
pub struct FrameRef(NonNull<Descriptor>);

// SAFETY: the reference count is atomic; the contents are only reached through raw pointers.
unsafe impl Send for FrameRef {}
// SAFETY: the reference count is atomic; the contents are only reached through raw pointers.
unsafe impl Sync for FrameRef {}

impl FrameRef {
    /// Allocates a frame with any contents for the use `kind`, and returns its first reference.
    /// `mobility` says whether the frame can be moved later. `reserve` says whether it may come
    /// from the reserve. Does not wait.
    ///
    /// # Errors
    /// [`AllocError`] if no frame is free that the request may use.
    #[inline]
    pub fn try_new(kind: Kind, mobility: Mobility, reserve: Reserve) -> Result<Self, AllocError> {
        Self::try_new_on(percpu::this(), kind, mobility, reserve)
    }

    /// Does what [`Self::try_new`] does with `kind`, `mobility` and `reserve`, for a caller that
    /// has `this`, the data of this CPU, at hand.
    ///
    /// # Errors
    /// [`AllocError`] if no frame is free that the request may use.
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

    /// Allocates a frame of zeros for the use `kind`, and returns its first reference. `this` is
    /// the data of this CPU. `mobility` says whether the frame can be moved later. `reserve` says
    /// whether it may come from the reserve. A frame that was never used and that the host provided
    /// zeroed is not cleared again. Does not wait.
    ///
    /// # Errors
    /// [`AllocError`] if no frame is free that the request may use.
    #[inline]
    pub fn try_zeroed_on(
        this: &Local,
        kind: Kind,
        mobility: Mobility,
        reserve: Reserve,
    ) -> Result<Self, AllocError> {
        let request = Request::new(Order::BASE, mobility).reserve(reserve);
        // SAFETY: the frame was just allocated and has no other user.
        let clear = |frame| unsafe { clear_allocated(memmap::frame_ptr(frame)) };
        let frame = this.allocate_zeroed(request, clear)?;
        Ok(Self::take(this, frame, kind))
    }

    /// Marks `frame`, which was just allocated, as in the use `kind`, and returns its first
    /// reference. Counts the frame in `this`, the data of this CPU.
    #[inline]
    fn take(this: &Local, frame: Frame, kind: Kind) -> Self {
        this.add(kind.count(), 1);
        Descriptor::get(frame).take(kind, Order::BASE);
        Self(Descriptor::of(frame))
    }

    /// Makes a `FrameRef` from a counted reference to `frame` that has another form, such as that
    /// of a page-table entry. The count does not change.
    ///
    /// # Safety
    /// The owner of that reference gives it up.
    #[inline]
    pub unsafe fn from_counted(frame: Frame) -> Self {
        Self(Descriptor::of(frame))
    }

    /// Returns a new reference to `frame`. Another reference to it must exist, and must not be
    /// dropped during the call.
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

    /// Returns a new reference to the frame, like `clone`, but faster. The frame must not be part
    /// of a huge page of a pool. Only builds with assertions check this.
    #[inline]
    pub fn clone_of_base(&self) -> Self {
        debug_assert!(!self.descriptor().is_huge_page());
        self.descriptor().get_reference();
        Self(self.0)
    }

    /// Records `owner` in the frame's descriptor; see [`Descriptor::set_owner`].
    #[inline]
    pub fn set_owner(&self, owner: u64) {
        self.descriptor().set_owner(owner);
    }

    /// Returns the frame without dropping the reference. The caller then holds the reference in
    /// another form, such as a page-table entry.
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

    /// Returns the frame.
    #[inline]
    pub fn frame(&self) -> Frame {
        Descriptor::frame(self.0)
    }

    /// Returns the physical address of the frame's first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        self.frame().address()
    }

    /// Returns the address of the frame's first byte in the physmap.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        memmap::frame_ptr(self.frame())
    }

    /// Returns the present number of references to the frame, mappings included. For part of a huge
    /// page of a pool, returns the number for the whole page.
    pub fn references(&self) -> u32 {
        if self.descriptor().is_huge_page() {
            return hugetlb::references(self.frame());
        }
        self.descriptor().references()
    }

    /// Returns whether the frame is private memory of a program.
    pub fn is_private(&self) -> bool {
        self.descriptor().kind() == Some(Kind::Anonymous)
    }

    /// Fills `to` with the bytes of the frame from `offset` on.
    ///
    /// # Panics
    /// If the bytes do not lie within the frame.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= PAGE_SIZE && to.len() <= PAGE_SIZE - offset);
        // SAFETY: the range is inside the frame (asserted), which lives as long as `self`.
        unsafe {
            core::ptr::copy_nonoverlapping(self.as_ptr().add(offset), to.as_mut_ptr(), to.len());
        }
    }

    /// Copies `from` into the frame, from `offset` on.
    ///
    /// # Panics
    /// If the bytes do not lie within the frame.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset <= PAGE_SIZE && from.len() <= PAGE_SIZE - offset);
        // SAFETY: as in `read`.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), self.as_ptr().add(offset), from.len());
        }
    }

    /// Stores `word` at `offset` in the frame in one piece, so that no reader sees a part of it.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 8, or does not lie in the frame.
    pub fn store_word(&self, offset: usize, word: u64) {
        assert!(offset.is_multiple_of(size_of::<u64>()) && offset < PAGE_SIZE);
        // SAFETY: as in `read`; the place is aligned.
        let place = unsafe { AtomicU64::from_ptr(self.as_ptr().add(offset).cast()) };
        // Relaxed: a value of its own.
        place.store(word, Ordering::Relaxed);
    }

    /// Returns the owner in the frame's descriptor; see [`Descriptor::owner`].
    #[inline]
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.descriptor().owner()
    }

    /// Copies `len` bytes of `from`, from its byte `from_offset` on, to the byte `offset` of this
    /// frame and those behind it. Both may be the same frame.
    ///
    /// # Panics
    /// If the bytes do not lie within the frames.
    pub fn copy_part(&self, offset: usize, from: &Self, from_offset: usize, len: usize) {
        assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset);
        assert!(from_offset <= PAGE_SIZE && len <= PAGE_SIZE - from_offset);
        // SAFETY: both ranges are inside their frames (asserted), which live as long as the
        // references, and `copy` allows that they overlap.
        unsafe {
            let from = from.as_ptr().add(from_offset);
            core::ptr::copy(from, self.as_ptr().add(offset), len);
        }
    }

    /// Copies all bytes of `other` into this frame, and the owner in the descriptor of `other` into
    /// the descriptor of this frame.
    pub fn copy_from(&self, other: &Self) {
        self.set_owner(other.descriptor().owner());
        // SAFETY: both frames are allocated, and `self`, which is written, is not `other`.
        unsafe { copy_page(self.as_ptr(), other.as_ptr()) };
    }

    /// Marks `frame`, which was just allocated, as one for the use `kind`, and returns the first
    /// reference to it.
    ///
    /// # Safety
    /// The caller has allocated the frame, and it has no other user.
    pub(super) unsafe fn from_allocated(frame: Frame, kind: Kind) -> Self {
        Self::take(percpu::this(), frame, kind)
    }

    /// Puts `target` into use as one for the use `kind`, and returns the first reference to it.
    #[inline]
    pub fn of_target(target: Target, kind: Kind) -> Self {
        Self::take(percpu::this(), target.into_frame(), kind)
    }

    /// Fills the bytes `offset..offset + len` of the frame with zeros.
    ///
    /// # Panics
    /// If the bytes do not lie within the frame.
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

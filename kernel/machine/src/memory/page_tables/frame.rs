//! Frames for page tables.

use super::table::Table;
use crate::arch::layout::phys_to_virt;
use crate::arch::pte::{ADDRESS, unused_before};
use crate::memory::clear_page;
use crate::memory::memmap::{self, Descriptor, Kind, frame_ptr};
use crate::memory::percpu;
use crate::memory::targets::Target;
use ebb_mm::{AllocError, Frame, Mobility, Order, Request, Reserve};

/// A frame for a page table, with any content. Dropping it frees the frame.
#[derive(Debug)]
pub struct TableFrame(Frame);

impl TableFrame {
    /// Allocates a frame that can move ([`Tree::replace_table`](super::Tree::replace_table)). Does
    /// not wait. Fails if no frame is free.
    pub fn try_new() -> Result<Self, AllocError> {
        Self::of_mobility(Mobility::Movable)
    }

    /// Allocates a frame for a root, which cannot move. Does not wait. Fails if no frame is free.
    pub(super) fn try_new_root() -> Result<Self, AllocError> {
        Self::of_mobility(Mobility::Unmovable)
    }

    fn of_mobility(mobility: Mobility) -> Result<Self, AllocError> {
        let request = Request::new(Order::BASE, mobility).reserve(Reserve::Keep);
        let frame = percpu::allocate(request)?;
        Ok(Self::take(frame))
    }

    /// Puts `target` into use for a page table.
    #[must_use]
    pub fn of_target(target: Target) -> Self {
        Self::take(target.into_frame())
    }

    /// Puts `frame`, which was just allocated, into use.
    #[inline]
    fn take(frame: Frame) -> Self {
        percpu::add(Kind::PageTable.count(), 1);
        Descriptor::get(frame).take(Kind::PageTable, Order::BASE);
        Self(frame)
    }

    /// Returns the owner of the table that `entry`, of an upper level, led to.
    ///
    /// # Safety
    /// The entry was made of a value that gave its frame away, and is not in use any more.
    pub(super) unsafe fn of_entry(entry: u64) -> Self {
        Self(Frame::containing(entry & ADDRESS))
    }

    /// Returns the owner of `frame`.
    ///
    /// # Safety
    /// The frame was returned by [`Self::into_frame`], and is used by this call alone.
    pub(super) unsafe fn from_frame(frame: Frame) -> Self {
        Self(frame)
    }

    /// Clears all entries.
    pub(super) fn cleared(self) -> Self {
        // SAFETY: the frame is ours alone.
        unsafe { clear_page(frame_ptr(self.0)) };
        self
    }

    /// Returns the entries.
    #[must_use]
    #[inline]
    pub fn entries(&self) -> &Table {
        // SAFETY: the frame is in the physmap, and stays while this value does. All access to it is
        // atomic.
        unsafe { &*phys_to_virt(self.0.address()).cast::<Table>() }
    }

    pub(super) fn is_empty(&self) -> bool {
        unused_before(self.entries()) == self.entries().len()
    }

    /// Sets the owner word of the frame: which space has the table, and where.
    #[inline]
    pub fn set_owner(&self, owner: u64) {
        Descriptor::get(self.0).set_owner(owner);
    }

    /// Returns the owner word of the frame.
    #[must_use]
    pub fn owner(&self) -> u64 {
        Descriptor::get(self.0).owner()
    }

    /// Returns the frame and gives it to the caller, who frees it later.
    #[must_use]
    #[inline]
    pub fn into_frame(self) -> Frame {
        let frame = self.0;
        core::mem::forget(self);
        frame
    }
}

impl Drop for TableFrame {
    fn drop(&mut self) {
        memmap::release(self.0);
    }
}

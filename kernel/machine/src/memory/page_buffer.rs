//! A page of memory for bytes on their way.

use super::{FrameRef, Mobility, PAGE_SIZE, alloc_frame};
use core::ops::{Deref, DerefMut};
use logic::errno::Errno;

/// A page of bytes that has one owner.
#[derive(Debug)]
pub struct PageBuffer(FrameRef);

impl PageBuffer {
    /// Allocates a page. Its bytes are what the frame held before.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(alloc_frame(Mobility::Unmovable)?))
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is allocated as long as its reference exists. It is the only one, and
        // changes go through `&mut self`.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr(), PAGE_SIZE) }
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the frame is allocated as long as its reference exists. It is the only one, and
        // `&mut self` makes the borrow unique.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_ptr(), PAGE_SIZE) }
    }
}

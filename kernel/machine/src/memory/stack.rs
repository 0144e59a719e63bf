//! Kernel stacks.

use super::memmap::{Descriptor, Kind, free_block};
use super::{percpu, pressure};
use crate::arch::phys_to_virt;
use ebb_mm::{Frame, Mobility, Order, Request};
use logic::errno::Errno;

/// The value of a stack's lowest words, unless it has overflowed.
const GUARD: u64 = 0x6b63_6174_535f_6262;
/// The number of these words.
const GUARD_WORDS: usize = 4;

/// A thread's kernel stack: contiguous frames in the physmap, with guard words at the low end.
/// Dropping it frees the frames.
#[derive(Debug)]
pub struct KernelStack {
    frame: Frame,
}

impl KernelStack {
    const ORDER: Order = match Order::new(3) {
        Some(order) => order,
        None => Order::BASE,
    };

    /// Allocates a stack. May wait for memory.
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory.
    pub fn new() -> Result<Self, Errno> {
        let request = Request::new(Self::ORDER, Mobility::Unmovable);
        let frame = pressure::allocate(request, false).ok_or(Errno::ENOMEM)?;
        percpu::add(Kind::Stack.count(), Self::ORDER.frames());
        Descriptor::get(frame).take(Kind::Stack, Self::ORDER);
        let stack = Self { frame };
        for word in 0..GUARD_WORDS {
            // SAFETY: the stack is ours, and the words are its lowest.
            unsafe { stack.words().add(word).write_volatile(GUARD) };
        }
        Ok(stack)
    }

    fn words(&self) -> *mut u64 {
        phys_to_virt(self.frame.address()).cast()
    }

    /// Returns the address after the last byte of the stack, a multiple of 16.
    pub fn top(&self) -> *mut u8 {
        phys_to_virt(self.frame.address() + Self::ORDER.bytes())
    }

    /// Returns whether the highest guard word, which an overflow overwrites first, is intact. Each
    /// context switch checks this.
    #[inline]
    pub fn is_intact(&self) -> bool {
        // SAFETY: as in `new`; volatile, since the stack's user writes behind the compiler's back.
        unsafe { self.words().add(GUARD_WORDS - 1).read_volatile() == GUARD }
    }
}

/// Allocates a stack that is never freed, for a CPU that starts. Returns the address after the last
/// byte of the stack. Returns `None` if there is no memory.
pub fn stack_for_cpu() -> Option<*mut u8> {
    let stack = core::mem::ManuallyDrop::new(KernelStack::new().ok()?);
    Some(stack.top())
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        assert!(
            self.is_intact(),
            "a kernel stack at {:p} ran over",
            self.words()
        );
        free_block(self.frame, Descriptor::get(self.frame));
    }
}

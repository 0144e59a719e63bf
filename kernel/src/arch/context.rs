//! Switching kernel stacks, and the way to user mode.

use super::UserFrame;

/// A kernel stack that does not run now: its stack pointer, below which the callee-saved
/// registers stand.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    rsp: u64,
}

impl Context {
    /// For a context that is running now: [`switch`] fills it.
    pub const fn empty() -> Self {
        Self { rsp: 0 }
    }

    /// A context that begins in `entry(arg)` on the stack that ends at `stack_top`.
    ///
    /// # Safety
    /// At least 256 bytes below `stack_top` (16-byte aligned) are writable and belong to the
    /// context.
    pub unsafe fn new(stack_top: *mut u8, entry: extern "C" fn(usize) -> !, arg: usize) -> Self {
        let _ = (stack_top, entry, arg);
        Self { rsp: 0 }
    }
}

/// Saves the running context in `from` and continues `to`. Returns when somebody switches back.
///
/// # Safety
/// `to` was saved by `switch` or made by [`Context::new`], runs nowhere, and its stack is mapped.
pub unsafe fn switch(from: *mut Context, to: *const Context) {
    let _ = (from, to);
    unimplemented!()
}

/// Loads a frame and continues in user mode. Looks at the work flags first.
///
/// # Safety
/// The frame's selectors and flags are a user's ([`UserFrame::sanitize`]), and it stands at the
/// top of the current kernel stack.
pub unsafe fn enter_user(frame: *const UserFrame) -> ! {
    let _ = frame;
    unimplemented!()
}

/// `sti; hlt; cli`.
pub fn idle() {
    // SAFETY: the caller-saved registers may be changed by the interrupt's handler.
    unsafe { core::arch::asm!("sti", "hlt", "cli", clobber_abi("C")) };
}

//! Switches between kernel stacks, and enters user mode.

use super::UserFrame;
use super::traps;
use core::arch::global_asm;

/// The saved context of a thread that does not run: its kernel stack pointer. The callee-saved
/// registers are on the stack from there on.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    rsp: u64,
}

global_asm!(
    r#"
    .text
    .balign 16
    .global arch_switch
arch_switch:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret

    .balign 16
arch_context_start:
    movq %r12, %rdi
    xorl %ebp, %ebp
    call *%rbx
    ud2

    .balign 16
    .global arch_idle
arch_idle:
    sti
    .global arch_idle_halt
arch_idle_halt:
    hlt
    .global arch_idle_over
arch_idle_over:
    cli
    ret

    .balign 16
    .global arch_open_interrupts
arch_open_interrupts:
    sti
    nop
    cli
    ret
    "#,
    options(att_syntax)
);

unsafe extern "C" {
    fn arch_switch(from: *mut Context, to: *const Context);
    fn arch_context_start();
    fn arch_idle();
    fn arch_idle_halt();
    fn arch_idle_over();
    fn arch_open_interrupts();
}

/// The number of words that [`switch`] finds on the stack of a context: six registers and the
/// return address.
const SAVED_WORDS: usize = 7;

impl Context {
    /// Makes a context for code that is running now. [`switch`] fills it.
    pub const fn empty() -> Self {
        Self { rsp: 0 }
    }

    /// Makes a context that begins with the call `entry(arg)` on the stack that ends at
    /// `stack_top`.
    ///
    /// # Panics
    /// If `stack_top` is not a multiple of 16.
    ///
    /// # Safety
    /// At least 256 bytes below `stack_top` are writable and belong to the context.
    pub unsafe fn new(stack_top: *mut u8, entry: extern "C" fn(usize) -> !, arg: usize) -> Self {
        assert!((stack_top as usize).is_multiple_of(16));
        let start: unsafe extern "C" fn() = arch_context_start;
        // r15 r14 r13 r12 rbp rbx, return address; two words keep the stack aligned.
        let words = [0, 0, 0, arg, 0, entry as usize, start as usize, 0, 0];
        let rsp = stack_top.cast::<usize>().wrapping_sub(words.len());
        const { assert!(SAVED_WORDS + 2 == 9) };
        // SAFETY: the caller gives the stack.
        unsafe { rsp.cast::<[usize; 9]>().write(words) };
        Self { rsp: rsp as u64 }
    }
}

/// Saves the running context in `from` and continues `to`. Returns when a later switch continues
/// `from`.
///
/// # Safety
/// `to` was saved by `switch` or made by [`Context::new`]. No CPU runs it, and its stack is mapped.
#[inline]
pub unsafe fn switch(from: *mut Context, to: *const Context) {
    // SAFETY: passed on to the caller.
    unsafe { arch_switch(from, to) };
}

/// Enters user mode with the registers in `frame`. First does the work that is due by the current
/// thread's work word.
///
/// # Safety
/// The selectors and flags of `frame` are those of user mode ([`UserFrame::sanitize`]). No data
/// below `frame` on its stack is needed any more.
pub unsafe fn enter_user(frame: *const UserFrame) -> ! {
    super::header::note_first_user();
    // SAFETY: passed on to the caller.
    unsafe { traps::arch_enter_user(frame) }
}

/// Executes `sti; hlt; cli`: halts this CPU until an interrupt arrives, and runs its handler. Any
/// handler may run.
#[inline]
pub fn idle() {
    // SAFETY: a function of the C ABI; handlers save the registers that it must keep.
    unsafe { arch_idle() };
}

/// Executes `sti; nop; cli`: the handlers of pending interrupts run on the stack of the caller.
#[inline]
pub(super) fn open_interrupts() {
    // SAFETY: a function of the C ABI, called, so no red zone lies below its stack pointer; the
    // entries save all that handlers change.
    unsafe { arch_open_interrupts() };
}

/// Returns the address at which to continue after an interrupt that arrived at `rip`. This is `rip`
/// unless `rip` is the `hlt` of [`idle`]. Then it is the address after the `hlt`, because the
/// interrupt is the one that the `hlt` would wait for. A CPU takes no interrupt between `sti` and
/// `hlt`, but a machine that is stopped between the two instructions may.
#[inline]
pub(super) fn after_interrupt(rip: u64) -> u64 {
    if rip == arch_idle_halt as *const () as u64 {
        arch_idle_over as *const () as u64
    } else {
        rip
    }
}

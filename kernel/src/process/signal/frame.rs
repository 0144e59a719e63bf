//! The stack frame of a handler (`struct rt_sigframe`), and the return from it.
//!
//! From the stack pointer of the handler upwards: return address, `ucontext`, `siginfo`, and the
//! FPU image, 64-byte aligned. The program may change all of it. `rt_sigreturn` therefore checks
//! every value of the frame or makes it harmless.

use super::thread::{AltStack, Trap};
use super::{Action, SA_ONSTACK, SIGINFO_BYTES, SigInfo, SigSet, fault};
use crate::process::{self, TaskRef};
use core::mem::offset_of;
use logic::errno::Errno;
use machine::arch::fpu::{FXSAVE_BYTES, FpuState, SIGNAL_IMAGE_BYTES};
use machine::arch::{USER_END, UserFrame};
use machine::sched;
use machine::uaccess;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// `struct sigcontext`.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SigContext {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    eflags: u64,
    cs: u16,
    gs: u16,
    fs: u16,
    ss: u16,
    err: u64,
    trapno: u64,
    oldmask: u64,
    cr2: u64,
    fpstate: u64,
    reserved: [u64; 8],
}

/// `stack_t` of the ABI, which describes an alternate signal stack.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct StackT {
    /// Lowest address.
    pub(crate) base: u64,
    /// Bits `SS_*`.
    pub(crate) flags: i32,
    /// Unused.
    pub(crate) padding: u32,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// `struct ucontext`.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct UContext {
    flags: u64,
    link: u64,
    stack: StackT,
    context: SigContext,
    mask: u64,
}

/// `struct rt_sigframe`.
#[derive(Copy, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RtFrame {
    restorer: u64,
    context: UContext,
    info: [u8; SIGINFO_BYTES],
}

const _: () = {
    assert!(size_of::<SigContext>() == 256);
    assert!(offset_of!(UContext, context) == 40);
    assert!(size_of::<UContext>() == 304);
    assert!(size_of::<RtFrame>() == 440);
};

/// `uc_flags`: the FPU image has the extended part.
const UC_FP_XSTATE: u64 = 1;
/// `uc_flags`: the frame holds `ss`.
const UC_SIGCONTEXT_SS: u64 = 2;
/// `uc_flags`: `ss` must be restored, whichever value it has.
const UC_STRICT_RESTORE_SS: u64 = 4;

/// `ss_flags`: there is no alternate signal stack.
pub(super) const SS_DISABLE: i32 = 2;
/// `ss_flags`: the thread runs on the alternate signal stack.
const SS_ONSTACK: i32 = 1;
/// `ss_flags`: the alternate signal stack is disabled while a handler runs on it.
pub(super) const SS_AUTODISARM: u32 = 1 << 31;

/// The size of the area below the stack pointer that leaf functions use.
const RED_ZONE: u64 = 128;

/// Returns the smallest size in bytes of a stack on which a signal handler can run
/// (`AT_MINSIGSTKSZ`).
pub(crate) const fn minimum_stack() -> usize {
    size_of::<RtFrame>() + SIGNAL_IMAGE_BYTES + 64 + 16 + 128
}

/// Returns the alternate stack of the current thread for `sigaltstack`. `stack_pointer` decides
/// whether the thread runs on it.
pub(crate) fn alt_stack(stack_pointer: u64) -> StackT {
    let stack = process::current().signals().alt_stack();
    let state = if stack.size == 0 {
        SS_DISABLE
    } else if stack.is_in_use(stack_pointer) {
        SS_ONSTACK
    } else {
        0
    };
    StackT {
        flags: state | stack.flags & SS_AUTODISARM.cast_signed(),
        ..saved_alt_stack(stack)
    }
}

/// Makes `new` the alternate stack of the current thread, whose stack pointer is `stack_pointer`.
///
/// # Errors
/// Fails with `EPERM` if the thread runs on its alternate stack, with `EINVAL` if the flags are
/// unknown, and with `ENOMEM` if the stack is too small.
pub(crate) fn change_alt_stack(new: &StackT, stack_pointer: u64) -> Result<(), Errno> {
    /// Linux's `MINSIGSTKSZ`.
    const MIN_BYTES: u64 = 2048;
    let task = process::current();
    let old = task.signals().alt_stack();
    if old.is_in_use(stack_pointer) {
        return Err(Errno::EPERM);
    }
    let mut stack = AltStack {
        base: new.base,
        size: new.size,
        flags: new.flags,
    };
    match new.flags & !SS_AUTODISARM.cast_signed() {
        // This may be the state of a thread that has set no stack.
        0 | SS_ONSTACK if stack == old => {}
        0 | SS_ONSTACK if stack.size < MIN_BYTES => return Err(Errno::ENOMEM),
        0 | SS_ONSTACK => {}
        SS_DISABLE => (stack.base, stack.size) = (0, 0),
        _ => return Err(Errno::EINVAL),
    }
    task.signals().set_alt_stack(stack);
    Ok(())
}

/// Returns the alternate stack `stack` in the form of a handler's frame.
fn saved_alt_stack(stack: AltStack) -> StackT {
    StackT {
        base: stack.base,
        flags: stack.flags,
        padding: 0,
        size: stack.size,
    }
}

/// Writes the frame of a handler for the signal `info` to the user's stack and makes `frame` enter
/// the handler in `action`. The handler's return restores the blocked signals `mask`.
///
/// # Errors
/// Fails with `EFAULT` if the stack has no room for the frame or cannot be written.
pub(super) fn push(
    task: TaskRef,
    frame: &mut UserFrame,
    action: &Action,
    info: &SigInfo,
    mask: SigSet,
) -> Result<(), Errno> {
    let alt = task.signals().alt_stack();
    let mut top = frame.rsp.wrapping_sub(RED_ZONE);
    let on_alt = alt.is_in_use(frame.rsp);
    let enters_alt = action.flags & SA_ONSTACK != 0 && alt.size != 0 && !on_alt;
    if enters_alt {
        top = alt.base.wrapping_add(alt.size);
    }
    let mut image = [0; SIGNAL_IMAGE_BYTES];
    let image_bytes = sched::current().fpu_signal_image(frame, &mut image);
    let fpstate = top.wrapping_sub(image_bytes as u64) & !63;
    // The handler starts like a called function: 8 bytes below a multiple of 16.
    let at = (fpstate.wrapping_sub(size_of::<RtFrame>() as u64) & !15).wrapping_sub(8);
    if (on_alt || enters_alt) && (at < alt.base || at >= alt.base.wrapping_add(alt.size)) {
        return Err(Errno::EFAULT);
    }
    if at >= USER_END || top >= USER_END {
        return Err(Errno::EFAULT);
    }
    let extended = image_bytes > FXSAVE_BYTES;
    let context = UContext {
        flags: UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS | if extended { UC_FP_XSTATE } else { 0 },
        link: 0,
        stack: saved_alt_stack(alt),
        context: save(frame, task.signals().trap(), mask, fpstate),
        mask: mask.0,
    };
    let rt_frame = RtFrame {
        restorer: action.restorer,
        context,
        info: info.to_bytes(),
    };
    uaccess::copy_out(fpstate, &image[..image_bytes])?;
    uaccess::copy_out(at, rt_frame.as_bytes())?;
    if alt.disarms_itself() {
        task.signals().set_alt_stack(AltStack::NONE);
    }
    sched::current().fpu_reset();
    frame.xmm = [0; 16];
    frame.rip = action.handler;
    frame.rsp = at;
    frame.rdi = u64::from(info.signal.number());
    frame.rsi = at + offset_of!(RtFrame, info) as u64;
    frame.rdx = at + offset_of!(RtFrame, context) as u64;
    frame.rax = 0;
    frame.sanitize();
    // A handler starts with the direction flag clear and without single-stepping.
    frame.rflags &= !(1 << 10 | 1 << 8 | 1 << 16);
    Ok(())
}

fn save(frame: &UserFrame, trap: Trap, mask: SigSet, fpstate: u64) -> SigContext {
    SigContext {
        r8: frame.r8,
        r9: frame.r9,
        r10: frame.r10,
        r11: frame.r11,
        r12: frame.r12,
        r13: frame.r13,
        r14: frame.r14,
        r15: frame.r15,
        rdi: frame.rdi,
        rsi: frame.rsi,
        rbp: frame.rbp,
        rbx: frame.rbx,
        rdx: frame.rdx,
        rax: frame.rax,
        rcx: frame.rcx,
        rsp: frame.rsp,
        rip: frame.rip,
        eflags: frame.rflags,
        // The selectors of Linux programs, not those of this kernel.
        cs: LINUX_CS,
        gs: 0,
        fs: 0,
        ss: LINUX_SS,
        err: trap.error,
        trapno: trap.vector,
        oldmask: mask.0,
        cr2: trap.address,
        fpstate,
        reserved: [0; 8],
    }
}

const LINUX_CS: u16 = 0x33;
const LINUX_SS: u16 = 0x2b;

/// Returns the `FPE_*` code of the arithmetic exception `vector`: 16 for x87, else SSE. It names
/// the first pending exception that is not masked.
pub(super) fn float_code(vector: u8) -> i32 {
    /// Bits of exceptions and their codes.
    const CODES: [(u32, i32); 5] = [
        (1, fault::FPE_FLTINV),
        (1 << 2, fault::FPE_FLTDIV),
        (1 << 3, fault::FPE_FLTOVF),
        // A denormal number counts as an underflow.
        (1 << 4 | 1 << 1, fault::FPE_FLTUND),
        (1 << 5, fault::FPE_FLTRES),
    ];
    let current = sched::current();
    let pending = if vector == 16 {
        current.fpu_pending_x87()
    } else {
        current.fpu_pending_sse()
    };
    let found = CODES.into_iter().find(|(bits, _)| pending & bits != 0);
    found.map_or(fault::FPE_FLTINV, |(_, code)| code)
}

/// Restores the registers and the blocked signals from the frame of the handler that returns
/// (`rt_sigreturn`). Returns rax of the interrupted code. If the frame cannot be read, returns 0
/// and raises SIGSEGV.
pub(crate) fn return_from_handler(frame: &mut UserFrame) -> u64 {
    match restore(frame) {
        Ok(()) => frame.rax,
        Err(_) => {
            fault::force_bad_frame();
            0
        }
    }
}

fn restore(frame: &mut UserFrame) -> Result<(), Errno> {
    // The handler's `ret` has popped the return address.
    let at = frame.rsp.wrapping_sub(8);
    let mut context = UContext::new_zeroed();
    let place = at.wrapping_add(offset_of!(RtFrame, context) as u64);
    uaccess::copy_in(context.as_mut_bytes(), place)?;
    let saved = &context.context;
    // As on Linux, the mask and the registers are restored even if the rest of the frame is
    // invalid.
    super::set_mask(SigSet(context.mask));
    frame.r8 = saved.r8;
    frame.r9 = saved.r9;
    frame.r10 = saved.r10;
    frame.r11 = saved.r11;
    frame.r12 = saved.r12;
    frame.r13 = saved.r13;
    frame.r14 = saved.r14;
    frame.r15 = saved.r15;
    frame.rdi = saved.rdi;
    frame.rsi = saved.rsi;
    frame.rbp = saved.rbp;
    frame.rbx = saved.rbx;
    frame.rdx = saved.rdx;
    frame.rax = saved.rax;
    frame.rcx = saved.rcx;
    frame.rsp = saved.rsp;
    frame.rip = saved.rip;
    frame.rflags = saved.eflags;
    frame.sanitize();
    restore_fpu(frame, saved.fpstate)?;
    // As on Linux, a stack that `sigaltstack` would refuse is no error here.
    let _ = change_alt_stack(&context.stack, frame.rsp);
    Ok(())
}

fn restore_fpu(frame: &mut UserFrame, fpstate: u64) -> Result<(), Errno> {
    let mut image = [0; SIGNAL_IMAGE_BYTES];
    if fpstate == 0 {
        // A program may request a fresh state with a null pointer.
        sched::current().fpu_reset();
        frame.xmm = [0; 16];
        return Ok(());
    }
    let (legacy, rest) = image.split_at_mut(FXSAVE_BYTES);
    uaccess::copy_in(legacy, fpstate)?;
    let bytes = if FpuState::is_extended(legacy) {
        uaccess::copy_in(rest, fpstate.wrapping_add(FXSAVE_BYTES as u64))?;
        SIGNAL_IMAGE_BYTES
    } else {
        FXSAVE_BYTES
    };
    sched::current().fpu_set_signal_image(frame, &image[..bytes]);
    Ok(())
}

//! The registers of a program, saved while it is in the kernel.

use super::layout::USER_END;
use core::mem::{offset_of, size_of};

/// Selector of 64-bit user code, with its privilege level. Linux has the same value.
pub const USER_CS: u16 = 0x33;
/// Selector of user data, with its privilege level. Linux has the same value.
pub const USER_SS: u16 = 0x2b;
/// Selector of kernel code.
pub const KERNEL_CS: u16 = 0x10;
/// Selector of kernel data.
pub const KERNEL_SS: u16 = 0x18;

/// RFLAGS.IF: interrupts are enabled.
pub const RFLAGS_IF: u64 = 1 << 9;
/// RFLAGS.TF: single step.
pub const RFLAGS_TF: u64 = 1 << 8;
/// RFLAGS.RF: the breakpoints of the next instruction are ignored.
pub const RFLAGS_RF: u64 = 1 << 16;
/// Bit 1 of RFLAGS, which is always set.
pub const RFLAGS_FIXED: u64 = 1 << 1;
/// The bits of RFLAGS that a program may choose: CF PF AF ZF SF TF DF OF RF AC ID.
pub const RFLAGS_USER: u64 = 0x0025_0dd5;

/// The registers of a program, at the top of its task's kernel stack while it is in the kernel. The
/// entries for traps and system calls build the frame, and their exits load it.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub struct UserFrame {
    /// xmm0 to xmm15, which the kernel uses, too.
    pub xmm: [u128; 16],
    /// The register of this name.
    pub r15: u64,
    /// The register of this name.
    pub r14: u64,
    /// The register of this name.
    pub r13: u64,
    /// The register of this name.
    pub r12: u64,
    /// The register of this name.
    pub rbp: u64,
    /// The register of this name.
    pub rbx: u64,
    /// The register of this name.
    pub r11: u64,
    /// The register of this name.
    pub r10: u64,
    /// The register of this name.
    pub r9: u64,
    /// The register of this name.
    pub r8: u64,
    /// The register of this name; the result of a system call.
    pub rax: u64,
    /// The register of this name.
    pub rcx: u64,
    /// The register of this name.
    pub rdx: u64,
    /// The register of this name.
    pub rsi: u64,
    /// The register of this name.
    pub rdi: u64,
    /// The number of the system call; [`Self::NO_SYSCALL`] after an exception or an interrupt.
    pub orig_rax: u64,
    /// The error code of the exception; 0 if it has none.
    pub error: u64,
    /// The register of this name.
    pub rip: u64,
    /// The register of this name.
    pub cs: u64,
    /// The register of this name.
    pub rflags: u64,
    /// The register of this name.
    pub rsp: u64,
    /// The register of this name.
    pub ss: u64,
}

const _: () = {
    assert!(size_of::<UserFrame>() == 432);
    assert!(size_of::<UserFrame>().is_multiple_of(16));
    assert!(offset_of!(UserFrame, r15) == 256);
    assert!(offset_of!(UserFrame, orig_rax) == 376);
    assert!(offset_of!(UserFrame, rip) == 392);
};

impl UserFrame {
    /// The value of `orig_rax` in a frame that no system call built.
    pub const NO_SYSCALL: u64 = u64::MAX;

    /// Makes the first frame of a program, with instruction pointer `entry`, stack pointer `stack`,
    /// and zeros in the other general registers.
    pub fn new_user(entry: u64, stack: u64) -> Self {
        Self {
            xmm: [0; 16],
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbp: 0,
            rbx: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rax: 0,
            rcx: 0,
            rdx: 0,
            rsi: 0,
            rdi: 0,
            orig_rax: Self::NO_SYSCALL,
            error: 0,
            rip: entry,
            cs: u64::from(USER_CS),
            rflags: RFLAGS_IF | RFLAGS_FIXED,
            rsp: stack,
            ss: u64::from(USER_SS),
        }
    }

    /// Makes registers that a program has chosen (signal return) safe to load. The selectors become
    /// those of user mode, and the privileged flags those of the kernel. An instruction pointer
    /// outside of user memory becomes [`USER_END`], which faults in the program. The frame no
    /// longer counts as that of a system call.
    pub fn sanitize(&mut self) {
        self.confine();
        self.orig_rax = Self::NO_SYSCALL;
    }

    /// Does what [`Self::sanitize`] does, except that the frame still counts as that of a system
    /// call if it did so before.
    pub fn confine(&mut self) {
        self.cs = u64::from(USER_CS);
        self.ss = u64::from(USER_SS);
        self.rflags = (self.rflags & RFLAGS_USER) | RFLAGS_IF | RFLAGS_FIXED;
        if self.rip >= USER_END {
            // `iretq` to a non-canonical address would fault in the kernel.
            self.rip = USER_END;
        }
    }

    /// Returns whether a system call built this frame and `orig_rax` still has its number. A tracer
    /// that skips the call resets `orig_rax`, and so does signal handling once it has restarted or
    /// ended the call.
    pub fn is_syscall(&self) -> bool {
        self.orig_rax != Self::NO_SYSCALL
    }
}

//! The saved registers of a user program in the kernel.

use super::layout::USER_END;
use core::mem::{offset_of, size_of};

/// Selector of 64-bit user code, with its privilege level; Linux's value.
pub const USER_CS: u16 = 0x33;
/// Selector of user data, with its privilege level; Linux's value.
pub const USER_SS: u16 = 0x2b;
/// Selector of kernel code.
pub const KERNEL_CS: u16 = 0x10;
/// Selector of kernel data.
pub const KERNEL_SS: u16 = 0x18;

/// RFLAGS: interrupts are served.
pub const RFLAGS_IF: u64 = 1 << 9;
/// RFLAGS: single step.
pub const RFLAGS_TF: u64 = 1 << 8;
/// RFLAGS: the next instruction's breakpoints are skipped.
pub const RFLAGS_RF: u64 = 1 << 16;
/// RFLAGS: bit 1, always set.
pub const RFLAGS_FIXED: u64 = 1 << 1;
/// RFLAGS that a program may choose itself: CF PF AF ZF SF TF DF OF RF AC ID.
pub const RFLAGS_USER: u64 = 0x0025_0dd5;

/// The registers of a user program, at the top of its task's kernel stack while it is in the
/// kernel. The trap and syscall entries build it, their exits load it.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub struct UserFrame {
    /// xmm0 to xmm15; the kernel uses them itself.
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
    /// Result of a system call.
    pub rax: u64,
    /// The register of this name.
    pub rcx: u64,
    /// The register of this name.
    pub rdx: u64,
    /// The register of this name.
    pub rsi: u64,
    /// The register of this name.
    pub rdi: u64,
    /// The system call's number; -1 when entered by an exception or interrupt.
    pub orig_rax: u64,
    /// Error code of the exception; 0 where it has none.
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
    /// `orig_rax` of a frame that no system call made.
    pub const NO_SYSCALL: u64 = u64::MAX;

    /// A program's first frame: all registers zero.
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

    /// Takes registers that a program chose itself (signal return) and makes them harmless:
    /// selectors are the user's, privileged flags are ours, the address cannot fault in ring 0.
    pub fn sanitize(&mut self) {
        self.cs = u64::from(USER_CS);
        self.ss = u64::from(USER_SS);
        self.rflags = (self.rflags & RFLAGS_USER) | RFLAGS_IF | RFLAGS_FIXED;
        self.orig_rax = Self::NO_SYSCALL;
        if self.rip >= USER_END {
            // `iretq` to a non-canonical address would fault in the kernel; this one faults in
            // the program.
            self.rip = USER_END;
        }
    }

    /// Whether it was built by a system call that has not been dealt with otherwise.
    pub fn is_syscall(&self) -> bool {
        self.orig_rax != Self::NO_SYSCALL
    }
}

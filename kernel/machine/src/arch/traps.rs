//! The entries from user mode and from exceptions: the interrupt table, `syscall`, and the ways
//! back.
//!
//! An entry from user mode saves xmm0 to xmm15, because the precompiled `core` uses SSE2 in the
//! kernel. It saves all general registers, but for a store that faults on the fast path: there it
//! leaves those that functions preserve. x87, MXCSR and AVX state is switched with the thread
//! (`fpu`). NMI, double fault and machine check have stacks of their own, because the interrupted
//! code may have data in the red zone.

use super::cpu::{self, msr};
use super::entries::{ENTRIES, ebb_exit_to_user, ebb_syscall, ebb_user_fault, ebb_user_store};
use super::frame::{KERNEL_CS, RFLAGS_RF, RFLAGS_TF, UserFrame};
use super::layout::USER_END;
use super::percpu::{
    IST_DEBUG, IST_DOUBLE_FAULT, IST_MACHINE_CHECK, IST_NMI, TablePointer, offset,
};
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

/// The vectors of exceptions.
pub mod vector {
    /// Division error.
    pub const DIVIDE: u64 = 0;
    /// Single step and hardware breakpoints.
    pub const DEBUG: u64 = 1;
    /// Non-maskable interrupt.
    pub const NMI: u64 = 2;
    /// `int3`.
    pub const BREAKPOINT: u64 = 3;
    /// `into`, or `int 4`.
    pub const OVERFLOW: u64 = 4;
    /// Invalid instruction.
    pub const INVALID_OPCODE: u64 = 6;
    /// Double fault: an exception while the CPU was delivering another exception.
    pub const DOUBLE_FAULT: u64 = 8;
    /// Fault of the stack segment, or non-canonical stack address.
    pub const STACK: u64 = 12;
    /// General protection fault: any other violation.
    pub const GENERAL_PROTECTION: u64 = 13;
    /// Page fault.
    pub const PAGE_FAULT: u64 = 14;
    /// Machine check.
    pub const MACHINE_CHECK: u64 = 18;
    /// The first vector of interrupts.
    pub const FIRST_INTERRUPT: u64 = 32;
}

/// The number of vectors that have an entry in the interrupt table, from vector 0 on.
pub(super) const VECTORS: usize = 97;

/// The bits of the work word that must be served before the return to user mode. The other bits
/// describe the thread and stay set.
pub const WORK_DUE: u32 = 0x00ff_ffff;

global_asm!(
    r#"
    .equ XMM, 256
    .equ RBP_SLOT, 288
    .equ VECTOR_SLOT, 376
    .equ ERROR_SLOT, 384
    # The bytes of rbx, rbp and r12 to r15.
    .equ LEFT, 48

    # Registers that functions may change, in a frame.
    .macro push_scratch
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %rax
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    .endm

    .macro save_xmm
    movaps %xmm0, 0x00(%rsp)
    movaps %xmm1, 0x10(%rsp)
    movaps %xmm2, 0x20(%rsp)
    movaps %xmm3, 0x30(%rsp)
    movaps %xmm4, 0x40(%rsp)
    movaps %xmm5, 0x50(%rsp)
    movaps %xmm6, 0x60(%rsp)
    movaps %xmm7, 0x70(%rsp)
    movaps %xmm8, 0x80(%rsp)
    movaps %xmm9, 0x90(%rsp)
    movaps %xmm10, 0xa0(%rsp)
    movaps %xmm11, 0xb0(%rsp)
    movaps %xmm12, 0xc0(%rsp)
    movaps %xmm13, 0xd0(%rsp)
    movaps %xmm14, 0xe0(%rsp)
    movaps %xmm15, 0xf0(%rsp)
    .endm

    # The stack holds what the CPU pushed, then error code, then one more word; add the rest.
    .macro save_registers
    push_scratch
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $XMM, %rsp
    save_xmm
    .endm

    # All that push_scratch leaves but rbp, where there is room for it.
    .macro save_left
    movq %r15, 256(%rsp)
    movq %r14, 264(%rsp)
    movq %r13, 272(%rsp)
    movq %r12, 280(%rsp)
    movq %rbx, 296(%rsp)
    .endm

    .macro load_xmm
    movaps 0x00(%rsp), %xmm0
    movaps 0x10(%rsp), %xmm1
    movaps 0x20(%rsp), %xmm2
    movaps 0x30(%rsp), %xmm3
    movaps 0x40(%rsp), %xmm4
    movaps 0x50(%rsp), %xmm5
    movaps 0x60(%rsp), %xmm6
    movaps 0x70(%rsp), %xmm7
    movaps 0x80(%rsp), %xmm8
    movaps 0x90(%rsp), %xmm9
    movaps 0xa0(%rsp), %xmm10
    movaps 0xb0(%rsp), %xmm11
    movaps 0xc0(%rsp), %xmm12
    movaps 0xd0(%rsp), %xmm13
    movaps 0xe0(%rsp), %xmm14
    movaps 0xf0(%rsp), %xmm15
    .endm

    .macro pop_scratch
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rax
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    .endm

    # All but rcx, r11, rdi, rsi in the way of sysret.
    .macro load_registers
    load_xmm
    addq $XMM, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    pop_scratch
    .endm

    # A program may leave the direction and alignment-check flags set.
    .macro clear_flags
    cld
    "#,
    crate::clac_asm!(),
    r#"
    .endm

    .text
    # A page fault of user mode: the hottest exception has a path of its own. Functions leave rbx, rbp and
    # r12 to r15 as they are, so the frame gets these only where another path goes on with it. An
    # unwinder stops where rbp is 0.
    .balign 64
page_fault_entry:
    testb $3, 16(%rsp)
    jz kernel_page_fault
    swapgs
    pushq $-1
    push_scratch
    subq $XMM + LEFT, %rsp
    save_xmm
    clear_flags
    movq %rbp, RBP_SLOT(%rsp)
    movq %cr2, %rdi
    movq ERROR_SLOT(%rsp), %rsi
    xorl %ebp, %ebp
    call {user_store}
    testb %al, %al
    jz 9f
    movq %gs:{work}, %rax
    testl ${due}, (%rax)
    jne 10f
    movq RBP_SLOT(%rsp), %rbp
    load_xmm
    addq $XMM + LEFT, %rsp
    pop_scratch
    addq $16, %rsp
    swapgs
    iretq
9:  save_left
    movq %rsp, %rdi
    movq %cr2, %rsi
    movq ERROR_SLOT(%rsp), %rdx
    call {user_page_fault}
    jmp return_to_user
10: save_left

    # The way back to user mode: rsp is the frame.
return_to_user:
    movq %gs:{work}, %rax
    testl ${due}, (%rax)
    jne 2f
1:  load_registers
    addq $16, %rsp
    swapgs
    iretq
2:  movq %rsp, %rdi
    xorl %ebp, %ebp
    call {exit_to_user}
    jmp return_to_user

    .global arch_enter_user
arch_enter_user:
    movq %rdi, %rsp
    jmp return_to_user

    .balign 64
    .global arch_syscall_entry
arch_syscall_entry:
    swapgs
    movq %rsp, %gs:{user_rsp}
    movq %gs:{kernel_stack}, %rsp
    pushq $0x2b
    pushq %gs:{user_rsp}
    pushq %r11
    pushq $0x33
    pushq %rcx
    pushq $0
    pushq %rax
    save_registers
    movq %rsp, %rdi
    xorl %ebp, %ebp
    call {syscall}
    movq %gs:{work}, %rax
    testl ${due}, (%rax)
    jne 5f
    # `sysret` only where it gives exactly what the frame says, and cannot fault in ring 0.
4:  movq 392(%rsp), %rax
    cmpq 344(%rsp), %rax
    jne 1b
    movabsq ${user_end}, %rcx
    cmpq %rcx, %rax
    jae 1b
    movq 408(%rsp), %rax
    cmpq 304(%rsp), %rax
    jne 1b
    testl ${no_sysret}, %eax
    jnz 1b
    load_registers
    movq 40(%rsp), %rsp
    swapgs
    sysretq
5:  movq %rsp, %rdi
    xorl %ebp, %ebp
    call {exit_to_user}
    movq %gs:{work}, %rax
    testl ${due}, (%rax)
    jne 5b
    jmp 4b

    # Every other vector: the stub pushed an error code where the CPU did not, and the vector.
    .balign 16
common_entry:
    testb $3, 24(%rsp)
    jz from_kernel
    swapgs
entered_from_user:
    save_registers
    clear_flags
    movq %rsp, %rdi
    movq VECTOR_SLOT(%rsp), %rsi
    movq $-1, VECTOR_SLOT(%rsp)
    xorl %ebp, %ebp
    call {user_trap}
    jmp return_to_user

kernel_page_fault:
    pushq $14
from_kernel:
    save_registers
    clear_flags
    movq %rsp, %rdi
    movq VECTOR_SLOT(%rsp), %rsi
    call {kernel_trap}
    load_registers
    addq $16, %rsp
    iretq

    # These three come at any instruction, on stacks of their own: GS may still be the user's.
    .balign 16
nmi_entry:
    cmpb $0, {stopping}(%rip)
    jne 6f
    iretq
6:  cli
    hlt
    jmp 6b

    # A breakpoint of the debug registers may be due at the first instruction of an entry, where the
    # stack is the user's still: a stack of its own, which what came from user mode leaves at once.
    .balign 16
debug_entry:
    testb $3, 8(%rsp)
    jz 8f
    swapgs
    movq %rax, %gs:{user_rsp}
    movq %rsp, %rax
    movq %gs:{kernel_stack}, %rsp
    pushq 32(%rax)
    pushq 24(%rax)
    pushq 16(%rax)
    pushq 8(%rax)
    pushq (%rax)
    movq %gs:{user_rsp}, %rax
    pushq $0
    pushq $1
    jmp entered_from_user
    # The kernel's own access of a watched place notifies no task.
8:  pushq %rax
    movl $0xffff0ff0, %eax
    movq %rax, %dr6
    popq %rax
    iretq

fatal_entry:
    save_registers
    movl $0xc0000101, %ecx
    rdmsr
    testl %edx, %edx
    js 7f
    swapgs
7:  clear_flags
    movq %rsp, %rdi
    movq VECTOR_SLOT(%rsp), %rsi
    call {fatal_trap}
    ud2

    .balign 16
trap_stubs:
    .set vector, 0
    .rept {vectors}
    .balign 16
    .if (vector == 2)
    jmp nmi_entry
    .elseif (vector == 1)
    jmp debug_entry
    .elseif (vector == 14)
    jmp page_fault_entry
    .elseif (vector == 8)
    pushq $8
    jmp fatal_entry
    .elseif (vector == 18)
    pushq $0
    pushq $18
    jmp fatal_entry
    .elseif (vector == 10) || (vector == 11) || (vector == 12) || (vector == 13) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    pushq $vector
    jmp common_entry
    .else
    pushq $0
    pushq $vector
    jmp common_entry
    .endif
    .set vector, vector + 1
    .endr
    "#,
    work = const offset::WORK,
    user_rsp = const offset::USER_RSP,
    kernel_stack = const offset::KERNEL_STACK,
    user_end = const USER_END,
    due = const WORK_DUE,
    no_sysret = const RFLAGS_RF | RFLAGS_TF,
    vectors = const VECTORS,
    user_store = sym ebb_user_store,
    user_page_fault = sym ebb_user_fault,
    exit_to_user = sym ebb_exit_to_user,
    syscall = sym ebb_syscall,
    user_trap = sym user_trap,
    kernel_trap = sym kernel_trap,
    fatal_trap = sym fatal_trap,
    stopping = sym super::stopping::STOPPING,
    options(att_syntax)
);

unsafe extern "C" {
    static trap_stubs: [[u8; 16]; VECTORS];
    fn arch_syscall_entry();
    /// Loads the registers from `frame` and enters user mode. Calls `ebb_exit_to_user` first while
    /// work of the current thread is due. `frame` must be a valid user frame, and becomes the stack
    /// pointer.
    pub(super) fn arch_enter_user(frame: *const UserFrame) -> !;
}

/// Handles an exception or an interrupt in user mode. `vector` is its number, and `frame` has the
/// registers of the program.
extern "C" fn user_trap(frame: &mut UserFrame, vector: u64) {
    if vector >= vector::FIRST_INTERRUPT {
        super::interrupt::dispatch(vector);
    } else {
        (ENTRIES.exception)(frame, vector as u8);
    }
}

/// Handles an exception or an interrupt in kernel mode: in the idle loop, at a point where kernel
/// code lets interrupts in, in a user access, or by a bug. `vector` is its number, and `frame` has
/// the registers of the interrupted code.
extern "C" fn kernel_trap(frame: &mut UserFrame, vector: u64) {
    if vector >= vector::FIRST_INTERRUPT {
        super::interrupt::dispatch(vector);
        frame.rip = super::context::after_interrupt(frame.rip);
        return;
    }
    if vector == vector::PAGE_FAULT {
        let address = cpu::read_cr2();
        if let Some(rip) = (ENTRIES.kernel_fault)(address, frame.error, frame.rip) {
            frame.rip = rip;
            return;
        }
        super::panic::trapped(frame, vector, address);
    }
    super::panic::trapped(frame, vector, 0);
}

extern "C" fn fatal_trap(frame: &mut UserFrame, vector: u64) -> ! {
    super::panic::trapped(frame, vector, cpu::read_cr2())
}

/// A gate of the interrupt table.
#[derive(Copy, Clone)]
#[repr(C)]
struct Gate {
    low: u64,
    high: u64,
}

#[repr(C, align(4096))]
struct Table(UnsafeCell<[Gate; VECTORS]>);

// SAFETY: the first CPU fills it before others run; after that only the hardware reads it.
unsafe impl Sync for Table {}

#[unsafe(link_section = ".bss.pages.idt")]
static TABLE: Table = Table(UnsafeCell::new([Gate { low: 0, high: 0 }; VECTORS]));

impl Gate {
    fn new(handler: u64, ist: u8, user_may_call: bool) -> Self {
        let dpl: u64 = if user_may_call { 3 } else { 0 };
        let low = (handler & 0xffff)
            | u64::from(KERNEL_CS) << 16
            | u64::from(ist) << 32
            | (0x8e | dpl << 5) << 40
            | (handler >> 16 & 0xffff) << 48;
        Self {
            low,
            high: handler >> 32,
        }
    }
}

/// Fills the interrupt table and loads it on this CPU.
///
/// # Safety
/// Called once, on the first CPU.
pub(super) unsafe fn load_idt() {
    // SAFETY: there is no other reference to the table yet.
    let table = unsafe { &mut *TABLE.0.get() };
    for (number, gate) in table.iter_mut().enumerate() {
        // SAFETY: only the address is taken, within the stubs.
        let handler = unsafe { (&raw const trap_stubs).cast::<[u8; 16]>().add(number) } as u64;
        let number = number as u64;
        let ist = match number {
            vector::DEBUG => IST_DEBUG,
            vector::NMI => IST_NMI,
            vector::DOUBLE_FAULT => IST_DOUBLE_FAULT,
            vector::MACHINE_CHECK => IST_MACHINE_CHECK,
            _ => 0,
        };
        let user_may_call = matches!(number, vector::BREAKPOINT | vector::OVERFLOW);
        *gate = Gate::new(handler, ist, user_may_call);
    }
    use_idt();
}

/// Loads the interrupt table, which [`load_idt`] has filled, on this CPU.
pub(super) fn use_idt() {
    let pointer = TablePointer {
        limit: (size_of::<[Gate; VECTORS]>() - 1) as u16,
        base: TABLE.0.get() as u64,
    };
    // SAFETY: the table is filled and lives for ever.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags)) };
}

/// Sets this CPU's registers for the `syscall` instruction: the address of the entry, the segment
/// selectors, and the flags that the entry clears.
pub(super) fn init_syscall() {
    // sysret: SS = 0x23 + 8, CS = 0x23 + 16.
    const STAR: u64 = 0x23 << 48 | (KERNEL_CS as u64) << 32;
    // Cleared on entry: TF IF DF IOPL NT RF AC.
    const MASK: u64 = 0x5_7700;
    let entry: unsafe extern "C" fn() = arch_syscall_entry;
    // SAFETY: the entry fits the selectors and the per-CPU area.
    unsafe {
        cpu::wrmsr(msr::STAR, STAR);
        cpu::wrmsr(msr::LSTAR, entry as usize as u64);
        cpu::wrmsr(msr::SFMASK, MASK);
    }
}

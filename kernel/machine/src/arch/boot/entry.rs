//! The first instructions of the kernel: from 32-bit protected mode without paging to Rust.
//!
//! PVH (Xen's `hvm_start_info` boot, spoken by QEMU's `-kernel`) enters at `pvh_start` with flat
//! 32-bit segments, paging off, and the physical address of the start info in ebx. Application
//! processors join at `ap_start32` from their real-mode trampoline.

use core::arch::global_asm;

/// The size in bytes of the stack on which the first CPU boots and later idles.
pub(super) const BOOT_STACK_BYTES: usize = 64 * 1024;

global_asm!(
    r#"
    .macro phys reg, symbol
        movl $(\symbol - 0xffffffff80000000), \reg
    .endm

    .section .note.Xen, "a", @note
    .balign 4
    .long 4                             # length of the name
    .long 8                             # length of the value
    .long 18                            # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start - 0xffffffff80000000

    .section .bss.pages, "aw", @nobits
    .balign 4096
    .global boot_stack_guard, boot_stack_top, boot_pml4
boot_stack_guard:
    .skip 4096
    .skip {stack}
boot_stack_top:
boot_pml4:
    .skip 4096
boot_pdpt:
    .skip 4096
boot_pd:
    .skip 4096

    .section .rodata
    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00cf9b000000ffff            # 0x08: 32-bit code
    .quad 0x00af9b000000ffff            # 0x10: 64-bit code
    .quad 0x00cf93000000ffff            # 0x18: data
boot_gdt_pointer:
    .word 31
    .long boot_gdt - 0xffffffff80000000
unfit_message:
    .ascii "ebb: this CPU has no 64-bit mode or no NX bit; give QEMU another -cpu\n"
unfit_message_end:

    .section .text.boot, "ax"
    .code32
    .global pvh_start
pvh_start:
    cld
    cli
    phys %esp, boot_stack_top
    movl %ebx, %edi                     # kept: the start info

    movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb unfit
    movl $0x80000001, %eax
    cpuid
    andl $0x20100000, %edx              # long mode, NX
    cmpl $0x20100000, %edx
    jne unfit

    # One directory maps the first GiB, at 0 and at the kernel's base.
    phys %eax, boot_pd
    movl $0x83, %edx                    # present, writable, 2 MiB
    xorl %ecx, %ecx
1:  movl %edx, (%eax,%ecx,8)
    addl $0x200000, %edx
    incl %ecx
    cmpl $512, %ecx
    jb 1b
    orl $3, %eax
    phys %edx, boot_pdpt
    movl %eax, (%edx)
    movl %eax, 510*8(%edx)
    orl $3, %edx
    phys %eax, boot_pml4
    movl %edx, (%eax)
    movl %edx, 511*8(%eax)

    phys %esi, boot_start64
    jmp enter_long_mode

    # esi: physical address to go on at in 64-bit mode; edi is kept.
enter_long_mode:
    phys %eax, boot_pml4
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x620, %eax                    # PAE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $0xc0000080, %ecx              # EFER
    rdmsr
    orl $0x901, %eax                    # NXE, LME, SCE
    wrmsr
    movl %cr0, %eax
    andl $0x9ffffff3, %eax              # no CD, NW, TS, EM
    orl $0x80010023, %eax               # PG, WP, NE, MP, PE
    movl %eax, %cr0
    lgdt boot_gdt_pointer - 0xffffffff80000000
    pushl $0x10
    pushl %esi
    lretl

unfit:
    phys %esi, unfit_message
    movl $(unfit_message_end - unfit_message), %ecx
    movw $0x3f8, %dx
    rep outsb
    movl $1, %eax                       # as a panic ends
    movw $0xf4, %dx
    outl %eax, %dx
2:  hlt
    jmp 2b

    # An application processor, from its trampoline; edi is not defined.
    .global ap_start32
ap_start32:
    movw $0x18, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $1, %edi
    lock xaddl %edi, ap_tickets - 0xffffffff80000000
    # A stack for the far return only; each has its own eight bytes.
    phys %esp, ap_far_returns
    leal 8(%esp,%edi,8), %esp
    cmpl $64, %edi
    jae 2b
    phys %esi, ap_start64
    jmp enter_long_mode

    .code64
boot_start64:
    movabsq $boot_start_high, %rax
    jmpq *%rax
ap_start64:
    movabsq $ap_start_high, %rax
    jmpq *%rax

boot_start_high:
    movl $0x18, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movq $boot_stack_top, %rsp
    xorl %ebp, %ebp
    movl %edi, %edi
    call {start}
    ud2

ap_start_high:
    movl $0x18, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movl %edi, %edi
    # The starter filled the stacks before it sent the start-up interrupt.
    movq ap_stacks(,%rdi,8), %rsp
    testq %rsp, %rsp
    jz 3f
    movq kernel_root(%rip), %rax
    movq %rax, %cr3
    xorl %ebp, %ebp
    call {ap_start}
    ud2
3:  hlt
    jmp 3b

    .section .bss, "aw", @nobits
    .balign 8
    .global ap_tickets, ap_stacks, kernel_root
ap_tickets:
    .skip 8
ap_far_returns:
    .skip 64 * 8 + 8
ap_stacks:
    .skip 64 * 8
kernel_root:
    .skip 8

    .section .rodata
    .global ap_trampoline, ap_trampoline_end
    .balign 16
ap_trampoline:
    .code16
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    lgdtl ap_trampoline_gdt_pointer - ap_trampoline
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x08, $(ap_start32 - 0xffffffff80000000)
    .balign 4
ap_trampoline_gdt_pointer:
    .word 31
    .long boot_gdt - 0xffffffff80000000
ap_trampoline_end:
    .code64
    .text
    "#,
    stack = const BOOT_STACK_BYTES,
    start = sym super::start,
    ap_start = sym crate::arch::smp::ap_start,
    options(att_syntax)
);

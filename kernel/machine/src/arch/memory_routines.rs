//! `memcpy` and its relatives, which compiled code calls.
//!
//! They use plain SSE2 in 64-byte steps: on QEMU's translator `rep movsb` costs one turn a byte.
//! The ends are copied with loads and stores that overlap the steps, so no byte loop is needed.

use core::arch::global_asm;

global_asm!(
    r#"
    .text
    .balign 32
    .global memcpy, memmove
memcpy:
memmove:
    movq %rdi, %rax
    cmpq $16, %rdx
    jb 10f
    cmpq $32, %rdx
    ja 1f
    movups (%rsi), %xmm0
    movups -16(%rsi,%rdx), %xmm1
    movups %xmm0, (%rdi)
    movups %xmm1, -16(%rdi,%rdx)
    ret
1:  cmpq $64, %rdx
    ja 2f
    movups (%rsi), %xmm0
    movups 16(%rsi), %xmm1
    movups -32(%rsi,%rdx), %xmm2
    movups -16(%rsi,%rdx), %xmm3
    movups %xmm0, (%rdi)
    movups %xmm1, 16(%rdi)
    movups %xmm2, -32(%rdi,%rdx)
    movups %xmm3, -16(%rdi,%rdx)
    ret
    # Upwards unless the target begins inside the source.
2:  movq %rdi, %rcx
    subq %rsi, %rcx
    cmpq %rdx, %rcx
    jb 5f
    # The last 64 bytes are read before a step can overwrite them.
    movups -64(%rsi,%rdx), %xmm4
    movups -48(%rsi,%rdx), %xmm5
    movups -32(%rsi,%rdx), %xmm6
    movups -16(%rsi,%rdx), %xmm7
    leaq -64(%rdi,%rdx), %rdx
3:  movups (%rsi), %xmm0
    movups 16(%rsi), %xmm1
    movups 32(%rsi), %xmm2
    movups 48(%rsi), %xmm3
    addq $64, %rsi
    movups %xmm0, (%rdi)
    movups %xmm1, 16(%rdi)
    movups %xmm2, 32(%rdi)
    movups %xmm3, 48(%rdi)
    addq $64, %rdi
    cmpq %rdx, %rdi
    jb 3b
    movups %xmm4, (%rdx)
    movups %xmm5, 16(%rdx)
    movups %xmm6, 32(%rdx)
    movups %xmm7, 48(%rdx)
    ret
    # Downwards, the first 64 bytes read beforehand.
5:  movups (%rsi), %xmm4
    movups 16(%rsi), %xmm5
    movups 32(%rsi), %xmm6
    movups 48(%rsi), %xmm7
    addq %rdx, %rsi
    leaq (%rdi,%rdx), %rcx
    leaq 64(%rdi), %rdx
6:  movups -16(%rsi), %xmm0
    movups -32(%rsi), %xmm1
    movups -48(%rsi), %xmm2
    movups -64(%rsi), %xmm3
    subq $64, %rsi
    movups %xmm0, -16(%rcx)
    movups %xmm1, -32(%rcx)
    movups %xmm2, -48(%rcx)
    movups %xmm3, -64(%rcx)
    subq $64, %rcx
    cmpq %rdx, %rcx
    ja 6b
    movups %xmm4, (%rax)
    movups %xmm5, 16(%rax)
    movups %xmm6, 32(%rax)
    movups %xmm7, 48(%rax)
    ret
10: cmpq $8, %rdx
    jb 11f
    movq (%rsi), %rcx
    movq -8(%rsi,%rdx), %r8
    movq %rcx, (%rdi)
    movq %r8, -8(%rdi,%rdx)
    ret
11: cmpq $4, %rdx
    jb 12f
    movl (%rsi), %ecx
    movl -4(%rsi,%rdx), %r8d
    movl %ecx, (%rdi)
    movl %r8d, -4(%rdi,%rdx)
    ret
12: testq %rdx, %rdx
    jz 13f
    movzbl (%rsi), %ecx
    movzbl -1(%rsi,%rdx), %r8d
    movq %rdx, %r10
    shrq $1, %r10
    movzbl (%rsi,%r10), %r9d
    movb %r9b, (%rdi,%r10)
    movb %r8b, -1(%rdi,%rdx)
    movb %cl, (%rdi)
13: ret

    .balign 32
    .global memset
memset:
    movq %rdi, %rax
    movzbl %sil, %ecx
    movabsq $0x0101010101010101, %r8
    imulq %r8, %rcx
    cmpq $16, %rdx
    jb 3f
    movq %rcx, %xmm0
    punpcklqdq %xmm0, %xmm0
    cmpq $64, %rdx
    jbe 2f
    leaq -64(%rdi,%rdx), %rdx
1:  movups %xmm0, (%rdi)
    movups %xmm0, 16(%rdi)
    movups %xmm0, 32(%rdi)
    movups %xmm0, 48(%rdi)
    addq $64, %rdi
    cmpq %rdx, %rdi
    jb 1b
    movups %xmm0, (%rdx)
    movups %xmm0, 16(%rdx)
    movups %xmm0, 32(%rdx)
    movups %xmm0, 48(%rdx)
    ret
2:  movups %xmm0, (%rdi)
    movups %xmm0, -16(%rdi,%rdx)
    cmpq $32, %rdx
    jbe 6f
    movups %xmm0, 16(%rdi)
    movups %xmm0, -32(%rdi,%rdx)
6:  ret
3:  cmpq $8, %rdx
    jb 4f
    movq %rcx, (%rdi)
    movq %rcx, -8(%rdi,%rdx)
    ret
4:  cmpq $4, %rdx
    jb 5f
    movl %ecx, (%rdi)
    movl %ecx, -4(%rdi,%rdx)
    ret
5:  testq %rdx, %rdx
    jz 6b
    movb %cl, (%rdi)
    movb %cl, -1(%rdi,%rdx)
    shrq $1, %rdx
    movb %cl, (%rdi,%rdx)
    ret

    .balign 32
    .global memcmp, bcmp
memcmp:
bcmp:
    xorl %ecx, %ecx
    subq $16, %rdx
    jb 2f
1:  movups (%rdi,%rcx), %xmm0
    movups (%rsi,%rcx), %xmm1
    pcmpeqb %xmm1, %xmm0
    pmovmskb %xmm0, %eax
    xorl $0xffff, %eax
    jnz 4f
    addq $16, %rcx
    cmpq %rdx, %rcx
    jbe 1b
2:  addq $16, %rdx
3:  cmpq %rdx, %rcx
    jae 5f
    movzbl (%rdi,%rcx), %eax
    movzbl (%rsi,%rcx), %r8d
    incq %rcx
    subl %r8d, %eax
    jz 3b
    ret
4:  bsfl %eax, %eax
    addq %rax, %rcx
    movzbl (%rdi,%rcx), %eax
    movzbl (%rsi,%rcx), %r8d
    subl %r8d, %eax
    ret
5:  xorl %eax, %eax
    ret

    .balign 16
    .global strlen
strlen:
    xorl %eax, %eax
1:  cmpb $0, (%rdi,%rax)
    je 2f
    incq %rax
    jmp 1b
2:  ret
    "#,
    options(att_syntax)
);

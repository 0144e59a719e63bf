//! The vDSO: code that programs call to read the time without a system call, and its values.
//!
//! The code and its values are copied from the kernel image into a page that programs map. The code
//! reaches the values relative to itself. The rate of the clock is final before the first program
//! starts. The offset of the wall clock may change, by one store, so no sequence number is needed.
//! No function uses the stack.

use super::clock;
use super::features::{self, Feature};
use core::arch::global_asm;

/// The clocks that the vDSO can read without a system call, one bit each at the clock's number:
/// `REALTIME`, `MONOTONIC`, `MONOTONIC_RAW`, the two `COARSE` ones, and `BOOTTIME`. For the others,
/// and for [`WALL_CLOCKS`] while the word at [`SLEWS`] is not 0, it makes the call.
const CLOCKS: u32 = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;
/// The clocks of [`CLOCKS`] that count from 1970, one bit each.
const WALL_CLOCKS: u32 = 1 << 0 | 1 << 5;

global_asm!(
    r#"
    .pushsection .rodata.vdso, "a", @progbits
    .balign 16
    .global vdso_start, vdso_end
    .global vdso_clock_gettime, vdso_gettimeofday, vdso_time, vdso_getcpu, vdso_clock_getres
vdso_start:
vdso_base_tsc:  .quad 0
vdso_base_ns:   .quad 0
vdso_scale:     .quad 0
vdso_epoch:     .quad 0
vdso_slews:     .quad 0
vdso_rdtscp:    .quad 0

    # rax = nanoseconds since the kernel's start; rdx is lost.
    .macro vdso_now
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, [rip + vdso_base_tsc]
    jae 90f
    # Another CPU's counter, slightly behind.
    xor eax, eax
90: mul qword ptr [rip + vdso_scale]
    shrd rax, rdx, 32
    add rax, [rip + vdso_base_ns]
    .endm

    .balign 16
vdso_clock_gettime:
    cmp edi, 31
    ja 5f
    mov eax, {clocks}
    bt eax, edi
    jnc 5f
    xor r8d, r8d
    mov eax, {wall}
    bt eax, edi
    jnc 4f
    cmp qword ptr [rip + vdso_slews], 0
    jne 5f
    mov r8, [rip + vdso_epoch]
4:  vdso_now
    add rax, r8
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rsi], rax
    mov [rsi + 8], rdx
    xor eax, eax
    ret
5:  mov eax, 228
    syscall
    ret

    .balign 16
vdso_gettimeofday:
    # The time zone is the kernel's to tell.
    test rsi, rsi
    jnz 3f
    cmp qword ptr [rip + vdso_slews], 0
    jne 3f
    test rdi, rdi
    jz 5f
    vdso_now
    add rax, [rip + vdso_epoch]
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rdi], rax
    mov rax, rdx
    xor edx, edx
    mov ecx, 1000
    div rcx
    mov [rdi + 8], rax
5:  xor eax, eax
    ret
3:  mov eax, 96
    syscall
    ret

    .balign 16
vdso_time:
    cmp qword ptr [rip + vdso_slews], 0
    jne 3f
    vdso_now
    add rax, [rip + vdso_epoch]
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    test rdi, rdi
    jz 5f
    mov [rdi], rax
5:  ret
3:  mov eax, 201
    syscall
    ret

    .balign 16
vdso_getcpu:
    cmp byte ptr [rip + vdso_rdtscp], 0
    je 3f
    rdtscp
    test rdi, rdi
    jz 5f
    mov eax, ecx
    and eax, 0xfff
    mov [rdi], eax
5:  test rsi, rsi
    jz 2f
    shr ecx, 12
    mov [rsi], ecx
2:  xor eax, eax
    ret
3:  mov eax, 309
    syscall
    ret

    .balign 16
vdso_clock_getres:
    cmp edi, 31
    ja 5f
    mov eax, {clocks}
    bt eax, edi
    jnc 5f
    test rsi, rsi
    jz 2f
    mov qword ptr [rsi], 0
    mov qword ptr [rsi + 8], 1
2:  xor eax, eax
    ret
5:  mov eax, 229
    syscall
    ret
vdso_end:
    .popsection
    "#,
    clocks = const CLOCKS,
    wall = const WALL_CLOCKS,
);

unsafe extern "C" {
    static vdso_start: u8;
    static vdso_end: u8;
    static vdso_clock_gettime: u8;
    static vdso_gettimeofday: u8;
    static vdso_time: u8;
    static vdso_getcpu: u8;
    static vdso_clock_getres: u8;
}

/// The size in bytes of the values before the code.
const VALUES: usize = 6 * size_of::<u64>();

/// The offset in [`code`] of the word that contains [`clock::realtime_offset`].
pub const EPOCH: usize = 3 * size_of::<u64>();
/// The offset in [`code`] of a word that is not 0 while the wall clock runs at another speed than
/// the monotonic clock ([`clock::wall_rate`]). The vDSO then makes a system call to read the wall
/// clock.
pub const SLEWS: usize = 4 * size_of::<u64>();

/// Returns the bytes of the vDSO in the kernel image: the values, which are zero there, and the
/// code. In a copy, the caller replaces the values by those of [`values`].
pub fn code() -> &'static [u8] {
    // SAFETY: the two names enclose bytes that never change.
    unsafe {
        let start = &raw const vdso_start;
        let bytes = (&raw const vdso_end).offset_from_unsigned(start);
        core::slice::from_raw_parts(start, bytes)
    }
}

/// Returns the name of each function, and its offset in [`code`].
pub fn functions() -> [(&'static str, usize); 5] {
    let all = [
        ("clock_gettime", &raw const vdso_clock_gettime),
        ("gettimeofday", &raw const vdso_gettimeofday),
        ("time", &raw const vdso_time),
        ("getcpu", &raw const vdso_getcpu),
        ("clock_getres", &raw const vdso_clock_getres),
    ];
    let start = &raw const vdso_start;
    all.map(|(name, at)| (name, at.addr() - start.addr()))
}

/// Returns the present values of the clock, with which a copy of [`code`] must begin. Call this
/// when the rate of the clock is final.
pub fn values() -> [u8; VALUES] {
    let [base_tsc, base_ns, scale] = clock::rate();
    let words = [
        base_tsc,
        base_ns,
        scale,
        clock::realtime_offset().0,
        u64::from(clock::wall_rate() != 0),
        features::has(Feature::Rdtscp).into(),
    ];
    let mut bytes = [0; VALUES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

//! Clearing and copying whole pages.
//!
//! Under TCG every instruction costs about the same, so 256 plain 16-byte stores beat a
//! `rep stosq` of 512 steps; on a real CPU with ERMS the microcode's `rep stosb` is the fastest.

use crate::arch::cpu::cpuid;
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether `rep stosb` and `rep movsb` are the fastest way.
static STRING_OPERATIONS: AtomicBool = AtomicBool::new(false);

/// CPUID leaf 0x4000_0000 of a TCG machine, in ebx, ecx, edx.
const TCG_SIGNATURE: [u32; 3] = [
    u32::from_le_bytes(*b"TCGT"),
    u32::from_le_bytes(*b"CGTC"),
    u32::from_le_bytes(*b"GTCG"),
];

// No stack use at all, so they are safe to call from anywhere; xmm0 to xmm7 are free in kernel
// mode (saved on entry, caller-saved by the ABI).
global_asm!(
    ".pushsection .text.ebb_pages, \"ax\", @progbits",
    ".balign 64",
    ".global ebb_clear_page_sse",
    "ebb_clear_page_sse:",
    "xorps xmm0, xmm0",
    ".set at_byte, 0",
    ".rept 256",
    "movaps [rdi + at_byte], xmm0",
    ".set at_byte, at_byte + 16",
    ".endr",
    "ret",
    ".balign 64",
    ".global ebb_copy_page_sse",
    "ebb_copy_page_sse:",
    ".set at_byte, 0",
    ".rept 64",
    "movaps xmm0, [rsi + at_byte]",
    "movaps xmm1, [rsi + at_byte + 16]",
    "movaps xmm2, [rsi + at_byte + 32]",
    "movaps xmm3, [rsi + at_byte + 48]",
    "movaps [rdi + at_byte], xmm0",
    "movaps [rdi + at_byte + 16], xmm1",
    "movaps [rdi + at_byte + 32], xmm2",
    "movaps [rdi + at_byte + 48], xmm3",
    ".set at_byte, at_byte + 64",
    ".endr",
    "ret",
    ".balign 16",
    ".global ebb_clear_page_string",
    "ebb_clear_page_string:",
    "xor eax, eax",
    "mov ecx, 4096",
    "rep stosb",
    "ret",
    ".balign 16",
    ".global ebb_copy_page_string",
    "ebb_copy_page_string:",
    "mov ecx, 4096",
    "rep movsb",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn ebb_clear_page_sse(page: *mut u8);
    fn ebb_clear_page_string(page: *mut u8);
    fn ebb_copy_page_sse(to: *mut u8, from: *const u8);
    fn ebb_copy_page_string(to: *mut u8, from: *const u8);
}

/// Chooses the way that is fastest on this machine.
pub(super) fn init() {
    let hypervisor = cpuid(0x4000_0000, 0);
    let tcg = [hypervisor.ebx, hypervisor.ecx, hypervisor.edx] == TCG_SIGNATURE;
    let erms = cpuid(0, 0).eax >= 7 && cpuid(7, 0).ebx & (1 << 9) != 0;
    // Relaxed: set once before other CPUs run; either value is correct at any time.
    STRING_OPERATIONS.store(erms && !tcg, Ordering::Relaxed);
}

/// Fills a page with zeros.
///
/// # Safety
/// `page` is page-aligned, and the page is writable and not looked at by Rust code meanwhile.
#[inline]
pub unsafe fn clear_page(page: *mut u8) {
    // SAFETY: the caller's promise is what both routines need.
    unsafe {
        if STRING_OPERATIONS.load(Ordering::Relaxed) {
            ebb_clear_page_string(page);
        } else {
            ebb_clear_page_sse(page);
        }
    }
}

/// Copies a page.
///
/// # Safety
/// Both are page-aligned and different; `from` is readable, `to` writable and not looked at by Rust
/// code meanwhile.
#[inline]
pub unsafe fn copy_page(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise is what both routines need.
    unsafe {
        if STRING_OPERATIONS.load(Ordering::Relaxed) {
            ebb_copy_page_string(to, from);
        } else {
            ebb_copy_page_sse(to, from);
        }
    }
}

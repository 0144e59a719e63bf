//! Clears and copies whole pages.
//!
//! Under TCG every instruction costs about the same. So 128 plain 32-byte stores (256 of 16 bytes
//! without AVX) beat a `rep stosq` of 512 steps, and the same holds for copying. On a real CPU with
//! ERMS the microcode's `rep stosb` is the fastest.

use super::helpers::HELPERS;
use crate::arch::cpu::{cpuid, read_cr4};
use crate::arch::percpu::WORK_OFFSET;
use crate::arch::phys_to_virt;
use crate::arch::spin::assert_no_spin_lock_held;
use crate::arch::traps::WORK_DUE;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use ebb_mm::Frame;

/// The kind of routine that clears and copies by 16-byte stores, which every x86-64 CPU has. A
/// value of [`WAY`].
const SSE: u8 = 0;
/// The kind of routine that clears and copies by 32-byte stores. A value of [`WAY`].
const AVX: u8 = 1;
/// The kind of routine that clears by `rep stosb` and copies by `rep movsb`. A value of [`WAY`].
const STRING: u8 = 2;

/// The fastest kind of routine on this machine: [`SSE`], [`AVX`] or [`STRING`].
static WAY: AtomicU8 = AtomicU8::new(SSE);

/// The routine of the kind in [`WAY`] that fills a page with zeros.
static CLEAR_PAGE: AtomicPtr<()> = AtomicPtr::new(ebb_clear_page_sse as *mut ());

/// The routine that fills an allocated page with zeros: that of `CLEAR_PAGE`, or one that checks
/// the page first.
static CLEAR_ALLOCATED: AtomicPtr<()> = AtomicPtr::new(ebb_clear_page_sse as *mut ());

/// The registers ebx, ecx and edx of CPUID leaf 0x4000_0000 on a TCG machine.
const TCG_SIGNATURE: [u32; 3] = [
    u32::from_le_bytes(*b"TCGT"),
    u32::from_le_bytes(*b"CGTC"),
    u32::from_le_bytes(*b"GTCG"),
];

// xmm0 to xmm7 are free in kernel mode (saved on entry, caller-saved by the ABI). The upper half of
// the ymm registers is the program's, which entries from user mode do not save: the AVX routines
// do. Copying loads eight registers before it stores them: of two pages 2^n frames apart, TCG's TLB
// has only one in its place while it is small, and each step from one to the other swaps them.
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
    ".global ebb_clear_page_avx",
    "ebb_clear_page_avx:",
    "sub rsp, 40",
    "vmovups [rsp], ymm0",
    "vxorps xmm0, xmm0, xmm0",
    ".set at_byte, 0",
    ".rept 128",
    "vmovaps [rdi + at_byte], ymm0",
    ".set at_byte, at_byte + 32",
    ".endr",
    "vmovups ymm0, [rsp]",
    "add rsp, 40",
    "ret",
    ".balign 64",
    ".global ebb_clear_pages_avx",
    "ebb_clear_pages_avx:",
    "sub rsp, 40",
    "vmovups [rsp], ymm0",
    "vxorps xmm0, xmm0, xmm0",
    "2:",
    ".set at_byte, 0",
    ".rept 128",
    "vmovaps [rdi + at_byte], ymm0",
    ".set at_byte, at_byte + 32",
    ".endr",
    // Handlers leave ymm0 as it is: entries save the lower half, and what changes the upper half
    // is the routines here, which save it.
    "sti",
    "nop",
    "cli",
    "add rdi, 4096",
    "dec rsi",
    "jz 3f",
    "mov rax, gs:[{work}]",
    "test dword ptr [rax], {due}",
    "jz 2b",
    "3:",
    "mov rax, rsi",
    "vmovups ymm0, [rsp]",
    "add rsp, 40",
    "ret",
    ".balign 64",
    ".global ebb_copy_page_sse",
    "ebb_copy_page_sse:",
    ".set at_byte, 0",
    ".rept 32",
    ".irp register, 0, 1, 2, 3, 4, 5, 6, 7",
    "movaps xmm\\register, [rsi + at_byte + 16 * \\register]",
    ".endr",
    ".irp register, 0, 1, 2, 3, 4, 5, 6, 7",
    "movaps [rdi + at_byte + 16 * \\register], xmm\\register",
    ".endr",
    ".set at_byte, at_byte + 128",
    ".endr",
    "ret",
    ".balign 64",
    ".global ebb_copy_page_avx",
    "ebb_copy_page_avx:",
    "sub rsp, 264",
    ".irp register, 0, 1, 2, 3, 4, 5, 6, 7",
    "vmovups [rsp + 32 * \\register], ymm\\register",
    ".endr",
    ".set at_byte, 0",
    ".rept 16",
    ".irp register, 0, 1, 2, 3, 4, 5, 6, 7",
    "vmovaps ymm\\register, [rsi + at_byte + 32 * \\register]",
    ".endr",
    ".irp register, 0, 1, 2, 3, 4, 5, 6, 7",
    "vmovaps [rdi + at_byte + 32 * \\register], ymm\\register",
    ".endr",
    ".set at_byte, at_byte + 256",
    ".endr",
    ".irp register, 0, 1, 2, 3, 4, 5, 6, 7",
    "vmovups ymm\\register, [rsp + 32 * \\register]",
    ".endr",
    "add rsp, 264",
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
    work = const WORK_OFFSET,
    due = const WORK_DUE,
);

unsafe extern "C" {
    fn ebb_clear_page_sse(page: *mut u8);
    fn ebb_clear_page_avx(page: *mut u8);
    /// Fills the `pages` pages from `page` on with zeros, one after the other. Returns the number
    /// of pages that are left: 0, or more if it stops because work of the current thread is due.
    fn ebb_clear_pages_avx(page: *mut u8, pages: u64) -> u64;
    fn ebb_clear_page_string(page: *mut u8);
    fn ebb_copy_page_sse(to: *mut u8, from: *const u8);
    fn ebb_copy_page_avx(to: *mut u8, from: *const u8);
    fn ebb_copy_page_string(to: *mut u8, from: *const u8);
}

/// Chooses the routines that are fastest on this machine. Called once, before other CPUs run.
pub(super) fn init() {
    let hypervisor = cpuid(0x4000_0000, 0);
    let tcg = [hypervisor.ebx, hypervisor.ecx, hypervisor.edx] == TCG_SIGNATURE;
    let erms = cpuid(0, 0).eax >= 7 && cpuid(7, 0).ebx & (1 << 9) != 0;
    let way = match (erms && !tcg, has_avx()) {
        (true, _) => STRING,
        (false, true) => AVX,
        (false, false) => SSE,
    };
    let clear = match way {
        AVX => ebb_clear_page_avx,
        STRING => ebb_clear_page_string,
        _ => ebb_clear_page_sse,
    };
    // Relaxed (both): set once before other CPUs run; each way is correct at any time.
    WAY.store(way, Ordering::Relaxed);
    CLEAR_PAGE.store(clear as *mut (), Ordering::Relaxed);
    CLEAR_ALLOCATED.store(clear as *mut (), Ordering::Relaxed);
}

/// Makes `routine` the routine that fills allocated pages with zeros. It must be sound under the
/// conditions of [`clear_page`].
pub(super) fn set_clear_allocated(routine: unsafe extern "C" fn(*mut u8)) {
    // Relaxed: each routine is correct at any time.
    CLEAR_ALLOCATED.store(routine as *mut (), Ordering::Relaxed);
}

/// Returns whether the CPU has AVX and AVX is enabled.
fn has_avx() -> bool {
    const CPUID_AVX: u32 = 1 << 28;
    const CR4_OSXSAVE: u64 = 1 << 18;
    const XCR0_SSE_AVX: u32 = 0b110;
    if read_cr4() & CR4_OSXSAVE == 0 || cpuid(1, 0).ecx & CPUID_AVX == 0 {
        return false;
    }
    let enabled: u32;
    // SAFETY: CR4.OSXSAVE is set, so the instruction exists; it reads a register.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") enabled, out("edx") _,
             options(nomem, nostack, preserves_flags));
    }
    enabled & XCR0_SSE_AVX == XCR0_SSE_AVX
}

/// Fills the page at `page` with zeros.
///
/// # Safety
/// `page` is page-aligned, and the page is writable and not read by other Rust code during the
/// call.
#[inline]
pub unsafe fn clear_page(page: *mut u8) {
    let routine = CLEAR_PAGE.load(Ordering::Relaxed);
    // SAFETY: every value of `CLEAR_PAGE` is a function of this type.
    let clear = unsafe { core::mem::transmute::<*mut (), unsafe extern "C" fn(*mut u8)>(routine) };
    // SAFETY: the caller's promise is what each of the routines needs.
    unsafe { clear(page) };
}

/// Fills the page at `page`, which was just allocated, with zeros. If checks of poisoned pages are
/// on, first checks that no write has changed the page since it was freed.
///
/// # Safety
/// `page` is page-aligned, and the page is writable and not read by other Rust code during the
/// call.
#[inline]
pub(super) unsafe fn clear_allocated(page: *mut u8) {
    let routine = CLEAR_ALLOCATED.load(Ordering::Relaxed);
    // SAFETY: every value of `CLEAR_ALLOCATED` is a function of this type.
    let clear = unsafe { core::mem::transmute::<*mut (), unsafe extern "C" fn(*mut u8)>(routine) };
    // SAFETY: the caller's promise is what each of the routines needs.
    unsafe { clear(page) };
}

/// Fills `frames` adjacent frames from `first` on with zeros. Serves interrupts between two frames,
/// and lets other threads run if they are due. So the caller holds no spin lock and no per-CPU
/// data. Under QEMU's translator, clearing a page that held code takes milliseconds, and 2 MiB of
/// such pages take seconds.
///
/// # Safety
/// The frames are writable and not read by other Rust code during the call.
pub(super) unsafe fn clear_frames(first: Frame, frames: u64) {
    let mut done = 0;
    while done < frames {
        let page = phys_to_virt(first.offset(done).address());
        let left = frames - done;
        // SAFETY: the caller's promise is what the routines need.
        done += unsafe {
            if WAY.load(Ordering::Relaxed) == AVX && (HELPERS.has_thread)() {
                assert_no_spin_lock_held();
                left - ebb_clear_pages_avx(page, left)
            } else {
                clear_page(page);
                1
            }
        };
        (HELPERS.give_way)();
    }
}

/// Copies the page `from` to the page `to`.
///
/// # Safety
/// Both pages are page-aligned, and they are different. `from` is readable. `to` is writable and
/// not read by other Rust code during the call.
#[inline]
pub unsafe fn copy_page(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise is what both routines need.
    unsafe {
        match WAY.load(Ordering::Relaxed) {
            AVX => ebb_copy_page_avx(to, from),
            STRING => ebb_copy_page_string(to, from),
            _ => ebb_copy_page_sse(to, from),
        }
    }
}

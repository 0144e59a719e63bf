//! Memory accesses that may fault. They return the content of a page, or report that it is missing.
//!
//! Three loops in assembly are the only code that touches memory of the storm. A fault in one of
//! them ends the loop, and the caller sees how many words were done. A fault anywhere else is a
//! finding.

use crate::control;
use std::arch::global_asm;
use std::ffi::{c_int, c_void};

global_asm!(
    ".globl vmstorm_copy, vmstorm_copied, vmstorm_fill, vmstorm_filled",
    ".globl vmstorm_compare, vmstorm_compared",
    // (to, from, words) -> words done
    "vmstorm_copy:",
    "xor eax, eax",
    "2:",
    "cmp rax, rdx",
    "je vmstorm_copied",
    "mov rcx, [rsi + rax * 8]",
    "mov [rdi + rax * 8], rcx",
    "inc rax",
    "jmp 2b",
    "vmstorm_copied:",
    "ret",
    // (to, first, words) -> words done; each word is one more than the one before
    "vmstorm_fill:",
    "xor eax, eax",
    "2:",
    "cmp rax, rdx",
    "je vmstorm_filled",
    "lea rcx, [rsi + rax]",
    "mov [rdi + rax * 8], rcx",
    "inc rax",
    "jmp 2b",
    "vmstorm_filled:",
    "ret",
    // (a, b, words) -> equal words at the beginning
    "vmstorm_compare:",
    "xor eax, eax",
    "2:",
    "cmp rax, rdx",
    "je vmstorm_compared",
    "mov rcx, [rsi + rax * 8]",
    "cmp rcx, [rdi + rax * 8]",
    "jne vmstorm_compared",
    "inc rax",
    "jmp 2b",
    "vmstorm_compared:",
    "ret",
);

unsafe extern "C" {
    fn vmstorm_copy(to: u64, from: u64, words: usize) -> usize;
    fn vmstorm_copied();
    fn vmstorm_fill(to: u64, first: u64, words: usize) -> usize;
    fn vmstorm_filled();
    fn vmstorm_compare(a: u64, b: u64, words: usize) -> usize;
    fn vmstorm_compared();
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
}

const SIGBUS: c_int = 7;
const SIGSEGV: c_int = 11;
const SA_SIGINFO: c_int = 4;
const SA_NODEFER: c_int = 0x4000_0000;
/// The index of the instruction pointer in `ucontext_t`, in words.
const CONTEXT_RIP: usize = 21;
/// The index of the address in `siginfo_t`, in words.
const INFO_ADDRESS: usize = 2;

/// glibc's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: extern "C" fn(c_int, *const u64, *mut u64),
    mask: [u64; 16],
    flags: c_int,
    restorer: *const c_void,
}

extern "C" fn faulted(signal: c_int, info: *const u64, context: *mut u64) {
    // SAFETY: the kernel passes both pointers, with the layout of the ABI.
    let (address, rip) = unsafe { (*info.add(INFO_ADDRESS), &mut *context.add(CONTEXT_RIP)) };
    let loops = [
        (
            vmstorm_copy as *const () as u64,
            vmstorm_copied as *const () as u64,
        ),
        (
            vmstorm_fill as *const () as u64,
            vmstorm_filled as *const () as u64,
        ),
        (
            vmstorm_compare as *const () as u64,
            vmstorm_compared as *const () as u64,
        ),
    ];
    for (begin, end) in loops {
        if (begin..end).contains(rip) {
            *rip = end;
            return;
        }
    }
    control::fail(&format!(
        "signal {signal} at instruction {rip:#x} for address {address:#x}: memory of the program \
         itself is gone"
    ));
}

/// Installs a handler that makes faults of the three loops end them.
pub fn install() {
    let action = Action {
        handler: faulted,
        mask: [0; 16],
        flags: SA_SIGINFO | SA_NODEFER,
        restorer: std::ptr::null(),
    };
    for signal in [SIGBUS, SIGSEGV] {
        // SAFETY: the structure is glibc's. The handler touches no other state.
        let result = unsafe { sigaction(signal, &action, std::ptr::null_mut()) };
        assert_eq!(result, 0, "sigaction of signal {signal}");
    }
}

/// Copies words from memory that may be missing. Returns the number of copied words.
pub fn read(from: u64, to: &mut [u64]) -> usize {
    // SAFETY: `to` is a valid slice. A fault at `from` ends the loop.
    unsafe { vmstorm_copy(to.as_mut_ptr() as u64, from, to.len()) }
}

/// Stores `first`, `first` + 1 and so on to memory that may be missing. Returns the number of
/// stored words.
pub fn fill(to: u64, first: u64, words: usize) -> usize {
    // SAFETY: `to` is the storm's own memory, and no reference points into it.
    unsafe { vmstorm_fill(to, first, words) }
}

/// Compares memory that may be missing with words. Returns the number of equal words at the
/// beginning.
pub fn compare(at: u64, with: &[u64]) -> usize {
    // SAFETY: both are only read. A fault at `at` ends the loop.
    unsafe { vmstorm_compare(at, with.as_ptr() as u64, with.len()) }
}

/// Returns one word of memory, or `None` if it is missing.
pub fn word(from: u64) -> Option<u64> {
    let mut word = [0];
    (read(from, &mut word) == 1).then_some(word[0])
}

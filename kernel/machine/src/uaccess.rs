//! Access to the memory of the current program.
//!
//! The kernel does not trust the addresses that a program passes. The routines check them against
//! the user's half, and fail with `EFAULT` if a page cannot be accessed. They may serve page faults
//! and so may block. Never call them with a spin lock held, except the `nofault` ones.

use crate::arch::USER_END;
use crate::memory::{FrameRef, PAGE_SIZE};
use crate::sync;
use alloc::vec::Vec;
use core::arch::global_asm;
use core::marker::PhantomData;
use logic::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

// The only kernel code that touches user addresses. Each instruction that may fault has a label;
// `fixup` knows where to go on from there. Results: bytes not copied, or a word with bit 32 set for
// a fault. They are called, never inlined, and use no stack: no red zone is live around them.
global_asm!(
    ".pushsection .text.ebb_user, \"ax\", @progbits",
    // rdi: to, rsi: from, rdx: bytes
    ".balign 16",
    ".global ebb_user_copy, ebb_user_copy_words, ebb_user_copy_bytes, ebb_user_copy_rest",
    ".global ebb_user_copy_end",
    "ebb_user_copy:",
    crate::stac_asm!(),
    "mov rcx, rdx",
    "shr rcx, 3",
    "ebb_user_copy_words:",
    "rep movsq",
    "mov ecx, edx",
    "and ecx, 7",
    "ebb_user_copy_bytes:",
    "rep movsb",
    "ebb_user_copy_end:",
    "mov rax, rcx",
    crate::clac_asm!(),
    "ret",
    // The words ended at a bad page: byte by byte up to it.
    "ebb_user_copy_rest:",
    "shl rcx, 3",
    "and edx, 7",
    "add rcx, rdx",
    "jmp ebb_user_copy_bytes",
    // rdi: first word of 16 bits to write, rsi: first one to read, rdx: number (not 0),
    // rcx: bytes from one word to the next
    ".balign 16",
    ".global ebb_user_spread, ebb_user_spread_at, ebb_user_spread_end",
    "ebb_user_spread:",
    crate::stac_asm!(),
    "2:",
    "movzx eax, word ptr [rsi]",
    "ebb_user_spread_at:",
    "mov word ptr [rdi], ax",
    "add rsi, rcx",
    "add rdi, rcx",
    "dec rdx",
    "jnz 2b",
    "ebb_user_spread_end:",
    "mov rax, rdx",
    crate::clac_asm!(),
    "ret",
    // rdi: to, rdx: bytes
    ".balign 16",
    ".global ebb_user_zero, ebb_user_zero_words, ebb_user_zero_bytes, ebb_user_zero_rest",
    ".global ebb_user_zero_end",
    "ebb_user_zero:",
    crate::stac_asm!(),
    "xor eax, eax",
    "mov rcx, rdx",
    "shr rcx, 3",
    "ebb_user_zero_words:",
    "rep stosq",
    "mov ecx, edx",
    "and ecx, 7",
    "ebb_user_zero_bytes:",
    "rep stosb",
    "ebb_user_zero_end:",
    "mov rax, rcx",
    crate::clac_asm!(),
    "ret",
    "ebb_user_zero_rest:",
    "shl rcx, 3",
    "and edx, 7",
    "add rcx, rdx",
    "jmp ebb_user_zero_bytes",
    // rdi: word
    ".balign 16",
    ".global ebb_user_load, ebb_user_load_at, ebb_user_load_nofault, ebb_user_load_nofault_at",
    "ebb_user_load:",
    crate::stac_asm!(),
    "ebb_user_load_at:",
    "mov eax, dword ptr [rdi]",
    crate::clac_asm!(),
    "ret",
    "ebb_user_load_nofault:",
    crate::stac_asm!(),
    "ebb_user_load_nofault_at:",
    "mov eax, dword ptr [rdi]",
    crate::clac_asm!(),
    "ret",
    // rdi: word, esi: expected, edx: new
    ".balign 16",
    ".global ebb_user_exchange, ebb_user_exchange_at",
    ".global ebb_user_exchange_nofault, ebb_user_exchange_nofault_at, ebb_user_failed",
    "ebb_user_exchange:",
    crate::stac_asm!(),
    "mov eax, esi",
    "ebb_user_exchange_at:",
    "lock cmpxchg dword ptr [rdi], edx",
    "mov eax, eax",
    crate::clac_asm!(),
    "ret",
    "ebb_user_exchange_nofault:",
    crate::stac_asm!(),
    "mov eax, esi",
    "ebb_user_exchange_nofault_at:",
    "lock cmpxchg dword ptr [rdi], edx",
    "mov eax, eax",
    crate::clac_asm!(),
    "ret",
    "ebb_user_failed:",
    "mov rax, -1",
    crate::clac_asm!(),
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn ebb_user_copy(to: u64, from: u64, len: usize) -> usize;
    fn ebb_user_spread(to: u64, from: u64, count: usize, distance: usize) -> usize;
    fn ebb_user_zero(to: u64, unused: u64, len: usize) -> usize;
    fn ebb_user_load(word: u64) -> u64;
    fn ebb_user_exchange(word: u64, expected: u32, new: u32) -> u64;
    fn ebb_user_exchange_nofault(word: u64, expected: u32, new: u32) -> u64;
    static ebb_user_copy_words: u8;
    static ebb_user_copy_bytes: u8;
    static ebb_user_copy_rest: u8;
    static ebb_user_copy_end: u8;
    static ebb_user_spread_at: u8;
    static ebb_user_spread_end: u8;
    static ebb_user_zero_words: u8;
    static ebb_user_zero_bytes: u8;
    static ebb_user_zero_rest: u8;
    static ebb_user_zero_end: u8;
    static ebb_user_load_at: u8;
    static ebb_user_load_nofault_at: u8;
    static ebb_user_exchange_at: u8;
    static ebb_user_exchange_nofault_at: u8;
    static ebb_user_failed: u8;
}

/// The reaction to a page fault at an instruction that accesses user memory.
#[derive(Debug)]
pub enum Fixup {
    /// Serve the fault. If that fails, continue at this address.
    Serve(u64),
    /// Continue at this address.
    Fail(u64),
}

impl Fixup {
    /// Returns the address to continue at if the fault is not served.
    pub fn address(&self) -> u64 {
        match *self {
            Self::Serve(at) | Self::Fail(at) => at,
        }
    }
}

/// Returns the reaction to a page fault at `rip`. Returns `None` if no instruction there accesses
/// user memory.
pub fn fixup(rip: u64) -> Option<Fixup> {
    macro_rules! at {
        ($symbol:ident) => {
            // Only the address of the label is taken.
            (&raw const $symbol) as u64
        };
    }
    let serve = [
        (at!(ebb_user_copy_words), at!(ebb_user_copy_rest)),
        (at!(ebb_user_copy_bytes), at!(ebb_user_copy_end)),
        (at!(ebb_user_spread_at), at!(ebb_user_spread_end)),
        (at!(ebb_user_zero_words), at!(ebb_user_zero_rest)),
        (at!(ebb_user_zero_bytes), at!(ebb_user_zero_end)),
        (at!(ebb_user_load_at), at!(ebb_user_failed)),
        (at!(ebb_user_exchange_at), at!(ebb_user_failed)),
    ];
    if let Some(&(_, otherwise)) = serve.iter().find(|(label, _)| *label == rip) {
        return Some(Fixup::Serve(otherwise));
    }
    [
        at!(ebb_user_load_nofault_at),
        at!(ebb_user_exchange_nofault_at),
    ]
    .contains(&rip)
    .then_some(Fixup::Fail(at!(ebb_user_failed)))
}

/// Returns whether all of the `len` bytes from `address` on are in the user's half.
#[inline]
pub fn is_user(address: u64, len: usize) -> bool {
    address
        .checked_add(len as u64)
        .is_some_and(|end| end <= USER_END)
}

/// Returns how many of `len` bytes from `address` on lie in the user's half.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "at most `len`")]
fn clamp(address: u64, len: usize) -> usize {
    USER_END.saturating_sub(address).min(len as u64) as usize
}

/// Fills `to` with bytes of the program's memory, from the address `from` on.
///
/// # Errors
/// Fails with `EFAULT` if a byte cannot be read. Some bytes of `to` may have been written then.
#[inline]
pub fn copy_in(to: &mut [u8], from: u64) -> Result<(), Errno> {
    // A slice is not longer than half of the address space, so the sum below is the test.
    if is_user(from, to.len()) && copy_in_partial(to, from) == to.len() {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Copies all bytes of `from` to the program's memory, to the address `to` and those behind it.
///
/// # Errors
/// Fails with `EFAULT` if a byte cannot be written. Some bytes may have been written then.
#[inline]
pub fn copy_out(to: u64, from: &[u8]) -> Result<(), Errno> {
    if is_user(to, from.len()) && copy_out_partial(to, from) == from.len() {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Copies one field of 16 bits of each record in `from` to the program's records at the address
/// `to`. The field begins at byte `at` of a record. The other bytes of the program's records stay
/// as they are.
///
/// # Errors
/// Fails with `EFAULT` if a field cannot be written. Some fields may have been written then.
///
/// # Panics
/// If a record does not contain the field.
pub fn copy_out_fields<T: IntoBytes + Immutable>(
    to: u64,
    from: &[T],
    at: usize,
) -> Result<(), Errno> {
    assert!(at + size_of::<u16>() <= size_of::<T>());
    sync::assert_no_spin_lock_held();
    if from.is_empty() {
        return Ok(());
    }
    if !is_user(to, size_of_val(from)) {
        return Err(Errno::EFAULT);
    }
    let field = from.as_ptr() as u64 + at as u64;
    // SAFETY: the fields that are read lie in the slice, by the assertion. Those that are written
    // are in the user's half, where the routine may fault.
    let left = unsafe { ebb_user_spread(to + at as u64, field, from.len(), size_of::<T>()) };
    if left == 0 {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Copies bytes of the program's memory from the address `from` on to `to`. Ends when `to` is full
/// or at a byte that cannot be read. Returns the number of bytes copied.
#[inline]
pub fn copy_in_partial(to: &mut [u8], from: u64) -> usize {
    // SAFETY: the slice is writable and ours.
    unsafe { copy_in_raw(to.as_mut_ptr(), from, to.len()) }
}

/// Copies the bytes of `from` to the program's memory at the address `to`. Ends at the end of
/// `from` or at a byte that cannot be written. Returns the number of bytes copied.
#[inline]
pub fn copy_out_partial(to: u64, from: &[u8]) -> usize {
    // SAFETY: the slice is readable.
    unsafe { copy_out_raw(to, from.as_ptr(), from.len()) }
}

/// Copies `len` bytes of `frame`, from its byte `offset` on, to the program's memory at the address
/// `to`. Ends at a byte that cannot be written. Returns the number of bytes copied.
///
/// # Panics
/// If the bytes do not lie within the frame.
#[inline]
pub fn copy_out_of_frame(to: u64, frame: &FrameRef, offset: usize, len: usize) -> usize {
    assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset);
    // SAFETY: the range is inside the frame, which lives as long as `frame`.
    unsafe { copy_out_raw(to, frame.as_ptr().add(offset), len) }
}

/// Copies `len` bytes of the program's memory from the address `from` on to `frame`, to its byte
/// `offset` and those behind it. Ends at a byte that cannot be read. Returns the number of bytes
/// copied.
///
/// # Panics
/// If the bytes do not lie within the frame.
#[inline]
pub fn copy_into_frame(frame: &FrameRef, offset: usize, from: u64, len: usize) -> usize {
    assert!(offset <= PAGE_SIZE && len <= PAGE_SIZE - offset);
    // SAFETY: the range is inside the frame, which lives as long as `frame`. No Rust reference to
    // the frame's bytes ever exists.
    unsafe { copy_in_raw(frame.as_ptr().add(offset), from, len) }
}

/// Copies `len` bytes of kernel memory from `from` on to the program's memory at the address `to`.
/// Ends at a byte that cannot be written. Returns the number of bytes copied.
///
/// # Safety
/// `from` is readable for `len` bytes.
#[inline]
unsafe fn copy_out_raw(to: u64, from: *const u8, len: usize) -> usize {
    sync::assert_no_spin_lock_held();
    let len = clamp(to, len);
    // SAFETY: the kernel side by the caller's promise; the user side is in the user's half, where
    // the routine may fault.
    len - unsafe { ebb_user_copy(to, from as u64, len) }
}

/// Copies `len` bytes of the program's memory from the address `from` on to kernel memory at `to`.
/// Ends at a byte that cannot be read. Returns the number of bytes copied.
///
/// # Safety
/// `to` is writable for `len` bytes, and no other Rust code reads it during the call.
#[inline]
unsafe fn copy_in_raw(to: *mut u8, from: u64, len: usize) -> usize {
    sync::assert_no_spin_lock_held();
    let len = clamp(from, len);
    // SAFETY: as in `copy_out_raw`.
    len - unsafe { ebb_user_copy(to as u64, from, len) }
}

/// Zeroes `len` bytes of the program's memory from the address `to` on.
///
/// # Errors
/// Fails with `EFAULT` if a byte cannot be written. Some bytes may have been written then.
pub fn zero(to: u64, len: usize) -> Result<(), Errno> {
    sync::assert_no_spin_lock_held();
    // SAFETY: the range is in the user's half, where the routine may fault.
    if is_user(to, len) && unsafe { ebb_user_zero(to, 0, len) } == 0 {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Reads bytes of the program's memory up to a NUL, which is not part of the result.
///
/// # Errors
/// Fails with `ENAMETOOLONG` if there is no NUL in the first `max` bytes, with `EFAULT`, and with
/// `ENOMEM`.
pub fn read_cstr(from: u64, max: usize) -> Result<Vec<u8>, Errno> {
    const CHUNK: usize = 128;
    let mut text = Vec::new();
    let mut at = from;
    while text.len() < max {
        // Not across the end of a page: the next one need not be there.
        let in_page = 4096 - (at % 4096) as usize;
        let mut chunk = [0; CHUNK];
        let want = CHUNK.min(in_page).min(max - text.len());
        let got = copy_in_partial(&mut chunk[..want], at);
        let bytes = &chunk[..got];
        let end = bytes.iter().position(|&b| b == 0);
        let part = &bytes[..end.unwrap_or(got)];
        text.try_reserve(part.len()).map_err(|_| Errno::ENOMEM)?;
        text.extend_from_slice(part);
        if end.is_some() {
            return Ok(text);
        }
        if got < want {
            return Err(Errno::EFAULT);
        }
        at += got as u64;
    }
    Err(Errno::ENAMETOOLONG)
}

/// Returns the word in `result`, the value that an assembly routine has returned. Fails with
/// `EFAULT` if the routine met a fault.
#[expect(clippy::cast_possible_truncation, reason = "the low half is the word")]
fn word(result: u64) -> Result<u32, Errno> {
    if result >> 32 == 0 {
        Ok(result as u32)
    } else {
        Err(Errno::EFAULT)
    }
}

fn check_word(address: u64) -> Result<(), Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    if is_user(address, 4) {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Atomic operations on words that programs share with the kernel.
pub mod atomic {
    use super::{check_word, ebb_user_exchange, ebb_user_exchange_nofault, ebb_user_load, word};
    use crate::sync;
    use logic::errno::Errno;

    /// Loads the aligned 32-bit word of the program at `address` in one access.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned address, and with `EFAULT` if the word cannot be read.
    pub fn load_u32(address: u64) -> Result<u32, Errno> {
        check_word(address)?;
        sync::assert_no_spin_lock_held();
        // SAFETY: an aligned word of the user's half, where the routine may fault.
        word(unsafe { ebb_user_load(address) })
    }

    /// Stores `new` in the program's 32-bit word at `address` if the word is `expected`, in one
    /// atomic access. Returns the value that the word had before.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned address, and with `EFAULT` if the word cannot be
    /// written.
    pub fn compare_exchange_u32(address: u64, expected: u32, new: u32) -> Result<u32, Errno> {
        check_word(address)?;
        sync::assert_no_spin_lock_held();
        // SAFETY: as in `load_u32`.
        word(unsafe { ebb_user_exchange(address, expected, new) })
    }

    /// Compares and stores as [`compare_exchange_u32`] does, and returns the word's value before.
    /// Serves no page fault, so a spin lock may be held.
    ///
    /// # Errors
    /// Fails with `EINVAL` for an unaligned address. Fails with `EFAULT` if the word cannot be
    /// written before a fault has mapped its page.
    pub fn compare_exchange_u32_nofault(
        address: u64,
        expected: u32,
        new: u32,
    ) -> Result<u32, Errno> {
        check_word(address)?;
        // SAFETY: an aligned word of the user's half; no fault is served.
        word(unsafe { ebb_user_exchange_nofault(address, expected, new) })
    }
}

/// The address of a value in the program's memory.
#[derive(Debug)]
pub struct UserPtr<T> {
    address: u64,
    value: PhantomData<T>,
}

impl<T> Copy for UserPtr<T> {}
impl<T> Clone for UserPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> UserPtr<T> {
    /// Returns a pointer to a value at `address`. The address is checked at each access.
    pub const fn new(address: u64) -> Self {
        Self {
            address,
            value: PhantomData,
        }
    }
}

impl<T: FromBytes + IntoBytes> UserPtr<T> {
    /// Reads the value.
    ///
    /// # Errors
    /// Fails with `EFAULT`.
    pub fn read(self) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        copy_in(value.as_mut_bytes(), self.address)?;
        Ok(value)
    }
}

impl<T: IntoBytes + Immutable> UserPtr<T> {
    /// Writes the value.
    ///
    /// # Errors
    /// Fails with `EFAULT`.
    pub fn write(self, value: &T) -> Result<(), Errno> {
        copy_out(self.address, value.as_bytes())
    }
}

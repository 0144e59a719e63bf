//! The arguments of a system call.

use machine::arch::UserFrame;

/// The six arguments of a system call, as the registers hold them.
#[derive(Copy, Clone, Debug)]
pub struct Args(pub [u64; 6]);

impl Args {
    /// Returns the arguments of the call whose registers `frame` holds.
    pub(crate) fn of(frame: &UserFrame) -> Self {
        Self([
            frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9,
        ])
    }

    /// Returns argument `i` as a C `int`. Linux uses only the low 32 bits.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the upper half is not part of an int"
    )]
    pub fn int(&self, i: usize) -> i32 {
        self.0[i] as i32
    }

    /// Returns argument `i` as a C `unsigned int`.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the upper half is not part of an int"
    )]
    pub fn uint(&self, i: usize) -> u32 {
        self.0[i] as u32
    }

    /// Returns argument `i` as a C `long`.
    #[inline]
    pub fn long(&self, i: usize) -> i64 {
        self.0[i].cast_signed()
    }

    /// Returns argument `i` as a `size_t`.
    #[inline]
    pub fn size(&self, i: usize) -> usize {
        value(self.0[i])
    }

    /// Returns argument `i` as a user address.
    #[inline]
    pub fn addr(&self, i: usize) -> u64 {
        self.0[i]
    }
}

/// Returns `word`, the result of a system call or a size, as a `usize`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "both have 64 bits here")]
pub(crate) fn value(word: u64) -> usize {
    const { assert!(usize::BITS == u64::BITS) };
    word as usize
}

//! System calls: the entry, the arguments and the table.
//!
//! A handler takes [`Args`] and gives a [`SysResult`]; what comes from the program is an allegation
//! and checked where it is used. Calls that change the user registers take the frame too.

mod at;
pub mod dir;
pub mod fd;
pub mod file;
pub mod futex;
pub mod info;
pub mod lock;
pub mod memory;
pub mod pipe;
pub mod poll;
pub mod process;
mod record;
pub mod sched;
pub mod signal;
pub mod stat;
mod table;
pub mod time;
pub(crate) mod trace;
mod transfer;
mod unknown;

use crate::arch::{UserFrame, clock};
use crate::errno::{Errno, SysResult, to_register};
use crate::sched as scheduler;
use crate::task::work;
use core::sync::atomic::Ordering;

/// The six arguments as the registers hold them.
#[derive(Copy, Clone, Debug)]
pub struct Args(pub [u64; 6]);

impl Args {
    fn of(frame: &UserFrame) -> Self {
        Self([
            frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9,
        ])
    }

    /// Argument `i` as a C `int`: Linux looks at the low 32 bits alone.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the upper half is not part of an int"
    )]
    pub fn int(&self, i: usize) -> i32 {
        self.0[i] as i32
    }

    /// Argument `i` as a C `unsigned int`.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the upper half is not part of an int"
    )]
    pub fn uint(&self, i: usize) -> u32 {
        self.0[i] as u32
    }

    /// Argument `i` as a C `long`.
    #[inline]
    pub fn long(&self, i: usize) -> i64 {
        self.0[i].cast_signed()
    }

    /// Argument `i` as a `size_t`.
    #[inline]
    pub fn size(&self, i: usize) -> usize {
        value(self.0[i])
    }

    /// Argument `i` as a user address.
    #[inline]
    pub fn addr(&self, i: usize) -> u64 {
        self.0[i]
    }
}

/// A 64-bit word as the result of a call, or as a size.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "both have 64 bits here")]
pub(crate) fn value(word: u64) -> usize {
    const { assert!(usize::BITS == u64::BITS) };
    word as usize
}

/// What the entry code calls for a `syscall` instruction. The number is in `orig_rax`; the result
/// goes to `rax`.
pub fn entry(frame: &mut UserFrame) {
    let args = Args::of(frame);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "Linux looks at the low 32 bits alone"
    )]
    let number = frame.orig_rax as u32;
    let task = scheduler::current();
    task.account.enter_call(clock::now());
    trace::call(number, &args);
    let result = table::dispatch(number, &args, frame);
    trace::result(number, result);
    frame.rax = to_register(result);
    if result.is_err() {
        failed(number, result);
    } else if task.work.load(Ordering::Relaxed) & work::RESTORE_MASK != 0 {
        signal::finish(result);
    }
    task.account.leave_call(clock::now());
}

#[cold]
fn failed(number: u32, result: SysResult) {
    if result == Err(Errno::ENOSYS) {
        unknown::name_once(number);
    }
    signal::finish(result);
}

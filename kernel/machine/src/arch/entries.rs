//! The functions of the upper half that the machine calls.

use super::boot_info::BootInfo;
use super::frame::UserFrame;

/// The functions of the upper half that the machine calls, besides [`Syscall`], [`UserStore`],
/// [`UserFault`] and [`ExitToUser`]. The kernel defines one static of this type, which the linker
/// binds as [`ENTRIES`], so a call costs no more than any other. All run with interrupts off.
#[derive(Debug)]
pub struct Entries {
    /// Runs on the first CPU, on its boot stack, with final page tables and the console ready.
    pub main: fn(&'static BootInfo) -> !,
    /// Runs on every other CPU, on the stack that it was given.
    pub start_cpu: fn() -> !,
    /// Returns the address of the data that `memory` has for the CPU with the given number. Called
    /// once for each CPU; for the first, before the allocator exists.
    pub memory_own: fn(usize) -> usize,
    /// Handles the end of the deadline that [`timer::arm`](super::timer::arm) has set on this CPU.
    pub timer: fn(),
    /// Handles a request of another CPU to check this CPU's run queue
    /// ([`ipi::resched`](super::ipi::resched)).
    pub resched: fn(),
    /// Handles a page fault in kernel mode. The arguments are the address, the CPU's error code and
    /// the address of the instruction. Returns the address at which to continue, or `None` if the
    /// fault is a bug in the kernel.
    pub kernel_fault: fn(u64, u64, u64) -> Option<u64>,
    /// Handles an exception in user mode other than a page fault. The second argument is its
    /// vector.
    pub exception: fn(&mut UserFrame, u8),
    /// Writes all buffered output to the host. Called when the VM is about to end.
    pub flush: fn(),
}

/// Handles a system call. Its number is in `orig_rax`, and its result goes to `rax`. The upper half
/// defines it as `ebb_syscall`. Only the entry's assembly may call it.
pub type Syscall = unsafe extern "C" fn(&mut UserFrame);
/// Handles a page fault in user mode. The arguments are the frame, the address and the CPU's error
/// code. The upper half defines it as `ebb_user_fault`.
pub type UserFault = extern "C" fn(&mut UserFrame, u64, u64);
/// Tries to serve a page fault in user mode before [`UserFault`] gets it. The arguments are the
/// address and the CPU's error code. Must neither wait nor read the user frame, which is
/// incomplete. Returns `false`, and has changed nothing, if it does not serve the fault. The upper
/// half defines it as `ebb_user_store`.
pub type UserStore = extern "C" fn(u64, u64) -> bool;
/// Does the work that is due before the current thread returns to user mode. Called if the thread's
/// work word has a bit of [`WORK_DUE`](super::traps::WORK_DUE). The upper half defines it as
/// `ebb_exit_to_user`. Only the exit paths' assembly may call it.
pub type ExitToUser = unsafe extern "C" fn(&mut UserFrame);

// The entries' assembly calls these four, without a step between.
unsafe extern "C" {
    /// Handles a system call of the program whose registers are in `frame`; see [`Syscall`].
    pub(super) fn ebb_syscall(frame: &mut UserFrame);
    /// Tries to serve a page fault in user mode at `address` with the error code `error`. Returns
    /// `false`, and has changed nothing, if it does not serve the fault; see [`UserStore`].
    pub(super) fn ebb_user_store(address: u64, error: u64) -> bool;
    /// Handles a page fault at `address`, with the error code `error`, of the program whose
    /// registers are in `frame`; see [`UserFault`].
    pub(super) fn ebb_user_fault(frame: &mut UserFrame, address: u64, error: u64);
    /// Does the work that is due before the current thread returns to user mode with the registers
    /// in `frame`; see [`ExitToUser`].
    pub(super) fn ebb_exit_to_user(frame: &mut UserFrame);
}

unsafe extern "Rust" {
    /// See [`Entries`].
    #[link_name = "ebb_entries"]
    pub(super) safe static ENTRIES: Entries;
}

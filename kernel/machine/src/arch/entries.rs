//! The functions of the upper half that the machine calls.

use super::boot_info::BootInfo;
use super::frame::UserFrame;

/// Functions of the upper half that the machine calls. [`define_entries!`](crate::define_entries)
/// makes a static of this type, which the linker binds as [`ENTRIES`], so a call costs no more than
/// any other. All run with interrupts off.
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

/// Binds the upper half's functions to the names by which the entries' code calls them. Each of the
/// first four is called by the assembly alone, without a step between:
///
/// - `syscall: fn(&mut UserFrame, &mut Token)` handles a system call. The call's number is in
///   `orig_rax`, and its result goes to `rax`.
/// - `user_store: fn(u64, u64) -> bool` tries to serve a page fault in user mode before
///   `user_fault` gets it. The arguments are the address and the CPU's error code. Must neither
///   wait nor read the user frame, which is incomplete. Returns `false`, and has changed nothing,
///   if it does not serve the fault.
/// - `user_fault: fn(&mut UserFrame, u64, u64)` handles a page fault in user mode. The arguments
///   are the frame, the address and the CPU's error code.
/// - `exit_to_user: fn(&mut UserFrame, &mut Token)` does the work that is due before the current
///   thread returns to user mode. Called if the thread's work word has a bit of
///   [`WORK_DUE`](crate::arch::traps::WORK_DUE).
/// - `others` is a value of [`Entries`].
///
/// The token is the only one of the current task. The linker refuses a second call.
#[macro_export]
macro_rules! define_entries {
    (
        syscall: $syscall:path,
        user_store: $user_store:path,
        user_fault: $user_fault:path,
        exit_to_user: $exit_to_user:path,
        others: $others:expr $(,)?
    ) => {
        const _: () = {
            #[unsafe(export_name = "ebb_syscall")]
            extern "C" fn syscall(frame: &mut $crate::arch::UserFrame) {
                // SAFETY: only the entry's assembly calls this. The task has just entered the
                // kernel, and the token ends before the task's work on its way back.
                let mut token = unsafe { $crate::arch::OwnToken::new() };
                $syscall(frame, &mut token);
            }

            #[unsafe(export_name = "ebb_user_store")]
            extern "C" fn user_store(address: u64, error: u64) -> bool {
                $user_store(address, error)
            }

            #[unsafe(export_name = "ebb_user_fault")]
            extern "C" fn user_fault(
                frame: &mut $crate::arch::UserFrame,
                address: u64,
                error: u64,
            ) {
                $user_fault(frame, address, error);
            }

            #[cold]
            #[unsafe(export_name = "ebb_exit_to_user")]
            extern "C" fn exit_to_user(frame: &mut $crate::arch::UserFrame) {
                // SAFETY: only the exit paths' assembly calls this. A system call of the task is
                // over, and its token with it.
                let mut token = unsafe { $crate::arch::OwnToken::new() };
                $exit_to_user(frame, &mut token);
            }

            #[unsafe(export_name = "ebb_entries")]
            static ENTRIES: $crate::arch::Entries = $others;
        };
    };
}

// See `define_entries!`.
unsafe extern "C" {
    /// Handles a system call of the program whose registers are in `frame`.
    pub(super) fn ebb_syscall(frame: &mut UserFrame);
    /// Tries to serve a page fault in user mode at `address` with the error code `error`. Returns
    /// `false`, and has changed nothing, if it does not serve the fault.
    pub(super) fn ebb_user_store(address: u64, error: u64) -> bool;
    /// Handles a page fault at `address`, with the error code `error`, of the program whose
    /// registers are in `frame`.
    pub(super) fn ebb_user_fault(frame: &mut UserFrame, address: u64, error: u64);
    /// Does the work that is due before the current thread returns to user mode with the registers
    /// in `frame`.
    pub(super) fn ebb_exit_to_user(frame: &mut UserFrame);
}

unsafe extern "Rust" {
    /// See [`Entries`].
    #[link_name = "ebb_entries"]
    pub(super) safe static ENTRIES: Entries;
}

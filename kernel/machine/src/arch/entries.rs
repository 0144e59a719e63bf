//! Where the machine hands over to the rest of the kernel.

use super::boot_info::BootInfo;
use super::frame::UserFrame;

/// The functions that the machine calls besides [`Syscall`], [`UserStore`], [`UserFault`] and
/// [`ExitToUser`]. The kernel defines one static of this type, which the linker binds as
/// [`ENTRIES`], so a call costs no more than any other. All run with interrupts off.
#[derive(Debug)]
pub struct Entries {
    /// Runs on the first CPU, on its boot stack, with final page tables and the console ready.
    pub main: fn(&'static BootInfo) -> !,
    /// Runs on every other CPU, on the stack that it was given.
    pub start_cpu: fn() -> !,
    /// Returns the value of [`memory_own`](super::percpu::memory_own) for a CPU number. Called
    /// before there is memory.
    pub memory_own: fn(usize) -> usize,
    /// The deadline of [`timer::arm`](super::timer::arm) has passed.
    pub timer: fn(),
    /// Another CPU asks this one to look at its run queue.
    pub resched: fn(),
    /// A page fault of kernel mode: the address, the error code, the instruction. Gives where to go
    /// on; `None` is a bug.
    pub kernel_fault: fn(u64, u64, u64) -> Option<u64>,
    /// Another exception of user mode: its vector.
    pub exception: fn(&mut UserFrame, u8),
    /// The VM is about to end: written output must reach the host.
    pub flush: fn(),
}

/// A system call: its number is in `orig_rax`, its result goes to `rax`. Defined as `ebb_syscall`.
pub type Syscall = extern "C" fn(&mut UserFrame);
/// A page fault of user mode: the address, and the CPU's error code. Defined as `ebb_user_fault`.
pub type UserFault = extern "C" fn(&mut UserFrame, u64, u64);
/// Serves a page fault of user mode before [`UserFault`] gets it, by its address and the CPU's
/// error code. The frame is incomplete, so this may neither wait nor read it. Returns `false`, and
/// has changed nothing, if it does not serve the fault. Defined as `ebb_user_store`.
pub type UserStore = extern "C" fn(u64, u64) -> bool;
/// The current thread's work word is not zero on its way to user mode. Defined as
/// `ebb_exit_to_user`.
pub type ExitToUser = extern "C" fn(&mut UserFrame);

// The entries' assembly calls these four, without a step between.
unsafe extern "C" {
    pub(super) fn ebb_syscall(frame: &mut UserFrame);
    pub(super) fn ebb_user_store(address: u64, error: u64) -> bool;
    pub(super) fn ebb_user_fault(frame: &mut UserFrame, address: u64, error: u64);
    pub(super) fn ebb_exit_to_user(frame: &mut UserFrame);
}

unsafe extern "Rust" {
    /// See [`Entries`].
    #[link_name = "ebb_entries"]
    pub(super) safe static ENTRIES: Entries;
}

//! Virtual memory: address spaces, mappings, page faults.

mod flags;
mod mappings;
mod source;
mod space;
pub mod vma;

pub use flags::{MapFlags, Prot, VmaFlags};
pub use source::{Backing, MappedFile, Mappings, PageSource};
pub use space::{AddressSpace, Advice, Limits, Usage, VmaInfo};

use crate::arch::UserFrame;

/// A page fault in user mode: serves it, or raises `SIGSEGV` or `SIGBUS`. `error` is the CPU's
/// error code.
pub fn on_user_fault(frame: &mut UserFrame, address: u64, error: u64) {
    let _ = (frame, address, error);
}

/// A page fault in kernel mode at `rip`, while it touched `address`. In a `uaccess` routine: the
/// address to continue at, `rip` itself once the page is there. `None`: a bug in the kernel.
///
/// Runs on the stack of the current task and may block: the fault must not be on an IST stack, and
/// all registers must be saved.
pub fn on_kernel_fault(address: u64, error: u64, rip: u64) -> Option<u64> {
    let _ = (address, error, rip);
    None
}

//! The lower half of the guest kernel: the machine, its memory, its threads. Nothing here knows of
//! files, processes or system calls; what it needs of the upper half it declares as a contract
//! ([`arch::Entries`], [`memory::Relief`], [`sched::Owner`]), which the linker binds.
//!
//! Kernel mode runs with interrupts off, but for the idle loop: the kernel is never preempted and
//! no interrupt lands on kernel code. That is why the precompiled `core`, which uses the red zone
//! and SSE2, is safe here.
#![no_std]

extern crate alloc;

pub mod arch;
pub mod memory;
pub mod sched;
pub mod sync;

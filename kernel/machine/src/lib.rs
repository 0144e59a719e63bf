//! The lower half of the guest kernel: the machine, its memory, its threads. It knows no files,
//! processes or system calls. It declares its needs of the upper half as contracts
//! ([`arch::Entries`], [`memory::Helpers`], [`sched::Owner`]), which the linker binds.
//!
//! Kernel mode runs with interrupts off, except in the idle loop: the kernel is never preempted and
//! no interrupt arrives in kernel code. So the precompiled `core`, which uses the red zone and
//! SSE2, is safe here.
#![no_std]

extern crate alloc;

pub mod arch;
pub mod memory;
pub mod sched;
pub mod sync;

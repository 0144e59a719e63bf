//! The lower half of the guest kernel: the CPUs and devices of the machine (`arch`), memory,
//! threads, programs' memory as the kernel accesses it (`uaccess`), and the queues of virtio
//! devices. It contains no files, processes or system calls. The functions that it needs from the
//! upper half are declared in [`arch::Entries`], [`memory::Helpers`] and [`sched::Task`]. The upper
//! half names its own in [`define_entries!`], [`define_memory_helpers!`] and [`own_threads!`], and
//! the linker binds them.
//!
//! Kernel mode runs with interrupts off, except in the idle loop, in a halt that waits for another
//! CPU (`arch::interrupt::wait_for_mailbox`), and for one instruction in a few assembly functions
//! (`arch::interrupt::serve_pending`). So the kernel is never preempted anywhere else, and the
//! precompiled `core`, which uses the red zone and SSE2, is safe here.
#![no_std]

extern crate alloc;

pub mod arch;
pub mod memory;
pub mod sched;
pub mod sync;
pub mod uaccess;
pub mod virtio;

//! The guest kernel of Ebb: boots by PVH, runs Linux x86-64 programs, gives back the memory that
//! they do not use.
//!
//! Kernel mode runs with interrupts off, but for the idle loop: the kernel is never preempted and
//! no interrupt lands on kernel code. That is why the precompiled `core`, which uses the red zone
//! and SSE2, is safe here.
#![no_std]
#![no_main]
#![allow(
    unreachable_pub,
    reason = "`pub` is what a room shows to the others, whichever crate it is in"
)]

extern crate alloc;

mod arch;
mod drivers;
mod errno;
mod fs;
mod memory;
mod random;
mod sched;
mod signal;
mod sync;
mod syscall;
mod task;
mod time;
mod uaccess;
mod vm;

use arch::BootInfo;

/// Runs on the first CPU, on its boot stack, with final page tables and the console ready.
pub fn kernel_main(boot: &'static BootInfo) -> ! {
    memory::init(boot);
    arch::init(boot);
    drivers::init(boot);
    fs::init(boot);
    arch::start_other_cpus();
    fs::finish_init();
    console!(
        "ebb {}: {} MiB, {} CPUs, {} kHz",
        env!("CARGO_PKG_VERSION"),
        memory::allocator().stats().managed_frames >> 8,
        arch::cpu_count(),
        arch::clock::tsc_khz()
    );
    task::start(boot)
}

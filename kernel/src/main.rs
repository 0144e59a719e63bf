//! The guest kernel of Ebb: boots by PVH, runs Linux x86-64 programs, gives back the memory that
//! they do not use.
//!
//! Kernel mode runs with interrupts off, but for the idle loop: the kernel is never preempted and
//! no interrupt lands on kernel code. That is why the precompiled `core`, which uses the red zone
//! and SSE2, is safe here.
#![no_std]
#![no_main]

extern crate alloc;

pub mod arch;
pub mod drivers;
pub mod errno;
pub mod fs;
pub mod memory;
pub mod random;
pub mod sched;
pub mod signal;
pub mod sync;
pub mod syscall;
pub mod task;
pub mod time;
pub mod uaccess;
pub mod vm;

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

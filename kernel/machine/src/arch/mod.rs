//! The x86-64 machine: boot, CPUs, traps, clocks, interrupts, the end of the VM.

#![allow(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits here, and hardware wants halves of registers"
)]

mod acpi;
mod apic;
mod boot;
mod boot_info;
pub mod clock;
pub mod console;
pub mod context;
pub mod cpu;
pub mod cpuset;
pub mod debug;
mod entries;
pub mod features;
pub mod fpu;
pub mod frame;
pub mod header;
pub mod interrupt;
pub mod io_apic;
pub mod ipi;
pub mod layout;
pub mod log;
#[cfg(feature = "runtime")]
mod memory_routines;
mod nanos;
pub mod once;
mod paging;
mod panic;
pub mod percpu;
pub mod power;
pub mod pte;
pub mod random;
mod rtc;
pub mod serial;
mod smp;
pub mod spin;
pub mod steal;
mod stopping;
pub mod timer;
pub mod traps;
pub mod vdso;

pub use boot_info::BootInfo;
pub use cpuset::{CpuSet, MAX_CPUS};
pub use entries::Entries;
pub use frame::UserFrame;
pub use layout::{KERNEL_BASE, MEMMAP_BASE, PhysRange, USER_END, phys_to_virt, virt_to_phys};
#[doc(hidden)]
pub use logic::own::Token as OwnToken;
pub use paging::{map_device, physmap_bytes};
pub use percpu::{
    cpu_count, cpu_id, current_thread, online_cpus, set_current_thread, set_fs_base,
    set_gs_base_user, set_kernel_stack, set_work_flags,
};
pub use power::{ExitRecord, note_program_end, power_off};

use once::Once;

/// Halts this CPU until an interrupt has been served. Interrupts are off before and after.
#[inline]
pub fn idle() {
    context::idle();
}

/// The CPUs and I/O APICs of the machine, read once.
static MACHINE: Once<acpi::Machine> = Once::new();

/// Starts the local APIC of the first CPU, the clock and the I/O APICs, and marks the first CPU as
/// online. `boot` has the command line and the address of the ACPI tables. Called once, on the
/// first CPU.
pub fn init(boot: &BootInfo) {
    apic::init();
    clock::init(boot);
    percpu::set_online(apic::id());
    let machine = MACHINE.get_or_init(|| acpi::read(boot.rsdp));
    io_apic::init(machine);
}

/// Starts the other CPUs of the machine, and waits for a limited time until they are online. Each
/// enters [`Entries::start_cpu`] on its own stack. `stack` is called once for each CPU. It
/// allocates a stack that is never freed, and returns the end of the stack. If `stack` returns
/// `None`, this CPU and the ones after it are not started.
pub fn start_other_cpus(stack: fn() -> Option<*mut u8>) {
    clock::refine();
    if let Some(machine) = MACHINE.get() {
        smp::start_others(machine, stack);
    }
}

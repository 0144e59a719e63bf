//! Starts the other CPUs.
//!
//! Each CPU gets an area and a stack before it is woken. The CPUs take tickets in the order in
//! which they arrive. Ticket N becomes CPU N + 1 and uses the area and stack prepared for that
//! number.

use super::acpi::Machine;
use super::clock::{self, Nanos};
use super::entries::ENTRIES;
use super::layout::phys_to_virt;
use super::{apic, features, header, percpu, traps};
use alloc::alloc::{Layout, alloc_zeroed};
use core::sync::atomic::{AtomicU64, Ordering};

/// Physical address of the real-mode code: below 1 MiB, in RAM that nothing else uses.
const TRAMPOLINE: u64 = 0x8000;
/// The time that the other CPUs have to come online before they are sent start-up interrupts again.
const ARRIVAL: Nanos = Nanos::from_millis(100);
/// The number of times that start-up interrupts are sent to the other CPUs.
const ATTEMPTS: u32 = 20;

unsafe extern "C" {
    static ap_stacks: [AtomicU64; super::MAX_CPUS];
    static ap_trampoline: u8;
    static ap_trampoline_end: u8;
}

/// Starts the other CPUs of `machine`, and waits until they are online. If some of them are not
/// online after [`ATTEMPTS`] periods of length [`ARRIVAL`], prints a message and returns.
///
/// `stack` is called once for each CPU. It allocates a stack that is never freed, and returns the
/// end of the stack. If it returns `None`, this CPU and the ones after it are not started.
pub(super) fn start_others(machine: &Machine, stack: fn() -> Option<*mut u8>) {
    let me = apic::id();
    let others = || {
        machine
            .apic_ids()
            .iter()
            .copied()
            .filter(move |&id| id != me)
    };
    let mut prepared = 0;
    for _ in others() {
        if !prepare(prepared, stack) {
            crate::console!("no memory to start more than {prepared} CPUs");
            break;
        }
        prepared += 1;
    }
    if prepared > 0 {
        install_trampoline();
        others().take(prepared).for_each(apic::send_init);
        wake(prepared, || others().take(prepared));
    }
    // Relaxed: the value stands for itself.
    header::HEADER
        .cpus
        .store(percpu::cpu_count() as u32, Ordering::Relaxed);
}

fn wake<I: Iterator<Item = u32>>(prepared: usize, ids: impl Fn() -> I) {
    const PAGE: u8 = (TRAMPOLINE >> 12) as u8;
    for _ in 0..ATTEMPTS {
        // A CPU that runs already takes no notice.
        ids().for_each(|id| apic::send_startup(id, PAGE));
        let deadline = clock::now().saturating_add(ARRIVAL);
        while clock::now() < deadline {
            if percpu::cpu_count() > prepared {
                return;
            }
            super::ipi::poll_mailbox();
            core::hint::spin_loop();
        }
    }
    crate::console!(
        "only {} of {} CPUs came up",
        percpu::cpu_count(),
        prepared + 1
    );
}

/// Allocates the per-CPU area of CPU number `ticket` + 1, and its stack by a call of `stack`.
/// Returns `false` if there is no memory for one of them.
fn prepare(ticket: usize, stack: fn() -> Option<*mut u8>) -> bool {
    // SAFETY: the size is not zero.
    let block = unsafe { alloc_zeroed(Layout::new::<percpu::Block>()) };
    if block.is_null() {
        return false;
    }
    let Some(stack) = stack() else {
        return false;
    };
    // SAFETY: a zeroed block of the right layout, never freed; the array has MAX_CPUS entries.
    unsafe {
        percpu::prepare(block.cast(), ticket + 1);
        // Release: the CPU itself reads it after the start-up interrupt.
        ap_stacks[ticket].store(stack as u64, Ordering::Release);
    }
    true
}

fn install_trampoline() {
    let start = &raw const ap_trampoline;
    // SAFETY: the symbols bracket the code, and the page is free low memory.
    unsafe {
        let len = (&raw const ap_trampoline_end).offset_from_unsigned(start);
        core::ptr::copy_nonoverlapping(start, phys_to_virt(TRAMPOLINE), len);
    }
}

/// The first Rust code of a CPU other than the first. It runs on the CPU's own stack, with the
/// kernel's page tables. Initializes the CPU, marks it as online and enters
/// [`Entries::start_cpu`](super::Entries::start_cpu). The number of the CPU is `ticket` plus one.
pub(super) extern "C" fn ap_start(ticket: u64) -> ! {
    // SAFETY: each ticket is given once, and its area is prepared.
    unsafe { percpu::install(ticket as usize + 1) };
    traps::use_idt();
    features::switch_on();
    traps::init_syscall();
    let apic_id = apic::switch_on();
    percpu::set_online(apic_id);
    (ENTRIES.start_cpu)()
}

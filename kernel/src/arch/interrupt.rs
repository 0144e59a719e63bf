//! Vectors of interrupts, and who serves them.

use super::{apic, ipi, timer};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// First vector of devices.
const FIRST_DEVICE: u64 = 32;
/// Vectors of devices.
pub const DEVICE_VECTORS: usize = 32;
/// Another CPU asks to look at the run queue.
pub(super) const RESCHED: u64 = 80;
/// The APIC timer.
pub(super) const TIMER: u64 = 81;
/// The APIC's way to take an interrupt back.
pub(super) const SPURIOUS: u64 = 95;
/// Another CPU has a request in the mailbox, or has answered ours. Alone in the highest class of
/// priority: a CPU that waits for answers lets nothing else through.
pub(super) const MAILBOX: u64 = 96;
/// The task priority that lets only [`MAILBOX`] through.
const ONLY_MAILBOX: u64 = MAILBOX / 16 - 1;

const _: () = assert!(MAILBOX < super::traps::VECTORS as u64);
const _: () = assert!(SPURIOUS / 16 < MAILBOX / 16);
const _: () = assert!(FIRST_DEVICE + DEVICE_VECTORS as u64 <= RESCHED);

/// A device's handler and what it is called with; function 0: nobody.
struct Slot {
    function: AtomicUsize,
    argument: AtomicUsize,
}

static SLOTS: [Slot; DEVICE_VECTORS] = [const {
    Slot {
        function: AtomicUsize::new(0),
        argument: AtomicUsize::new(0),
    }
}; DEVICE_VECTORS];
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Interrupts served since boot.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Takes a vector for a device. `None` when all are taken.
pub fn register(function: fn(usize), argument: usize) -> Option<u8> {
    // Relaxed: devices are found by one CPU.
    let index = NEXT.fetch_add(1, Ordering::Relaxed);
    let slot = SLOTS.get(index)?;
    slot.argument.store(argument, Ordering::Relaxed);
    // Release: partner of the Acquire in `dispatch`.
    slot.function.store(function as usize, Ordering::Release);
    u8::try_from(FIRST_DEVICE + index as u64).ok()
}

/// Interrupts served since boot, for /proc/stat.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Halts this CPU until another writes to its mailbox or answers; the one place besides the idle
/// loop where kernel code is interrupted. What runs then, `ipi::poll_mailbox`, takes no locks.
pub(super) fn wait_for_mailbox() {
    super::cpu::write_cr8(ONLY_MAILBOX);
    super::idle();
    super::cpu::write_cr8(0);
}

/// Serves an interrupt of user mode or of the idle loop.
pub(super) fn dispatch(vector: u64) {
    // Relaxed: a counter.
    COUNT.fetch_add(1, Ordering::Relaxed);
    match vector {
        TIMER => {
            apic::end_of_interrupt();
            timer::fired();
        }
        RESCHED => {
            apic::end_of_interrupt();
            ipi::take_resched();
            crate::sched::on_resched();
        }
        MAILBOX => {
            apic::end_of_interrupt();
            ipi::poll_mailbox();
        }
        SPURIOUS => {}
        _ => {
            let slot = vector
                .checked_sub(FIRST_DEVICE)
                .and_then(|i| SLOTS.get(i as usize));
            // Acquire: partner of the Release in `register`.
            let function = slot.map_or(0, |slot| slot.function.load(Ordering::Acquire));
            if let (Some(slot), 1..) = (slot, function) {
                // SAFETY: only `register` stores there, a function of this type.
                let function = unsafe { core::mem::transmute::<usize, fn(usize)>(function) };
                function(slot.argument.load(Ordering::Relaxed));
            } else {
                crate::console!("interrupt {vector} has no handler");
            }
            apic::end_of_interrupt();
        }
    }
}

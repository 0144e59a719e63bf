//! Vectors of interrupts, and who serves them.

use super::entries::ENTRIES;
use super::{apic, context, ipi, spin, timer};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

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
const ONLY_MAILBOX: u32 = (MAILBOX as u32 / 16 - 1) * 16;

const _: () = assert!(MAILBOX < super::traps::VECTORS as u64);
const _: () = assert!(SPURIOUS / 16 < MAILBOX / 16);
const _: () = assert!(FIRST_DEVICE + DEVICE_VECTORS as u64 <= RESCHED);

/// Devices that share a line: a q35 has four lines for all of its slots.
const SHARERS: usize = 8;

/// A device's handler and its argument. Function 0 means that there is none.
struct Handler {
    function: AtomicUsize,
    argument: AtomicUsize,
}

/// Those who are called for a vector.
struct Slot {
    /// The interrupt line that has it.
    gsi: AtomicU32,
    handlers: [Handler; SHARERS],
}

static SLOTS: [Slot; DEVICE_VECTORS] = [const {
    Slot {
        gsi: AtomicU32::new(0),
        handlers: [const {
            Handler {
                function: AtomicUsize::new(0),
                argument: AtomicUsize::new(0),
            }
        }; SHARERS],
    }
}; DEVICE_VECTORS];
/// Slots in use.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Has a device's function called when its line has an interrupt, with those of the devices that
/// share it; gives the line's vector. `None` when there is no room for one more.
pub fn register(gsi: u32, function: fn(usize), argument: usize) -> Option<u8> {
    // Relaxed (here and below): devices are found by one CPU.
    let taken = TAKEN.load(Ordering::Relaxed);
    let known = SLOTS[..taken]
        .iter()
        .position(|slot| slot.gsi.load(Ordering::Relaxed) == gsi);
    let index = known.unwrap_or(taken);
    let slot = SLOTS.get(index)?;
    let free = |handler: &&Handler| handler.function.load(Ordering::Relaxed) == 0;
    let handler = slot.handlers.iter().find(free)?;
    handler.argument.store(argument, Ordering::Relaxed);
    // Release: partner of the Acquire in `dispatch`.
    handler.function.store(function as usize, Ordering::Release);
    slot.gsi.store(gsi, Ordering::Relaxed);
    TAKEN.store(taken.max(index + 1), Ordering::Relaxed);
    u8::try_from(FIRST_DEVICE + index as u64).ok()
}

/// Serves the pending interrupts: timers, other CPUs, devices. The caller holds no spin lock and no
/// per-CPU data (`memory::percpu`), as for a call that blocks, since handlers use both.
///
/// Costs a few instructions if none is pending, so loops may call it for each page.
#[inline]
pub fn serve_pending() {
    spin::assert_no_spin_lock_held();
    context::open_interrupts();
}

/// Halts this CPU until another writes to its mailbox or answers. One of the three places where
/// kernel code is interrupted, with the idle loop and [`serve_pending`]. The interrupt runs
/// `ipi::poll_mailbox`, which takes no locks.
pub(super) fn wait_for_mailbox() {
    apic::set_task_priority(ONLY_MAILBOX);
    context::idle();
    apic::set_task_priority(0);
}

/// Serves an interrupt of user mode, of the idle loop or of [`serve_pending`].
pub(super) fn dispatch(vector: u64) {
    match vector {
        TIMER => {
            apic::end_of_interrupt();
            timer::fired();
        }
        RESCHED => {
            apic::end_of_interrupt();
            ipi::take_resched();
            (ENTRIES.resched)();
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
            let mut called = false;
            for handler in slot.iter().flat_map(|slot| &slot.handlers) {
                // Acquire: partner of the Release in `register`.
                let function = handler.function.load(Ordering::Acquire);
                if function == 0 {
                    break;
                }
                // SAFETY: only `register` stores there, a function of this type.
                let function = unsafe { core::mem::transmute::<usize, fn(usize)>(function) };
                function(handler.argument.load(Ordering::Relaxed));
                called = true;
            }
            if !called {
                crate::console!("interrupt {vector} has no handler");
            }
            apic::end_of_interrupt();
        }
    }
}

//! The vectors of interrupts, and the handlers that serve them.

use super::cpuset::MAX_CPUS;
use super::entries::ENTRIES;
use super::{apic, context, cpu_id, ipi, spin, timer};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// The first vector of devices.
const FIRST_DEVICE: u64 = 32;
/// The number of vectors of devices.
pub const DEVICE_VECTORS: usize = 32;
/// The vector of a request to check the run queue, from another CPU.
pub(super) const RESCHED: u64 = 80;
/// The vector of the APIC timer.
pub(super) const TIMER: u64 = 81;
/// The vector of spurious interrupts, with which the APIC replaces an interrupt that has gone away.
pub(super) const SPURIOUS: u64 = 95;
/// The vector of the mailbox (`ipi`): another CPU has posted a request, or has answered the request
/// of this one. No other vector has this class of priority, which is the highest. So a CPU that
/// waits for answers can hold back all others.
pub(super) const MAILBOX: u64 = 96;
/// The task priority that lets only [`MAILBOX`] through.
const ONLY_MAILBOX: u32 = (MAILBOX as u32 / 16 - 1) * 16;

const _: () = assert!(MAILBOX < super::traps::VECTORS as u64);
const _: () = assert!(SPURIOUS / 16 < MAILBOX / 16);
const _: () = assert!(FIRST_DEVICE + DEVICE_VECTORS as u64 <= RESCHED);

/// The most devices that share a line. A q35 machine has four lines for all of its slots.
const SHARERS: usize = 8;

/// A device's handler and its argument. The function is 0 if there is no handler.
struct Handler {
    function: AtomicUsize,
    argument: AtomicUsize,
}

/// The handlers of a vector.
struct Slot {
    /// The interrupt line that uses the vector.
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
/// The number of slots in use.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Registers `function` as a handler of interrupt line `gsi`. Each interrupt of the line calls
/// `function` with `argument`, and also the other handlers of the line, because devices may share
/// it. Returns the vector of the line. Returns `None` if no vector is free, or if the line already
/// has 8 handlers.
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

/// Runs the handlers of pending interrupts of timers, other CPUs and devices. The caller holds no
/// spin lock and no reference to per-CPU data (`memory::percpu`), because handlers use both.
///
/// Costs a few instructions if no interrupt is pending, so loops may call it for each page.
#[inline]
pub fn serve_pending() {
    spin::assert_no_spin_lock_held();
    context::open_interrupts();
}

/// Halts this CPU until another CPU posts a request in its mailbox or answers its own request. The
/// interrupt runs `ipi::poll_mailbox`, which takes no locks.
///
/// Kernel code is interrupted only here, in the idle loop, in [`serve_pending`], and between pages
/// that `memory::clear` fills with zeros.
pub(super) fn wait_for_mailbox() {
    apic::set_task_priority(ONLY_MAILBOX);
    context::idle();
    apic::set_task_priority(0);
}

/// Whether each CPU runs a device's handler.
static HANDLES: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// Returns whether this CPU runs the handler of a device's interrupt, which may not block: the
/// device's interrupts come again only after it.
pub fn is_in_handler() -> bool {
    // Relaxed: written by this CPU alone.
    HANDLES[cpu_id()].load(Ordering::Relaxed)
}

/// Runs the handlers of interrupt `vector`, which has arrived in user mode, in the idle loop, or at
/// a point where kernel code lets interrupts in.
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
            let handles = &HANDLES[cpu_id()];
            handles.store(true, Ordering::Relaxed);
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
            handles.store(false, Ordering::Relaxed);
            if !called {
                crate::console!("interrupt {vector} has no handler");
            }
            apic::end_of_interrupt();
        }
    }
}

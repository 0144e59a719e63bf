//! Page faults of a thread that repeat for ever, so that the program must get a signal.

use crate::vm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::repeats::{Fault, Repeats};
use machine::console;
use machine::sync::SpinLock;

/// The most recent page faults of a thread.
#[derive(Debug, Default)]
pub(super) struct FaultRepeats {
    /// The address of the last fault.
    address: AtomicU64,
    /// The last fault had the same address as the one before.
    is_again: AtomicBool,
    repeats: SpinLock<Repeats>,
}

impl FaultRepeats {
    /// Notes the page fault `fault` of the current thread, which owns this. Returns whether the
    /// fault repeats for ever.
    #[inline]
    pub(super) fn note(&self, fault: Fault) -> bool {
        // Relaxed (all): only the thread itself uses them.
        if self.address.load(Ordering::Relaxed) != fault.address {
            self.address.store(fault.address, Ordering::Relaxed);
            self.is_again.store(false, Ordering::Relaxed);
            return false;
        }
        self.note_again(fault)
    }

    #[cold]
    fn note_again(&self, fault: Fault) -> bool {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let look = || vm::allows(fault.address, fault.error);
        let forever = {
            let mut repeats = self.repeats.lock();
            if !self.is_again.swap(true, Ordering::Relaxed) {
                *repeats = Repeats::default();
            }
            repeats.note(fault, look)
        };
        // Relaxed: only the first thread that comes here reports it.
        if forever && !TOLD.swap(true, Ordering::Relaxed) {
            console!(
                "the CPU refuses the program at {:#x} an access to {:#x} that its page tables allow",
                fault.instruction,
                fault.address
            );
        }
        forever
    }
}

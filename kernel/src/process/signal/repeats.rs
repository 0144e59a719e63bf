//! Page faults of a thread that repeat for ever, which its program is told of.

use crate::vm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use logic::repeats::{Fault, Repeats};
use machine::console;
use machine::sync::SpinLock;

/// The faults of a thread that came last.
#[derive(Debug, Default)]
pub(super) struct FaultRepeats {
    /// The address of the last one.
    address: AtomicU64,
    /// The one before had the same address.
    is_again: AtomicBool,
    repeats: SpinLock<Repeats>,
}

impl FaultRepeats {
    /// Notes a fault of the current thread, the owner. Returns whether it repeats for ever.
    #[inline]
    pub(super) fn note(&self, fault: Fault) -> bool {
        // Relaxed (all): the thread itself alone uses them.
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
        // Relaxed: the first thread that comes here tells.
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

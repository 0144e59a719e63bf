//! The end of the VM.

use super::clock;
use super::cpu::{self, outb, outl};
use super::entries::ENTRIES;
use super::header::HEADER;
use core::arch::asm;
use core::sync::atomic::Ordering;
use ebb_wire::header::stage;

/// The I/O port of QEMU's device `isa-debug-exit`, which ends QEMU.
const DEBUG_EXIT_PORT: u16 = 0xf4;
/// The value for [`DEBUG_EXIT_PORT`] after a regular end of the VM.
const EXIT_CODE: u32 = 0;
/// The value for [`DEBUG_EXIT_PORT`] after a panic.
pub(super) const PANIC_CODE: u32 = 1;

/// The result with which the program ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ExitRecord {
    /// The Linux wait status: `exit code << 8 | signal`.
    pub wait_status: u32,
}

/// Records the present time, for the host, as the time when the program ended. Needed only if the
/// VM continues for a while after that, because otherwise [`power_off`] records the time.
pub fn note_program_end() {
    // Relaxed: published by the Release in `power_off`. An earlier reader sees it a moment later.
    HEADER
        .ended_ns
        .store(clock::now().0.max(1), Ordering::Relaxed);
}

/// Flushes all output, publishes `status` for the host, and ends the VM.
pub fn power_off(status: ExitRecord) -> ! {
    if HEADER.ended_ns.load(Ordering::Relaxed) == 0 {
        note_program_end();
    }
    (ENTRIES.flush)();
    // Relaxed: published by the Release below, whose partner is the host's Acquire.
    HEADER
        .exit_status
        .store(status.wait_status, Ordering::Relaxed);
    HEADER.stage.store(stage::EXITED, Ordering::Release);
    end(EXIT_CODE)
}

/// Ends the VM with the first method that the machine supports. QEMU's debug exit device gets
/// `code`: [`EXIT_CODE`] or [`PANIC_CODE`].
pub(super) fn end(code: u32) -> ! {
    // SAFETY: the device ends the VM; nothing else is at the port. Where it is missing, a keyboard
    // controller resets, and if there is none, a fault without a table to serve it does: QEMU runs
    // with -no-reboot.
    unsafe {
        outl(DEBUG_EXIT_PORT, code);
        outb(0x64, 0xfe);
        let no_table = [0u16; 5];
        asm!("lidt [{}]", "int3", in(reg) &no_table, options(nostack));
    }
    cpu::halt_forever()
}

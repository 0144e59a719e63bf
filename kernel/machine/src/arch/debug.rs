//! Debug registers: breakpoints that the CPU checks in hardware.

use core::arch::asm;

/// The value of DR6 if no debug event has happened.
pub const DR6_QUIET: u64 = 0xffff_0ff0;

/// The hardware breakpoints of a thread: the values of DR0 to DR3, and of DR7.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakpoints {
    /// The linear addresses in DR0 to DR3.
    pub addresses: [u64; 4],
    /// The value of DR7: which breakpoints are enabled, and for which accesses. Only bits that a
    /// program may set.
    pub control: u64,
}

impl Breakpoints {
    /// Loads these breakpoints into this CPU's debug registers.
    pub fn load(&self) {
        let [a, b, c, d] = self.addresses;
        // SAFETY: addresses of user memory; where the kernel touches one, `debug_entry` goes on.
        unsafe {
            asm!("mov dr7, {zero}", "mov dr0, {a}", "mov dr1, {b}", "mov dr2, {c}", "mov dr3, {d}",
                 "mov dr7, {control}", zero = in(reg) 0u64, a = in(reg) a, b = in(reg) b,
                 c = in(reg) c, d = in(reg) d, control = in(reg) self.control,
                 options(nostack, preserves_flags));
        }
    }

    /// Disables all breakpoints of this CPU.
    pub fn unload() {
        // SAFETY: no breakpoint is left.
        unsafe { asm!("mov dr7, {}", in(reg) 0u64, options(nostack, preserves_flags)) };
    }
}

/// Returns the debug events in DR6 and clears them: bits 0 to 3 for the breakpoints, bit 14 for a
/// single step.
pub fn take_status() -> u64 {
    let status: u64;
    // SAFETY: reads a register and puts it back to its quiet value.
    unsafe {
        asm!("mov {status}, dr6", "mov dr6, {quiet}", status = out(reg) status,
             quiet = in(reg) DR6_QUIET, options(nostack, preserves_flags));
    }
    status & 0x400f
}

//! Single instructions.

use core::arch::asm;
pub use core::arch::x86_64::CpuidResult;

/// Model specific registers that the kernel uses.
pub mod msr {
    /// Where the local APIC is, and its switches.
    pub const APIC_BASE: u32 = 0x1b;
    /// The counter value at which the APIC timer fires.
    pub const TSC_DEADLINE: u32 = 0x6e0;
    /// First of the APIC registers in MSR form.
    pub const X2APIC: u32 = 0x800;
    /// Where KVM keeps this CPU's record of stolen time.
    pub const KVM_STEAL_TIME: u32 = 0x4b56_4d03;
    /// Selectors of `syscall` and `sysret`.
    pub const STAR: u32 = 0xc000_0081;
    /// Where `syscall` goes.
    pub const LSTAR: u32 = 0xc000_0082;
    /// Flags that `syscall` clears.
    pub const SFMASK: u32 = 0xc000_0084;
    /// The user's thread pointer.
    pub const FS_BASE: u32 = 0xc000_0100;
    /// The base of GS in use.
    pub const GS_BASE: u32 = 0xc000_0101;
    /// What `swapgs` changes it with.
    pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
    /// What `rdtscp` gives beside the counter.
    pub const TSC_AUX: u32 = 0xc000_0103;
}

/// Reads a model specific register.
#[inline]
pub fn rdmsr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register; one that does not exist is a kernel bug and faults.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high,
             options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model specific register.
///
/// # Safety
/// The value must keep the kernel's own state (tables, GS base, entries) valid.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the two halves of the value"
)]
pub unsafe fn wrmsr(register: u32, value: u64) {
    // SAFETY: the caller vouches for the value.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
             options(nostack, preserves_flags));
    }
}

/// What the CPU says about itself; an unsupported leaf gives zeros or garbage, ask the maximum
/// first.
#[inline]
pub fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    core::arch::x86_64::__cpuid_count(leaf, subleaf)
}

/// The address of the last page fault.
#[inline]
pub fn read_cr2() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The root of the page tables, with its low flag bits.
#[inline]
pub fn read_cr3() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Changes to other page tables and drops all translations that are not global.
///
/// # Safety
/// The tables must map the kernel as the present ones do.
#[inline]
pub unsafe fn write_cr3(root: u64) {
    // SAFETY: the caller vouches for the tables. Not `nomem`: mappings change under the compiler.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// CR4.
#[inline]
pub fn read_cr4() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Lets programs read this CPU's time-stamp counter, or has it raise a general protection fault
/// instead.
pub fn allow_user_tsc(allowed: bool) {
    /// The counter is the kernel's alone.
    const TSD: u64 = 1 << 2;
    let others = read_cr4() & !TSD;
    // SAFETY: the kernel reads the counter either way, and memory is as before.
    unsafe { write_cr4(if allowed { others } else { others | TSD }) };
}

/// Writes CR4.
///
/// # Safety
/// Only features that the CPU has, and PAE stays on.
#[inline]
pub unsafe fn write_cr4(value: u64) {
    // SAFETY: the caller vouches for the value.
    unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Drops this CPU's translation of one page, global or not.
#[inline]
pub fn invlpg(address: u64) {
    // SAFETY: dropping a translation never breaks a valid mapping.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Drops all of this CPU's translations that are not global.
#[inline]
pub fn flush_tlb_all() {
    // SAFETY: the same tables again.
    unsafe { write_cr3(read_cr3()) };
}

/// Drops all of this CPU's translations, the global ones too.
pub fn flush_tlb_global() {
    const GLOBAL_PAGES: u64 = 1 << 7;
    let cr4 = read_cr4();
    // SAFETY: switching global pages off and on again drops them, and changes nothing else.
    unsafe {
        write_cr4(cr4 & !GLOBAL_PAGES);
        write_cr4(cr4);
    }
}

/// The time-stamp counter.
#[inline]
pub fn rdtsc() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// One byte to a port.
///
/// # Safety
/// The device behind the port must take it as harmless to memory safety.
#[inline]
pub unsafe fn outb(port: u16, value: u8) {
    // SAFETY: the caller vouches for the port.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// One byte from a port.
///
/// # Safety
/// As [`outb`].
#[inline]
pub unsafe fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: the caller vouches for the port.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags));
    }
    value
}

/// 32 bits to a port.
///
/// # Safety
/// As [`outb`].
#[inline]
pub unsafe fn outl(port: u16, value: u32) {
    // SAFETY: the caller vouches for the port.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags));
    }
}

/// 32 bits from a port.
///
/// # Safety
/// As [`outb`].
#[inline]
pub unsafe fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: the caller vouches for the port.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags));
    }
    value
}

/// Stops this CPU for good; only an NMI runs on it any more.
pub fn halt_forever() -> ! {
    loop {
        // SAFETY: interrupts stay off, nothing else runs.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

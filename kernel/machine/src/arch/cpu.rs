//! Functions that execute single privileged instructions.

use core::arch::asm;
pub use core::arch::x86_64::CpuidResult;

/// The numbers of the model specific registers (MSRs) that the kernel uses. The comment of a number
/// says what its register contains.
pub mod msr {
    /// The physical address of the local APIC, and the bits that switch it on.
    pub const APIC_BASE: u32 = 0x1b;
    /// The value of the time-stamp counter at which the APIC timer fires.
    pub const TSC_DEADLINE: u32 = 0x6e0;
    /// The first of the APIC's registers in x2APIC mode. The numbers of the others follow.
    pub const X2APIC: u32 = 0x800;
    /// The physical address at which KVM keeps this CPU's record of stolen time.
    pub const KVM_STEAL_TIME: u32 = 0x4b56_4d03;
    /// The segment selectors that `syscall` and `sysret` load.
    pub const STAR: u32 = 0xc000_0081;
    /// The address that `syscall` jumps to.
    pub const LSTAR: u32 = 0xc000_0082;
    /// The bits of RFLAGS that `syscall` clears.
    pub const SFMASK: u32 = 0xc000_0084;
    /// The base of FS: the thread pointer of a program.
    pub const FS_BASE: u32 = 0xc000_0100;
    /// The present base of GS.
    pub const GS_BASE: u32 = 0xc000_0101;
    /// The value that `swapgs` exchanges with [`GS_BASE`].
    pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
    /// The value that `rdtscp` returns besides the counter.
    pub const TSC_AUX: u32 = 0xc000_0103;
}

/// Returns the value of the model specific register (MSR) with number `register`. Faults if the CPU
/// does not have the register.
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

/// Writes `value` to the model specific register (MSR) with number `register`. Faults if the CPU
/// does not have the register or rejects the value.
///
/// # Safety
/// With `value`, the state of the kernel (descriptor tables, GS base, entry points) stays valid.
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

/// Executes `cpuid` for the leaf `leaf` and the subleaf `subleaf`, and returns its four registers.
/// An unsupported leaf returns zeros or garbage, so check the highest leaf first.
#[inline]
pub fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    core::arch::x86_64::__cpuid_count(leaf, subleaf)
}

/// Returns CR2: the address of the last page fault.
#[inline]
pub fn read_cr2() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Returns CR3: the physical address of the page tables' root, with flags in its low bits.
#[inline]
pub fn read_cr3() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Writes CR3: switches this CPU to the page tables with root `root`, and flushes all its TLB
/// entries that are not global.
///
/// # Safety
/// The new tables must map the kernel as the present ones do.
#[inline]
pub unsafe fn write_cr3(root: u64) {
    // SAFETY: the caller vouches for the tables. Not `nomem`: mappings change under the compiler.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// Returns CR4: the bits that enable features of this CPU.
#[inline]
pub fn read_cr4() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Allows programs on this CPU to read the time-stamp counter if `allowed` is set. Otherwise such a
/// read raises a general protection fault in the program.
pub fn allow_user_tsc(allowed: bool) {
    /// Only kernel mode may read the counter.
    const TSD: u64 = 1 << 2;
    let others = read_cr4() & !TSD;
    // SAFETY: the kernel reads the counter either way, and memory is as before.
    unsafe { write_cr4(if allowed { others } else { others | TSD }) };
}

/// Writes `value` to CR4.
///
/// # Safety
/// `value` enables only features that the CPU has, and leaves PAE enabled.
#[inline]
pub unsafe fn write_cr4(value: u64) {
    // SAFETY: the caller vouches for the value.
    unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Flushes this CPU's TLB entry for the page at `address`, global or not.
#[inline]
pub fn invlpg(address: u64) {
    // SAFETY: dropping a translation never breaks a valid mapping.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Flushes all of this CPU's TLB entries that are not global.
#[inline]
pub fn flush_tlb_all() {
    // SAFETY: the same tables again.
    unsafe { write_cr3(read_cr3()) };
}

/// Flushes all of this CPU's TLB entries, global ones included.
pub fn flush_tlb_global() {
    const GLOBAL_PAGES: u64 = 1 << 7;
    let cr4 = read_cr4();
    // SAFETY: switching global pages off and on again drops them, and changes nothing else.
    unsafe {
        write_cr4(cr4 & !GLOBAL_PAGES);
        write_cr4(cr4);
    }
}

/// Returns the value of this CPU's time-stamp counter, in ticks.
#[inline]
pub fn rdtsc() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Writes the byte `value` to the I/O port with number `port`.
///
/// # Safety
/// The device behind the port must not affect the memory of the kernel as a result.
#[inline]
pub unsafe fn outb(port: u16, value: u8) {
    // SAFETY: the caller vouches for the port.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Reads one byte from the I/O port with number `port`, and returns it.
///
/// # Safety
/// The device behind the port must not affect the memory of the kernel as a result.
#[inline]
pub unsafe fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: the caller vouches for the port.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags));
    }
    value
}

/// Writes the 32 bits `value` to the I/O port with number `port`.
///
/// # Safety
/// The device behind the port must not affect the memory of the kernel as a result.
#[inline]
pub unsafe fn outl(port: u16, value: u32) {
    // SAFETY: the caller vouches for the port.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags));
    }
}

/// Reads 32 bits from the I/O port with number `port`, and returns them.
///
/// # Safety
/// The device behind the port must not affect the memory of the kernel as a result.
#[inline]
pub unsafe fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: the caller vouches for the port.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags));
    }
    value
}

/// Halts this CPU for ever, with interrupts off. Only non-maskable interrupts still run on it.
pub fn halt_forever() -> ! {
    loop {
        // SAFETY: interrupts stay off, nothing else runs.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

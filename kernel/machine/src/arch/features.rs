//! The optional features of the CPU and the hypervisor: detection and activation.

use super::cpu::{self, cpuid, msr};
use super::steal;
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

/// The optional features that the kernel uses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Feature {
    /// Pages of 1 GiB.
    GibPages = 1 << 0,
    /// The CPU forbids kernel mode to execute user pages.
    Smep = 1 << 1,
    /// The CPU forbids kernel mode to access user pages, except between `stac` and `clac`.
    Smap = 1 << 2,
    /// The CPU forbids `sgdt` and similar instructions in user mode.
    Umip = 1 << 3,
    /// The `xsave` family of instructions.
    Xsave = 1 << 4,
    /// AVX, and XSAVE for its state.
    Avx = 1 << 5,
    /// x2APIC mode: the APIC's registers are MSRs.
    X2apic = 1 << 6,
    /// The APIC timer fires at a value of the time-stamp counter.
    TscDeadline = 1 << 7,
    /// The `rdtscp` instruction and the MSR that it reads.
    Rdtscp = 1 << 8,
    /// `rep stosb` is fast for long runs.
    FastStrings = 1 << 9,
    /// The kernel runs under a hypervisor.
    Hypervisor = 1 << 10,
    /// The hypervisor is QEMU's translator (TCG).
    Tcg = 1 << 11,
    /// The hypervisor is KVM.
    Kvm = 1 << 12,
    /// The `rdrand` instruction.
    Rdrand = 1 << 13,
    /// The `rdseed` instruction.
    Rdseed = 1 << 14,
    /// KVM publishes the stolen time of each CPU, and whether the CPU runs.
    StealTime = 1 << 15,
    /// On request, KVM flushes the TLB of a CPU that does not run before it runs again.
    FlushByHost = 1 << 16,
}

static FEATURES: AtomicU32 = AtomicU32::new(0);

/// Returns whether the machine has `feature`. Always `false` before [`detect`].
#[inline]
pub fn has(feature: Feature) -> bool {
    // Relaxed: written once, before other CPUs run.
    FEATURES.load(Ordering::Relaxed) & feature as u32 != 0
}

/// Detects the features of the machine, for [`has`]. Called once, on the first CPU.
///
/// # Errors
/// The name of a feature that the kernel requires and the CPU does not have.
pub fn detect() -> Result<(), &'static str> {
    let max = cpuid(0, 0).eax;
    let one = cpuid(1, 0);
    for (bit, name) in [(0, "an FPU"), (9, "a local APIC"), (13, "global pages")]
        .into_iter()
        .chain([(4, "a time-stamp counter"), (24, "FXSAVE"), (26, "SSE2")])
    {
        if one.edx & 1 << bit == 0 {
            return Err(name);
        }
    }
    if cpuid(0x8000_0001, 0).edx & 1 << 11 == 0 {
        return Err("the syscall instruction");
    }
    let mut found = 0;
    let mut note = |present: bool, feature: Feature| {
        if present {
            found |= feature as u32;
        }
    };
    note(one.ecx & 1 << 26 != 0, Feature::Xsave);
    note(
        one.ecx & 1 << 26 != 0 && one.ecx & 1 << 28 != 0,
        Feature::Avx,
    );
    note(one.ecx & 1 << 21 != 0, Feature::X2apic);
    note(one.ecx & 1 << 24 != 0, Feature::TscDeadline);
    note(one.ecx & 1 << 30 != 0, Feature::Rdrand);
    if max >= 7 {
        let seven = cpuid(7, 0);
        note(seven.ebx & 1 << 7 != 0, Feature::Smep);
        note(seven.ebx & 1 << 20 != 0, Feature::Smap);
        note(seven.ebx & 1 << 9 != 0, Feature::FastStrings);
        note(seven.ebx & 1 << 18 != 0, Feature::Rdseed);
        note(seven.ecx & 1 << 2 != 0, Feature::Umip);
    }
    let extended = cpuid(0x8000_0001, 0);
    note(extended.edx & 1 << 26 != 0, Feature::GibPages);
    note(extended.edx & 1 << 27 != 0, Feature::Rdtscp);
    if one.ecx & 1 << 31 != 0 {
        note(true, Feature::Hypervisor);
        let signature = cpuid(0x4000_0000, 0);
        let name = [signature.ebx, signature.ecx, signature.edx].map(u32::to_le_bytes);
        note(name.as_flattened() == b"TCGTCGTCGTCG", Feature::Tcg);
        let is_kvm = name.as_flattened() == b"KVMKVMKVM\0\0\0";
        note(is_kvm, Feature::Kvm);
        if is_kvm && signature.eax > 0x4000_0000 {
            let offers = cpuid(0x4000_0001, 0).eax;
            note(offers & 1 << 5 != 0, Feature::StealTime);
            note(
                offers & (1 << 5 | 1 << 9) == 1 << 5 | 1 << 9,
                Feature::FlushByHost,
            );
        }
    }
    FEATURES.store(found, Ordering::Relaxed);
    Ok(())
}

/// Writes the `stac` and `clac` instructions into the kernel's code if the CPU has SMAP. Called
/// before the first [`switch_on`].
///
/// # Safety
/// The caller runs on the early page tables, which map the kernel image writable one to one. Called
/// once.
pub unsafe fn patch_smap_sites() {
    unsafe extern "C" {
        static smap_patches_start: u64;
        static smap_patches_end: u64;
    }
    if !has(Feature::Smap) {
        return;
    }
    let (start, end) = (&raw const smap_patches_start, &raw const smap_patches_end);
    // SAFETY: the linker script brackets the section, whose records are two u64 each: the site
    // (three bytes of `nop`) and what belongs there.
    unsafe {
        let mut record = start;
        while record < end {
            let site = (*record - super::KERNEL_BASE) as *mut u8;
            let code = (*record.add(1)).to_le_bytes();
            core::ptr::copy_nonoverlapping(code.as_ptr(), site, 3);
            record = record.add(2);
        }
    }
}

/// `stac` for `global_asm!` (AT&T or Intel syntax): code may access user pages from here on.
/// Without SMAP, it is a `nop`.
#[macro_export]
macro_rules! stac_asm {
    () => {
        "661: .byte 0x0f, 0x1f, 0x00\n\
         .pushsection .smap_patches, \"a\", @progbits\n .quad 661b, 0xcb010f\n .popsection\n"
    };
}

/// `clac` for `global_asm!`: code may no longer access user pages. Without SMAP, it is a `nop`.
#[macro_export]
macro_rules! clac_asm {
    () => {
        "661: .byte 0x0f, 0x1f, 0x00\n\
         .pushsection .smap_patches, \"a\", @progbits\n .quad 661b, 0xca010f\n .popsection\n"
    };
}

/// Enables the detected features on this CPU: the bits of CR4, the state components of XSAVE, the
/// CPU number for `rdtscp`, and the record of stolen time. Resets the x87 FPU.
pub fn switch_on() {
    const CR4_PGE: u64 = 1 << 7;
    const CR4_UMIP: u64 = 1 << 11;
    const CR4_OSXSAVE: u64 = 1 << 18;
    const CR4_SMEP: u64 = 1 << 20;
    const CR4_SMAP: u64 = 1 << 21;
    let mut cr4 = cpu::read_cr4() | CR4_PGE;
    for (feature, bit) in [
        (Feature::Smep, CR4_SMEP),
        (Feature::Smap, CR4_SMAP),
        (Feature::Umip, CR4_UMIP),
        (Feature::Xsave, CR4_OSXSAVE),
    ] {
        if has(feature) {
            cr4 |= bit;
        }
    }
    // SAFETY: only what CPUID says is there; kernel code does not touch user pages outside of
    // patched sites.
    unsafe { cpu::write_cr4(cr4) };
    if has(Feature::Xsave) {
        let mask: u32 = if has(Feature::Avx) { 0b111 } else { 0b011 };
        // SAFETY: x87 and SSE always, AVX where CPUID has it.
        unsafe {
            asm!("xsetbv", in("ecx") 0, in("eax") mask, in("edx") 0, options(nomem, nostack));
        }
    }
    if has(Feature::Rdtscp) {
        // What Linux's getcpu reads there: node << 12 | cpu.
        // SAFETY: only user code reads it.
        unsafe { cpu::wrmsr(msr::TSC_AUX, super::cpu_id() as u64) };
    }
    steal::switch_on();
    // SAFETY: leaves the FPU in its defined first state; the kernel does not use it.
    unsafe { asm!("fninit", options(nomem, nostack)) };
}

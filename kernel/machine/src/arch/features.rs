//! What this CPU can do, and switching it on.

use super::cpu::{self, cpuid, msr};
use super::steal;
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

/// Optional abilities that the kernel makes use of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Feature {
    /// Pages of 1 GiB.
    GibPages = 1 << 0,
    /// No execution of user pages in kernel mode.
    Smep = 1 << 1,
    /// No access to user pages in kernel mode but between `stac` and `clac`.
    Smap = 1 << 2,
    /// No `sgdt` and the like in user mode.
    Umip = 1 << 3,
    /// XSAVE.
    Xsave = 1 << 4,
    /// AVX, usable with XSAVE.
    Avx = 1 << 5,
    /// APIC registers as MSRs.
    X2apic = 1 << 6,
    /// The APIC timer compares with the time-stamp counter.
    TscDeadline = 1 << 7,
    /// RDTSCP and its MSR.
    Rdtscp = 1 << 8,
    /// `rep stosb` is fast for long runs.
    FastStrings = 1 << 9,
    /// Runs under a hypervisor.
    Hypervisor = 1 << 10,
    /// Runs on QEMU's translator.
    Tcg = 1 << 11,
    /// Runs on KVM.
    Kvm = 1 << 12,
    /// RDRAND.
    Rdrand = 1 << 13,
    /// RDSEED.
    Rdseed = 1 << 14,
    /// KVM publishes stolen time, and whether a CPU runs.
    StealTime = 1 << 15,
    /// KVM drops a CPU's TLB before it runs again, where it is asked to.
    FlushByHost = 1 << 16,
}

static FEATURES: AtomicU32 = AtomicU32::new(0);

/// Whether the CPU has it.
#[inline]
pub fn has(feature: Feature) -> bool {
    // Relaxed: written once, before other CPUs run.
    FEATURES.load(Ordering::Relaxed) & feature as u32 != 0
}

/// Asks the first CPU. Gives the name of a missing ability that the kernel cannot do without.
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

/// Makes the kernel's `stac` and `clac` sites real; before [`switch_on`] on the first CPU.
///
/// # Safety
/// While the image is writable one to one (early tables), once.
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

/// `stac` for `global_asm!` (AT&T or Intel syntax): user pages may be touched from here.
#[macro_export]
macro_rules! stac_asm {
    () => {
        "661: .byte 0x0f, 0x1f, 0x00\n\
         .pushsection .smap_patches, \"a\", @progbits\n .quad 661b, 0xcb010f\n .popsection\n"
    };
}

/// `clac` for `global_asm!`: user pages may no longer be touched.
#[macro_export]
macro_rules! clac_asm {
    () => {
        "661: .byte 0x0f, 0x1f, 0x00\n\
         .pushsection .smap_patches, \"a\", @progbits\n .quad 661b, 0xca010f\n .popsection\n"
    };
}

/// Switches this CPU's abilities on.
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

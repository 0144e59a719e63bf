//! The local APIC: timer, interrupts between CPUs, end of interrupt.

use super::clock;
use super::cpu::{self, msr};
use super::features::{self, Feature};
use super::interrupt;
use super::nanos::Nanos;
use super::paging::map_device;
use core::sync::atomic::{AtomicU64, Ordering};

/// Register offsets of the memory-mapped form; the MSR is `0x800 + offset / 16`.
mod register {
    pub(super) const ID: u32 = 0x20;
    pub(super) const TASK_PRIORITY: u32 = 0x80;
    pub(super) const END_OF_INTERRUPT: u32 = 0xb0;
    pub(super) const SPURIOUS: u32 = 0xf0;
    pub(super) const COMMAND: u32 = 0x300;
    pub(super) const COMMAND_HIGH: u32 = 0x310;
    pub(super) const TIMER: u32 = 0x320;
    pub(super) const LINT0: u32 = 0x350;
    pub(super) const LINT1: u32 = 0x360;
    pub(super) const ERROR: u32 = 0x370;
    pub(super) const INITIAL_COUNT: u32 = 0x380;
    pub(super) const CURRENT_COUNT: u32 = 0x390;
    pub(super) const DIVIDE: u32 = 0x3e0;
}

const MASKED: u32 = 1 << 16;
const TSC_DEADLINE_MODE: u32 = 2 << 17;
const ENABLED: u32 = 1 << 8;
const DIVIDE_BY_1: u32 = 0b1011;
const DELIVERY_PENDING: u32 = 1 << 12;
const LEVEL_ASSERT: u32 = 1 << 14;
const ALL_BUT_SELF: u32 = 3 << 18;
const MODE_NMI: u32 = 4 << 8;
const MODE_INIT: u32 = 5 << 8;
const MODE_STARTUP: u32 = 6 << 8;
/// Polls for an interrupt to be accepted before it is sent anyway.
const MAX_POLLS: u32 = 1_000_000;

/// Ticks of the timer a nanosecond are one: QEMU and KVM both run it at 1 GHz, divided by 1.
const MAX_COUNT: u64 = u32::MAX as u64;

/// Address of the registers; 0 in MSR form.
static REGISTERS: AtomicU64 = AtomicU64::new(0);

#[inline]
fn read(register: u32) -> u32 {
    let base = REGISTERS.load(Ordering::Relaxed);
    if base == 0 {
        cpu::rdmsr(msr::X2APIC + register / 16) as u32
    } else {
        // SAFETY: mapped registers of this CPU's APIC.
        unsafe { ((base + u64::from(register)) as *const u32).read_volatile() }
    }
}

#[inline]
fn write(register: u32, value: u32) {
    let base = REGISTERS.load(Ordering::Relaxed);
    // SAFETY: this CPU's APIC; the written values concern interrupts only.
    unsafe {
        if base == 0 {
            cpu::wrmsr(msr::X2APIC + register / 16, u64::from(value));
        } else {
            ((base + u64::from(register)) as *mut u32).write_volatile(value);
        }
    }
}

/// Maps the registers; first CPU.
pub(super) fn init() {
    if !features::has(Feature::X2apic) {
        let phys = cpu::rdmsr(msr::APIC_BASE) & 0x000f_ffff_ffff_f000;
        REGISTERS.store(map_device(phys, 4096) as u64, Ordering::Relaxed);
    }
    switch_on();
}

/// Switches this CPU's APIC on; its number.
pub(super) fn switch_on() -> u32 {
    const GLOBAL_ENABLE: u64 = 1 << 11;
    const X2APIC_MODE: u64 = 1 << 10;
    let mut base = cpu::rdmsr(msr::APIC_BASE) | GLOBAL_ENABLE;
    if features::has(Feature::X2apic) {
        base |= X2APIC_MODE;
    }
    // SAFETY: enables interrupts' source, IF stays off.
    unsafe { cpu::wrmsr(msr::APIC_BASE, base) };
    write(register::SPURIOUS, ENABLED | interrupt::SPURIOUS as u32);
    set_task_priority(0);
    write(register::LINT0, MASKED);
    write(register::LINT1, MASKED);
    write(register::ERROR, MASKED);
    write(register::DIVIDE, DIVIDE_BY_1);
    stop_timer();
    id()
}

/// This CPU's APIC number.
pub(super) fn id() -> u32 {
    let raw = read(register::ID);
    if REGISTERS.load(Ordering::Relaxed) == 0 {
        raw
    } else {
        raw >> 24
    }
}

/// Ends the interrupt that is being served.
#[inline]
pub(super) fn end_of_interrupt() {
    write(register::END_OF_INTERRUPT, 0);
}

/// Lets the timer count down from its greatest value, without an interrupt.
pub(super) fn start_reference() {
    write(register::TIMER, MASKED | interrupt::TIMER as u32);
    write(register::INITIAL_COUNT, u32::MAX);
}

/// Nanoseconds since [`start_reference`]; stands still after 4.29 s.
pub(super) fn elapsed_ns() -> u64 {
    u64::from(u32::MAX - read(register::CURRENT_COUNT))
}

/// Has the timer's interrupt come at a time, or earlier where that is out of its range.
pub(super) fn start_timer(deadline: Nanos) {
    if features::has(Feature::TscDeadline) {
        write(register::TIMER, TSC_DEADLINE_MODE | interrupt::TIMER as u32);
        // SAFETY: orders the mode before the deadline, and sets this CPU's timer. 0 would stop it.
        unsafe {
            core::arch::x86_64::_mm_mfence();
            cpu::wrmsr(msr::TSC_DEADLINE, clock::tsc_at(deadline).max(1));
        }
    } else {
        let ns = deadline.saturating_sub(clock::now()).0.clamp(1, MAX_COUNT);
        write(register::TIMER, interrupt::TIMER as u32);
        write(register::INITIAL_COUNT, ns as u32);
    }
}

/// No more interrupts from the timer until it is started again.
pub(super) fn stop_timer() {
    write(register::TIMER, MASKED | interrupt::TIMER as u32);
    write(register::INITIAL_COUNT, 0);
}

/// Sends a command to a CPU by its APIC number, or by the shorthand in the command.
fn command(destination: u32, command: u32) {
    if REGISTERS.load(Ordering::Relaxed) == 0 {
        // The MSR write is not ordered behind earlier stores by itself.
        // SAFETY: a fence, and a command that the callers below vouch for.
        unsafe {
            core::arch::x86_64::_mm_mfence();
            let value = u64::from(destination) << 32 | u64::from(command);
            cpu::wrmsr(msr::X2APIC + register::COMMAND / 16, value);
        }
        return;
    }
    let mut polls = 0;
    while read(register::COMMAND) & DELIVERY_PENDING != 0 && polls < MAX_POLLS {
        polls += 1;
        core::hint::spin_loop();
    }
    write(register::COMMAND_HIGH, destination << 24);
    write(register::COMMAND, command);
}

/// Holds back interrupts of the class of `priority` (its upper four bits) and below.
///
/// This does not use CR8, the same register: if QEMU emulates SVM, a guest's write to CR8 ends QEMU
/// when an interrupt is pending (`host/lab/README.md`). Only a CPU that is about to halt calls
/// this.
pub(super) fn set_task_priority(priority: u32) {
    write(register::TASK_PRIORITY, priority);
}

/// Sends an interrupt to one CPU.
pub(super) fn send(apic_id: u32, vector: u64) {
    command(apic_id, LEVEL_ASSERT | vector as u32);
}

/// Resets a CPU so that it waits for [`send_startup`].
pub(super) fn send_init(apic_id: u32) {
    command(apic_id, LEVEL_ASSERT | MODE_INIT);
}

/// Starts a CPU in real mode at a page below 1 MiB.
pub(super) fn send_startup(apic_id: u32, page: u8) {
    command(apic_id, LEVEL_ASSERT | MODE_STARTUP | u32::from(page));
}

/// Sends every other CPU a non-maskable interrupt.
pub(super) fn send_nmi_to_others() {
    command(0, ALL_BUT_SELF | LEVEL_ASSERT | MODE_NMI);
}

//! The local APIC: the timer, interrupts between CPUs, and the end of an interrupt.

use super::clock;
use super::cpu::{self, msr};
use super::features::{self, Feature};
use super::interrupt;
use super::nanos::Nanos;
use super::paging::map_device;
use core::sync::atomic::{AtomicU64, Ordering};

/// Offsets of registers in the memory-mapped form. The MSR of a register is `0x800 + offset / 16`.
mod register {
    /// The local APIC ID.
    pub(super) const ID: u32 = 0x20;
    /// The task priority.
    pub(super) const TASK_PRIORITY: u32 = 0x80;
    /// The end of an interrupt: a write of 0 ends it.
    pub(super) const END_OF_INTERRUPT: u32 = 0xb0;
    /// The vector of spurious interrupts, and the bit that enables the APIC.
    pub(super) const SPURIOUS: u32 = 0xf0;
    /// The interrupt command, low half. A write sends the interrupt.
    pub(super) const COMMAND: u32 = 0x300;
    /// The interrupt command, high half: the destination.
    pub(super) const COMMAND_HIGH: u32 = 0x310;
    /// The vector and mode of the timer.
    pub(super) const TIMER: u32 = 0x320;
    /// The vector and mode of the pin LINT0.
    pub(super) const LINT0: u32 = 0x350;
    /// The vector and mode of the pin LINT1.
    pub(super) const LINT1: u32 = 0x360;
    /// The vector of the APIC's own errors.
    pub(super) const ERROR: u32 = 0x370;
    /// The count from which the timer counts down. A write starts the timer.
    pub(super) const INITIAL_COUNT: u32 = 0x380;
    /// The present count of the timer.
    pub(super) const CURRENT_COUNT: u32 = 0x390;
    /// The divisor of the timer's clock.
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
/// The most polls for the previous command to be accepted before the next one is sent anyway.
const MAX_POLLS: u32 = 1_000_000;

/// The greatest count of the timer. A count is one nanosecond: QEMU and KVM both run the timer at 1
/// GHz, divided by 1.
const MAX_COUNT: u64 = u32::MAX as u64;

/// Virtual address of the memory-mapped registers; 0 if the APIC is in x2APIC mode, where registers
/// are MSRs.
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

/// Prepares the local APIC of the first CPU, and switches it on. Maps its registers if the CPU has
/// no x2APIC mode. Only the first CPU calls this.
pub(super) fn init() {
    if !features::has(Feature::X2apic) {
        let phys = cpu::rdmsr(msr::APIC_BASE) & 0x000f_ffff_ffff_f000;
        REGISTERS.store(map_device(phys, 4096) as u64, Ordering::Relaxed);
    }
    switch_on();
}

/// Switches on this CPU's local APIC, with the timer stopped and the pins masked. Returns its APIC
/// ID.
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

/// Returns this CPU's APIC ID.
pub(super) fn id() -> u32 {
    let raw = read(register::ID);
    if REGISTERS.load(Ordering::Relaxed) == 0 {
        raw
    } else {
        raw >> 24
    }
}

/// Tells this CPU's APIC that the interrupt that is being served has ended.
#[inline]
pub(super) fn end_of_interrupt() {
    write(register::END_OF_INTERRUPT, 0);
}

/// Starts this CPU's APIC timer at its greatest count, without an interrupt. [`elapsed_ns`] then
/// reads the time since this call.
pub(super) fn start_reference() {
    write(register::TIMER, MASKED | interrupt::TIMER as u32);
    write(register::INITIAL_COUNT, u32::MAX);
}

/// Returns the nanoseconds since [`start_reference`] was called on this CPU. The value stops
/// growing after 4.29 s.
pub(super) fn elapsed_ns() -> u64 {
    u64::from(u32::MAX - read(register::CURRENT_COUNT))
}

/// Sets this CPU's APIC timer to interrupt at `deadline`. If `deadline` is further away than the
/// timer can count, the interrupt comes earlier.
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

/// Stops this CPU's APIC timer until [`start_timer`] starts it again.
pub(super) fn stop_timer() {
    write(register::TIMER, MASKED | interrupt::TIMER as u32);
    write(register::INITIAL_COUNT, 0);
}

/// Sends the interrupt command `command` to the CPU with APIC ID `destination`, or to the CPUs that
/// a shorthand in `command` names.
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

/// Makes this CPU's APIC hold back interrupts of the class of `priority` (its upper four bits) and
/// of lower classes.
///
/// This does not use CR8, the same register: if QEMU emulates SVM, a guest's write to CR8 ends QEMU
/// when an interrupt is pending (`host/lab/README.md`). Only a CPU that is about to halt calls
/// this.
pub(super) fn set_task_priority(priority: u32) {
    write(register::TASK_PRIORITY, priority);
}

/// Sends an interrupt with this `vector` to the CPU with APIC ID `apic_id`.
pub(super) fn send(apic_id: u32, vector: u64) {
    command(apic_id, LEVEL_ASSERT | vector as u32);
}

/// Sends an INIT interrupt, which resets the CPU with APIC ID `apic_id`. That CPU then waits for
/// [`send_startup`].
pub(super) fn send_init(apic_id: u32) {
    command(apic_id, LEVEL_ASSERT | MODE_INIT);
}

/// Starts the CPU with APIC ID `apic_id` in real mode at physical address `page * 4096`.
pub(super) fn send_startup(apic_id: u32, page: u8) {
    command(apic_id, LEVEL_ASSERT | MODE_STARTUP | u32::from(page));
}

/// Sends a non-maskable interrupt to every other CPU.
pub(super) fn send_nmi_to_others() {
    command(0, ALL_BUT_SELF | LEVEL_ASSERT | MODE_NMI);
}

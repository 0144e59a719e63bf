//! A kernel bug: say what is known, end the VM.

use super::layout::{KERNEL_BASE, PHYSMAP_BASE};
use super::{UserFrame, apic, boot, cpu, header, percpu, phys_to_virt, power};
use boot::paging::{self, bits};
use core::arch::asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ebb_mm::shared::stage;

/// Frames of the backtrace.
const MAX_FRAMES: usize = 24;
/// Words of the stack looked at for callers.
const STACK_WORDS: u64 = 128;

/// The others are to stop: the NMI's handler halts.
pub(super) static STOPPING: AtomicBool = AtomicBool::new(false);
/// The CPU that reports, plus one.
static REPORTER: AtomicU32 = AtomicU32::new(0);

/// Makes the calling CPU the only one that runs. A second panic on the same CPU gives true.
fn take_over() -> bool {
    let me = percpu::cpu_id() as u32 + 1;
    // Relaxed: only who was first matters.
    match REPORTER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            STOPPING.store(true, Ordering::SeqCst);
            if percpu::cpu_count() > 1 {
                apic::send_nmi_to_others();
            }
            header::HEADER
                .stage
                .store(stage::PANICKED, Ordering::Release);
            false
        }
        Err(owner) if owner == me => true,
        Err(_) => cpu::halt_forever(),
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if take_over() {
        crate::console!("panic while panicking: {info}");
        power::end(power::PANIC_CODE);
    }
    crate::console!("kernel {info}");
    report_cpu();
    let frame: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    backtrace(frame);
    power::end(power::PANIC_CODE)
}

/// A trap of kernel mode that nobody can serve.
pub(super) fn trapped(frame: &UserFrame, vector: u64, address: u64) -> ! {
    if take_over() {
        crate::console!("trap {vector} while panicking, at {:#x}", frame.rip);
        power::end(power::PANIC_CODE);
    }
    crate::console!(
        "kernel panicked: {} ({vector}, error {:#x}) at {:#x}, address {address:#x}",
        name(vector),
        frame.error,
        frame.rip
    );
    report_cpu();
    let f = frame;
    crate::console!(
        "rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}",
        f.rax,
        f.rbx,
        f.rcx,
        f.rdx
    );
    crate::console!(
        "rsi {:016x} rdi {:016x} rbp {:016x} rsp {:016x}",
        f.rsi,
        f.rdi,
        f.rbp,
        f.rsp
    );
    crate::console!(
        "r8  {:016x} r9  {:016x} r10 {:016x} r11 {:016x}",
        f.r8,
        f.r9,
        f.r10,
        f.r11
    );
    crate::console!(
        "r12 {:016x} r13 {:016x} r14 {:016x} r15 {:016x}",
        f.r12,
        f.r13,
        f.r14,
        f.r15
    );
    crate::console!(
        "rflags {:x} cs {:x} cr3 {:x}",
        f.rflags,
        f.cs,
        cpu::read_cr3()
    );
    crate::console!("  at {:#x}", frame.rip);
    backtrace(frame.rbp);
    guess_callers(frame.rsp);
    power::end(power::PANIC_CODE)
}

/// Words on the stack that may be return addresses; where the chain of frame pointers is broken,
/// or the trapped function had not set up its frame.
fn guess_callers(rsp: u64) {
    let code = paging::code();
    let mut found = 0;
    for at in (rsp..rsp.saturating_add(STACK_WORDS * 8)).step_by(8) {
        if found == MAX_FRAMES || !readable(at) {
            return;
        }
        // SAFETY: looked at above.
        let word = unsafe { (at as *const u64).read_volatile() };
        if code.contains(word.wrapping_sub(KERNEL_BASE)) {
            crate::console!("  at {word:#x}? (stack + {:#x})", at - rsp);
            found += 1;
        }
    }
}

fn report_cpu() {
    crate::console!(
        "cpu {} of {}, task {:#x}",
        percpu::cpu_id(),
        percpu::cpu_count(),
        percpu::current_task()
    );
}

/// Whether 8 bytes at a kernel address can be read, by the present page tables.
fn readable(address: u64) -> bool {
    if address < PHYSMAP_BASE || !address.is_multiple_of(8) || address > u64::MAX - 16 {
        return false;
    }
    let mut table = paging::root();
    for level in (0..4u32).rev() {
        let index = (address >> (12 + 9 * level)) & 511;
        // SAFETY: page tables are RAM, which the physmap covers.
        let entry = unsafe {
            phys_to_virt(table)
                .cast::<u64>()
                .add(index as usize)
                .read_volatile()
        };
        if entry & bits::PRESENT == 0 {
            return false;
        }
        if entry & bits::LARGE != 0 && level > 0 {
            return true;
        }
        table = entry & bits::ADDRESS;
    }
    true
}

/// Follows the chain of frame pointers, which may be anything.
fn backtrace(mut frame: u64) {
    for _ in 0..MAX_FRAMES {
        if !readable(frame) || !readable(frame + 8) {
            return;
        }
        // SAFETY: looked at above.
        let (next, caller) = unsafe { (*(frame as *const u64), *(frame as *const u64).add(1)) };
        if caller < KERNEL_BASE {
            return;
        }
        crate::console!("  at {caller:#x}");
        if next <= frame {
            return;
        }
        frame = next;
    }
}

fn name(vector: u64) -> &'static str {
    use super::traps::vector as v;
    match vector {
        v::DIVIDE => "division by zero",
        v::DEBUG => "debug exception",
        v::BREAKPOINT => "breakpoint",
        v::INVALID_OPCODE => "invalid instruction",
        v::DOUBLE_FAULT => "double fault (kernel stack overflow?)",
        v::STACK => "stack fault",
        v::GENERAL_PROTECTION => "general protection fault",
        v::PAGE_FAULT => "page fault",
        v::MACHINE_CHECK => "machine check",
        _ => "exception",
    }
}

/// The precompiled `alloc` names it; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// The precompiled `alloc` names it, too: where an unwinding would go on.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    cpu::halt_forever()
}

//! Handles bugs in the kernel: prints the known facts and ends the VM.

use super::layout::{KERNEL_BASE, PHYSMAP_BASE};
use super::percpu::Regained;
use super::stopping::STOPPING;
use super::{UserFrame, apic, console, cpu, header, paging, percpu, phys_to_virt, power, pte};
use core::arch::asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering};
use ebb_wire::header::stage;

/// The most frames of a backtrace.
const MAX_FRAMES: usize = 24;
/// The number of words of the stack that are searched for callers.
const STACK_WORDS: u64 = 128;

/// The number of the CPU that reports, plus one, or [`UNKNOWN`]; 0 if none does.
static REPORTER: AtomicU32 = AtomicU32::new(0);
/// The number of panics and traps of that CPU.
static DEPTH: AtomicU32 = AtomicU32::new(0);
/// The value of [`REPORTER`] for a CPU that has no area yet.
const UNKNOWN: u32 = u32::MAX;

/// What a CPU that has hit a bug may still do.
enum Report {
    /// Print all facts: this CPU has its area, and is the only one that runs.
    Full(Regained),
    /// Print one line, with only the serial port: a longer report hit a bug, too, or this CPU has
    /// no area.
    Short,
}

/// Makes the calling CPU the only one that runs. Returns [`Report::Full`] at the first call if the
/// CPU's area is known. Returns [`Report::Short`] at the second call, or if the area is unknown.
/// The third call ends the VM, so that a bug in here cannot repeat without end. A call on another
/// CPU than that of the first call halts that CPU.
///
/// Until this CPU's GS base is known, neither it nor any lock is used.
fn take_over() -> Report {
    let regained = percpu::regain();
    #[allow(clippy::cast_possible_truncation, reason = "below MAX_CPUS")]
    let me = regained.map_or(UNKNOWN, |regained| regained.cpu as u32 + 1);
    // Relaxed: only who was first matters.
    match REPORTER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Err(owner) if owner != me => cpu::halt_forever(),
        _ => {}
    }
    // Relaxed: the CPU's own count.
    match DEPTH.fetch_add(1, Ordering::Relaxed) {
        0 => {
            STOPPING.store(true, Ordering::SeqCst);
            header::HEADER
                .stage
                .store(stage::PANICKED, Ordering::Release);
            if percpu::cpu_count() > 1 {
                apic::send_nmi_to_others();
            }
            regained.map_or(Report::Short, Report::Full)
        }
        1 => Report::Short,
        _ => power::end(power::PANIC_CODE),
    }
}

/// Returns the words for the occasion of a short report.
fn occasion() -> &'static str {
    // Relaxed: as in `take_over`.
    if DEPTH.load(Ordering::Relaxed) > 1 {
        "while panicking"
    } else {
        "before anything could be told"
    }
}

#[cfg_attr(feature = "runtime", panic_handler)]
#[cfg_attr(
    not(feature = "runtime"),
    allow(dead_code, reason = "nothing panics here")
)]
fn panic(info: &PanicInfo<'_>) -> ! {
    let Report::Full(regained) = take_over() else {
        console::bare_line(format_args!("kernel panicked {}: {info}", occasion()));
        power::end(power::PANIC_CODE);
    };
    crate::console!("kernel {info}");
    report_cpu(regained);
    let frame: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    backtrace(frame);
    power::end(power::PANIC_CODE)
}

/// Reports the exception `vector` in kernel mode, which has no handler, and ends the VM. `frame`
/// has the registers at that time. `address` is the address that a page fault was for.
pub(super) fn trapped(frame: &UserFrame, vector: u64, address: u64) -> ! {
    let Report::Full(regained) = take_over() else {
        console::bare_line(format_args!(
            "kernel panicked {}: {} ({vector}, error {:#x}) at {:#x}, address {address:#x}",
            occasion(),
            name(vector),
            frame.error,
            frame.rip
        ));
        power::end(power::PANIC_CODE);
    };
    crate::console!(
        "kernel panicked: {} ({vector}, error {:#x}) at {:#x}, address {address:#x}",
        name(vector),
        frame.error,
        frame.rip
    );
    report_cpu(regained);
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

/// Prints the words on the stack from `rsp` on that may be return addresses. Needed if the chain of
/// frame pointers is broken, or the trapped function had not set up its frame.
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

fn report_cpu(regained: Regained) {
    crate::console!(
        "cpu {} of {}, task {:#x}",
        regained.cpu,
        percpu::cpu_count(),
        percpu::current_thread()
    );
    if let Some(lost) = regained.lost {
        crate::console!("its GS base was {lost:#x}, which is not its area");
    }
}

/// Returns whether the 8 bytes at `address` can be read through the present page tables. Returns
/// `false` if `address` is not a multiple of 8 or no kernel address.
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
        if entry & pte::PRESENT == 0 {
            return false;
        }
        if entry & pte::LARGE != 0 && level > 0 {
            return true;
        }
        table = entry & pte::ADDRESS;
    }
    true
}

/// Prints the chain of frame pointers from `frame` on. The pointers may have any value.
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

/// Exists because the precompiled `alloc` refers to it. It is never called, because a panic ends
/// the VM and unwinds no stack.
#[cfg(feature = "runtime")]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Exists because the precompiled `alloc` refers to it: unwinding would continue here. It is never
/// called, because a panic ends the VM and unwinds no stack.
#[cfg(feature = "runtime")]
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    cpu::halt_forever()
}

//! The per-CPU area, which a CPU finds through its GS base, with its descriptor tables and
//! exception stacks.

use super::cpu::{self, msr};
use super::cpuset::{CpuSet, MAX_CPUS};
use super::frame::{KERNEL_CS, KERNEL_SS};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The size in bytes of each stack that an exception switches to.
const IST_BYTES: usize = 8192;
/// The number of the non-maskable interrupt's stack in the interrupt stack table (IST).
pub(super) const IST_NMI: u8 = 1;
/// The IST number of the double fault. An overflow of a kernel stack becomes a double fault.
pub(super) const IST_DOUBLE_FAULT: u8 = 2;
/// The IST number of the machine check.
pub(super) const IST_MACHINE_CHECK: u8 = 3;
/// The IST number of single steps and breakpoints.
pub(super) const IST_DEBUG: u8 = 4;
/// Selector of the task state segment.
const TSS_SELECTOR: u16 = 0x40;

/// The hardware's task state segment: the stacks to switch to.
#[derive(Debug)]
#[repr(C, packed(4))]
struct TaskState {
    reserved0: u32,
    rsp: [u64; 3],
    reserved1: u64,
    ist: [u64; 7],
    reserved2: [u16; 5],
    io_map: u16,
}

const _: () = assert!(size_of::<TaskState>() == 104);

/// The area of a CPU: the values that the assembly of the entries and exits needs, and the CPU's
/// descriptor tables.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PerCpu {
    /// The top of the current thread's kernel stack, for `syscall`. The TSS has the same value.
    kernel_stack: u64,
    /// Scratch space of two entries: the user's stack pointer during the entry of a system call,
    /// and the user's RAX during a debug exception from user mode.
    user_rsp: u64,
    /// The current thread's work word: the work that is due before it returns to user mode.
    work: *const AtomicU32,
    /// The address of the current thread (`sched::Thread`).
    current: usize,
    /// This CPU's number.
    id: u32,
    /// Its APIC ID.
    apic_id: AtomicU32,
    /// The number of spin locks that this CPU holds.
    spin_locks: u32,
    /// The value of spin locks that this CPU holds: its number plus one.
    mark: u32,
    /// The address of this CPU's data in `memory`.
    memory: usize,
    /// The address of the FPU state that the registers hold; 0 for none.
    fpu_owner: usize,
    /// The address of this area itself.
    this: *const PerCpu,
    tss: TaskState,
    gdt: [u64; 10],
}

/// The area of a CPU and its exception stacks, allocated together.
#[repr(C, align(4096))]
pub(super) struct Block {
    area: PerCpu,
    nmi: IstStack,
    double_fault: IstStack,
    machine_check: IstStack,
    debug: IstStack,
}

#[repr(C, align(4096))]
struct IstStack([u8; IST_BYTES]);

/// Offsets of fields of [`PerCpu`] for assembly.
pub(super) mod offset {
    use super::{PerCpu, TaskState, offset_of};
    /// The offset of the top of the kernel stack.
    pub(in super::super) const KERNEL_STACK: usize = offset_of!(PerCpu, kernel_stack);
    /// The offset of the place for the user's stack pointer.
    pub(in super::super) const USER_RSP: usize = offset_of!(PerCpu, user_rsp);
    /// The offset of the address of the work word.
    pub(in super::super) const WORK: usize = offset_of!(PerCpu, work);
    /// The offset of the current thread's address.
    pub(super) const CURRENT: usize = offset_of!(PerCpu, current);
    /// The offset of the CPU's number.
    pub(super) const ID: usize = offset_of!(PerCpu, id);
    /// The offset of the number of held spin locks.
    pub(super) const SPIN_LOCKS: usize = offset_of!(PerCpu, spin_locks);
    /// The offset of the value of held spin locks.
    pub(super) const MARK: usize = offset_of!(PerCpu, mark);
    /// The offset of the address of the CPU's data in `memory`.
    pub(super) const MEMORY: usize = offset_of!(PerCpu, memory);
    /// The offset of the address of the FPU state in the registers.
    pub(super) const FPU_OWNER: usize = offset_of!(PerCpu, fpu_owner);
    /// The offset of the kernel stack pointer in the task state segment.
    pub(super) const TSS_RSP0: usize = offset_of!(PerCpu, tss) + offset_of!(TaskState, rsp);
}

/// The offset from the GS base of the address of the current thread's work word
/// ([`set_work_flags`]), for assembly outside of `arch`.
pub const WORK_OFFSET: usize = offset::WORK;

/// The work word of a CPU that runs no thread.
static NO_WORK: AtomicU32 = AtomicU32::new(0);

static AREAS: [AtomicPtr<PerCpu>; MAX_CPUS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];
static ONLINE: CpuSet = CpuSet::new();

/// The block of the first CPU, which needs one before there is an allocator.
#[repr(transparent)]
struct FirstBlock(UnsafeCell<core::mem::MaybeUninit<Block>>);

// SAFETY: only the first CPU touches it, through its GS base.
unsafe impl Sync for FirstBlock {}

#[unsafe(link_section = ".bss.pages.percpu")]
static FIRST: FirstBlock = FirstBlock(UnsafeCell::new(core::mem::MaybeUninit::zeroed()));

/// Initializes the area of CPU `cpu` in `block`, and registers it.
///
/// # Safety
/// `block` is zeroed, has the size and alignment of [`Block`], and is never used for anything else.
pub(super) unsafe fn prepare(block: *mut Block, cpu: usize) {
    assert!(cpu < MAX_CPUS);
    // SAFETY: the caller gives the block; zero is a valid value of every field.
    let area = unsafe { &mut (*block).area };
    area.this = area;
    area.work = &NO_WORK;
    area.memory = (super::entries::ENTRIES.memory_own)(cpu);
    #[allow(clippy::cast_possible_truncation, reason = "below MAX_CPUS")]
    {
        area.id = cpu as u32;
        area.mark = cpu as u32 + 1;
    }
    // SAFETY: only addresses are taken.
    let tops = unsafe {
        [
            &raw const (*block).nmi,
            &raw const (*block).double_fault,
            &raw const (*block).machine_check,
            &raw const (*block).debug,
        ]
        .map(|stack| stack.add(1) as u64)
    };
    let mut ist = [0; 7];
    ist[usize::from(IST_NMI) - 1] = tops[0];
    ist[usize::from(IST_DOUBLE_FAULT) - 1] = tops[1];
    ist[usize::from(IST_MACHINE_CHECK) - 1] = tops[2];
    ist[usize::from(IST_DEBUG) - 1] = tops[3];
    area.tss.ist = ist;
    // No I/O permission map: it would begin behind the segment.
    area.tss.io_map = 104;
    let base = (&raw const area.tss) as u64;
    let limit = size_of::<TaskState>() as u64 - 1;
    area.gdt = [
        0,
        0x00cf_9b00_0000_ffff, // 0x08: kernel, 32-bit code
        0x00af_9b00_0000_ffff, // 0x10: kernel code
        0x00cf_9300_0000_ffff, // 0x18: kernel data
        0x00cf_fb00_0000_ffff, // 0x20: user, 32-bit code (sysret's base)
        0x00cf_f300_0000_ffff, // 0x28: user data
        0x00af_fb00_0000_ffff, // 0x30: user code
        0,
        limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56,
        base >> 32,
    ];
    // Release: partner of the Acquire in `area`.
    AREAS[cpu].store(area, Ordering::Release);
}

/// Initializes and installs the area of the first CPU.
///
/// # Safety
/// Called once, on the first CPU, before any other code that uses its area.
pub(super) unsafe fn install_first() {
    // SAFETY: the static is zeroed and used here only.
    unsafe {
        prepare(FIRST.0.get().cast(), 0);
        install(0);
    }
}

/// Makes this CPU use the prepared area of CPU number `cpu`: loads its descriptor tables and its GS
/// base.
///
/// # Safety
/// Called once for each number, on the CPU that gets this number.
pub(super) unsafe fn install(cpu: usize) {
    let area = area(cpu);
    assert!(!area.is_null());
    // SAFETY: the area lives for ever; its tables are complete; selectors fit the table.
    unsafe {
        let pointer = TablePointer {
            limit: (size_of::<[u64; 10]>() - 1) as u16,
            base: (&raw const (*area).gdt) as u64,
        };
        asm!("lgdt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags));
        asm!(
            "push {cs}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {ss:e}",
            "mov es, {ss:e}",
            "mov ss, {ss:e}",
            "mov fs, {zero:e}",
            "mov gs, {zero:e}",
            cs = in(reg) u64::from(KERNEL_CS),
            ss = in(reg) u64::from(KERNEL_SS),
            zero = in(reg) 0u64,
            scratch = out(reg) _,
        );
        cpu::wrmsr(msr::GS_BASE, area as u64);
        cpu::wrmsr(msr::KERNEL_GS_BASE, 0);
        asm!("ltr {:x}", in(reg) TSS_SELECTOR, options(nostack, preserves_flags));
    }
}

/// The identity of this CPU, as [`regain`] has found it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Regained {
    /// This CPU's number.
    pub(super) cpu: usize,
    /// The wrong value that its GS base had; `None` if it was right.
    pub(super) lost: Option<u64>,
}

/// Identifies this CPU by the address of its descriptor table, and restores its GS base. Only code
/// that handles a bug calls this, because it can rely on no other state. Returns `None` if
/// [`install`] has not run on this CPU.
pub(super) fn regain() -> Option<Regained> {
    let mut pointer = TablePointer { limit: 0, base: 0 };
    // SAFETY: stores ten bytes, the size of the operand.
    unsafe { asm!("sgdt [{}]", in(reg) &raw mut pointer, options(nostack, preserves_flags)) };
    let at = pointer.base.wrapping_sub(offset_of!(PerCpu, gdt) as u64);
    // Not by their contents: an area is only looked at once it is known to be one.
    let cpu = (0..MAX_CPUS).find(|cpu| !area(*cpu).is_null() && area(*cpu) as u64 == at)?;
    let found = cpu::rdmsr(msr::GS_BASE);
    if found == at {
        return Some(Regained { cpu, lost: None });
    }
    // SAFETY: the area of this CPU, whose table is in it.
    unsafe { cpu::wrmsr(msr::GS_BASE, at) };
    Some(Regained {
        cpu,
        lost: Some(found),
    })
}

/// The operand of `lgdt`, `lidt` and `sgdt`.
#[repr(C, packed)]
pub(super) struct TablePointer {
    /// The size of the table in bytes, minus one.
    pub(super) limit: u16,
    /// The virtual address of the table.
    pub(super) base: u64,
}

fn area(cpu: usize) -> *mut PerCpu {
    // Acquire: partner of the Release in `prepare`.
    AREAS[cpu].load(Ordering::Acquire)
}

/// Returns the APIC ID of CPU `cpu`, or 0 if the CPU is not online yet. Returns `None` if the CPU
/// has no area.
pub(super) fn apic_id(cpu: usize) -> Option<u32> {
    let area = area(cpu);
    // SAFETY: areas live for ever. Relaxed: the CPU set it before it came online.
    (!area.is_null()).then(|| unsafe { (*area).apic_id.load(Ordering::Relaxed) })
}

/// Records `apic_id` as this CPU's APIC ID, and adds the CPU to [`online_cpus`].
pub(super) fn set_online(apic_id: u32) {
    let cpu = cpu_id();
    // SAFETY: areas live for ever.
    unsafe { (*area(cpu)).apic_id.store(apic_id, Ordering::Relaxed) };
    ONLINE.insert(cpu);
}

/// Returns the number of this CPU, 0 to [`MAX_CPUS`] - 1.
#[inline]
pub fn cpu_id() -> usize {
    let id: u32;
    // SAFETY: GS holds this CPU's area from its first Rust code on. Not `pure`: a thread that was
    // switched away may go on on another CPU.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) id, const offset::ID,
             options(readonly, nostack, preserves_flags));
    }
    id as usize
}

/// Returns the address of the data that `memory` has for this CPU, as
/// [`Entries::memory_own`](super::Entries::memory_own) returned it.
#[inline]
pub fn memory_own() -> usize {
    let own;
    // SAFETY: as in `cpu_id`.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) own, const offset::MEMORY,
             options(pure, readonly, nostack, preserves_flags));
    }
    own
}

/// Returns the number of this CPU plus one, with which the CPU marks the spin locks that it holds.
/// The mark is never 0 and fits a byte.
#[inline]
pub(super) fn mark() -> u8 {
    let mark: u8;
    // SAFETY: as in `cpu_id`; the low byte of the field.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg_byte) mark, const offset::MARK,
             options(readonly, nostack, preserves_flags));
    }
    mark
}

/// Increments the number of spin locks that this CPU holds.
#[inline]
pub fn count_spin_lock() {
    // SAFETY: as in `cpu_id`; only this CPU writes its area.
    unsafe { asm!("inc dword ptr gs:[{}]", const offset::SPIN_LOCKS, options(nostack)) };
}

/// Decrements the number of spin locks that this CPU holds.
#[inline]
pub fn uncount_spin_lock() {
    // SAFETY: as in `count_spin_lock`.
    unsafe { asm!("dec dword ptr gs:[{}]", const offset::SPIN_LOCKS, options(nostack)) };
}

/// Returns the number of spin locks that this CPU holds.
#[inline]
pub fn spin_locks() -> u32 {
    let held;
    // SAFETY: as in `cpu_id`. Not `pure`: the count changes under the compiler.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) held, const offset::SPIN_LOCKS,
             options(readonly, nostack, preserves_flags));
    }
    held
}

/// Returns the number of CPUs that are online.
pub fn cpu_count() -> usize {
    ONLINE.len()
}

/// Returns the set of CPUs that are online.
pub fn online_cpus() -> &'static CpuSet {
    &ONLINE
}

/// Returns the address that the last [`set_current_thread`] on this CPU stored; 0 before the first.
#[inline]
pub fn current_thread() -> usize {
    let thread;
    // SAFETY: as in `cpu_id`.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) thread, const offset::CURRENT,
             options(readonly, nostack, preserves_flags));
    }
    thread
}

/// Records `thread`, the address of the current thread, which [`current_thread`] then returns on
/// this CPU.
#[inline]
pub fn set_current_thread(thread: usize) {
    // SAFETY: as in `cpu_id`; only this CPU writes its area.
    unsafe {
        asm!("mov gs:[{}], {}", const offset::CURRENT, in(reg) thread,
             options(nostack, preserves_flags));
    }
}

/// Makes `word` the work word of this CPU's current thread. Each return to user mode on this CPU
/// reads `word`, and calls [`ExitToUser`](super::ExitToUser) if it has a bit of
/// [`WORK_DUE`](super::traps::WORK_DUE).
///
/// # Safety
/// `word` must stay valid until another word is set on this CPU.
#[inline]
pub unsafe fn set_work_flags(word: *const AtomicU32) {
    // SAFETY: as in `set_current_thread`.
    unsafe {
        asm!("mov gs:[{}], {}", const offset::WORK, in(reg) word,
             options(nostack, preserves_flags));
    }
}

/// Sets the stack on which the next entry from user mode on this CPU builds its frame. `top` is the
/// end of the stack, a multiple of 16.
///
/// # Safety
/// The stack must stay mapped while this thread runs user code on this CPU.
#[inline]
pub unsafe fn set_kernel_stack(top: u64) {
    debug_assert!(top.is_multiple_of(16));
    // SAFETY: as in `set_current_thread`; the caller vouches for the stack.
    unsafe {
        asm!("mov gs:[{}], {top}", "mov gs:[{}], {top}", const offset::KERNEL_STACK,
             const offset::TSS_RSP0, top = in(reg) top, options(nostack, preserves_flags));
    }
}

/// Returns the address of the FPU state that this CPU's registers hold; 0 if there is none.
#[inline]
pub(super) fn fpu_owner() -> usize {
    let owner;
    // SAFETY: as in `cpu_id`.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) owner, const offset::FPU_OWNER,
             options(readonly, nostack, preserves_flags));
    }
    owner
}

/// Records that this CPU's registers hold the FPU state at address `owner`. [`fpu_owner`] then
/// returns this address.
#[inline]
pub(super) fn set_fpu_owner(owner: usize) {
    // SAFETY: as in `set_current_thread`.
    unsafe {
        asm!("mov gs:[{}], {}", const offset::FPU_OWNER, in(reg) owner,
             options(nostack, preserves_flags));
    }
}

/// Sets the FS base of user mode on this CPU.
///
/// # Panics
/// If `address` is not below [`USER_END`](super::USER_END).
#[inline]
pub fn set_fs_base(address: u64) {
    assert!(
        address < super::USER_END,
        "FS base {address:#x} is not a user address"
    );
    // SAFETY: the kernel does not use FS.
    unsafe { cpu::wrmsr(msr::FS_BASE, address) };
}

/// Sets the GS base of user mode on this CPU.
///
/// # Panics
/// If `address` is not below [`USER_END`](super::USER_END).
#[inline]
pub fn set_gs_base_user(address: u64) {
    assert!(
        address < super::USER_END,
        "GS base {address:#x} is not a user address"
    );
    // SAFETY: `swapgs` puts it into GS on the way to user mode only.
    unsafe { cpu::wrmsr(msr::KERNEL_GS_BASE, address) };
}

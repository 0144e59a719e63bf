//! The per-CPU area: what a CPU finds through its GS base.

use super::cpu::{self, msr};
use super::cpuset::{CpuSet, MAX_CPUS};
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What the assembly of the entries and exits needs of a CPU, at offsets that it knows.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PerCpu {
    /// Address of this area itself.
    this: *const PerCpu,
    /// Top of the current task's kernel stack, for `syscall`; the TSS holds the same.
    pub(super) kernel_stack: u64,
    /// Where the syscall entry puts the user's stack pointer for a moment.
    user_rsp: u64,
    /// The current task's word of work before it returns to user mode; 0: none.
    work: *const AtomicU32,
    /// The current task, as the part `sched` knows it.
    current: usize,
    /// This CPU's number.
    id: u32,
    /// Whose FPU state the registers hold: its address; 0: nobody's.
    pub(super) fpu_owner: usize,
}

/// Offsets of [`PerCpu`] for assembly.
pub(super) mod offset {
    use super::{PerCpu, offset_of};
    pub(in super::super) const KERNEL_STACK: usize = offset_of!(PerCpu, kernel_stack);
    pub(in super::super) const USER_RSP: usize = offset_of!(PerCpu, user_rsp);
    pub(in super::super) const WORK: usize = offset_of!(PerCpu, work);
    pub(super) const CURRENT: usize = offset_of!(PerCpu, current);
    pub(super) const ID: usize = offset_of!(PerCpu, id);
}

/// No work for a CPU that runs no task.
static NO_WORK: AtomicU32 = AtomicU32::new(0);

static AREAS: [AtomicPtr<PerCpu>; MAX_CPUS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];
static ONLINE: CpuSet = CpuSet::new();

/// This CPU's number, 0 to [`MAX_CPUS`] - 1.
#[inline]
pub fn cpu_id() -> usize {
    let id: u32;
    // SAFETY: GS holds this CPU's area from its first Rust code on.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) id, const offset::ID,
             options(pure, readonly, nostack, preserves_flags));
    }
    id as usize
}

/// CPUs that are online.
pub fn cpu_count() -> usize {
    ONLINE.len()
}

/// The CPUs that are online.
pub fn online_cpus() -> &'static CpuSet {
    &ONLINE
}

/// The value of the last [`set_current_task`] on this CPU; 0 before.
#[inline]
pub fn current_task() -> usize {
    let task;
    // SAFETY: as in `cpu_id`. Not `pure`: a context switch changes it under the compiler.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) task, const offset::CURRENT,
             options(readonly, nostack, preserves_flags));
    }
    task
}

/// Stores an address that [`current_task`] gives back on this CPU.
#[inline]
pub fn set_current_task(task: usize) {
    // SAFETY: as in `cpu_id`; only this CPU writes its area.
    unsafe {
        asm!("mov gs:[{}], {}", const offset::CURRENT, in(reg) task,
             options(nostack, preserves_flags));
    }
}

/// Names the word that each return to user mode looks at: not 0 calls `task::exit_to_user`.
///
/// # Safety
/// The word must live until another is named on this CPU.
#[inline]
pub unsafe fn set_work_flags(word: *const AtomicU32) {
    // SAFETY: as in `set_current_task`.
    unsafe {
        asm!("mov gs:[{}], {}", const offset::WORK, in(reg) word,
             options(nostack, preserves_flags));
    }
}

/// Where the next entry from user mode puts its frame: the top of the task's kernel stack.
#[inline]
pub fn kernel_stack() -> u64 {
    let _ = msr::EFER;
    unimplemented!()
}

/// Sets where the next entry from user mode puts its frame; 16-byte aligned.
///
/// # Safety
/// The stack must stay mapped while user code of this task runs here.
#[inline]
pub unsafe fn set_kernel_stack(top: u64) {
    let _ = top;
    unimplemented!()
}

/// The user's FS base (its thread pointer).
#[inline]
pub fn fs_base() -> u64 {
    cpu::rdmsr(msr::FS_BASE)
}

/// Sets the user's FS base. The address must be canonical.
#[inline]
pub fn set_fs_base(address: u64) {
    assert!(
        address < super::USER_END,
        "FS base {address:#x} is not a user address"
    );
    // SAFETY: the kernel does not use FS.
    unsafe { cpu::wrmsr(msr::FS_BASE, address) };
}

/// The user's GS base.
#[inline]
pub fn gs_base_user() -> u64 {
    cpu::rdmsr(msr::KERNEL_GS_BASE)
}

/// Sets the user's GS base. The address must be canonical.
#[inline]
pub fn set_gs_base_user(address: u64) {
    assert!(
        address < super::USER_END,
        "GS base {address:#x} is not a user address"
    );
    // SAFETY: `swapgs` puts it into GS on the way to user mode only.
    unsafe { cpu::wrmsr(msr::KERNEL_GS_BASE, address) };
}

#[allow(dead_code, reason = "used by the start of CPUs")]
fn area(cpu: usize) -> *mut PerCpu {
    let _ = &NO_WORK;
    // Acquire: partner of the Release in `install`.
    AREAS[cpu].load(Ordering::Acquire)
}

//! KVM's record of each CPU: its stolen time, and whether the host runs it.
//!
//! On request, the host flushes the TLB of a CPU that does not run before it runs again, so that no
//! CPU waits for it (`ipi`). Linux's documentation of KVM, `virt/kvm/x86/msr`, describes the record
//! and the register as `MSR_KVM_STEAL_TIME`.

use super::cpu::{self, msr};
use super::cpu_id;
use super::cpuset::MAX_CPUS;
use super::features::{self, Feature};
use super::layout::virt_to_phys;
use super::nanos::Nanos;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// In [`Record::state`]: the CPU does not run.
const NOT_RUNNING: u8 = 1 << 0;
/// In [`Record::state`]: the host must flush the CPU's TLB before the CPU runs.
const FLUSH: u8 = 1 << 1;
/// In the MSR that has the address of the record: the host uses the record.
const ENABLED: u64 = 1;
/// The most attempts to read a record that is being written.
const MAX_LOOKS: u32 = 100;

/// The record of a CPU, which the host writes.
#[repr(C, align(64))]
struct Record {
    /// The time in nanoseconds for which the CPU was ready to run but the host did not run it.
    stolen: AtomicU64,
    /// Odd while the host writes.
    version: AtomicU32,
    flags: AtomicU32,
    /// [`NOT_RUNNING`], which the host sets, and [`FLUSH`], which the guest sets; 0 while the CPU
    /// runs.
    state: AtomicU8,
}

const _: () = assert!(size_of::<Record>() == 64);

static RECORDS: [Record; MAX_CPUS] = [const {
    Record {
        stolen: AtomicU64::new(0),
        version: AtomicU32::new(0),
        flags: AtomicU32::new(0),
        state: AtomicU8::new(0),
    }
}; MAX_CPUS];

/// Makes the host keep a record of this CPU, if the host supports that. The record contains the
/// CPU's stolen time, and whether the host runs the CPU.
pub(super) fn switch_on() {
    if features::has(Feature::StealTime) {
        let record = virt_to_phys((&raw const RECORDS[cpu_id()]).cast());
        // SAFETY: the record is the host's from here on, and only atomics look at it.
        unsafe { cpu::wrmsr(msr::KVM_STEAL_TIME, record | ENABLED) };
    }
}

/// Returns whether the host's record says that CPU `cpu` does not run right now. This is a hint,
/// and `false` if the host keeps no record.
#[inline]
pub(super) fn is_not_running(cpu: usize) -> bool {
    // Relaxed: a hint.
    RECORDS[cpu].state.load(Ordering::Relaxed) & NOT_RUNNING != 0
}

/// Requests that the host flush the TLB of CPU `cpu` before the CPU runs again. Returns `true` if
/// the host will. Returns `false` if the CPU runs, or the host does not support such requests.
pub(super) fn flush_before_it_runs(cpu: usize) -> bool {
    if !features::has(Feature::FlushByHost) || !is_not_running(cpu) {
        return false;
    }
    let state = &RECORDS[cpu].state;
    // SeqCst: after our change of the page tables, and before the host's look, which takes the
    // whole word before it lets the CPU run. If the host was faster, the exchange fails.
    let asked = state.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |state| {
        (state & NOT_RUNNING != 0).then_some(state | FLUSH)
    });
    asked.is_ok()
}

/// Returns the stolen time of CPU `cpu`: the time for which the CPU was ready to run but the host
/// did not run it. Returns 0 if the host does not keep a record.
pub fn stolen(cpu: usize) -> Nanos {
    let record = &RECORDS[cpu];
    for _ in 0..MAX_LOOKS {
        // Acquire: before the loads below.
        let version = record.version.load(Ordering::Acquire);
        let stolen = record.stolen.load(Ordering::Acquire);
        if version.is_multiple_of(2) && record.version.load(Ordering::Relaxed) == version {
            return Nanos(stolen);
        }
        core::hint::spin_loop();
    }
    // One word is never torn, so the version does not matter.
    Nanos(record.stolen.load(Ordering::Relaxed))
}

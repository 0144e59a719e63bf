//! KVM's record of each CPU: its stolen time, and whether it runs.
//!
//! The host can be asked to drop the TLB of a CPU that does not run before it runs again, so that
//! no CPU waits for it (`ipi`). Linux's documentation of KVM, `virt/kvm/x86/msr`, describes record
//! and register as `MSR_KVM_STEAL_TIME`.

use super::cpu::{self, msr};
use super::cpu_id;
use super::cpuset::MAX_CPUS;
use super::features::{self, Feature};
use super::layout::virt_to_phys;
use super::nanos::Nanos;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// In [`Record::state`]: the CPU does not run.
const NOT_RUNNING: u8 = 1 << 0;
/// In [`Record::state`]: its TLB is to be dropped before it runs.
const FLUSH: u8 = 1 << 1;
/// In the register: the record is in use.
const ENABLED: u64 = 1;
/// Looks at a record that is being written.
const MAX_LOOKS: u32 = 100;

/// What the host writes for a CPU.
#[repr(C, align(64))]
struct Record {
    /// Nanoseconds in which the CPU wanted to run and did not.
    stolen: AtomicU64,
    /// Odd while the host writes.
    version: AtomicU32,
    flags: AtomicU32,
    /// [`NOT_RUNNING`] and, from us, [`FLUSH`]; 0 while the CPU runs.
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

/// Has the host keep this CPU's record, if it does such a thing.
pub(super) fn switch_on() {
    if features::has(Feature::StealTime) {
        let record = virt_to_phys((&raw const RECORDS[cpu_id()]).cast());
        // SAFETY: the record is the host's from here on, and only atomics look at it.
        unsafe { cpu::wrmsr(msr::KVM_STEAL_TIME, record | ENABLED) };
    }
}

/// Whether the host says that a CPU does not run right now.
#[inline]
pub(super) fn is_not_running(cpu: usize) -> bool {
    // Relaxed: a hint.
    RECORDS[cpu].state.load(Ordering::Relaxed) & NOT_RUNNING != 0
}

/// Asks the host to drop a CPU's TLB before the CPU runs again. Returns `false` if the CPU runs, or
/// the host does not support that.
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

/// How long a CPU wanted to run and others had its core.
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

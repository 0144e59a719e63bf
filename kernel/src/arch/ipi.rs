//! Interrupts between CPUs: reschedule, and TLB flush with an answer.

use super::CpuSet;

/// What other CPUs are to drop from their TLBs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FlushRequest {
    /// Everything of the user's half.
    All,
    /// `pages` 4 KiB pages from `start`.
    Range {
        /// First address.
        start: u64,
        /// Number of pages; a CPU may drop everything instead where they are many.
        pages: u64,
    },
    /// Everything, global kernel translations too.
    Kernel,
    /// Drop nothing: only be through the answer what a memory barrier is (membarrier).
    Barrier,
}

/// Makes a CPU look at its run queue: `sched::on_resched()` runs there.
pub fn resched(cpu: usize) {
    let _ = cpu;
    unimplemented!()
}

/// Has each of `cpus` do the request, and returns when all have. This CPU, if it is among them,
/// does it itself.
pub fn flush_tlb(cpus: &CpuSet, request: FlushRequest) {
    let _ = (cpus, request);
    unimplemented!()
}

/// Serves the requests of other CPUs; from every loop that waits for another CPU.
#[inline]
pub fn poll_mailbox() {}

//! `membarrier(2)`: memory barriers on all CPUs.

use super::Args;
use crate::process;
use logic::errno::{Errno, SysResult};
use machine::arch::ipi::{self, FlushRequest};
use machine::arch::{self, CpuSet, cpu_id};

const QUERY: u32 = 0;
const GLOBAL: u32 = 1;
const GLOBAL_EXPEDITED: u32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: u32 = 1 << 2;
const PRIVATE_EXPEDITED: u32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: u32 = 1 << 4;
const PRIVATE_EXPEDITED_SYNC_CORE: u32 = 1 << 5;
const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: u32 = 1 << 6;
const ALL: u32 = GLOBAL
    | GLOBAL_EXPEDITED
    | REGISTER_GLOBAL_EXPEDITED
    | PRIVATE_EXPEDITED
    | REGISTER_PRIVATE_EXPEDITED
    | PRIVATE_EXPEDITED_SYNC_CORE
    | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;

/// `membarrier(2)`.
pub fn membarrier(a: &Args) -> SysResult {
    if a.uint(1) != 0 {
        return Err(Errno::EINVAL);
    }
    let task = process::current();
    let space = task.vm().ok_or(Errno::EINVAL)?;
    let others = CpuSet::from_mask(arch::online_cpus().mask());
    match a.uint(0) {
        QUERY => return Ok(ALL as usize),
        GLOBAL | GLOBAL_EXPEDITED => {
            others.remove(cpu_id());
            ipi::flush_tlb(&others, FlushRequest::Barrier);
        }
        command @ (PRIVATE_EXPEDITED | PRIVATE_EXPEDITED_SYNC_CORE)
            if !space.has_registered(command) =>
        {
            return Err(Errno::EPERM);
        }
        PRIVATE_EXPEDITED => {
            others.remove(cpu_id());
            ipi::flush_tlb(&others, FlushRequest::Barrier);
        }
        // Loading CR3 serializes, on this CPU too.
        PRIVATE_EXPEDITED_SYNC_CORE => ipi::flush_tlb(&others, FlushRequest::All),
        REGISTER_GLOBAL_EXPEDITED => {}
        REGISTER_PRIVATE_EXPEDITED => space.register_barriers(PRIVATE_EXPEDITED),
        REGISTER_PRIVATE_EXPEDITED_SYNC_CORE => {
            space.register_barriers(PRIVATE_EXPEDITED_SYNC_CORE);
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

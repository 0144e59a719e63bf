//! Pressure stall information about the tasks of this machine, by the rules of Linux 6.1
//! (`kernel/sched/psi.c`, `Documentation/accounting/psi.rst`).
//!
//! - [`cpu`]: which stalls a CPU's tasks are in, and for how long.
//! - [`group`]: the totals of all CPUs, and their averages.
//! - [`trigger`]: windows and thresholds.

pub mod cpu;
pub mod group;
pub mod trigger;

#[cfg(test)]
mod tests;

/// What tasks stall for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Reads and writes of disks and of the host's files.
    Io,
    /// Free memory.
    Memory,
    /// A CPU.
    Cpu,
}

impl Resource {
    /// The number of resources.
    pub const COUNT: usize = 3;
}

/// A kind of stall, of which the time is counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stall {
    /// At least one task waits for reads or writes.
    IoSome,
    /// At least one does, and no task can run.
    IoFull,
    /// At least one task stalls for memory.
    MemorySome,
    /// At least one does, and no other task can run or runs.
    MemoryFull,
    /// At least one task that can run waits for the CPU.
    CpuSome,
    /// No task runs of those that can. On Linux only groups of tasks have this; here it is never so.
    CpuFull,
}

impl Stall {
    /// The number of kinds.
    pub const COUNT: usize = 6;

    /// Returns the kind for `resource`: that of all tasks if `full`.
    pub const fn of(resource: Resource, full: bool) -> Self {
        match (resource, full) {
            (Resource::Io, false) => Self::IoSome,
            (Resource::Io, true) => Self::IoFull,
            (Resource::Memory, false) => Self::MemorySome,
            (Resource::Memory, true) => Self::MemoryFull,
            (Resource::Cpu, false) => Self::CpuSome,
            (Resource::Cpu, true) => Self::CpuFull,
        }
    }
}

/// Nanoseconds of each kind of stall, by [`Stall`] as the index.
pub type Times = [u64; Stall::COUNT];

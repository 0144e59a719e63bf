//! Pressure stall information about the tasks of this machine, by the rules of Linux 6.1
//! (`kernel/sched/psi.c`, `Documentation/accounting/psi.rst`).
//!
//! - [`cpu`]: the stalls of a CPU's tasks, and their durations.
//! - [`group`]: the totals of all CPUs, and their averages.
//! - [`trigger`]: windows and thresholds.

pub mod cpu;
pub mod group;
pub mod trigger;

#[cfg(test)]
mod tests;

/// A resource that tasks stall for.
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

/// A kind of stall whose time is counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stall {
    /// At least one task waits for reads or writes.
    IoSome,
    /// At least one task waits for reads or writes, and no task can run.
    IoFull,
    /// At least one task stalls for memory.
    MemorySome,
    /// At least one task stalls for memory, and no other task runs or can run.
    MemoryFull,
    /// At least one task that can run waits for the CPU.
    CpuSome,
    /// Tasks can run, but none does. On Linux only groups of tasks have this stall; here it never
    /// occurs.
    CpuFull,
}

impl Stall {
    /// The number of kinds.
    pub const COUNT: usize = 6;

    /// Returns the kind for `resource`: the one of all tasks if `full`, else the one of at least
    /// one task.
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

/// Nanoseconds of each kind of stall, indexed by [`Stall`].
pub type Times = [u64; Stall::COUNT];

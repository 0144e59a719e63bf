//! One sample of a guest's figures.

use super::oom::OomKills;
use super::stage::Stage;
use crate::machine::GiveBack;
use crate::qemu::StoppedBy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The pool of huge pages of one size, as in `/sys/kernel/mm/hugepages`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HugePages {
    /// The size of a page.
    pub(crate) page_bytes: u64,
    /// Pages of the pool, including surplus ones.
    pub(crate) total: u64,
    /// Pages that are not in use.
    pub(crate) free: u64,
    /// Pages that are free and reserved for mappings.
    pub(crate) reserved: u64,
    /// Pages beyond the size to which the pool was set.
    pub(crate) surplus: u64,
}

/// The stop of a guest's virtual CPUs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Stop {
    /// The cause.
    pub(crate) by: StoppedBy,
    /// The guest's memory that was resident on the host when they stopped.
    pub(crate) resident_bytes: u64,
    /// Whether the host has already taken all memory that goes back during a stop.
    pub(crate) settled: bool,
}

/// One sample of a guest's figures. Amounts are in bytes. A value is `None` if it is not known yet,
/// or if this kernel does not report it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sample {
    /// The time since the guest's CPUs were started.
    pub(crate) at: Duration,
    /// Memory in use, without the balloon. For Ebb's kernel: the frames that its allocator has
    /// handed out, plus the kernel image, without the allocator's metadata. `None` until the
    /// allocator works.
    ///
    /// For a Linux guest: its total memory minus its free memory and its balloon, as it last
    /// reported them.
    pub(crate) used: Option<u64>,
    /// Memory in the balloon, which the host has taken from the guest. It is neither used nor free.
    pub(crate) ballooned: Option<u64>,
    /// Memory that Linux reserved when it booted, such as its image and page descriptors. It is
    /// neither used nor free. `None` for other kernels.
    pub(crate) reserved: Option<u64>,
    /// Free memory of the guest's allocator.
    pub(crate) free: Option<u64>,
    /// Free pageblocks that the host may still back with memory.
    pub(crate) unreported: Option<u64>,
    /// Resident memory of the guest's RAM on the host.
    pub(crate) resident: u64,
    /// The sum of all ranges that free page reporting has reported so far.
    pub(crate) reported: Option<u64>,
    /// The sum of all memory that the host has reclaimed by itself so far.
    pub(crate) taken: Option<u64>,
    /// The number of reports so far.
    pub(crate) reports: Option<u64>,
    /// The number of reported ranges so far.
    pub(crate) reported_ranges: Option<u64>,
    /// Memory of files in the guest.
    pub(crate) file: Option<u64>,
    /// The number of page faults in the guest.
    pub(crate) faults: Option<u64>,
    /// The hugetlb pools that exist: 2 MiB pages first, then 1 GiB pages.
    pub(crate) huge_pages: [Option<HugePages>; 2],
    /// The page descriptors of huge pages that were freed.
    pub(crate) given_up: Option<u64>,
    /// How the guest gives free memory back, as it says itself.
    pub(crate) give_back: Option<GiveBack>,
    /// The number of the last finished request for memory. `None` if the guest takes no requests.
    pub(crate) reclaimed: Option<u32>,
    /// The number of the last failed request for memory; 0 if none has failed.
    pub(crate) reclaim_failed: Option<u32>,
    /// The OOM kills in the guest. `None` if none are known yet or this kernel does not report
    /// them.
    pub(crate) oom: Option<OomKills>,
    /// Whether a program had to wait for its standard input. `false` if the kernel does not report
    /// it.
    pub(crate) awaited_input: bool,
    pub(crate) cpus: u32,
    /// Guest time at which the program started.
    pub(crate) first_user: Option<Duration>,
    /// Guest time at which the program ended.
    pub(crate) ended: Option<Duration>,
    /// Page faults of the program and its children, as far as known.
    pub(crate) program_faults: Option<u64>,
    /// Whether the guest boots, runs the program, or has ended.
    pub(crate) stage: Option<Stage>,
    /// The stop of the virtual CPUs; `None` while they run.
    pub(crate) standstill: Option<Stop>,
}

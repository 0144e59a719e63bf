//! One look at a guest.

use super::oom::OomKills;
use super::stage::Stage;
use crate::machine::GiveBack;
use crate::qemu::StoppedBy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the pool of huge pages of one size counts, in pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HugePages {
    /// Bytes of a page.
    pub(crate) page_bytes: u64,
    /// All pages, surplus ones included.
    pub(crate) total: u64,
    /// Those that nobody has.
    pub(crate) free: u64,
    /// Of the free ones, those that are promised.
    pub(crate) reserved: u64,
    /// Those beyond the size that was asked for.
    pub(crate) surplus: u64,
}

/// A guest whose virtual CPUs stand still.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Standstill {
    /// What has stopped them.
    pub(crate) by: StoppedBy,
    /// What the guest's RAM occupied on the host when they stopped.
    pub(crate) resident_bytes: u64,
    /// Whether all that goes back by itself has gone.
    pub(crate) settled: bool,
}

/// One look. All amounts are bytes. What is `None` is not known: yet, or of this kernel.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sample {
    /// Since the guest's CPUs were started.
    pub(crate) at: Duration,
    /// Frames that the guest's allocator has handed out, and the kernel image; `None` until the
    /// allocator works. Its metadata is not counted: the guest never asked for it.
    ///
    /// Of a Linux guest, its total memory less what is free, as it last told its balloon.
    pub(crate) used: Option<u64>,
    /// Memory that its allocator could hand out.
    pub(crate) free: Option<u64>,
    /// Free pageblocks that the host may still hold memory for.
    pub(crate) unreported: Option<u64>,
    /// What the guest's RAM occupies on the host.
    pub(crate) resident: u64,
    /// Sum of all ranges reported so far.
    pub(crate) reported: Option<u64>,
    /// Sum of all that the host took by itself.
    pub(crate) taken: Option<u64>,
    pub(crate) reports: Option<u64>,
    pub(crate) reported_ranges: Option<u64>,
    /// What files in the guest occupy.
    pub(crate) file: Option<u64>,
    pub(crate) faults: Option<u64>,
    /// The pools of huge pages that there are, the smaller pages first.
    pub(crate) huge_pages: [Option<HugePages>; 2],
    /// What the descriptors of huge pages would take that are given up.
    pub(crate) given_up: Option<u64>,
    /// How memory goes back, as the guest says.
    pub(crate) give_back: Option<GiveBack>,
    /// The last request for memory that is done, of a guest that can be asked.
    pub(crate) reclaimed: Option<u32>,
    /// The last of them that failed, 0 if none has.
    pub(crate) reclaim_failed: Option<u32>,
    /// Whom its kernel killed because memory was out; `None` of a kernel that does not tell, or not yet.
    pub(crate) oom: Option<OomKills>,
    /// Whether a program had to wait for its standard input; never so where the kernel does not tell.
    pub(crate) awaited_input: bool,
    pub(crate) cpus: u32,
    /// Guest time at which the program started.
    pub(crate) first_user: Option<Duration>,
    /// Guest time at which the program had ended.
    pub(crate) ended: Option<Duration>,
    /// Page faults of the program and its children, as far as they are known by now.
    pub(crate) program_faults: Option<u64>,
    pub(crate) stage: Option<Stage>,
    /// `None` while its virtual CPUs run.
    pub(crate) standstill: Option<Standstill>,
}

//! One look at a guest.

use super::stage::Stage;
use std::time::Duration;

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
    pub(crate) reports: Option<u64>,
    pub(crate) reported_ranges: Option<u64>,
    /// What files in the guest occupy.
    pub(crate) file: Option<u64>,
    pub(crate) faults: Option<u64>,
    pub(crate) cpus: u32,
    /// Guest time at which the program started.
    pub(crate) first_user: Option<Duration>,
    pub(crate) stage: Option<Stage>,
}

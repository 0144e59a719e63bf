//! [`Stats`]: the guest's memory statistics (virtio 1.2, 5.5.6.4).

/// The number of statistics that the standard defines. Their tags are 0 to 9.
pub const STAT_TAGS: usize = 10;

/// Memory statistics of the guest. A field is `None` if the guest does not supply that value.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Bytes swapped in since boot (tag 0).
    pub swap_in_bytes: Option<u64>,
    /// Bytes swapped out since boot (tag 1).
    pub swap_out_bytes: Option<u64>,
    /// Major page faults since boot (tag 2).
    pub major_faults: Option<u64>,
    /// Minor page faults since boot (tag 3).
    pub minor_faults: Option<u64>,
    /// Bytes of unused memory: `MemFree` (tag 4).
    pub free_bytes: Option<u64>,
    /// Bytes of memory in total: `MemTotal` (tag 5).
    pub total_bytes: Option<u64>,
    /// Bytes that new programs could allocate without swapping: `MemAvailable` (tag 6).
    pub available_bytes: Option<u64>,
    /// Bytes of caches that can be dropped without I/O (tag 7).
    pub cache_bytes: Option<u64>,
    /// Huge pages allocated from the hugetlb pool since boot (tag 8).
    pub huge_page_allocations: Option<u64>,
    /// Failed allocations of huge pages (tag 9).
    pub huge_page_failures: Option<u64>,
}

impl Stats {
    /// Returns the values in an array whose index is the tag.
    pub(crate) fn by_tag(&self) -> [Option<u64>; STAT_TAGS] {
        [
            self.swap_in_bytes,
            self.swap_out_bytes,
            self.major_faults,
            self.minor_faults,
            self.free_bytes,
            self.total_bytes,
            self.available_bytes,
            self.cache_bytes,
            self.huge_page_allocations,
            self.huge_page_failures,
        ]
    }

    /// Returns whether at least one value is `Some`.
    pub(crate) fn supplies_any(&self) -> bool {
        self.by_tag().iter().any(Option::is_some)
    }
}

//! What compaction has done: Linux's `compact_*` of `/proc/vmstat`.

/// Who has a zone compacted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Compacts {
    /// One who waits for the memory.
    Direct,
    /// A thread in the background.
    Daemon,
}

/// Counters, by Linux's names.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CompactionCounters {
    /// `compact_migrate_scanned`: what was looked at to find what to move, in cache lines, as Linux
    /// counts its descriptors of frames: one for the state words of 32 pageblocks, one for the bits
    /// of a pageblock, and one for each frame that was to be moved.
    pub migrate_scanned: u64,
    /// `compact_free_scanned`: what was looked at to find where to, in the same way: one for each frame
    /// that was taken.
    pub free_scanned: u64,
    /// `compact_isolated`: frames taken out to be moved, and frames taken to move them to.
    pub isolated: u64,
    /// `compact_stall`: how often somebody waited.
    pub stall: u64,
    /// `compact_fail`: how often he got nothing for it.
    pub fail: u64,
    /// `compact_success`: how often he got what he wanted.
    pub success: u64,
    /// `compact_daemon_wake`: how often the background thread was woken.
    pub daemon_wake: u64,
    /// `compact_daemon_migrate_scanned`: its part of the first.
    pub daemon_migrate_scanned: u64,
    /// `compact_daemon_free_scanned`: its part of the second.
    pub daemon_free_scanned: u64,
}

impl CompactionCounters {
    pub(crate) const fn new() -> Self {
        Self {
            migrate_scanned: 0,
            free_scanned: 0,
            isolated: 0,
            stall: 0,
            fail: 0,
            success: 0,
            daemon_wake: 0,
            daemon_migrate_scanned: 0,
            daemon_free_scanned: 0,
        }
    }

    pub(crate) fn count_sources(&mut self, by: Compacts, looked: u64, frames: u64) {
        self.migrate_scanned += looked + frames;
        self.isolated += frames;
        if by == Compacts::Daemon {
            self.daemon_migrate_scanned += looked + frames;
        }
    }

    pub(crate) fn count_targets(&mut self, by: Compacts, looked: u64, frames: u64) {
        self.free_scanned += looked + frames;
        self.isolated += frames;
        if by == Compacts::Daemon {
            self.daemon_free_scanned += looked + frames;
        }
    }

    /// The sums of both: of several zones.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            migrate_scanned: self.migrate_scanned + other.migrate_scanned,
            free_scanned: self.free_scanned + other.free_scanned,
            isolated: self.isolated + other.isolated,
            stall: self.stall + other.stall,
            fail: self.fail + other.fail,
            success: self.success + other.success,
            daemon_wake: self.daemon_wake + other.daemon_wake,
            daemon_migrate_scanned: self.daemon_migrate_scanned + other.daemon_migrate_scanned,
            daemon_free_scanned: self.daemon_free_scanned + other.daemon_free_scanned,
        }
    }
}

//! Counters of compaction: Linux's `compact_*` of `/proc/vmstat`, and one more.

/// On whose behalf a zone is compacted: a waiting task or the background thread.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Compacts {
    /// A task that waits for the memory.
    Direct,
    /// A background thread.
    Daemon,
}

/// Counters of compaction, with Linux's names where Linux has them.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CompactionCounters {
    /// `compact_migrate_scanned`: cache lines that were read to find frames to migrate. One for the
    /// state words of 32 pageblocks, one for the bitmap of a pageblock, and one for each frame that
    /// was to be migrated, as Linux counts its page descriptors.
    pub migrate_scanned: u64,
    /// `compact_free_scanned`: cache lines that were read to find target frames, counted likewise,
    /// and one for each frame that was taken.
    pub free_scanned: u64,
    /// `compact_isolated`: frames that were to be migrated, and frames that were taken as targets.
    pub isolated: u64,
    /// `compact_stall`: how often a task waited for compaction.
    pub stall: u64,
    /// `compact_fail`: how often such a wait ended without success.
    pub fail: u64,
    /// `compact_success`: how often such a wait ended with success.
    pub success: u64,
    /// `compact_daemon_wake`: how often the background thread was woken, other than by its own
    /// schedule.
    pub daemon_wake: u64,
    /// `compact_daemon_run`: how often the background thread began a run of proactive compaction.
    /// Linux does not count these.
    pub daemon_run: u64,
    /// `compact_daemon_migrate_scanned`: the part of `migrate_scanned` that the background thread
    /// caused.
    pub daemon_migrate_scanned: u64,
    /// `compact_daemon_free_scanned`: the part of `free_scanned` that the background thread caused.
    pub daemon_free_scanned: u64,
}

impl CompactionCounters {
    /// Returns counters that are all 0.
    pub(crate) const fn new() -> Self {
        Self {
            migrate_scanned: 0,
            free_scanned: 0,
            isolated: 0,
            stall: 0,
            fail: 0,
            success: 0,
            daemon_wake: 0,
            daemon_run: 0,
            daemon_migrate_scanned: 0,
            daemon_free_scanned: 0,
        }
    }

    /// Counts a search for frames to migrate on behalf of `by`: `lines_read` cache lines were read,
    /// and `frames` frames are to be migrated.
    pub(crate) fn count_sources(&mut self, by: Compacts, lines_read: u64, frames: u64) {
        self.migrate_scanned += lines_read + frames;
        self.isolated += frames;
        if by == Compacts::Daemon {
            self.daemon_migrate_scanned += lines_read + frames;
        }
    }

    /// Counts a search for target frames on behalf of `by`: `lines_read` cache lines were read, and
    /// `frames` frames were taken.
    pub(crate) fn count_targets(&mut self, by: Compacts, lines_read: u64, frames: u64) {
        self.free_scanned += lines_read + frames;
        self.isolated += frames;
        if by == Compacts::Daemon {
            self.daemon_free_scanned += lines_read + frames;
        }
    }

    /// Returns the sum of `self` and `other`, counter by counter, to add up zones.
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
            daemon_run: self.daemon_run + other.daemon_run,
            daemon_migrate_scanned: self.daemon_migrate_scanned + other.daemon_migrate_scanned,
            daemon_free_scanned: self.daemon_free_scanned + other.daemon_free_scanned,
        }
    }
}

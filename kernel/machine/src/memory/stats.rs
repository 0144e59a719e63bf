//! The numbers of `/proc/meminfo`, `/proc/vmstat`, `/proc/buddyinfo`, `/proc/pagetypeinfo` and
//! `/proc/zoneinfo`. The upper half writes these files. The values that only the upper half knows
//! are counted here.

use super::hugetlb::PageSize;
use super::knobs;
use super::percpu::{Count, add, sum};
use crate::arch::header::HEADER;
use crate::arch::physmap_bytes;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use ebb_mm::{FRAME_SIZE, FreeAreas, Mobility, Order, Stats, ZoneId, ZoneKind, ZoneStats};

/// The number of cached pages of disks, including those that are being read.
static DISK_PAGES: AtomicI64 = AtomicI64::new(0);
/// The number of cached pages of host files, except those of files that the guest has made its own.
static HOST_PAGES: AtomicI64 = AtomicI64::new(0);
/// The number of pages of both kinds that are modified and whose write has not begun, and the
/// number of pages that are being written to disks.
static DIRTY_PAGES: AtomicI64 = AtomicI64::new(0);
static WRITING_PAGES: AtomicI64 = AtomicI64::new(0);

const KIB: u64 = FRAME_SIZE as u64 >> 10;

/// Returns the statistics of the frame allocator.
pub fn frames() -> Stats {
    super::allocator().stats()
}

/// The numbers of pages of files, by where else their contents are and by their state. A page may
/// count in several of them.
struct Files {
    /// Pages that disks have, too.
    disks: u64,
    /// Pages that the host has, too.
    host: u64,
    /// Pages of files in memory and of shared memory, which stay.
    shared: u64,
    /// All pages of files.
    all: u64,
    /// The pages of disks and of the host that can be dropped without a write.
    clean: u64,
    /// Pages that page tables map.
    mapped: u64,
}

fn files() -> Files {
    let all = sum(Count::FileFrames);
    let disks = disk_pages().min(all);
    let host = host_pages().min(all - disks);
    let shared = sum(Count::SharedFrames).saturating_sub(host);
    let (dirty, writing) = unwritten();
    Files {
        disks,
        host,
        shared: shared.min(all - disks - host),
        all,
        clean: (disks + host).saturating_sub(dirty + writing),
        // A page that several entries map counts once for each.
        mapped: sum(Count::MappedFile).min(all),
    }
}

/// Returns the first fields of `/proc/meminfo`, from `MemTotal` to `CommitLimit` inclusive, in
/// Linux's order. Each is a name and a value in KiB.
pub fn meminfo() -> [(&'static str, u64); 34] {
    let stats = frames();
    let files = files();
    let anonymous = sum(Count::AnonymousFrames);
    let slab = sum(Count::SlabFrames);
    let (dirty, writing) = unwritten();
    let available = (stats.free_frames + files.clean).saturating_sub(stats.watermarks.low);
    // Pages are not kept in the order of their use: all count as inactive.
    let inactive_file = files.disks + files.host;
    let inactive_anon = anonymous + (files.all - inactive_file);
    let frames = [
        ("MemTotal", stats.managed_frames),
        ("MemFree", stats.free_frames),
        ("MemAvailable", available),
        ("Buffers", files.disks),
        ("Cached", files.all - files.disks),
        ("SwapCached", 0),
        ("Active", 0),
        ("Inactive", inactive_anon + inactive_file),
        ("Active(anon)", 0),
        ("Inactive(anon)", inactive_anon),
        ("Active(file)", 0),
        ("Inactive(file)", inactive_file),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Zswap", 0),
        ("Zswapped", 0),
        ("Dirty", dirty),
        ("Writeback", writing),
        ("AnonPages", anonymous),
        ("Mapped", files.mapped),
        ("Shmem", files.shared),
        ("KReclaimable", 0),
        ("Slab", slab),
        ("SReclaimable", 0),
        ("SUnreclaim", slab),
        ("KernelStack", sum(Count::StackFrames)),
        ("PageTables", sum(Count::PageTableFrames)),
        ("SecPageTables", 0),
        ("NFS_Unstable", 0),
        ("Bounce", 0),
        ("WritebackTmp", 0),
        ("CommitLimit", knobs::commit_limit()),
    ];
    frames.map(|(name, pages)| (name, pages * KIB))
}

/// Returns the fields of `/proc/meminfo` after those of [`meminfo`], from `Committed_AS` to
/// `Balloon` inclusive. Each is a name and a value in KiB.
pub fn meminfo_tail() -> [(&'static str, u64); 12] {
    [
        ("Committed_AS", knobs::committed() * KIB),
        ("VmallocTotal", 34_359_738_367),
        ("VmallocUsed", sum(Count::KernelFrames) * KIB),
        ("VmallocChunk", 0),
        ("Percpu", super::percpu::bytes() >> 10),
        ("HardwareCorrupted", 0),
        ("AnonHugePages", sum(Count::HugeFrames) * KIB),
        ("ShmemHugePages", sum(Count::SharedHuge) * KIB),
        ("ShmemPmdMapped", sum(Count::SharedHugeMapped) * KIB),
        ("FileHugePages", 0),
        ("FilePmdMapped", 0),
        ("Balloon", ballooned() * KIB),
    ]
}

/// Returns the number of pages in the balloon, and of those on their way into it or out of it.
pub fn ballooned() -> u64 {
    sum(Count::BalloonFrames)
}

/// Returns the last fields of `/proc/meminfo`: the amount of the physmap that pages of each size
/// map. Each is a name and a value in KiB. `DirectMap1G` is missing if the CPU has no such pages.
pub fn direct_map() -> impl Iterator<Item = (&'static str, u64)> {
    let [large, huge] = physmap_bytes();
    let huge = PageSize::Gib1
        .is_supported()
        .then_some(("DirectMap1G", huge >> 10));
    [("DirectMap4k", 0), ("DirectMap2M", large >> 10)]
        .into_iter()
        .chain(huge)
}

/// Returns the fields of `/proc/vmstat`, each a name and a value.
pub fn vmstat() -> [(&'static str, u64); 64] {
    let (shared, carried) = super::hugetlb::optimized();
    let (made, not_made) = super::hugetlb::requests();
    let stats = frames();
    let files = files();
    let anonymous = sum(Count::AnonymousFrames);
    let inactive_file = files.disks + files.host;
    let inactive_anon = anonymous + (files.all - inactive_file);
    let (dirty, writing) = unwritten();
    [
        ("nr_free_pages", stats.free_frames),
        ("nr_zone_inactive_anon", inactive_anon),
        ("nr_zone_active_anon", 0),
        ("nr_zone_inactive_file", inactive_file),
        ("nr_zone_active_file", 0),
        ("nr_inactive_anon", inactive_anon),
        ("nr_active_anon", 0),
        ("nr_inactive_file", inactive_file),
        ("nr_active_file", 0),
        ("nr_anon_pages", anonymous),
        ("nr_mapped", files.mapped),
        ("nr_file_pages", files.all),
        ("nr_dirty", dirty),
        ("nr_writeback", writing),
        ("nr_shmem", files.shared),
        (
            "nr_shmem_hugepages",
            sum(Count::SharedHuge) / Order::PAGEBLOCK.frames(),
        ),
        (
            "nr_shmem_pmdmapped",
            sum(Count::SharedHugeMapped) / Order::PAGEBLOCK.frames(),
        ),
        (
            "nr_anon_transparent_hugepages",
            sum(Count::HugeFrames) / Order::PAGEBLOCK.frames(),
        ),
        ("nr_slab_reclaimable", 0),
        ("nr_slab_unreclaimable", sum(Count::SlabFrames)),
        ("nr_page_table_pages", sum(Count::PageTableFrames)),
        ("nr_kernel_stack", sum(Count::StackFrames) * KIB),
        ("nr_balloon_pages", ballooned()),
        ("nr_memmap_pages", sum(Count::MemmapFrames)),
        ("nr_memmap_boot_pages", super::vmemmap::boot_pages()),
        ("nr_isolated_free", stats.isolated_frames),
        ("nr_unreported_free", stats.unreported_free_frames),
        ("pgpgin", sum(Count::SectorsRead) / 2),
        ("pgpgout", sum(Count::SectorsWritten) / 2),
        ("pswpin", 0),
        ("pswpout", 0),
        ("pgalloc_dma32", sum(Count::AllocatedDma32)),
        ("pgalloc_normal", sum(Count::AllocatedNormal)),
        ("pgfree", sum(Count::Freed)),
        ("pgmigrate_success", sum(Count::Migrated)),
        ("pgmigrate_fail", sum(Count::MigrateFailed)),
        ("pgfault", sum(Count::Faults)),
        ("pgmajfault", sum(Count::MajorFaults)),
        ("allocstall_normal", sum(Count::Stalls)),
        ("oom_kill", sum(Count::OomKills)),
        ("htlb_vmemmap_shared", shared),
        ("htlb_vmemmap_carried", carried),
        ("htlb_buddy_alloc_success", made),
        ("htlb_buddy_alloc_fail", not_made),
        ("thp_fault_alloc", sum(Count::HugeFaults)),
        ("thp_fault_fallback", sum(Count::HugeFallbacks)),
        ("thp_collapse_alloc", sum(Count::Collapsed)),
        ("thp_collapse_alloc_failed", sum(Count::CollapseFailed)),
        ("thp_split_page", sum(Count::HugeParted)),
        ("thp_split_pmd", sum(Count::HugeSplits)),
        ("thp_underused_split_page", sum(Count::HugeUnderused)),
        ("thp_file_alloc", sum(Count::SharedHugeAllocs)),
        ("thp_file_fallback", sum(Count::SharedHugeFallbacks)),
        ("thp_file_mapped", sum(Count::SharedHugeMaps)),
        ("thp_zero_page_alloc", sum(Count::ZeroBlocks)),
        ("thp_zero_page_alloc_failed", sum(Count::ZeroBlockFailures)),
        ("balloon_inflate", sum(Count::BalloonInflated)),
        ("balloon_deflate", sum(Count::BalloonDeflated)),
        ("balloon_migrate", sum(Count::BalloonMigrated)),
        ("page_reporting_requests", reported(&HEADER.reports)),
        ("page_reporting_ranges", reported(&HEADER.reported_ranges)),
        ("page_reporting_pages", reported(&HEADER.reported_frames)),
        ("page_reporting_errors", sum(Count::ReportErrors)),
        ("pgcopied", sum(Count::CopiedPages)),
    ]
}

/// Adds `change` to the number of cached pages of disks ([`disk_pages`]). It is negative if pages
/// leave the cache.
pub fn count_disk_pages(change: i64) {
    // Relaxed (here and in the functions below): numbers to show, and to compare with limits.
    DISK_PAGES.fetch_add(change, Ordering::Relaxed);
}

/// Adds `change`, which may be negative, to the number of modified pages whose write to a disk or
/// to the host has not begun ([`unwritten`]).
pub fn count_dirty_pages(change: i64) {
    DIRTY_PAGES.fetch_add(change, Ordering::Relaxed);
}

/// Adds `change`, which may be negative, to the number of pages that are being written to disks
/// ([`unwritten`]).
pub fn count_writing_pages(change: i64) {
    WRITING_PAGES.fetch_add(change, Ordering::Relaxed);
}

/// Adds `change` to the number of cached pages of host files, except those of files that the guest
/// has made its own.
pub fn count_host_pages(change: i64) {
    HOST_PAGES.fetch_add(change, Ordering::Relaxed);
}

/// Returns the number of cached pages of host files, except those of files that the guest has made
/// its own.
pub fn host_pages() -> u64 {
    pages(&HOST_PAGES)
}

/// Returns two sizes in bytes: that of shared memory and files in memory, and that of the cached
/// pages of disks.
pub fn shared_and_buffers() -> [u64; 2] {
    let files = files();
    [files.shared, files.disks].map(|pages| pages * FRAME_SIZE as u64)
}

/// Returns the number of cached pages of disks.
pub fn disk_pages() -> u64 {
    pages(&DISK_PAGES)
}

/// Returns the number of modified pages of disks and host files whose write has not begun, and the
/// number of pages that are being written to disks.
pub fn unwritten() -> (u64, u64) {
    (pages(&DIRTY_PAGES), pages(&WRITING_PAGES))
}

/// Returns the number of pages in `count`. Returns 0 if it is negative: pages are counted after
/// their locks are released, so one CPU may subtract pages before another one has added them.
fn pages(count: &AtomicI64) -> u64 {
    count.load(Ordering::Relaxed).max(0).cast_unsigned()
}

/// Counts `sectors` sectors of 512 bytes that disks have written, or read if `written` is `false`.
pub fn count_sectors(sectors: u64, written: bool) {
    let count = if written {
        Count::SectorsWritten
    } else {
        Count::SectorsRead
    };
    add(count, sectors);
}

/// Counts reports of free memory that the host has accepted: `requests` requests with `ranges`
/// ranges of `frames` frames in all.
pub fn count_reports(requests: u64, ranges: u64, frames: u64) {
    // Relaxed: the host reads each for itself.
    HEADER.reports.fetch_add(requests, Ordering::Relaxed);
    HEADER.reported_ranges.fetch_add(ranges, Ordering::Relaxed);
    HEADER.reported_frames.fetch_add(frames, Ordering::Relaxed);
}

/// Counts a report of free memory that the host has refused. Returns `true` if it was the first
/// one.
pub fn count_report_error() -> bool {
    static SEEN: AtomicBool = AtomicBool::new(false);
    add(Count::ReportErrors, 1);
    // Relaxed: orders nothing else.
    !SEEN.swap(true, Ordering::Relaxed)
}

fn reported(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Counts `pages` pages that went into the balloon.
pub fn count_balloon_inflated(pages: u32) {
    add(Count::BalloonInflated, pages.into());
}

/// Counts `pages` pages that came out of the balloon, except by an exchange.
pub fn count_balloon_deflated(pages: u32) {
    add(Count::BalloonDeflated, pages.into());
}

/// Counts `exchanged` pages of the balloon that compaction exchanged for others.
pub fn count_balloon_migrated(exchanged: u32) {
    add(Count::BalloonMigrated, exchanged.into());
}

/// Returns the number of page faults of programs so far.
pub fn faults() -> u64 {
    sum(Count::Faults)
}

/// Returns the number of page faults so far that had to read a disk or a file of the host.
pub fn major_faults() -> u64 {
    sum(Count::MajorFaults)
}

/// Returns all zones, the lowest first.
pub fn zones() -> impl Iterator<Item = ZoneId> {
    super::allocator().zone_ids()
}

/// Returns Linux's name for a zone of the kind `kind`.
pub fn zone_name(kind: ZoneKind) -> &'static str {
    match kind {
        ZoneKind::Dma => "DMA",
        ZoneKind::Dma32 => "DMA32",
        ZoneKind::Normal => "Normal",
    }
}

/// Returns the statistics of `zone`.
pub fn zone(zone: ZoneId) -> ZoneStats {
    super::allocator().zone_stats(zone)
}

/// Returns the number of free blocks of `zone`, by order and mobility. Scans the zone.
pub fn free_areas(zone: ZoneId) -> FreeAreas {
    super::allocator().free_areas(zone)
}

/// Returns all orders, smallest first.
pub fn orders() -> impl Iterator<Item = Order> {
    Order::all()
}

/// Returns Linux's name for `mobility` in `/proc/pagetypeinfo`.
pub fn mobility_name(mobility: Mobility) -> &'static str {
    match mobility {
        Mobility::Unmovable => "Unmovable",
        Mobility::Movable => "Movable",
        Mobility::Reclaimable => "Reclaimable",
    }
}

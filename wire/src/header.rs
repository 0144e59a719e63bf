//! The page of counters that a guest kernel shows its host.
//!
//! The kernel image holds a [`GuestHeader`] under the symbol `ebb_guest_header`. The host owns the
//! guest's RAM, so it finds the header at the symbol's physical address and reads it while the
//! guest runs, without an exit, a queue or a guest CPU. The host cannot trust the values: a reader
//! checks each one against the size of the guest's RAM.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The value of [`GuestHeader::magic`] in a valid header: the bytes `EbbGuest` in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"EbbGuest");
/// The version of the layout of [`GuestHeader`] that this crate defines.
pub const VERSION: u32 = 10;
/// The name of the symbol under which the kernel image holds its [`GuestHeader`].
pub const SYMBOL: &str = "ebb_guest_header";

/// The phases of a guest's run: the values of [`GuestHeader::stage`].
pub mod stage {
    /// Stage: the kernel has not started the program yet.
    pub const BOOTING: u32 = 0;
    /// Stage: the program runs.
    pub const RUNNING: u32 = 1;
    /// Stage: the program has exited. [`super::GuestHeader::exit_status`] holds its status.
    pub const EXITED: u32 = 2;
    /// Stage: the kernel panicked.
    pub const PANICKED: u32 = 3;
}

/// The state of a guest, written by its kernel and read by the host. Counts are in frames of 4 KiB
/// unless stated otherwise. Times are in nanoseconds of the guest's monotonic clock, which starts
/// near 0 at kernel entry.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct GuestHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// A value of [`stage`].
    pub stage: AtomicU32,
    /// Linux wait status of the program (`exit code << 8 | signal`). Valid once it has exited.
    pub exit_status: AtomicU32,
    /// Number of CPUs that started.
    pub cpus: AtomicU32,
    /// Time at which the first user instruction was executed; 0 before.
    pub first_user_ns: AtomicU64,
    /// Guest-physical address of the allocator's metadata, which begins with a header of its own.
    pub metadata_address: AtomicU64,
    /// Length of the allocator's metadata in bytes.
    pub metadata_bytes: AtomicU64,
    /// Number of frames that the allocator manages.
    pub managed_frames: AtomicU64,
    /// Number of reports that the balloon device has acknowledged.
    pub reports: AtomicU64,
    /// Number of ranges in these reports.
    pub reported_ranges: AtomicU64,
    /// Number of frames in these ranges. A frame counts each time it is reported.
    pub reported_frames: AtomicU64,
    /// Guest-physical address of a 64-bit word in which the first CPU counts the user page faults
    /// that it has served; 0 until the word exists. The words of the other CPUs follow at a
    /// distance of [`GuestHeader::count_stride`] bytes. The number of faults is the sum of all
    /// words modulo 2^64, and includes the most recent fault.
    pub fault_counts: AtomicU64,
    /// The same as `fault_counts`, for the frames of the page cache and of tmpfs files.
    pub file_counts: AtomicU64,
    /// Distance in bytes between the count words of two successive CPUs.
    pub count_stride: AtomicU32,
    /// Number of CPUs that have count words.
    pub count_cpus: AtomicU32,
    /// Guest-physical address of a table of 64-bit addresses of the pages that [`pool`] describes;
    /// 0 until the table exists.
    pub pool_table: AtomicU64,
    /// Number of entries in that table. An entry is 0 if its page does not exist yet.
    pub pool_pages: AtomicU64,
    /// Guest-physical addresses of [`pool::COUNTS`] words each: the page counts of the pool of 2
    /// MiB pages and of the pool of 1 GiB pages. An address is 0 if there is no such pool. The
    /// words are up to date with the pool's last change.
    pub pool_counts: [AtomicU64; 2],
    /// Guest-physical address of a word with the number of pageblocks whose page descriptors were
    /// freed (as in vmemmap optimization); 0 until the word exists.
    pub given_up: AtomicU64,
    /// The number of the active [`GiveBack`](crate::GiveBack) mode.
    pub give_back: AtomicU32,
    /// The number of the last [`Reclaim`](crate::Reclaim) request that was carried out; 0 before
    /// the first. All requests of the host up to this number are done.
    pub reclaimed: AtomicU32,
    /// Guest-physical address of the third-level page table that maps the page descriptors, as
    /// [`memmap`] describes; 0 until it exists. The descriptors of a free pageblock are zero. A
    /// host that took the block first and found their pages afterwards may punch those out, too.
    pub descriptors: AtomicU64,
    /// Number of processes that the OOM killer has killed.
    pub oom_kills: AtomicU64,
    /// The last [`OOM_RECORDS`] victims. Victim n, counted from 0, is at index n modulo
    /// [`OOM_RECORDS`].
    pub oom_records: [OomRecord; OOM_RECORDS],
    /// 1 once a program has had to wait for its standard input; 0 before.
    pub awaited_input: AtomicU32,
    /// Time at which the program ended; 0 before.
    pub ended_ns: AtomicU64,
    /// Number of frames in the balloon, which the allocator counts as allocated.
    pub ballooned_frames: AtomicU64,
}

/// Number of records of OOM killer victims in a header. Later victims overwrite the oldest records.
pub const OOM_RECORDS: usize = 8;
/// Size in bytes of a process name in an [`OomRecord`]. Shorter names are padded with zeros.
pub const NAME_BYTES: usize = 16;

/// The record of one process that the guest's OOM killer has killed.
#[derive(Debug)]
#[repr(C)]
pub struct OomRecord {
    /// The victim's number, counted from 1; 0 while the kernel writes the rest of the record. A
    /// reader has read one consistent record if the number is the same before and after.
    pub number: AtomicU64,
    /// Time of the kill in nanoseconds of the guest's clock.
    pub at_ns: AtomicU64,
    /// Bytes that the victim had resident: anonymous, file and shared pages.
    pub resident: AtomicU64,
    /// The victim's process ID.
    pub pid: AtomicU64,
    /// The victim's name, in memory order. The program chose it, so it may contain any bytes.
    pub name: [AtomicU64; NAME_BYTES / 8],
}

impl OomRecord {
    const fn new() -> Self {
        Self {
            number: AtomicU64::new(0),
            at_ns: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            pid: AtomicU64::new(0),
            name: [const { AtomicU64::new(0) }; NAME_BYTES / 8],
        }
    }
}

/// The mapping of the memmap, which has a page descriptor for each frame, in the order of frames.
/// An entry of the table at [`GuestHeader::descriptors`] maps 1 GiB of the memmap by the address
/// of a table of the second level. An entry of that one maps 2 MiB, the descriptors of 128 MiB of
/// memory, by a large page or by the address of a table of pages. The tables of the upper two
/// levels stay for good.
///
/// While a pageblock is free or taken by a host, its descriptors stay in their pages. Meanwhile the
/// guest may replace a large page with a table of the same pages, and move such a table. So a host
/// that has read an entry of a table of pages must read the entry above it once more: if that has
/// changed, the frame of the table may have been in use for something else.
pub mod memmap {
    /// Size in bytes of the page descriptor of one frame.
    pub const DESCRIPTOR_BYTES: u64 = 64;
    /// Size in bytes of a page of descriptors.
    pub const PAGE: u64 = 4 << 10;
    /// Size in bytes of a large page of descriptors.
    pub const LARGE_PAGE: u64 = 2 << 20;
    /// Number of frames whose descriptors fill one page.
    pub const PAGE_FRAMES: u64 = PAGE / DESCRIPTOR_BYTES;
    /// Number of entries of a table.
    pub const ENTRIES: u64 = 512;
    /// Bit of an entry: it is valid.
    pub const PRESENT: u64 = 1;
    /// Bit of an entry of the second level: it maps a large page.
    pub const LARGE: u64 = 1 << 7;
    /// Bit of an entry that maps a page or a large page: its memory came from the guest's
    /// allocator. The guest takes such memory when huge pages leave its pools. The other pages have
    /// been descriptors since boot.
    pub const OWNED: u64 = 1 << 9;
    /// Mask of the address in an entry.
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
}

/// The layout of the table by which a host finds the guest's huge pages. The table of
/// [`GuestHeader::pool_table`] lists pages. Each page has one entry of 16 bytes for each of 256
/// successive pageblocks of 2 MiB; the first page begins with frame 0. The masks here are those of
/// an entry's first 64-bit word.
pub mod pool {
    /// Number of pageblocks that one page of the table describes, with 16 bytes each.
    pub const ENTRIES: u64 = 256;
    /// Mask of the reference count in an entry's first word: the number of references to the huge
    /// page that begins with this pageblock. If the entry is [`POOLED`] and the count is 0, the
    /// page is free.
    pub const REFERENCES: u64 = 0xffff_ffff;
    /// Bit of an entry's first word: the pageblock is part of a 1 GiB page. That page's references
    /// are counted in the entry of its first pageblock.
    pub const GIGANTIC: u64 = 1 << 35;
    /// Bit of an entry's first word: the pageblock is part of a huge page in one of the guest's
    /// pools.
    pub const POOLED: u64 = 1 << 36;
    /// Number of 64-bit words at each address in [`GuestHeader::pool_counts`](super::GuestHeader):
    /// the pool's pages, its free pages, the reserved ones among the free pages, and its surplus
    /// pages.
    pub const COUNTS: usize = 4;
    /// Size in bytes of a page of each pool: the pool of 2 MiB pages, then that of 1 GiB pages.
    pub const PAGE_BYTES: [u64; 2] = [2 << 20, 1 << 30];
    /// Size in bytes of the page descriptors of one pageblock (512 frames).
    pub const DESCRIPTORS_BYTES: u64 = 32 << 10;
}

impl GuestHeader {
    /// Returns the header of a guest that is still booting: [`MAGIC`], [`VERSION`], and zeros
    /// elsewhere. The kernel image holds it.
    pub const fn new() -> Self {
        Self {
            magic: AtomicU64::new(MAGIC),
            version: AtomicU32::new(VERSION),
            stage: AtomicU32::new(stage::BOOTING),
            exit_status: AtomicU32::new(0),
            cpus: AtomicU32::new(0),
            first_user_ns: AtomicU64::new(0),
            metadata_address: AtomicU64::new(0),
            metadata_bytes: AtomicU64::new(0),
            managed_frames: AtomicU64::new(0),
            reports: AtomicU64::new(0),
            reported_ranges: AtomicU64::new(0),
            reported_frames: AtomicU64::new(0),
            fault_counts: AtomicU64::new(0),
            file_counts: AtomicU64::new(0),
            count_stride: AtomicU32::new(0),
            count_cpus: AtomicU32::new(0),
            pool_table: AtomicU64::new(0),
            pool_pages: AtomicU64::new(0),
            pool_counts: [const { AtomicU64::new(0) }; 2],
            given_up: AtomicU64::new(0),
            give_back: AtomicU32::new(0),
            reclaimed: AtomicU32::new(0),
            descriptors: AtomicU64::new(0),
            oom_kills: AtomicU64::new(0),
            oom_records: [const { OomRecord::new() }; OOM_RECORDS],
            awaited_input: AtomicU32::new(0),
            ended_ns: AtomicU64::new(0),
            ballooned_frames: AtomicU64::new(0),
        }
    }
}

impl Default for GuestHeader {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_new_header_says_what_it_is_and_fills_a_page() {
        assert_eq!(size_of::<GuestHeader>(), 4096);
        assert_eq!(offset_of!(GuestHeader, magic), 0);
        let header = GuestHeader::new();
        assert_eq!(header.magic.load(Relaxed).to_le_bytes(), *b"EbbGuest");
        assert_eq!(header.version.load(Relaxed), VERSION);
        assert_eq!(header.stage.load(Relaxed), stage::BOOTING);
    }
}

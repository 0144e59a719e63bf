//! The one page that a guest kernel shows its host.
//!
//! The kernel image holds a [`GuestHeader`] under the symbol `ebb_guest_header`. The host, which
//! owns the guest's RAM, finds it at the symbol's physical address and reads it while the guest
//! runs: no exit, no queue, no guest CPU. Everything in it is an allegation of the guest: a reader
//! checks every value against the size of the RAM that it gave.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first eight bytes of a valid header: `EbbGuest` in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"EbbGuest");
/// The layout that this crate reads and writes.
pub const VERSION: u32 = 8;
/// The symbol of the kernel image under which the header stands.
pub const SYMBOL: &str = "ebb_guest_header";

/// Where a guest is in its life. Values of [`GuestHeader::stage`].
pub mod stage {
    /// The kernel has not reached its first user program yet.
    pub const BOOTING: u32 = 0;
    /// The program runs.
    pub const RUNNING: u32 = 1;
    /// The program exited; [`super::GuestHeader::exit_status`] holds its status.
    pub const EXITED: u32 = 2;
    /// The kernel panicked.
    pub const PANICKED: u32 = 3;
}

/// What a guest kernel tells its host. All counts are in frames of 4 KiB, all times in
/// nanoseconds of the guest's monotonic clock, which starts near 0 at kernel entry.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct GuestHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// One of [`stage`].
    pub stage: AtomicU32,
    /// Linux wait status of the program (`exit code << 8 | signal`), valid once exited.
    pub exit_status: AtomicU32,
    /// CPUs that came up.
    pub cpus: AtomicU32,
    /// Monotonic time at which the first user instruction was entered; 0 before.
    pub first_user_ns: AtomicU64,
    /// Guest-physical address of the allocator's metadata, whose first bytes are its own header.
    pub metadata_address: AtomicU64,
    /// Length of that metadata in bytes.
    pub metadata_bytes: AtomicU64,
    /// Frames that the allocator manages.
    pub managed_frames: AtomicU64,
    /// Reports sent to the balloon device and acknowledged by it.
    pub reports: AtomicU64,
    /// Ranges in those reports.
    pub reported_ranges: AtomicU64,
    /// Frames in those ranges, summed over time.
    pub reported_frames: AtomicU64,
    /// Guest-physical address of a word in which the first CPU counts the user page faults that it
    /// served; 0 before there is one. The other CPUs' follow [`GuestHeader::count_stride`] bytes
    /// apart. The number of faults is their sum modulo 2^64, as fresh as the last fault.
    pub fault_counts: AtomicU64,
    /// The same for the frames that back the page cache and tmpfs files.
    pub file_counts: AtomicU64,
    /// Bytes from one CPU's counts to the next one's.
    pub count_stride: AtomicU32,
    /// How many CPUs' counts there are.
    pub count_cpus: AtomicU32,
    /// Guest-physical address of a list of addresses, of 64 bits each, of the pages of [`pool`]; 0 before there is one.
    pub pool_table: AtomicU64,
    /// How many addresses that list has; those that are 0 have no page yet.
    pub pool_pages: AtomicU64,
    /// Guest-physical addresses of [`pool::COUNTS`] words in which the pool of pages of 2 MiB, and that of pages of 1 GiB,
    /// counts its pages; 0 where there is no such pool. What they say is as fresh as the pool's last change.
    pub pool_counts: [AtomicU64; 2],
    /// Guest-physical address of a word that counts the pageblocks whose descriptors are given up; 0 before there is one.
    pub given_up: AtomicU64,
    /// The number of the [`GiveBack`](crate::GiveBack) that holds now.
    pub give_back: AtomicU32,
    /// The number of the last [`Reclaim`](crate::Reclaim) that was carried out; 0 before there was one. All that the host
    /// asked for up to this number is done.
    pub reclaimed: AtomicU32,
    /// Guest-physical addresses of the descriptors ([`DESCRIPTOR_BYTES`] each, in the order of frames) of the frames below
    /// 4 GiB, and of those from there on; 0 where they do not stand together, or not any more. Those of a free pageblock
    /// are zero, and a host that has taken it out and then read this may drop them with it.
    pub descriptors: [AtomicU64; 2],
    /// Processes that were killed because memory was out.
    pub oom_kills: AtomicU64,
    /// The last of them, the n-th (from 0) in place n modulo [`OOM_RECORDS`].
    pub oom_records: [OomRecord; OOM_RECORDS],
    /// 1 once a program had to wait for its standard input; 0 before.
    pub awaited_input: AtomicU32,
    /// Monotonic time at which the program had ended; 0 before.
    pub ended_ns: AtomicU64,
}

/// Victims of the OOM killer that a header has room for. There may be many more; the last ones stay.
pub const OOM_RECORDS: usize = 8;
/// Bytes of a process's name, filled up with zeros.
pub const NAME_BYTES: usize = 16;

/// A victim of the OOM killer.
#[derive(Debug)]
#[repr(C)]
pub struct OomRecord {
    /// The victim's number among all, from 1 on; 0 while the rest is being written. It is the same before and after a
    /// reading that got one record.
    pub number: AtomicU64,
    /// When, as the guest's clock has it.
    pub at_ns: AtomicU64,
    /// Bytes that it had resident: anonymous, of files, shared.
    pub resident: AtomicU64,
    /// Its process number.
    pub pid: AtomicU64,
    /// Its name, in memory order. The program chose it.
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

/// Bytes of a frame's descriptor.
pub const DESCRIPTOR_BYTES: u64 = 64;

/// What is known of each huge page of the guest's pools, page by page. A page has entries of 16 bytes for so many
/// pageblocks that follow each other, the first page from frame 0 on; the bits here are those of an entry's first word.
pub mod pool {
    /// Pageblocks that a page has entries for.
    pub const ENTRIES: u64 = 256;
    /// How often the huge page is referred to; 0: it is free.
    pub const REFERENCES: u64 = 0xffff_ffff;
    /// The pageblock is part of a page of 1 GiB, whose references stand with its first pageblock.
    pub const GIGANTIC: u64 = 1 << 35;
    /// The pageblock is in a pool.
    pub const POOLED: u64 = 1 << 36;
    /// What a pool counts, a word each: all its pages, the free ones, those of them that are promised, and surplus ones.
    pub const COUNTS: usize = 4;
    /// Bytes of the pages of each pool.
    pub const PAGE_BYTES: [u64; 2] = [2 << 20, 1 << 30];
    /// Bytes of the descriptors of a pageblock.
    pub const DESCRIPTORS_BYTES: u64 = 32 << 10;
}

impl GuestHeader {
    /// A header as a kernel image carries it.
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
            descriptors: [const { AtomicU64::new(0) }; 2],
            oom_kills: AtomicU64::new(0),
            oom_records: [const { OomRecord::new() }; OOM_RECORDS],
            awaited_input: AtomicU32::new(0),
            ended_ns: AtomicU64::new(0),
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

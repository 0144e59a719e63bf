//! Reads the header page in which Ebb's kernel publishes its state to the host.

use crate::guest::oom::{OomKills, Victim};
use crate::guest::running::{DescriptorPage, PoolTable};
use crate::guest::{HugePages, Stage, WaitStatus};
use crate::machine::GiveBack;
use crate::qemu::{GuestAddress, GuestRam};
use ebb_mm::Frame;
use ebb_mm::view::{Memory, View};
use ebb_wire::header::{
    GuestHeader, MAGIC, NAME_BYTES, OOM_RECORDS, OomRecord, VERSION, memmap, pool, stage,
};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::time::Duration;

/// The maximum number of bytes of the allocator's metadata that are read. These are its header and
/// 8 bytes for each 64 MiB of the largest guest, with alignment.
///
/// Nothing behind this is ever read. So a wrong header costs a bounded time, and makes no page
/// resident.
const METADATA_MAX: u64 = 132 << 10;

/// The maximum number of CPUs of a guest. Per-CPU counters beyond this are ignored.
const CPUS_MAX: u32 = 64;

/// The values of the guest's header page at one moment. They are claims of the guest and are never
/// used as an index.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Reading {
    /// Whether the guest boots, runs the program, or has ended.
    pub(crate) stage: Stage,
    /// The number of CPUs.
    pub(crate) cpus: u32,
    /// Guest time at which the first user instruction ran, in nanoseconds; `None` before.
    pub(crate) first_user_ns: Option<u64>,
    /// Guest time at which the program ended, in nanoseconds; `None` before.
    pub(crate) ended_ns: Option<u64>,
    /// The address of the allocator's metadata.
    pub(crate) metadata: GuestAddress,
    /// The size of the allocator's metadata in bytes.
    pub(crate) metadata_bytes: u64,
    /// The number of reports of free pages.
    pub(crate) reports: u64,
    /// The number of ranges in these reports.
    pub(crate) reported_ranges: u64,
    /// The number of frames in these reports.
    pub(crate) reported_frames: u64,
    /// The number of frames that files occupy.
    pub(crate) file_frames: u64,
    /// The number of frames in the balloon, at most the number of the guest's frames.
    pub(crate) ballooned_frames: u64,
    /// The number of page faults.
    pub(crate) faults: u64,
    /// The counters of the hugetlb pools of 2 MiB and of 1 GiB pages; `None` for a pool that does
    /// not exist.
    pub(crate) huge_pages: [Option<HugePages>; 2],
    /// The bytes of page descriptors of huge pages that were freed; `None` if the guest does not
    /// count them.
    pub(crate) given_up: Option<u64>,
    /// How the guest gives free memory back; `None` while it boots.
    pub(crate) give_back: Option<GiveBack>,
    /// The number of the last finished request for memory; 0 before the first.
    pub(crate) reclaimed: u32,
    /// Whether a program had to wait for its standard input.
    pub(crate) awaited_input: bool,
}

/// The counters of the guest's allocator, in frames of 4 KiB. Each is at most the number of the
/// guest's frames.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    /// Allocated frames.
    pub(crate) used: u64,
    /// Free frames.
    pub(crate) free: u64,
    /// Free frames that the host may still back with memory.
    pub(crate) unreported: u64,
}

/// The host's read access to the header page of one guest, in which its kernel publishes its state.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    ram: Arc<GuestRam>,
    address: GuestAddress,
}

impl Header {
    /// Creates access to the header at guest-physical `address` of `ram`. Reads nothing yet.
    pub(crate) fn new(ram: Arc<GuestRam>, address: GuestAddress) -> Self {
        Self { ram, address }
    }

    /// Returns the size of the guest's RAM in bytes, as the host made it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.ram.bytes()
    }

    /// Returns the allocator's current counters, summed over all zones. `reading` gives the address
    /// of its metadata. Returns `None` if the metadata is not valid, such as before the allocator
    /// is initialised.
    pub(crate) fn counts(&self, reading: &Reading) -> Option<Counts> {
        let metadata = Metadata {
            ram: &self.ram,
            reading,
        };
        tally(metadata, self.ram.frames())
    }

    /// Returns the header's current values. Returns `None` if the kernel is not loaded yet, or its
    /// header has another magic number or version, or a stage that is not known.
    pub(crate) fn read(&self) -> Option<Reading> {
        let known = self.u64(offset_of!(GuestHeader, magic))? == MAGIC
            && self.u32(offset_of!(GuestHeader, version))? == VERSION;
        if !known {
            return None;
        }
        let address = self.field(offset_of!(GuestHeader, stage))?;
        // Acquire: pairs with the kernel's Release store of the stage, so that what the kernel
        // wrote before it is visible below.
        let stage = match self.ram.atomic_u32(address)?.load(Acquire) {
            stage::BOOTING => Stage::Booting,
            stage::RUNNING => Stage::Running,
            stage::EXITED => Stage::Exited(WaitStatus::from_raw(
                self.u32(offset_of!(GuestHeader, exit_status))?,
            )),
            stage::PANICKED => Stage::Panicked,
            _ => return None,
        };
        let first_user_ns = self.u64(offset_of!(GuestHeader, first_user_ns))?;
        let ended_ns = self.u64(offset_of!(GuestHeader, ended_ns))?;
        Some(Reading {
            stage,
            cpus: self.u32(offset_of!(GuestHeader, cpus))?.min(CPUS_MAX),
            first_user_ns: (first_user_ns != 0).then_some(first_user_ns),
            ended_ns: (ended_ns != 0).then_some(ended_ns),
            metadata: GuestAddress(self.u64(offset_of!(GuestHeader, metadata_address))?),
            metadata_bytes: self.u64(offset_of!(GuestHeader, metadata_bytes))?,
            reports: self.u64(offset_of!(GuestHeader, reports))?,
            reported_ranges: self.u64(offset_of!(GuestHeader, reported_ranges))?,
            reported_frames: self.u64(offset_of!(GuestHeader, reported_frames))?,
            // A frame may be counted by one CPU and freed by another, so the sum may be negative
            // for a moment.
            file_frames: self
                .counted(offset_of!(GuestHeader, file_counts))?
                .cast_signed()
                .max(0)
                .cast_unsigned()
                .min(self.ram.frames()),
            ballooned_frames: self
                .u64(offset_of!(GuestHeader, ballooned_frames))?
                .min(self.ram.frames()),
            faults: self.counted(offset_of!(GuestHeader, fault_counts))?,
            huge_pages: [self.huge_pages(0), self.huge_pages(1)],
            given_up: self.given_up(),
            give_back: GiveBack::from_number(self.u32(offset_of!(GuestHeader, give_back))?)
                .filter(|_| stage != Stage::Booting),
            // Acquire: pairs with the kernel's Release, so that memory that was given back is gone
            // from the host.
            reclaimed: self
                .ram
                .atomic_u32(self.field(offset_of!(GuestHeader, reclaimed))?)?
                .load(Acquire),
            awaited_input: self.u32(offset_of!(GuestHeader, awaited_input))? != 0,
        })
    }

    /// Returns how the guest gives free memory back now, as its header says, also while the guest
    /// boots. Returns `None` if the header or the mode is not valid.
    pub(crate) fn give_back(&self) -> Option<GiveBack> {
        let known = self.u64(offset_of!(GuestHeader, magic))? == MAGIC
            && self.u32(offset_of!(GuestHeader, version))? == VERSION;
        let number = self.u32(offset_of!(GuestHeader, give_back))?;
        GiveBack::from_number(number).filter(|_| known)
    }

    /// Returns the number of OOM kills and the last victims, as the guest's header says. A record
    /// that is being overwritten is `None`. Returns no kills if the header is outside of RAM.
    pub(crate) fn oom_kills(&self) -> OomKills {
        let offset = offset_of!(GuestHeader, oom_kills);
        let places = u64::try_from(OOM_RECORDS).unwrap_or(1);
        let mut found = OomKills::default();
        // Acquire: pairs with the kernel's Release, so that the records of all counted kills are
        // written.
        let kills = self.field(offset).and_then(|at| self.ram.atomic_u64(at));
        found.kills = kills.map_or(0, |kills| kills.load(Acquire));
        let first = found.kills.saturating_sub(places);
        for (number, slot) in (first..found.kills).zip(&mut found.last) {
            *slot = self.victim(number, number % places);
        }
        found
    }

    /// Returns victim `number`, whose record is at index `place`. Returns `None` if the record is
    /// being overwritten by a later victim.
    fn victim(&self, number: u64, place: u64) -> Option<Victim> {
        let place = usize::try_from(place).ok()?;
        let record = offset_of!(GuestHeader, oom_records) + place * size_of::<OomRecord>();
        let expected = number.checked_add(1)?;
        // Acquire and the fence below pair with the kernel's Release and its fence. If the sequence
        // number is the same before and after, the record did not change in between.
        let sequence = self.ram.atomic_u64(self.field(record)?)?;
        if sequence.load(Acquire) != expected {
            return None;
        }
        let mut name = [0; NAME_BYTES];
        for (word, part) in name.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *part = self
                .u64(record + offset_of!(OomRecord, name) + word * 8)?
                .to_le_bytes();
        }
        let victim = Victim {
            at: Duration::from_nanos(self.u64(record + offset_of!(OomRecord, at_ns))?),
            pid: self.u64(record + offset_of!(OomRecord, pid))?,
            resident: self
                .u64(record + offset_of!(OomRecord, resident))?
                .min(self.ram.bytes()),
            name,
        };
        fence(Acquire);
        (sequence.load(Relaxed) == expected).then_some(victim)
    }

    /// Returns the page with the descriptors of `frame` and of the other frames of its aligned 64.
    /// Returns `None` if the guest has no such page, or is moving the table that maps it.
    ///
    /// The caller must have taken the pageblock of `frame` from the guest's allocator, or the
    /// guest's CPUs must be stopped and the 64 frames free. Until the caller puts the block back,
    /// the descriptors stay in the page: the guest moves only those of blocks that it has
    /// allocated, and it does so before it frees them.
    pub(crate) fn descriptor_page(&self, frame: Frame) -> Option<DescriptorPage> {
        let offset = frame.number().checked_mul(memmap::DESCRIPTOR_BYTES)?;
        let offset = offset - offset % memmap::PAGE;
        let large = offset / memmap::LARGE_PAGE;
        let upper = large / memmap::ENTRIES;
        if upper >= memmap::ENTRIES {
            return None;
        }
        let table = |entry: u64| GuestAddress(entry & memmap::ADDRESS);
        let root = self.pointer(offset_of!(GuestHeader, descriptors))?;
        let directory = table(self.entry(root, upper)?);
        let slot = self.entry(directory, large)?;
        if slot & memmap::LARGE != 0 {
            // In a large page's entry, x86 uses a bit within the address mask for something else.
            let page = slot & memmap::ADDRESS & !(memmap::LARGE_PAGE - 1);
            return Some(DescriptorPage {
                address: GuestAddress(page).checked_add(offset % memmap::LARGE_PAGE)?,
                restored: slot & memmap::OWNED != 0,
            });
        }
        let page = self.entry(table(slot), offset / memmap::PAGE)?;
        // The guest may have moved the table and freed its frame, so that another owner wrote the
        // entry. Then the slot leads elsewhere now, and never back: a table is moved at most once
        // while a block below it is free or taken.
        //
        // Acquire: pairs with the guest's flush of all CPUs, between the move and the free.
        fence(Acquire);
        let is_same = self.entry(directory, large)? == slot;
        is_same.then_some(DescriptorPage {
            address: table(page),
            restored: page & memmap::OWNED != 0,
        })
    }

    /// Returns entry number `index` modulo [`memmap::ENTRIES`] of the page table at `table`.
    /// Returns `None` if the entry is not present, or outside of RAM.
    fn entry(&self, table: GuestAddress, index: u64) -> Option<u64> {
        let address = table.checked_add(index % memmap::ENTRIES * 8)?;
        // Acquire: ordered after the compare-and-swap that took the block. It pairs with the
        // Release with which the guest inserts a table after filling it.
        let entry = self.ram.atomic_u64(address)?.load(Acquire);
        (entry & memmap::PRESENT != 0).then_some(entry)
    }

    /// Returns the guest-physical address of the table of the hugetlb pools' pages, and the number
    /// of pages in it. Both are the guest's claims. Returns `None` if the header is not valid or
    /// there is no table yet.
    pub(crate) fn pool_table(&self) -> Option<PoolTable> {
        self.read()?;
        // Acquire: pairs with the kernel's Release, which stored the number before the address.
        let table = self.field(offset_of!(GuestHeader, pool_table))?;
        let address = self.ram.atomic_u64(table)?.load(Acquire);
        (address != 0).then_some(PoolTable {
            address: GuestAddress(address),
            pages: self.u64(offset_of!(GuestHeader, pool_pages))?,
        })
    }

    /// Returns the counters of the hugetlb pool with index `number`: 0 for 2 MiB pages, 1 for 1 GiB
    /// pages. Returns `None` if there is no such pool.
    fn huge_pages(&self, number: usize) -> Option<HugePages> {
        let page_bytes = *pool::PAGE_BYTES.get(number)?;
        let counts = self.pointer(offset_of!(GuestHeader, pool_counts) + number * 8)?;
        // Each counter is capped by the number of pages that fit into the guest's RAM.
        let most = self.ram.bytes() / page_bytes;
        let mut words = [0; pool::COUNTS];
        for (offset, word) in (0..).step_by(8).zip(&mut words) {
            let address = counts.checked_add(offset)?;
            *word = self.ram.atomic_u64(address)?.load(Relaxed).min(most);
        }
        let [total, free, reserved, surplus] = words;
        Some(HugePages {
            page_bytes,
            total,
            free,
            reserved,
            surplus,
        })
    }

    /// Returns the bytes of page descriptors of huge pages that were freed. Returns `None` if the
    /// guest does not count them.
    fn given_up(&self) -> Option<u64> {
        let blocks = self.pointer(offset_of!(GuestHeader, given_up))?;
        let blocks = self.ram.atomic_u64(blocks)?.load(Relaxed);
        let most = self.ram.bytes() / pool::PAGE_BYTES[0];
        Some(blocks.min(most) * pool::DESCRIPTORS_BYTES)
    }

    /// Returns the guest-physical address in a field of the header. Returns `None` if it is 0.
    fn pointer(&self, field: usize) -> Option<GuestAddress> {
        let address = self.u64(field)?;
        (address != 0).then_some(GuestAddress(address))
    }

    /// Returns the sum of the guest's per-CPU counters of one kind. Returns 0 if the guest has not
    /// published their address. Counters outside of RAM end the sum.
    fn counted(&self, field: usize) -> Option<u64> {
        // Acquire: pairs with the kernel's Release, which stored stride and number of CPUs before
        // the address.
        let first = self.ram.atomic_u64(self.field(field)?)?.load(Acquire);
        let stride = u64::from(self.u32(offset_of!(GuestHeader, count_stride))?);
        let cpus = self.u32(offset_of!(GuestHeader, count_cpus))?;
        if first == 0 {
            return Some(0);
        }
        let word = |cpu: u32| {
            let address = GuestAddress(first).checked_add(u64::from(cpu) * stride)?;
            Some(self.ram.atomic_u64(address)?.load(Relaxed))
        };
        let words = (0..cpus.min(CPUS_MAX)).map_while(word);
        Some(words.fold(0, u64::wrapping_add))
    }

    /// Returns the guest-physical address of the header's field at `offset`.
    fn field(&self, offset: usize) -> Option<GuestAddress> {
        self.address.checked_add(u64::try_from(offset).ok()?)
    }

    // Relaxed: these statistics are independent of each other; only the stage needs an order.
    fn u32(&self, offset: usize) -> Option<u32> {
        Some(self.ram.atomic_u32(self.field(offset)?)?.load(Relaxed))
    }

    fn u64(&self, offset: usize) -> Option<u64> {
        Some(self.ram.atomic_u64(self.field(offset)?)?.load(Relaxed))
    }
}

/// Sums the counters of all zones in the metadata of a guest with `frames` frames. Reads no more
/// than such a guest can have, and caps each sum at `frames`. Returns `None` if the metadata is not
/// valid.
fn tally(metadata: impl Memory, frames: u64) -> Option<Counts> {
    let view = View::new(metadata).ok()?.within(frames);
    let (mut used, mut free, mut unreported) = (0u64, 0u64, 0u64);
    for zone in view.zones() {
        let zone = zone.ok()?;
        // The view caps `free_frames` at `managed_frames`, so this cannot underflow.
        used = used.saturating_add(zone.managed_frames - zone.free_frames);
        free = free.saturating_add(zone.free_frames);
        unreported = unreported.saturating_add(zone.unreported_free_frames);
    }
    Some(Counts {
        used: used.min(frames),
        free: free.min(frames),
        unreported: unreported.min(frames),
    })
}

/// The allocator's metadata in the guest's RAM.
struct Metadata<'a> {
    ram: &'a GuestRam,
    reading: &'a Reading,
}

impl Memory for Metadata<'_> {
    fn word(&self, offset: u64) -> Option<u64> {
        if offset >= self.reading.metadata_bytes.min(METADATA_MAX) {
            return None;
        }
        let address = self.reading.metadata.checked_add(offset)?;
        // Acquire: pairs with the allocator's Release of its magic number. All other words may
        // change at any time.
        Some(self.ram.atomic_u64(address)?.load(Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    const AT: u64 = 0x3000;

    fn put32(ram: &GuestRam, offset: usize, value: u32) {
        rustix::io::pwrite(ram.fd(), &value.to_le_bytes(), AT + offset as u64).unwrap();
    }

    fn put64(ram: &GuestRam, offset: usize, value: u64) {
        rustix::io::pwrite(ram.fd(), &value.to_le_bytes(), AT + offset as u64).unwrap();
    }

    #[test]
    fn reads_a_valid_header_and_no_other() {
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 1 << 20).unwrap());
        let header = Header::new(Arc::clone(&ram), GuestAddress(AT));
        assert!(header.read().is_none());
        put64(&ram, offset_of!(GuestHeader, magic), MAGIC);
        assert!(header.read().is_none());
        put32(&ram, offset_of!(GuestHeader, version), VERSION);
        assert_eq!(header.read().unwrap().stage, Stage::Booting);
        put32(&ram, offset_of!(GuestHeader, exit_status), 7 << 8);
        put32(&ram, offset_of!(GuestHeader, stage), stage::EXITED);
        let Stage::Exited(status) = header.read().unwrap().stage else {
            panic!("not exited")
        };
        assert_eq!((status.code(), status.signal()), (7, None));
        put32(&ram, offset_of!(GuestHeader, stage), 99);
        assert!(header.read().is_none());
    }

    #[test]
    fn a_balloon_is_no_larger_than_memory() {
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 1 << 20).unwrap());
        let header = Header::new(Arc::clone(&ram), GuestAddress(AT));
        put64(&ram, offset_of!(GuestHeader, magic), MAGIC);
        put32(&ram, offset_of!(GuestHeader, version), VERSION);
        for (told, frames) in [(0, 0), (7, 7), (256, 256), (u64::MAX, 256)] {
            put64(&ram, offset_of!(GuestHeader, ballooned_frames), told);
            assert_eq!(header.read().unwrap().ballooned_frames, frames);
        }
    }

    #[test]
    fn metadata_that_lies_is_nothing() {
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 1 << 20).unwrap());
        let header = Header::new(Arc::clone(&ram), GuestAddress(AT));
        put64(&ram, offset_of!(GuestHeader, magic), MAGIC);
        put32(&ram, offset_of!(GuestHeader, version), VERSION);
        for (address, bytes) in [
            (0, u64::MAX),
            (u64::MAX - 7, 64),
            (0x8000, 0),
            (0x8001, 4096),
        ] {
            put64(&ram, offset_of!(GuestHeader, metadata_address), address);
            put64(&ram, offset_of!(GuestHeader, metadata_bytes), bytes);
            assert_eq!(header.counts(&header.read().unwrap()), None);
        }
    }

    /// Words that all have one value except for the first ones, and a count of reads.
    struct Alike<'a>(u64, &'a std::cell::Cell<u64>);

    impl Memory for Alike<'_> {
        fn word(&self, offset: u64) -> Option<u64> {
            self.1.set(self.1.get() + 1);
            match offset {
                0 => Some(ebb_mm::view::MAGIC),
                8 => Some(u64::from(ebb_mm::view::VERSION) | 8 << 32),
                _ => (offset < METADATA_MAX).then_some(self.0),
            }
        }
    }

    #[test]
    fn a_reading_costs_what_the_guests_memory_is_worth() {
        let (megabytes_64, edges) = (16, 128);
        let mut valid = 0;
        for value in (0..64).flat_map(|bit| [1 << bit, (1u64 << bit).wrapping_sub(8)]) {
            let read = std::cell::Cell::new(0);
            let counts = tally(Alike(value, &read), 1 << 18);
            // Two words for each 64 MiB, and the records of eight zones.
            let most = 2 * (megabytes_64 + edges) + 8 * 64;
            assert!(read.get() <= most, "{value:#x}: {} words", read.get());
            if let Some(counts) = counts {
                valid += 1;
                assert!(
                    counts.used <= 1 << 18 && counts.free <= 1 << 18,
                    "{value:#x}"
                );
            }
        }
        assert!(valid > 0, "some of it can be read");
    }

    #[test]
    fn counts_are_summed_over_cpus_and_lies_are_nothing() {
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 1 << 20).unwrap());
        let header = Header::new(Arc::clone(&ram), GuestAddress(AT));
        put64(&ram, offset_of!(GuestHeader, magic), MAGIC);
        put32(&ram, offset_of!(GuestHeader, version), VERSION);
        put32(&ram, offset_of!(GuestHeader, count_stride), 128);
        put32(&ram, offset_of!(GuestHeader, count_cpus), 2);
        assert_eq!(header.read().unwrap().faults, 0);
        for (cpu, faults, files) in [(0, 30, u64::MAX), (1, 12, 5), (2, 1000, 1000)] {
            let at = 0x8000 - usize::try_from(AT).unwrap() + cpu * 128;
            put64(&ram, at, faults);
            put64(&ram, at + 8, files);
        }
        put64(&ram, offset_of!(GuestHeader, fault_counts), 0x8000);
        put64(&ram, offset_of!(GuestHeader, file_counts), 0x8008);
        let reading = header.read().unwrap();
        assert_eq!((reading.faults, reading.file_frames), (42, 4));
        put64(&ram, 0x8008 - usize::try_from(AT).unwrap() + 128, 0);
        assert_eq!(header.read().unwrap().file_frames, 0);
        put32(&ram, offset_of!(GuestHeader, count_cpus), u32::MAX);
        put32(&ram, offset_of!(GuestHeader, count_stride), u32::MAX);
        for first in [1, 0x8004, u64::MAX - 7, (1 << 20) - 4, 1 << 20] {
            put64(&ram, offset_of!(GuestHeader, fault_counts), first);
            assert_eq!(header.read().unwrap().faults, 0, "{first:#x}");
        }
    }

    #[test]
    fn pools_of_huge_pages_are_no_larger_than_memory() {
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 32 << 20).unwrap());
        let header = Header::new(Arc::clone(&ram), GuestAddress(AT));
        put64(&ram, offset_of!(GuestHeader, magic), MAGIC);
        put32(&ram, offset_of!(GuestHeader, version), VERSION);
        let reading = header.read().unwrap();
        assert_eq!((reading.huge_pages, reading.given_up), ([None; 2], None));
        let at = 0x8000 - usize::try_from(AT).unwrap();
        for (word, value) in [7, 5, 3, u64::MAX].into_iter().enumerate() {
            put64(&ram, at + word * 8, value);
        }
        put64(&ram, offset_of!(GuestHeader, pool_counts), 0x8000);
        put64(&ram, offset_of!(GuestHeader, given_up), 0x8000);
        let reading = header.read().unwrap();
        let expected = HugePages {
            page_bytes: 2 << 20,
            total: 7,
            free: 5,
            reserved: 3,
            surplus: 16,
        };
        assert_eq!(reading.huge_pages, [Some(expected), None]);
        assert_eq!(reading.given_up, Some(7 * (32 << 10)));
        for lie in [1, (32 << 20) - 8, 32 << 20, u64::MAX - 7] {
            put64(&ram, offset_of!(GuestHeader, pool_counts), lie);
            assert_eq!(header.read().unwrap().huge_pages, [None; 2], "{lie:#x}");
        }
        put64(&ram, offset_of!(GuestHeader, given_up), 0x8018);
        assert_eq!(header.read().unwrap().given_up, Some(16 * (32 << 10)));
    }

    #[test]
    fn the_last_victims_are_told_and_lies_cost_little() {
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 1 << 20).unwrap());
        let header = Header::new(Arc::clone(&ram), GuestAddress(AT));
        assert_eq!(header.oom_kills(), OomKills::default());
        let kills = 11u64;
        for number in 0..kills {
            let place = usize::try_from(number).unwrap() % OOM_RECORDS;
            let record = offset_of!(GuestHeader, oom_records) + place * size_of::<OomRecord>();
            put64(&ram, record + offset_of!(OomRecord, number), number + 1);
            put64(&ram, record + offset_of!(OomRecord, pid), 100 + number);
            put64(&ram, record + offset_of!(OomRecord, resident), u64::MAX);
            put64(
                &ram,
                record + offset_of!(OomRecord, name),
                u64::from_le_bytes(*b"job\0\0\0\0\0"),
            );
        }
        put64(&ram, offset_of!(GuestHeader, oom_kills), kills);
        let found = header.oom_kills();
        let told = found.told();
        assert_eq!((found.kills, told.len()), (11, OOM_RECORDS));
        assert!(told.iter().map(|killed| killed.pid).eq(103..111));
        assert_eq!(
            (told[0].name.as_str(), told[0].resident_bytes),
            ("job", 1 << 20)
        );
        // One record is being written, and the count exceeds all records.
        put64(&ram, offset_of!(GuestHeader, oom_records), 0);
        assert_eq!(header.oom_kills().told().len(), OOM_RECORDS - 1);
        put64(&ram, offset_of!(GuestHeader, oom_kills), u64::MAX);
        assert_eq!(header.oom_kills().told(), []);
    }

    #[test]
    fn header_outside_ram_is_nothing() {
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 1 << 20).unwrap());
        assert!(
            Header::new(Arc::clone(&ram), GuestAddress((1 << 20) - 8))
                .read()
                .is_none()
        );
        assert!(
            Header::new(Arc::clone(&ram), GuestAddress(u64::MAX - 7))
                .read()
                .is_none()
        );
    }
}

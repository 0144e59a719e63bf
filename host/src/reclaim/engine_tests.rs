//! Tests on an allocator in a RAM file, with the layout of a guest.

use super::super::worker::serve;
use super::*;
use crate::guest::{EbbGuest, Header};
use crate::machine::{HostPages, Machine};
use crate::qemu::{RamMaker, Wish};
use ebb_mm::{
    Allocator, Config, CpuCache, Frame, FrameRange, Mobility, Order, ReportSink, Reporter, Request,
    Reserve, ZoneConfig, ZoneKind, metadata_layout,
};
use ebb_wire::header::memmap::DESCRIPTOR_BYTES;
use ebb_wire::header::{GuestHeader, MAGIC, VERSION, memmap};
use std::io::Write as _;
use std::mem::offset_of;
use std::os::unix::net::UnixStream;

const RAM: u64 = 64 << 20;
const HEADER: u64 = 0x3000;
const METADATA: u64 = 1 << 20;
const DESCRIPTORS: u64 = 2 << 20;
/// The tables that map the descriptors.
const UPPER: u64 = 0x4000;
const DIRECTORY: u64 = 0x5000;
/// The table of pages in place of the large page, and the place of the descriptors that moved.
const TABLE: u64 = 0x6000;
const MOVED: u64 = RAM - BLOCK;
const BLOCK: u64 = 2 << 20;
/// The bytes of the descriptors of a block.
const DESCRIBED: u64 = PAGEBLOCK_FRAMES * DESCRIPTOR_BYTES;

/// Calls `test` with a guest that manages `managed` bytes of memory, after the first 4 MiB.
fn with(
    atomics_shared: bool,
    managed: u64,
    test: impl FnOnce(&FreeMemory, &GuestRam, &Allocator<'_>),
) {
    let ram = GuestRam::new(Machine::Microvm, RAM).unwrap();
    with_ram(ram, atomics_shared, managed, test);
}

/// As [`with`], with the given RAM.
fn with_ram(
    ram: GuestRam,
    atomics_shared: bool,
    managed: u64,
    test: impl FnOnce(&FreeMemory, &GuestRam, &Allocator<'_>),
) {
    let ram = Arc::new(ram);
    let range = [FrameRange::new(
        Frame::containing(2 * BLOCK),
        managed / FRAME,
    )];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &range,
    }];
    let config = Config::new(&zones);
    let bytes = metadata_layout(&config).unwrap().size() as u64;
    let window = Window::new(&ram, GuestAddress(METADATA), bytes.next_multiple_of(4096)).unwrap();
    // SAFETY: the memory is zero, has this layout, is used through atomics only, and stays mapped
    // longer than the allocator.
    let allocator = unsafe { Allocator::new(window.base(), &config, &()) }.unwrap();
    let put = |offset: usize, bytes: &[u8]| {
        rustix::io::pwrite(ram.fd(), bytes, HEADER + offset as u64).unwrap();
    };
    put(offset_of!(GuestHeader, magic), &MAGIC.to_le_bytes());
    put(offset_of!(GuestHeader, version), &VERSION.to_le_bytes());
    put(
        offset_of!(GuestHeader, metadata_address),
        &METADATA.to_le_bytes(),
    );
    put(
        offset_of!(GuestHeader, metadata_bytes),
        &bytes.to_le_bytes(),
    );
    put(offset_of!(GuestHeader, descriptors), &UPPER.to_le_bytes());
    for (table, entry) in [
        (UPPER, DIRECTORY | memmap::PRESENT),
        (DIRECTORY, DESCRIPTORS | memmap::LARGE | memmap::PRESENT),
    ] {
        rustix::io::pwrite(ram.fd(), &entry.to_le_bytes(), table).unwrap();
    }
    let header = Header::new(Arc::clone(&ram), GuestAddress(HEADER));
    let guest = Arc::new(EbbGuest::new(header, 0));
    let memory = FreeMemory::new(Arc::clone(&ram), guest, atomics_shared);
    test(&memory, &ram, &allocator);
}

/// Allocates `blocks` blocks, so that the host holds memory for them.
fn used(
    ram: &GuestRam,
    allocator: &Allocator<'_>,
    cache: &mut CpuCache,
    blocks: usize,
) -> Vec<Frame> {
    let request = Request::new(Order::PAGEBLOCK, Mobility::Movable).reserve(Reserve::Use);
    let blocks = (0..blocks).map(|_| allocator.allocate(cache, request).unwrap());
    blocks
        .inspect(|block| {
            let bytes = vec![7; usize::try_from(BLOCK).unwrap()];
            rustix::io::pwrite(ram.fd(), &bytes, block.address()).unwrap();
            let described = DESCRIPTORS + block.number() * DESCRIPTOR_BYTES;
            rustix::io::pwrite(ram.fd(), &bytes[..32 << 10], described).unwrap();
        })
        .collect()
}

fn byte(ram: &GuestRam, address: u64) -> u8 {
    let mut byte = [0];
    ram.read_at(GuestAddress(address), &mut byte).unwrap();
    byte[0]
}

#[test]
fn what_is_free_is_dropped_up_to_the_target_and_nothing_else() {
    with(true, RAM - 2 * BLOCK, |memory, ram, allocator| {
        let mut cache = CpuCache::new();
        let blocks = used(ram, allocator, &mut cache, 8);
        let before = ram.resident_bytes().unwrap();
        assert_eq!(
            memory.reclaim(u64::MAX).unwrap().bytes,
            0,
            "all of it is in use"
        );
        for &block in &blocks[..6] {
            allocator.free(&mut cache, block, Order::PAGEBLOCK);
        }
        allocator.drain(&mut cache);
        let first = memory.reclaim(BLOCK + 1).unwrap();
        assert_eq!(first.bytes, 2 * BLOCK, "rounded up to blocks");
        assert!(first.ranges >= 1 && first.punching <= first.time);
        assert_eq!(memory.reclaim(u64::MAX).unwrap().bytes, 4 * BLOCK);
        assert_eq!(memory.reclaim(u64::MAX).unwrap().bytes, 0);
        assert_eq!(memory.sums().bytes, 6 * BLOCK);
        let fell = before - ram.resident_bytes().unwrap();
        assert!(fell >= 6 * (BLOCK + (32 << 10)) - (1 << 20), "{fell}");
        for (at, block) in blocks.iter().enumerate() {
            let kept = if at < 6 { 0 } else { 7 };
            assert_eq!(byte(ram, block.address() + 4097), kept, "block {at}");
            let described = DESCRIPTORS + block.number() * DESCRIPTOR_BYTES;
            assert_eq!(byte(ram, described), kept, "descriptors of block {at}");
        }
        assert_eq!(allocator.stats().unreported_free_frames, 0);
        blocks[6..]
            .iter()
            .for_each(|&block| allocator.free(&mut cache, block, Order::PAGEBLOCK));
        allocator.drain(&mut cache);
        allocator.validate().unwrap();
    });
}

/// Replaces the large page of descriptors with a table, and moves the descriptors of `blocks`, as
/// the guest does for huge pages that leave a pool. The last block's are the lowest.
fn move_descriptors(ram: &GuestRam, blocks: &[Frame]) {
    let put = |address: u64, word: u64| {
        rustix::io::pwrite(ram.fd(), &word.to_le_bytes(), address).unwrap();
    };
    for page in 0..memmap::ENTRIES {
        let at = DESCRIPTORS + page * memmap::PAGE;
        put(TABLE + page * 8, at | memmap::PRESENT);
    }
    for (block, to) in blocks.iter().rev().zip((MOVED..).step_by(32 << 10)) {
        let first = block.number() / memmap::PAGE_FRAMES;
        for page in 0..DESCRIBED / memmap::PAGE {
            let entry = (to + page * memmap::PAGE) | memmap::OWNED | memmap::PRESENT;
            put(TABLE + (first + page) * 8, entry);
        }
        rustix::io::pwrite(ram.fd(), &[7; 32 << 10], to).unwrap();
    }
    put(DIRECTORY, TABLE | memmap::PRESENT);
}

/// Returns the first and the last byte of the moved descriptors of the block with `index` of
/// `blocks`.
fn moved(ram: &GuestRam, blocks: &[Frame], index: usize) -> [u8; 2] {
    let place = (blocks.len() - 1 - index) as u64;
    [place * DESCRIBED, (place + 1) * DESCRIBED - 1].map(|at| byte(ram, MOVED + at))
}

/// The descriptors of blocks that left a pool are wherever the guest had memory for them.
#[test]
fn descriptors_that_have_moved_go_with_their_block() {
    with(true, RAM - 3 * BLOCK, |memory, ram, allocator| {
        let mut cache = CpuCache::new();
        let blocks = used(ram, allocator, &mut cache, 6);
        let has_moved = &blocks[..4];
        move_descriptors(ram, has_moved);
        for block in [0, 1, 3, 4].map(|index| blocks[index]) {
            allocator.free(&mut cache, block, Order::PAGEBLOCK);
        }
        allocator.drain(&mut cache);
        assert_eq!(memory.reclaim(u64::MAX).unwrap().bytes, 4 * BLOCK);
        let left = [0, 1, 2, 3].map(|index| moved(ram, has_moved, index));
        assert_eq!(left, [[0; 2], [0; 2], [7; 2], [0; 2]]);
        // The memory that the descriptors had before is in use for something else.
        let before = blocks
            .iter()
            .map(|block| byte(ram, DESCRIPTORS + block.number() * DESCRIPTOR_BYTES));
        assert_eq!(before.collect::<Vec<_>>(), [7, 7, 7, 7, 0, 7]);
    });
}

/// A huge page of the host is split for descriptors that have moved, so that nothing of it is left
/// once all of them are gone.
#[test]
fn descriptors_that_have_moved_leave_a_huge_page() {
    let maker = RamMaker::prepare(HostPages::Huge, RAM).unwrap();
    let ram = GuestRam::made_by(&maker, Machine::Microvm, RAM).unwrap();
    with_ram(ram, true, RAM - 3 * BLOCK, |memory, ram, allocator| {
        let mut cache = CpuCache::new();
        let blocks = used(ram, allocator, &mut cache, 3);
        move_descriptors(ram, &blocks);
        let before = ram.resident_bytes().unwrap();
        let mut give = |block: Frame| {
            allocator.free(&mut cache, block, Order::PAGEBLOCK);
            allocator.drain(&mut cache);
            assert_eq!(memory.reclaim(u64::MAX).unwrap().bytes, BLOCK);
        };
        give(blocks[1]);
        let left = [0, 1, 2].map(|index| moved(ram, &blocks, index));
        assert_eq!(left, [[7; 2], [0; 2], [7; 2]]);
        give(blocks[0]);
        give(blocks[2]);
        let fell = before - ram.resident_bytes().unwrap();
        assert!(fell >= 3 * (BLOCK + DESCRIBED), "{fell}");
    });
}

/// Without an entry for them, descriptors cannot be found.
#[test]
fn descriptors_that_no_entry_leads_to_stay() {
    let entries = [
        // Seen as a table, the first descriptors are zero.
        (DIRECTORY, DESCRIPTORS | memmap::PRESENT),
        (DIRECTORY, RAM | memmap::PRESENT),
        (DIRECTORY, DESCRIPTORS | memmap::LARGE),
        (DIRECTORY, RAM | memmap::LARGE | memmap::PRESENT),
        (UPPER, DIRECTORY),
        (UPPER, RAM | memmap::PRESENT),
    ];
    for (table, entry) in entries {
        with(true, RAM - 2 * BLOCK, |memory, ram, allocator| {
            rustix::io::pwrite(ram.fd(), &u64::to_le_bytes(entry), table).unwrap();
            let mut cache = CpuCache::new();
            let blocks = used(ram, allocator, &mut cache, 2);
            for &block in &blocks {
                allocator.free(&mut cache, block, Order::PAGEBLOCK);
            }
            allocator.drain(&mut cache);
            assert_eq!(memory.reclaim(u64::MAX).unwrap().bytes, 2 * BLOCK);
            for block in &blocks {
                assert_eq!(byte(ram, block.address()), 0);
                let described = DESCRIPTORS + block.number() * DESCRIPTOR_BYTES;
                assert_eq!(byte(ram, described), 7, "{table:#x}: {entry:#x}");
            }
        });
    }
}

/// The descriptors of one block are a part of a huge page, and punching them would split it.
#[test]
fn descriptors_in_a_huge_page_are_left_there() {
    for in_base_pages in [false, true] {
        let maker = RamMaker::prepare(HostPages::Huge, RAM).unwrap();
        let mut ram = GuestRam::made_by(&maker, Machine::Microvm, RAM).unwrap();
        if in_base_pages {
            ram.keep_in_base_pages(DESCRIPTORS, BLOCK);
        }
        with_ram(ram, true, RAM - 2 * BLOCK, |memory, ram, allocator| {
            let mut cache = CpuCache::new();
            let blocks = used(ram, allocator, &mut cache, 6);
            let before = ram.resident_bytes().unwrap();
            for &block in &blocks {
                allocator.free(&mut cache, block, Order::PAGEBLOCK);
            }
            allocator.drain(&mut cache);
            assert_eq!(memory.reclaim(u64::MAX).unwrap().bytes, 6 * BLOCK);
            let fell = before - ram.resident_bytes().unwrap();
            for block in &blocks {
                let described = DESCRIPTORS + block.number() * DESCRIPTOR_BYTES;
                let left = if in_base_pages { 0 } else { 7 };
                assert_eq!(byte(ram, described), left, "{block:?}");
            }
            // The first base page stays.
            let least = if in_base_pages {
                6 * (BLOCK + (32 << 10)) - FRAME
            } else {
                6 * BLOCK
            };
            assert!((least..least + 2 * FRAME).contains(&fell), "{fell}");
        });
    }
}

#[test]
fn memory_that_was_not_given_is_refused_by_name() {
    with(true, RAM, |memory, ram, allocator| {
        let mut cache = CpuCache::new();
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable).reserve(Reserve::Use);
        let blocks: Vec<_> =
            std::iter::from_fn(|| allocator.allocate(&mut cache, request).ok()).collect();
        let beyond = blocks.iter().find(|block| block.address() >= RAM).unwrap();
        allocator.free(&mut cache, *beyond, Order::PAGEBLOCK);
        allocator.drain(&mut cache);
        let before = ram.resident_bytes().unwrap();
        let error = memory.reclaim(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("cannot be dropped"), "{error}");
        assert_eq!(ram.resident_bytes().unwrap(), before);
        assert_eq!(allocator.stats().isolated_frames, 0);
    });
}

#[test]
fn who_cannot_be_asked_says_why() {
    with(false, RAM / 2, |memory, _, _| {
        let error = memory.reclaim(1).unwrap_err().to_string();
        assert!(error.contains("not atomic"), "{error}");
    });
    with(true, RAM / 2, |memory, ram, _| {
        let put = |offset: usize, value: u64| {
            rustix::io::pwrite(ram.fd(), &value.to_le_bytes(), HEADER + offset as u64).unwrap();
        };
        for (address, bytes) in [(METADATA + 8, 4096), (RAM, 4096), (METADATA, u64::MAX)] {
            put(offset_of!(GuestHeader, metadata_address), address);
            put(offset_of!(GuestHeader, metadata_bytes), bytes);
            let error = memory.reclaim(1).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{address:#x}, {bytes} bytes")),
                "{error}"
            );
        }
        put(offset_of!(GuestHeader, metadata_bytes), 64 << 10);
        put(offset_of!(GuestHeader, metadata_address), 8 << 20);
        let error = memory.reclaim(1).unwrap_err().to_string();
        assert!(error.contains("no allocator metadata"), "{error}");
        put(offset_of!(GuestHeader, metadata_bytes), 0);
        assert!(matches!(memory.reclaim(1), Err(ReclaimError::NoAllocator)));
    });
}

#[test]
fn one_at_a_time() {
    with(true, RAM / 2, |memory, ram, _| {
        let ram_lock = RamLock::try_lock(ram).unwrap();
        assert!(matches!(memory.reclaim(1), Err(ReclaimError::Busy)));
        drop(ram_lock);
        memory.reclaim(1).unwrap();
        assert!(RamLock::try_lock(ram).is_err(), "it is kept");
    });
}

#[test]
fn who_was_called_while_another_had_the_memory_comes_back_uncalled() {
    with(true, RAM / 2, |memory, ram, allocator| {
        let mode = GiveBack::Shared.number().to_le_bytes();
        let address = HEADER + offset_of!(GuestHeader, give_back) as u64;
        rustix::io::pwrite(ram.fd(), &mode, address).unwrap();
        let mut cache = CpuCache::new();
        for block in used(ram, allocator, &mut cache, 4) {
            allocator.free(&mut cache, block, Order::PAGEBLOCK);
        }
        allocator.drain(&mut cache);
        let ram_lock = RamLock::try_lock(ram).unwrap();
        let (mut guest, host) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let worker = scope.spawn(|| serve(memory, host, None));
            guest.write_all(&[1]).unwrap();
            // The time is long enough to be refused. A slow machine sees less, and passes as well.
            thread::sleep(Duration::from_millis(100));
            assert_eq!(memory.sums().bytes, 0, "another has it");
            drop(ram_lock);
            while memory.sums().bytes != 4 * BLOCK {
                thread::sleep(Duration::from_millis(1));
            }
            drop(guest);
            worker.join().unwrap();
        });
        // A refused resume does not outlive its guest.
        let other = FreeMemory::new(Arc::clone(&memory.ram), Arc::clone(&memory.guest), true);
        let (mut guest, host) = UnixStream::pair().unwrap();
        guest.write_all(&[1]).unwrap();
        drop(guest);
        serve(&other, host, None);
        assert_eq!(other.sums().bytes, 0);
    });
}

/// Returns the free memory of the same guest, with virtual CPUs that QEMU has stopped, or not yet.
fn paused(memory: &FreeMemory, atomics_shared: bool) -> (FreeMemory, Arc<Vcpus>, UnixStream) {
    let (vcpus, monitor) = Vcpus::of_test();
    let vcpus = Arc::new(vcpus);
    let again = FreeMemory::new(
        Arc::clone(&memory.ram),
        Arc::clone(&memory.guest),
        atomics_shared,
    );
    (again.with_vcpus(Arc::clone(&vcpus)), vcpus, monitor)
}

#[test]
fn a_paused_guest_whose_exchanges_can_be_lost_gives_while_it_is_held() {
    with(false, RAM - 2 * BLOCK, |memory, ram, allocator| {
        let (memory, vcpus, _monitor) = paused(memory, false);
        let mut cache = CpuCache::new();
        for block in used(ram, allocator, &mut cache, 2) {
            allocator.free(&mut cache, block, Order::PAGEBLOCK);
        }
        allocator.drain(&mut cache);
        vcpus.ask(Wish::Pause).unwrap();
        let refused = memory.reclaim(u64::MAX);
        assert!(
            matches!(refused, Err(ReclaimError::Unsound)),
            "QEMU has not stopped it"
        );
        assert!(vcpus.on_stop_event());
        assert_eq!(memory.reclaim(u64::MAX).unwrap().bytes, 2 * BLOCK);
        vcpus.ask(Wish::Resume).unwrap();
        let refused = memory.reclaim(u64::MAX);
        assert!(matches!(refused, Err(ReclaimError::Unsound)), "it goes on");
    });
}

/// A stopped CPU may be about to count a change, which cannot be told from a lost change.
#[test]
fn what_was_left_out_is_not_counted_again_while_the_guest_stands_still() {
    with(true, RAM - 2 * BLOCK, |memory, _, allocator| {
        let left = |session: &mut Session<'_>| {
            let frame = Frame::containing(2 * BLOCK);
            // Dropping it leaves the allocator open.
            let _open = session.attached.open(frame).unwrap();
            Ok(())
        };
        memory.with(left).unwrap();
        *memory.ram_lock.lock().unwrap() = None;
        let (memory, vcpus, _monitor) = paused(memory, true);
        vcpus.ask(Wish::Pause).unwrap();
        assert!(vcpus.on_stop_event());
        assert!(matches!(memory.reclaim(1), Err(ReclaimError::LeftOpen)));
        vcpus.ask(Wish::Resume).unwrap();
        vcpus.on_resume_event();
        memory.reclaim(1).unwrap();
        allocator.validate().unwrap();
    });
}

/// In a paused guest, the descriptors of 64 free frames fill a page, which goes with them.
#[test]
fn descriptors_of_pieces_go_where_they_fill_pages() {
    with(true, RAM - 2 * BLOCK, |memory, ram, allocator| {
        let mut cache = CpuCache::new();
        let blocks = used(ram, allocator, &mut cache, 1);
        let block = blocks[0];
        allocator.split(block, Order::PAGEBLOCK, Order::BASE);
        // One frame of the first page of descriptors stays in use.
        for frame in (1..200).map(|index| block.offset(index)) {
            allocator.free(&mut cache, frame, Order::BASE);
        }
        allocator.drain(&mut cache);
        let (memory, vcpus, _monitor) = paused(memory, true);
        vcpus.ask(Wish::Pause).unwrap();
        assert!(vcpus.on_stop_event());
        let taken = memory.reclaim(u64::MAX).unwrap().bytes;
        assert_eq!(taken, 199 * FRAME + 2 * memmap::PAGE);
        let described = DESCRIPTORS + block.number() * DESCRIPTOR_BYTES;
        let left = [0, 1, 2, 3].map(|page| byte(ram, described + page * memmap::PAGE));
        assert_eq!(left, [7, 0, 0, 7]);
    });
}

/// A guest that stops in the middle of a report: the host takes the memory that the guest has
/// isolated for the report.
struct StopsInReport<'a> {
    memory: &'a FreeMemory,
    vcpus: &'a Vcpus,
    taken: Vec<u64>,
}

impl ReportSink for StopsInReport<'_> {
    type Error = ();

    fn report(&mut self, _: &[FrameRange]) -> Result<(), ()> {
        let mut take = || {
            self.taken
                .push(self.memory.reclaim(u64::MAX).unwrap().bytes)
        };
        take();
        self.vcpus.ask(Wish::Pause).unwrap();
        assert!(self.vcpus.on_stop_event());
        take();
        take();
        self.vcpus.ask(Wish::Resume).unwrap();
        self.vcpus.on_resume_event();
        Err(())
    }
}

#[test]
fn what_a_stopped_guest_was_about_to_report_goes() {
    with(true, RAM - 2 * BLOCK, |memory, ram, allocator| {
        let mut cache = CpuCache::new();
        let mut blocks = used(ram, allocator, &mut cache, 3);
        let kept = blocks.pop().unwrap();
        for block in blocks {
            allocator.free(&mut cache, block, Order::PAGEBLOCK);
        }
        allocator.drain(&mut cache);
        let (memory, vcpus, _monitor) = paused(memory, true);
        let mut sink = StopsInReport {
            memory: &memory,
            vcpus: &vcpus,
            taken: Vec::new(),
        };
        let (_, is_done) = Reporter::new().pass_now(allocator, &mut sink);
        assert!(!is_done, "the report has failed");
        let both = 2 * (BLOCK + DESCRIBED);
        assert_eq!(sink.taken, [0, both, 0], "running, stopped, again");
        assert_eq!(byte(ram, kept.address()), 7, "it is in use");
        allocator.validate().unwrap();
    });
}

/// The free frames of partly used blocks leave the host only while the CPUs are stopped.
#[test]
fn pieces_are_taken_of_a_paused_guest_alone() {
    with(true, RAM - 2 * BLOCK, |memory, ram, allocator| {
        let mut cache = CpuCache::new();
        let bytes = vec![7; usize::try_from(FRAME).unwrap()];
        let request = Request::new(Order::BASE, Mobility::Movable).reserve(Reserve::Use);
        let frames: Vec<_> = (0..4 * PAGEBLOCK_FRAMES)
            .map(|_| allocator.allocate(&mut cache, request).unwrap())
            .inspect(|frame| {
                rustix::io::pwrite(ram.fd(), &bytes, frame.address()).unwrap();
            })
            .collect();
        let (freed, kept): (Vec<_>, Vec<_>) = frames
            .into_iter()
            .partition(|frame| frame.number() % 4 != 0);
        for &frame in &freed {
            allocator.free(&mut cache, frame, Order::BASE);
        }
        allocator.drain(&mut cache);
        let (memory, vcpus, _monitor) = paused(memory, true);
        assert_eq!(memory.reclaim(u64::MAX).unwrap().bytes, 0, "the guest runs");
        vcpus.ask(Wish::Pause).unwrap();
        assert!(vcpus.on_stop_event());
        let freed_bytes = freed.len() as u64 * FRAME;
        let some = memory.reclaim(FRAME).unwrap().bytes;
        assert!(
            (FRAME..freed_bytes).contains(&some),
            "{some} of {freed_bytes} bytes"
        );
        // A request to resume need not wait for the remaining blocks.
        let unwanted = memory.with(|session| {
            let still = vcpus.hold().expect("it stands still");
            vcpus.ask(Wish::Resume).unwrap();
            let end = session.take_partial_blocks(&still, u64::MAX)?;
            vcpus.ask(Wish::Pause).unwrap();
            Ok((end, session.taken.bytes))
        });
        assert_eq!(unwanted.unwrap(), (Pass::Unwanted, 0));
        let rest = memory.reclaim(u64::MAX).unwrap().bytes;
        assert_eq!(some + rest, freed_bytes);
        assert_eq!(memory.sums().bytes, freed_bytes);
        let mut read = bytes.clone();
        for frame in kept {
            ram.read_at(GuestAddress(frame.address()), &mut read)
                .unwrap();
            assert_eq!(read, bytes, "it is in use");
        }
        allocator.validate().unwrap();
    });
}

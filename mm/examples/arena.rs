//! Allocates pages of 4 KiB and 2 MiB from memory that the program maps, and gives the memory of
//! free ones back to the host: for a program that needs and frees many pages.
//!
//!     cargo run -p ebb-mm --example arena
#![allow(unsafe_code, reason = "maps memory and uses it")]

use std::{convert::Infallible, io, ptr::NonNull, time::Duration};

use ebb_mm::{
    Allocator, Config, CpuCache, FRAME_SIZE, Frame, FrameRange, Mobility, Order, ReportSink,
    Reporter, Request, ZoneConfig, ZoneKind, metadata_layout,
};

const ARENA: usize = 1 << 30;

/// Maps zeroed memory.
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the host's choice touches nothing.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at 0"))
}

/// The memory that the frames refer to: frame 0 is its first page.
struct Arena {
    base: NonNull<u8>,
}

impl Arena {
    fn page(&self, frame: Frame) -> NonNull<u8> {
        let offset = usize::try_from(frame.address()).expect("64 bits");
        assert!(offset < ARENA, "{frame:?} is not of this arena");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.add(offset) }
    }

    /// Returns the number of pages that are resident.
    fn resident(&self) -> usize {
        let mut pages = vec![0u8; ARENA / FRAME_SIZE];
        // SAFETY: the arena is mapped, and there is a byte for each of its pages.
        let done = unsafe { libc::mincore(self.base.as_ptr().cast(), ARENA, pages.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|&&page| page & 1 != 0).count()
    }
}

/// Gives free memory back to the host with `madvise`.
impl ReportSink for &Arena {
    type Error = Infallible;

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), Infallible> {
        for range in ranges {
            let bytes = usize::try_from(range.bytes()).expect("64 bits");
            // SAFETY: the frames are free and isolated during the report, so no code uses the
            // contents that are lost here.
            let done = unsafe {
                libc::madvise(
                    self.page(range.start).as_ptr().cast(),
                    bytes,
                    libc::MADV_DONTNEED,
                )
            };
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arena = Arena { base: map(ARENA)? };
    let ranges = [FrameRange::inside(0, ARENA as u64)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    let config = Config::new(&zones);
    let layout = metadata_layout(&config)?;
    // SAFETY: zeroed memory of this size, aligned to a page as mappings are, never unmapped.
    let allocator = unsafe { Allocator::new(map(layout.size())?, &config, &()) }?;
    allocator
        .set_reporting_order(Some(Order::PAGEBLOCK))
        .expect("an order that can be given back");

    // One per-CPU cache for each thread; this program has one.
    let mut cache = CpuCache::new();
    let small = Request::new(Order::BASE, Mobility::Movable);
    let mut pages = vec![Frame::new(0); 100_000];
    allocator.allocate_bulk(&mut cache, small, &mut pages)?;
    for &page in &pages {
        // SAFETY: the frame is this program's until it frees it.
        unsafe { arena.page(page).write_bytes(0xeb, FRAME_SIZE) };
    }
    let large = allocator.allocate(
        &mut cache,
        Request::new(Order::PAGEBLOCK, Mobility::Movable),
    )?;
    println!("2 MiB at {:p}", arena.page(large));
    println!("in use:      {:>7} pages on the host", arena.resident());

    allocator.free_bulk(&mut cache, &pages, Order::BASE);
    allocator.drain(&mut cache);
    println!("freed:       {:>7} pages on the host", arena.resident());

    // A background thread would do this when `Events::report_requested` wakes it.
    let (mut reporter, mut now, mut sink) = (Reporter::new(), Duration::ZERO, &arena);
    loop {
        let poll = reporter.poll(now, &allocator, &mut sink);
        let Some(next) = poll.next else { break };
        now = next;
    }
    println!("given back:  {:>7} pages on the host", arena.resident());

    allocator.free(&mut cache, large, Order::PAGEBLOCK);
    allocator.drain(&mut cache);
    Ok(())
}

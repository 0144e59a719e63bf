//! `ebb_mm::Reporter` with this driver, connected by the code that both READMEs show.

include!("glue.rs");

use crate::guest::Guest;
use crate::hal::TestHal;
use crate::transport::{Machine, MockTransport};
use ebb_balloon::Features;
use ebb_mm::{
    Allocator, Config, CpuCache, Mobility, Order, Reporter, Request, ZoneConfig, ZoneKind,
};
use std::alloc::{Layout, alloc_zeroed};
use std::time::Duration;

/// Returns the pointer for a physical address, which is equal to the virtual one.
fn identity(address: u64) -> NonNull<u8> {
    NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)).unwrap()
}

/// Allocates memory that is never freed.
fn memory(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layouts are not empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap()
}

type TestHost = Host<TestHal, MockTransport, Guest>;

/// Calls `test` with a device and with an allocator of 8 MiB of real memory, all of it written to.
fn run(machine: &Machine, test: impl FnOnce(&Allocator<'_>, &mut TestHost)) {
    let bytes = 8 << 20;
    let start = memory(Layout::from_size_align(bytes, 2 << 20).unwrap());
    // SAFETY: the memory was just allocated with this size.
    unsafe { start.write_bytes(0xcc, bytes) };
    let all = FrameRange::inside(start.as_ptr().expose_provenance() as u64, bytes as u64);
    let (kind, node) = (ZoneKind::Normal, 0);
    let zones = [ZoneConfig {
        kind,
        node,
        ranges: &[all],
    }];
    let config = Config::new(&zones);
    let metadata = memory(ebb_mm::metadata_layout(&config).unwrap());
    // SAFETY: zeroed memory of this layout, used for nothing else.
    let allocator = unsafe { Allocator::new(metadata, &config, &()) }.unwrap();
    let mut host = Host {
        balloon: machine.driver(),
        pages: Guest::with_pages(0),
        mapped: identity,
        wait: || ControlFlow::Break(()),
    };
    allocator
        .set_reporting_order(Some(Order::PAGEBLOCK))
        .unwrap();
    test(&allocator, &mut host);
}

/// Returns the first byte of an unused frame.
fn byte(frame: ebb_mm::Frame) -> u8 {
    // SAFETY: the memory belongs to `run`, and no reference points to it.
    unsafe { identity(frame.address()).read_volatile() }
}

#[test]
fn free_frames_go_and_those_in_use_stay() {
    let machine = Machine::new(Features::REPORTING);
    run(&machine, |allocator, host| {
        let mut cache = CpuCache::new();
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable);
        let used = allocator.allocate(&mut cache, request).unwrap();
        let freed = allocator.allocate(&mut cache, request).unwrap();
        allocator.free(&mut cache, freed, Order::PAGEBLOCK);
        allocator.drain(&mut cache);
        let mut reporter = Reporter::new();
        let first = reporter.poll(Duration::ZERO, allocator, host);
        let poll = reporter.poll(first.next.unwrap(), allocator, host);
        assert_eq!((poll.error, poll.frames), (None, 512));
        assert_eq!((byte(used), byte(freed)), (0xcc, 0));
        assert_eq!(allocator.stats().unreported_free_frames, 0);
        assert_eq!(machine.device().reports.len(), 1);
        allocator.free(&mut cache, used, Order::PAGEBLOCK);
        allocator.drain(&mut cache);
    });
}

#[test]
fn a_device_that_does_not_answer_holds_nothing_that_is_put_back() {
    let machine = Machine::new(Features::REPORTING);
    machine.device().at_once = false;
    run(&machine, |allocator, host| {
        let mut cache = CpuCache::new();
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable);
        let block = allocator.allocate(&mut cache, request).unwrap();
        allocator.free(&mut cache, block, Order::PAGEBLOCK);
        allocator.drain(&mut cache);
        let mut reporter = Reporter::new();
        let first = reporter.poll(Duration::ZERO, allocator, host);
        let poll = reporter.poll(first.next.unwrap(), allocator, host);
        assert_eq!(poll.error, Some(ReportError::StillPending));
        assert_eq!(host.balloon.ranges_held(), 0);
        assert!(host.balloon.actual_pages() == 0 && machine.device().status == 0);
        assert_eq!(byte(block), 0xcc);
        assert_eq!(allocator.stats().unreported_free_frames, 512);
    });
}

#[test]
fn both_readmes_show_the_glue() {
    let shown = format!("```rust,ignore\n{}```\n", include_str!("glue.rs"));
    for readme in ["README.md", "../mm/README.md"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(readme);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(&shown),
            "{readme} shows other glue than is tested"
        );
    }
}

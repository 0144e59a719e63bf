//! Tests of page hinting in virtual time: delays, no report of frames in use, no lost frame, no
//! endless work.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use crate::arena::{ZONE, range, take, with};
use ebb_mm::{
    AllocError, Allocator, Config, CpuCache, Events, Frame, FrameRange, HINT_BOUND, HINT_ENTRIES,
    HINT_PAUSE, HintList, Hinter, Mobility, Order, REPORTING_DELAY, REQUEST_FRAMES, ReportSink,
    Reporter, Request, ZoneConfig, ZoneId, ZoneKind,
};
use proptest::prelude::*;

const MIB: u64 = 256;
const FRAMES: u64 = 2047 * MIB;

/// The hint lists of two CPUs, the CPU that runs, and how often the worker was called.
struct Cpu {
    list: [HintList; 2],
    running: AtomicUsize,
    calls: AtomicU64,
}

impl Cpu {
    fn new() -> Self {
        Self {
            list: [HintList::new(), HintList::new()],
            running: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
        }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Events for Cpu {
    fn report_requested(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn hints(&self) -> Option<&HintList> {
        self.list.get(self.running.load(Ordering::Relaxed))
    }
}

/// A host. It knows the frames that were reported, and runs code of the guest during a report.
struct Host<'a> {
    given: BTreeSet<u64>,
    requests: Vec<Vec<FrameRange>>,
    fail: bool,
    meanwhile: Option<Box<dyn FnMut() + 'a>>,
    afterwards: Option<Box<dyn FnMut() + 'a>>,
}

impl Host<'_> {
    fn new() -> Self {
        Self {
            given: BTreeSet::new(),
            requests: Vec::new(),
            fail: false,
            meanwhile: None,
            afterwards: None,
        }
    }

    fn frames(&self) -> u64 {
        let ranges = self.requests.iter().flatten();
        ranges.map(|range| range.frames).sum()
    }
}

impl ReportSink for Host<'_> {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile();
        }
        if self.fail {
            return Err(());
        }
        let frames: u64 = ranges.iter().map(|range| range.frames).sum();
        assert!((1..=REQUEST_FRAMES).contains(&frames));
        for range in ranges {
            self.given
                .extend(range.start.number()..range.end().number());
        }
        self.requests.push(ranges.to_vec());
        Ok(())
    }

    fn give_way(&mut self) {
        if let Some(afterwards) = &mut self.afterwards {
            afterwards();
        }
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn order(order: u8) -> Order {
    Order::new(order).expect("an order")
}

/// Polls from `now` on until the hinter sleeps. Returns the time of the last poll.
fn settle(
    hinter: &mut Hinter,
    a: &Allocator<'_>,
    cpu: &Cpu,
    host: &mut Host<'_>,
    mut now: Duration,
) -> Duration {
    for _ in 0..2000 {
        match hinter.poll(now, a, &cpu.list, 16, host).next {
            Some(next) => {
                assert!(next >= now + HINT_PAUSE, "the CPU is for others, too");
                now = next;
            }
            None => return now,
        }
    }
    panic!("the hinter never sleeps");
}

fn guest<R>(test: impl FnOnce(&Allocator<'_>, &Cpu) -> R) -> R {
    let ranges = [range(MIB, FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    let cpu = Cpu::new();
    with(&Config::new(&zones).with_frame_marks(), &cpu, |a| {
        test(a, &cpu)
    })
}

#[test]
fn what_a_program_frees_is_back_within_the_bound() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        assert_eq!(host.frames(), 0, "nothing was touched");
        let frames = take(a, &mut cache, Order::BASE, 1400 * MIB);
        let calls = cpu.calls();
        for &frame in &frames[..600] {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        assert_eq!(cpu.calls(), calls + 1, "the first block calls");
        let poll = hinter.poll(ms(1000), a, &cpu.list, 16, &mut host);
        assert_eq!(poll.next, Some(ms(1000) + HINT_BOUND));
        assert_eq!(poll.frames, 0, "less than a list, and not old");
        for &frame in &frames[600..] {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        assert_eq!(cpu.calls(), calls + 2, "a list that is full calls once");
        let end = settle(&mut hinter, a, cpu, &mut host, ms(1001));
        assert!(end <= ms(1001) + HINT_BOUND + ms(10), "{end:?}");
        assert_eq!(a.stats().unreported_free_frames, 0);
        assert!(host.frames() >= 1400 * MIB - 1024);
        assert!(
            host.requests.iter().all(|ranges| ranges.len() <= 2),
            "neighbours are merged"
        );
    });
}

#[test]
fn what_was_allocated_since_drops_out() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        // More blocks than the cache keeps itself.
        let blocks = take(a, &mut cache, Order::PAGEBLOCK, 8);
        for &block in &blocks {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        let again = take(a, &mut cache, Order::PAGEBLOCK, 5);
        let _ = hinter.poll(ms(100), a, &cpu.list, 16, &mut host);
        settle(&mut hinter, a, cpu, &mut host, ms(150));
        let counts = hinter.take_counts();
        assert_eq!((counts.entries, counts.dropped), (8, 5));
        assert_eq!(host.frames(), 3 * 512);
        assert!(
            again
                .iter()
                .all(|block| !host.given.contains(&block.number()))
        );
    });
}

#[test]
fn what_the_threshold_is_above_waits_for_more_until_the_bound() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        a.set_hint_limit(1).expect("a limit");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        let blocks = take(a, &mut cache, Order::PAGEBLOCK, 9);
        // Every second block, so that no two can be merged. The first stays in the cache.
        for &block in blocks.iter().step_by(2) {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        let poll = hinter.poll(ms(100), a, &cpu.list, 6, &mut host);
        assert_eq!((poll.frames, poll.next), (0, Some(ms(100) + HINT_BOUND)));
        let poll = hinter.poll(ms(101), a, &cpu.list, 5, &mut host);
        assert_eq!(poll.frames, 5 * 512, "the threshold is reached");
        assert_eq!(poll.next, None);
    });
}

#[test]
fn a_cpu_that_stops_freeing_need_not_wait_for_those_that_go_on() {
    guest(|a, cpu| {
        let (mut hinter, mut host) = (Hinter::new(), Host::new());
        let mut caches = [CpuCache::new(), CpuCache::new()];
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        a.set_hint_limit(4).expect("a limit");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        let [idle, busy] = &mut caches;
        let mut blocks = take(a, idle, Order::PAGEBLOCK, 100);
        let few = blocks.split_off(97);
        for &block in &few {
            a.free(idle, block, Order::PAGEBLOCK);
        }
        a.drain(idle);
        let next = hinter.poll(ms(100), a, &cpu.list, 1, &mut host).next;
        assert_eq!(next, Some(ms(100) + HINT_BOUND));
        // The other CPU fills its list every 30 ms.
        cpu.running.store(1, Ordering::Relaxed);
        for now in [ms(130), ms(160)] {
            for block in blocks.drain(..8) {
                a.free(busy, block, Order::PAGEBLOCK);
            }
            a.drain(busy);
            let poll = hinter.poll(now, a, &cpu.list, 1, &mut host);
            assert!(poll.frames >= 8 * 512, "a full list is sent");
        }
        for block in few {
            assert!(host.given.contains(&block.number()), "{block:?}");
        }
    });
}

#[test]
fn what_no_list_has_room_for_is_found() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(order(0))
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        // The worker does not run in the meantime.
        let words = HINT_ENTRIES as u64 + 100;
        let frames = take(a, &mut cache, Order::BASE, 2 * 64 * words);
        for frame in frames.iter().filter(|frame| frame.number() / 64 % 2 == 0) {
            a.free(&mut cache, *frame, Order::BASE);
        }
        a.drain(&mut cache);
        settle(&mut hinter, a, cpu, &mut host, ms(100));
        let counts = hinter.take_counts();
        assert_eq!(counts.sweeps, 2, "at the start, and for want of room");
        let free = frames.iter().filter(|frame| frame.number() / 64 % 2 == 0);
        for frame in free {
            assert!(host.given.contains(&frame.number()), "{frame:?}");
        }
    });
}

#[test]
fn a_host_that_refuses_is_asked_now_and_then() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        for block in take(a, &mut cache, Order::PAGEBLOCK, 100) {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        host.fail = true;
        let (mut now, mut polls) = (ms(100), 0);
        while now < ms(10_100) {
            let poll = hinter.poll(now, a, &cpu.list, 16, &mut host);
            now = poll.next.expect("there is something left");
            polls += 1;
        }
        assert!(polls <= 10_000 / REPORTING_DELAY.as_millis() + 3, "{polls}");
        assert_eq!(a.stats().isolated_frames, 0);
        host.fail = false;
        settle(&mut hinter, a, cpu, &mut host, now);
        assert_eq!(a.stats().unreported_free_frames, 0);
    });
}

/// Other threads get the CPU when no frame is isolated.
#[test]
fn the_sink_gives_way_when_each_request_is_put_back() {
    let turns = AtomicU64::new(0);
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        for block in take(a, &mut cache, Order::PAGEBLOCK, 100) {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        host.afterwards = Some(Box::new(|| {
            assert_eq!(a.stats().isolated_frames, 0);
            turns.fetch_add(1, Ordering::Relaxed);
        }));
        settle(&mut hinter, a, cpu, &mut host, ms(100));
        let requests = host.requests.len() as u64;
        assert!(requests > 1 && turns.load(Ordering::Relaxed) == requests);
    });
}

/// A zone that has no memory to spare does not keep the others waiting, and the hinter sleeps.
#[test]
fn a_zone_at_its_low_watermark_is_left_out_until_memory_is_freed() {
    let (low, high) = ([range(MIB, 255 * MIB)], [range(1024 * MIB, FRAMES)]);
    let zone = |kind, ranges| ZoneConfig {
        kind,
        node: 0,
        ranges,
    };
    let zones = [zone(ZoneKind::Dma32, &low), zone(ZoneKind::Normal, &high)];
    let cpu = Cpu::new();
    with(&Config::new(&zones).with_frame_marks(), &cpu, |a| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        settle(&mut hinter, a, &cpu, &mut host, ms(0));
        let mut blocks = Vec::new();
        while let Ok(block) = a.allocate(
            &mut cache,
            Request::new(Order::PAGEBLOCK, Mobility::Movable),
        ) {
            blocks.push(block);
        }
        let (mut scarce, plenty): (Vec<_>, Vec<_>) =
            (blocks.into_iter()).partition(|block| block.number() < 1024 * MIB);
        // The low zone gets a block back, and stays below its mark.
        let low = a.zone_stats(ZONE).free_frames + 600;
        let marks = a.watermarks(ZONE);
        let high = marks.high.max(low);
        a.set_watermarks(ZONE, ebb_mm::Watermarks { low, high, ..marks })
            .expect("rising marks");
        let block = scarce.pop().expect("a block");
        a.free(&mut cache, block, Order::PAGEBLOCK);
        for &block in &plenty[..600] {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        let _ = hinter.poll(ms(100), a, &cpu.list, 1, &mut host);
        let end = settle(&mut hinter, a, &cpu, &mut host, ms(150));
        assert!(end <= ms(300), "{end:?}");
        assert_eq!(a.zone_stats(ZoneId::new(1)).unreported_free_frames, 0);
        assert_ne!(a.zone_stats(ZONE).unreported_free_frames, 0);
        for block in scarce {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        let _ = hinter.poll(end + REPORTING_DELAY, a, &cpu.list, 1, &mut host);
        let then = end + REPORTING_DELAY + HINT_BOUND;
        settle(&mut hinter, a, &cpu, &mut host, then);
        assert_eq!(a.stats().unreported_free_frames, 0);
        a.validate().expect("valid");
    });
}

#[test]
fn memory_that_a_request_waits_for_is_left_alone() {
    guest(|a, cpu| {
        a.set_watermarks(ZONE, ebb_mm::Watermarks::default())
            .expect("rising marks");
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable);
        let other = RefCell::new((CpuCache::new(), Vec::new(), Vec::new()));
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        // All memory, then a part of it.
        let mut blocks = Vec::new();
        while let Ok(block) = a.allocate(&mut cache, request) {
            blocks.push(block);
        }
        for block in blocks.drain(..200) {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        host.meanwhile = Some(Box::new(|| {
            // Allocates the remaining memory, and then finds blocks isolated.
            let (cache, taken, errors) = &mut *other.borrow_mut();
            loop {
                match a.allocate(cache, request) {
                    Ok(block) => taken.push(block),
                    Err(error) => break errors.push(error),
                }
            }
        }));
        let _ = hinter.poll(ms(100), a, &cpu.list, 1, &mut host);
        let poll = hinter.poll(ms(150), a, &cpu.list, 1, &mut host);
        host.meanwhile = None;
        let (cache, taken, errors) = &mut *other.borrow_mut();
        assert!(matches!(errors[..], [AllocError::Isolated { .. }]));
        assert_eq!(host.requests.len(), 1, "no further one is begun");
        let next = poll.next.expect("memory is left alone for a while");
        assert!(next >= ms(300), "{next:?}");
        // The isolated blocks are back, and are not isolated again before they can be allocated.
        taken.push(a.allocate(cache, request).expect("it was put back"));
        let _ = hinter.poll(ms(200), a, &cpu.list, 1, &mut host);
        assert_eq!(host.requests.len(), 1);
        for block in taken.drain(..) {
            a.free(cache, block, Order::PAGEBLOCK);
        }
        a.drain(cache);
        settle(&mut hinter, a, cpu, &mut host, next);
        assert_eq!(a.stats().unreported_free_frames, 0);
    });
}

#[test]
fn caches_drain_once_after_old_hints_were_sent() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        let mut blocks = take(a, &mut cache, Order::PAGEBLOCK, 8);
        a.drain(&mut cache);
        for block in blocks.drain(..4) {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        let _ = hinter.poll(ms(100), a, &cpu.list, 16, &mut host);
        assert!(!a.drain_requested(&cache));
        let poll = hinter.poll(ms(150), a, &cpu.list, 16, &mut host);
        assert_ne!(poll.frames, 0);
        assert!(a.drain_requested(&cache));
        a.drain(&mut cache);
        settle(&mut hinter, a, cpu, &mut host, ms(151));
        assert_eq!(host.frames(), 4 * 512);
        a.drain(&mut cache);
        // Memory that is allocated again at once requests nothing.
        for block in blocks {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        let _again = take(a, &mut cache, Order::PAGEBLOCK, 8);
        settle(&mut hinter, a, cpu, &mut host, ms(1000));
        assert_eq!(host.frames(), 4 * 512);
        assert!(!a.drain_requested(&cache));
    });
}

#[test]
fn a_sweep_counts_once_however_many_passes_it_takes() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        for frame in take(a, &mut cache, Order::PAGEBLOCK, 700) {
            a.free(&mut cache, frame, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        let poll = hinter.poll(ms(0), a, &cpu.list, 16, &mut host);
        assert_ne!(poll.frames, 0);
        assert_eq!(hinter.take_counts().sweeps, 0, "memory is left");
        settle(&mut hinter, a, cpu, &mut host, ms(1));
        assert_eq!(hinter.take_counts().sweeps, 1);
        assert_eq!(host.frames(), 700 * 512);
    });
}

#[test]
fn a_gib_goes_back_as_one() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(Order::PAGEBLOCK)
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        let gib = take(a, &mut cache, Order::GIB, 1);
        a.free(&mut cache, gib[0], Order::GIB);
        let _ = hinter.poll(ms(100), a, &cpu.list, 16, &mut host);
        settle(&mut hinter, a, cpu, &mut host, ms(150));
        assert_eq!(host.frames(), Order::GIB.frames());
        assert_eq!(a.stats().unreported_free_frames, 0);
    });
}

#[test]
fn small_blocks_that_become_a_large_one_are_hinted() {
    guest(|a, cpu| {
        for (large, small) in [(4, 0), (4, 3), (6, 5), (8, 4), (8, 7)] {
            let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
            a.set_hinting_order(order(large))
                .expect("an order that can be given back");
            let now = settle(&mut hinter, a, cpu, &mut host, ms(0));
            host.requests.clear();
            let mut blocks = take(a, &mut cache, order(small), 3 << (9 - small));
            // One frame of each pageblock stays in use.
            blocks.retain(|block| block.number() % 512 != 0);
            for block in blocks {
                a.free(&mut cache, block, order(small));
            }
            a.drain(&mut cache);
            settle(&mut hinter, a, cpu, &mut host, now + ms(100));
            let name = format!("order {small} to {large}");
            assert_eq!(hinter.take_counts().sweeps, 1, "{name}: at the start");
            assert!(host.frames() >= 2 << large, "{name}: {}", host.frames());
        }
    });
}

#[test]
fn what_is_freed_in_a_block_that_is_emptied_is_hinted_when_that_ends() {
    for reports in [false, true] {
        guest(|a, cpu| {
            let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
            let mut reporter = Reporter::new();
            if reports {
                a.set_reporting_order(Some(order(3)))
                    .expect("an order that can be given back");
            } else {
                a.set_hinting_order(order(3))
                    .expect("an order that can be given back");
            }
            let mut settle = |host: &mut Host<'_>, mut now| {
                if !reports {
                    return settle(&mut hinter, a, cpu, host, now);
                }
                while let Some(next) = reporter.poll(now, a, host).next {
                    now = next;
                }
                now
            };
            let now = settle(&mut host, ms(0));
            let frames = take(a, &mut cache, Order::BASE, 1024);
            let block = frames[512].number() / 512;
            let emptied = a.begin_emptying(frames[512]).expect("it is in use");
            for &frame in &frames {
                if frame.number() / 512 == block && frame.number() % 512 >= 256 {
                    a.free(&mut cache, frame, Order::BASE);
                }
            }
            a.drain(&mut cache);
            let now = settle(&mut host, now + ms(100));
            assert_eq!(host.frames(), 0, "reports: {reports}");
            let calls = cpu.calls();
            assert_ne!(a.end_emptying(emptied), 0);
            assert_eq!(cpu.calls(), calls + 1, "reports: {reports}");
            settle(&mut host, now + ms(100));
            let upper = block * 512 + 256..block * 512 + 512;
            for frame in frames
                .iter()
                .filter(|frame| upper.contains(&frame.number()))
            {
                assert!(host.given.contains(&frame.number()), "{frame:?}");
            }
        });
    }
}

#[test]
fn frames_that_an_allocation_took_in_vain_are_hinted_again() {
    guest(|a, cpu| {
        let (mut cache, mut hinter, mut host) = (CpuCache::new(), Hinter::new(), Host::new());
        a.set_hinting_order(order(0))
            .expect("an order that can be given back");
        settle(&mut hinter, a, cpu, &mut host, ms(0));
        let frames = take(a, &mut cache, Order::BASE, 1024);
        let base = frames[512].number() / 512 * 512;
        // The first half of the pageblock becomes free, and is hinted.
        for &frame in &frames {
            if (base..base + 256).contains(&frame.number()) {
                a.free(&mut cache, frame, Order::BASE);
            }
        }
        a.drain(&mut cache);
        let calls = cpu.calls();
        a.claim(FrameRange::new(Frame::new(base), 512))
            .expect_err("half of it is in use");
        assert_eq!(cpu.calls(), calls, "the hinter was called before");
        settle(&mut hinter, a, cpu, &mut host, ms(100));
        let calls = cpu.calls();
        a.claim(FrameRange::new(Frame::new(base), 512))
            .expect_err("half of it is in use");
        assert_eq!(cpu.calls(), calls + 1);
        settle(&mut hinter, a, cpu, &mut host, ms(200));
        assert_eq!(a.stats().unreported_free_frames, 0);
    });
}

/// An operation of the guest.
#[derive(Clone, Debug)]
enum Step {
    Take(u8),
    Give(prop::sample::Index),
    Drain,
    Hint(u8),
    Report(u8),
    Off,
    Limit(usize),
    Wait(u64),
    Fail(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u8..=10).prop_map(Step::Take),
        8 => any::<prop::sample::Index>().prop_map(Step::Give),
        2 => Just(Step::Drain),
        2 => (0_u8..=10).prop_map(Step::Hint),
        1 => (0_u8..=10).prop_map(Step::Report),
        1 => Just(Step::Off),
        1 => (1_usize..40).prop_map(Step::Limit),
        6 => (0_u64..3000).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No frame in use is reported. Once the guest is idle, every free frame was reported.
    #[test]
    fn modes_change_and_nothing_is_lost(steps in proptest::collection::vec(step(), 1..120)) {
        guest(|a, cpu| {
            let mut cache = CpuCache::new();
            let (mut hinter, mut reporter) = (Hinter::new(), Reporter::new());
            let mut host = Host::new();
            let mut held: Vec<(Frame, Order)> = Vec::new();
            let mut now = ms(0);
            for step in steps {
                match step {
                    Step::Take(of) => {
                        let request = Request::new(order(of), Mobility::Movable);
                        if let Ok(frame) = a.allocate(&mut cache, request) {
                            let end = frame.number() + order(of).frames();
                            host.given.retain(|given| !(frame.number()..end).contains(given));
                            held.push((frame, order(of)));
                        }
                    }
                    Step::Give(which) if !held.is_empty() => {
                        let (frame, order) = held.swap_remove(which.index(held.len()));
                        a.free(&mut cache, frame, order);
                    }
                    Step::Give(_) => {}
                    Step::Drain => a.drain(&mut cache),
                    Step::Hint(of) => a.set_hinting_order(order(of)).expect("an order that can be given back"),
                    Step::Report(of) => a.set_reporting_order(Some(order(of))).expect("an order that can be given back"),
                    Step::Off => a.set_reporting_order(None).expect("an order that can be given back"),
                    Step::Limit(entries) => a.set_hint_limit(entries).expect("a limit"),
                    Step::Wait(time) => now += ms(time),
                    Step::Fail(fail) => host.fail = fail,
                }
                let poll = if a.is_hinting() {
                    hinter.poll(now, a, &cpu.list, 3, &mut host)
                } else {
                    reporter.poll(now, a, &mut host)
                };
                prop_assert!(a.is_hinting() || poll.next.is_none() || a.reporting_order().is_some());
                for (frame, order) in &held {
                    let used = frame.number()..frame.number() + order.frames();
                    prop_assert!(host.given.range(used).next().is_none(), "{frame:?} is in use");
                }
            }
            host.fail = false;
            a.set_hinting_order(order(0)).expect("an order that can be given back");
            a.drain(&mut cache);
            settle(&mut hinter, a, cpu, &mut host, now);
            let left = a.stats().unreported_free_frames;
            prop_assert_eq!(left, 0);
            // No work is left, and the worker is not called.
            let calls = cpu.calls();
            settle(&mut hinter, a, cpu, &mut host, now + ms(100_000));
            prop_assert_eq!(cpu.calls(), calls);
            for (frame, order) in held {
                a.free(&mut cache, frame, order);
            }
            a.drain(&mut cache);
            settle(&mut hinter, a, cpu, &mut host, now + ms(200_000));
            a.validate().expect("valid");
            prop_assert_eq!(a.stats().unreported_free_frames, 0);
            a.set_reporting_order(None).expect("an order that can be given back");
            Ok(())
        })?;
    }
}

//! Tests of free page reporting in virtual time: the number of passes, no double report, no lost
//! frame.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::arena::{ZONE, range, take, with};
use ebb_mm::{
    Allocator, Config, CpuCache, Events, Frame, FrameRange, Order, REQUEST_RANGES, ReportSink,
    Reporter, ZoneConfig, ZoneKind,
};

const MIB: u64 = 256;

#[derive(Default)]
struct Calls(AtomicU64);

impl Events for Calls {
    fn report_requested(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A host. It knows the frames that were reported, and fails on request.
#[derive(Default)]
struct Host {
    reported: HashSet<u64>,
    requests: u64,
    fail: bool,
    /// Whether it does not store frames, as there are too many.
    blind: bool,
}

impl ReportSink for Host {
    type Error = u64;

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), u64> {
        assert!(
            (1..=REQUEST_RANGES).contains(&ranges.len()),
            "{} ranges",
            ranges.len()
        );
        if self.fail {
            return Err(self.requests);
        }
        self.requests += 1;
        for range in ranges.iter().filter(|_| !self.blind) {
            for frame in range.start.number()..range.end().number() {
                assert!(
                    self.reported.insert(frame),
                    "frame {frame:#x} reported twice"
                );
            }
        }
        Ok(())
    }
}

fn order(order: u8) -> Order {
    Order::new(order).expect("an order")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Polls until the reporter sleeps. Returns the times in seconds of passes that reported memory,
/// and their frames.
fn drain_out(
    reporter: &mut Reporter,
    a: &Allocator<'_>,
    host: &mut Host,
    mut now: Duration,
) -> Vec<(u64, u64)> {
    let mut passes = Vec::new();
    for _ in 0..1000 {
        let poll = reporter.poll(now, a, host);
        if poll.frames != 0 {
            passes.push((now.as_secs(), poll.frames));
        }
        match poll.next {
            Some(next) => now = next,
            None => return passes,
        }
    }
    panic!("the reporter never sleeps");
}

fn two_gib(test: impl FnOnce(&Allocator<'_>, &Calls)) {
    memory(2, test);
}

/// Calls `test` with `gib` GiB of memory, with a hole in the first block.
fn memory(gib: u64, test: impl FnOnce(&Allocator<'_>, &Calls)) {
    let ranges = [range(0, 160), range(MIB, (1024 * gib - 1) * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    let calls = Calls::default();
    with(&Config::new(&zones).with_frame_marks(), &calls, |a| {
        test(a, &calls)
    });
}

#[test]
fn what_a_program_frees_is_back_in_three_passes() {
    two_gib(|a, calls| {
        let mut cache = CpuCache::new();
        let (mut reporter, mut host) = (Reporter::new(), Host::default());
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        assert_eq!(drain_out(&mut reporter, a, &mut host, seconds(0)), []);
        let before = calls.0.load(Ordering::Relaxed);
        let frames = take(a, &mut cache, Order::BASE, 1400 * MIB);
        assert_eq!(reporter.poll(seconds(100), a, &mut host).next, None);
        for frame in frames {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        assert_eq!(
            calls.0.load(Ordering::Relaxed),
            before + 1,
            "one call for one sleep"
        );
        let unreported = a.stats().unreported_free_frames;
        assert!(unreported > 1399 * MIB);
        let passes = drain_out(&mut reporter, a, &mut host, seconds(100));
        assert_eq!(
            passes.iter().map(|pass| pass.0).collect::<Vec<_>>(),
            [102, 104, 106]
        );
        assert_eq!(passes.iter().map(|pass| pass.1).sum::<u64>(), unreported);
        assert_eq!(a.stats().unreported_free_frames, 0);
        assert_eq!(host.reported.len() as u64, unreported);
        a.validate().expect("valid");
        // While the guest is idle no frame is reported again. Frames that are used again are.
        assert_eq!(drain_out(&mut reporter, a, &mut host, seconds(200)), []);
        let frames = take(a, &mut cache, Order::PAGEBLOCK, 3);
        for &frame in &frames {
            for number in frame.number()..frame.offset(512).number() {
                host.reported.remove(&number);
            }
        }
        for frame in frames {
            a.free(&mut cache, frame, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        assert_eq!(
            drain_out(&mut reporter, a, &mut host, seconds(300)),
            [(302, 3 * 512)]
        );
        assert_eq!(calls.0.load(Ordering::Relaxed), before + 2);
        a.validate().expect("valid");
    });
}

#[test]
fn memory_never_used_is_never_reported() {
    two_gib(|a, _| {
        let (mut reporter, mut host) = (Reporter::new(), Host::default());
        for lowest in 0..=10 {
            a.set_reporting_order(Some(order(lowest)))
                .expect("an order that can be given back");
            assert_eq!(drain_out(&mut reporter, a, &mut host, seconds(0)), []);
        }
    });
}

#[test]
fn a_failing_host_is_asked_again_later_and_nothing_is_lost() {
    two_gib(|a, _| {
        let mut cache = CpuCache::new();
        let (mut reporter, mut host) = (Reporter::new(), Host::default());
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        for frame in take(a, &mut cache, Order::PAGEBLOCK, 100) {
            a.free(&mut cache, frame, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        host.fail = true;
        assert_eq!(
            reporter.poll(seconds(0), a, &mut host).next,
            Some(seconds(2))
        );
        for pass in 1..5 {
            let poll = reporter.poll(seconds(2 * pass), a, &mut host);
            assert_eq!(poll.error, Some(0));
            assert_eq!(poll.next, Some(seconds(2 * pass + 2)));
            assert_eq!(a.stats().unreported_free_frames, 100 * 512);
            a.validate().expect("valid");
        }
        host.fail = false;
        assert_eq!(
            drain_out(&mut reporter, a, &mut host, seconds(10)),
            [(10, 100 * 512)]
        );
        assert_eq!(a.stats().unreported_free_frames, 0);
        a.validate().expect("valid");
    });
}

#[test]
fn blocks_that_lie_apart_fill_every_request() {
    two_gib(|a, _| {
        let mut cache = CpuCache::new();
        let (mut reporter, mut host) = (Reporter::new(), Host::default());
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        let held = take(a, &mut cache, Order::PAGEBLOCK, 600);
        let mut freed = HashSet::new();
        // Some blocks are adjacent and some are not. No request takes all blocks of three trees.
        for &frame in &held {
            let block = frame.number() / 512;
            if block % 4 == 1 || block % 8 == 2 {
                a.free(&mut cache, frame, Order::PAGEBLOCK);
                freed.extend(frame.number()..frame.number() + 512);
            }
        }
        a.drain(&mut cache);
        assert_eq!(a.stats().unreported_free_frames, freed.len() as u64);
        let _ = reporter.poll(seconds(0), a, &mut host);
        let poll = reporter.poll(seconds(2), a, &mut host);
        assert_eq!((poll.error, poll.frames), (None, freed.len() as u64));
        let blocks = poll.frames / 512;
        assert!(poll.ranges > blocks / 2, "{} ranges", poll.ranges);
        assert_eq!(poll.requests, blocks.div_ceil(REQUEST_RANGES as u64));
        assert_eq!(host.reported, freed);
        assert_eq!(a.stats().unreported_free_frames, 0);
        a.validate().expect("valid");
    });
}

#[test]
fn a_zone_at_its_low_watermark_is_left_alone_until_memory_is_freed() {
    two_gib(|a, calls| {
        let mut cache = CpuCache::new();
        let (mut reporter, mut host) = (Reporter::new(), Host::default());
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        let mut held = take(a, &mut cache, Order::PAGEBLOCK, 1022);
        let low = a.watermarks(ZONE).low;
        while a.stats().free_frames + 512 <= low {
            a.free(&mut cache, held.pop().expect("blocks"), Order::PAGEBLOCK);
            a.drain(&mut cache);
        }
        assert_eq!(
            reporter.poll(seconds(0), a, &mut host).next,
            Some(seconds(2))
        );
        let poll = reporter.poll(seconds(2), a, &mut host);
        assert_eq!((poll.requests, poll.next), (0, None));
        assert_ne!(a.stats().unreported_free_frames, 0);
        let before = calls.0.load(Ordering::Relaxed);
        for frame in held {
            a.free(&mut cache, frame, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        assert_eq!(calls.0.load(Ordering::Relaxed), before + 1);
        drain_out(&mut reporter, a, &mut host, seconds(4));
        assert_eq!(a.stats().unreported_free_frames, 0);
        a.validate().expect("valid");
    });
}

#[test]
fn lower_watermarks_let_a_sleeping_reporter_look_again() {
    two_gib(|a, calls| {
        let mut cache = CpuCache::new();
        let (mut reporter, mut host) = (Reporter::new(), Host::default());
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        let mut held = take(a, &mut cache, Order::PAGEBLOCK, 1022);
        for frame in held.drain(..2) {
            a.free(&mut cache, frame, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        drain_out(&mut reporter, a, &mut host, seconds(0));
        assert_ne!(a.stats().unreported_free_frames, 0);
        let before = calls.0.load(Ordering::Relaxed);
        a.set_watermarks(ZONE, ebb_mm::Watermarks::default())
            .expect("rising marks");
        assert_eq!(calls.0.load(Ordering::Relaxed), before + 1);
        drain_out(&mut reporter, a, &mut host, seconds(10));
        assert_eq!(a.stats().unreported_free_frames, 0);
    });
}

#[test]
fn every_order_reports_every_free_frame_it_can() {
    for lowest in 0..=10 {
        // One GiB, so that the allocated frames are where the hole is.
        memory(1, |a, calls| {
            let mut cache = CpuCache::new();
            let (mut reporter, mut host) = (Reporter::new(), Host::default());
            a.set_reporting_order(Some(order(lowest)))
                .expect("an order that can be given back");
            drain_out(&mut reporter, a, &mut host, seconds(0));
            let before = calls.0.load(Ordering::Relaxed);
            // All frames are used, and then every second block of 2^lowest frames is freed.
            let frames = take(a, &mut cache, Order::BASE, 64 * MIB);
            let (freed, kept): (Vec<_>, Vec<_>) = frames
                .into_iter()
                .partition(|frame| frame.number() >> lowest & 1 == 0);
            for &frame in &freed {
                a.free(&mut cache, frame, Order::BASE);
            }
            a.drain(&mut cache);
            assert_eq!(calls.0.load(Ordering::Relaxed), before + 1);
            drain_out(&mut reporter, a, &mut host, seconds(0));
            a.validate().expect("valid");
            let missed = freed
                .iter()
                .filter(|f| !host.reported.contains(&f.number()))
                .count();
            // Blocks at an edge, and those that were never whole.
            assert!(missed <= 1024, "order {lowest}: {missed} frames");
            assert!(
                kept.iter()
                    .all(|frame| !host.reported.contains(&frame.number()))
            );
            for frame in kept {
                a.free(&mut cache, frame, Order::BASE);
            }
            a.drain(&mut cache);
            // Frames that were reported one by one are not reported again with their block.
            if lowest < 9 {
                host.reported.clear();
            }
            drain_out(&mut reporter, a, &mut host, seconds(0));
            a.validate().expect("valid");
            // At order 10 the buddy of the block with the hole has no partner.
            let alone = if lowest == 10 { 512 } else { 0 };
            assert_eq!(a.stats().unreported_free_frames, alone);
        });
    }
}

#[test]
fn lowering_the_order_reports_what_was_left() {
    two_gib(|a, _| {
        let mut cache = CpuCache::new();
        let (mut reporter, mut host) = (Reporter::new(), Host::default());
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        let frames = take(a, &mut cache, Order::BASE, 64 * MIB);
        let (freed, kept): (Vec<_>, Vec<_>) = frames
            .into_iter()
            .partition(|frame| frame.number() % 512 != 0);
        for &frame in &freed {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        drain_out(&mut reporter, a, &mut host, seconds(0));
        assert_eq!(host.reported.len(), 0);
        a.set_reporting_order(Some(Order::BASE))
            .expect("an order that can be given back");
        drain_out(&mut reporter, a, &mut host, seconds(0));
        assert!(
            freed
                .iter()
                .all(|frame| host.reported.contains(&frame.number()))
        );
        assert!(
            kept.iter()
                .all(|frame| !host.reported.contains(&frame.number()))
        );
        // Used again with order 9 and with reporting off: no marks are kept, and none is missing
        // later.
        a.set_reporting_order(None)
            .expect("an order that can be given back");
        assert_eq!(reporter.poll(seconds(50), a, &mut host).next, None);
        for frame in kept {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        for frame in take(a, &mut cache, Order::PAGEBLOCK, 500) {
            a.free(&mut cache, frame, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        a.validate().expect("valid");
        host.reported.clear();
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        drain_out(&mut reporter, a, &mut host, seconds(0));
        assert_eq!(host.reported.len(), 500 * 512);
        a.validate().expect("valid");
    });
}

#[test]
fn a_pass_over_a_large_zone_takes_a_sixteenth() {
    let ranges = [range(1 << 20, 32 * 1024 * MIB)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones).with_frame_marks(), &(), |a| {
        let mut cache = CpuCache::new();
        let (mut reporter, mut host) = (
            Reporter::new(),
            Host {
                blind: true,
                ..Host::default()
            },
        );
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        for frame in take(a, &mut cache, Order::PAGEBLOCK, 16 * 1024) {
            a.free(&mut cache, frame, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        let passes = drain_out(&mut reporter, a, &mut host, seconds(0));
        let times: Vec<_> = passes.iter().map(|pass| pass.0).collect();
        assert_eq!(times, (1..=16).map(|pass| 2 * pass).collect::<Vec<_>>());
        assert!(passes.iter().all(|pass| pass.1 == 2 * 1024 * MIB));
        assert_eq!(a.stats().unreported_free_frames, 0);
    });
}

#[test]
fn a_pass_over_single_frames_takes_a_sixteenth_too() {
    memory(4, |a, _| {
        let mut cache = CpuCache::new();
        let mut host = Host {
            blind: true,
            ..Host::default()
        };
        a.set_reporting_order(Some(Order::BASE))
            .expect("an order that can be given back");
        let held = take(a, &mut cache, Order::BASE, 4000 * MIB);
        for frame in held.into_iter().filter(|frame| frame.number() % 2 == 0) {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        let part = a.stats().free_frames / 16;
        assert!(part > 8192 * 3);
        let passes = drain_out(&mut Reporter::new(), a, &mut host, seconds(0));
        let (_, whole) = passes.split_last().expect("some");
        assert!(whole.iter().all(|pass| pass.1 >= part), "{passes:?}");
        assert!(passes.len() <= 17, "{passes:?}");
    });
}

#[test]
fn a_pass_by_hand_needs_no_mode_and_wakes_no_reporter() {
    two_gib(|a, calls| {
        let mut cache = CpuCache::new();
        let (mut reporter, mut host) = (Reporter::new(), Host::default());
        for frame in take(a, &mut cache, Order::BASE, 1400 * MIB) {
            a.free(&mut cache, frame, Order::BASE);
        }
        a.drain(&mut cache);
        let unreported = a.stats().unreported_free_frames;
        assert!(unreported > 1399 * MIB);
        let mut frames = 0;
        for pass in 1.. {
            assert!(pass <= 3, "as many as by the clock");
            let (poll, done) = reporter.pass_now(a, &mut host);
            assert_eq!((poll.next, poll.error), (None, None));
            frames += poll.frames;
            if done {
                break;
            }
        }
        assert_eq!(frames, unreported);
        assert_eq!(host.reported.len() as u64, unreported);
        assert_eq!(a.stats().unreported_free_frames, 0);
        assert_eq!(calls.0.load(Ordering::Relaxed), 0);
        assert_eq!(reporter.poll(seconds(9), a, &mut host).next, None);
        a.validate().expect("valid");
    });
}

/// A host that stores where the ranges that it is asked for begin. It fails on request.
#[derive(Default)]
struct Places {
    asked: Vec<u64>,
    fail: bool,
}

impl ReportSink for Places {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        self.asked
            .extend(ranges.iter().map(|range| range.start.number()));
        if self.fail { Err(()) } else { Ok(()) }
    }
}

/// Calls `test` with 1,200 allocated pageblocks, every second one of which is free: none is next to
/// another. The reporter has seen that there are some.
fn blocks_apart(test: impl FnOnce(&Allocator<'_>, &mut CpuCache, Vec<u64>, Reporter)) {
    memory(4, |a, _| {
        let mut cache = CpuCache::new();
        let mut reporter = Reporter::new();
        a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        let held = take(a, &mut cache, Order::PAGEBLOCK, 1200);
        let mut kept = Vec::new();
        for frame in held {
            if frame.number() / 512 % 2 == 0 {
                a.free(&mut cache, frame, Order::PAGEBLOCK);
            } else {
                kept.push(frame.number());
            }
        }
        a.drain(&mut cache);
        let mut nothing = Places::default();
        assert_eq!(
            reporter.poll(seconds(0), a, &mut nothing).next,
            Some(seconds(2))
        );
        assert_eq!(nothing.asked, []);
        test(a, &mut cache, kept, reporter);
    });
}

#[test]
fn a_pass_begins_where_the_last_one_stopped() {
    blocks_apart(|a, cache, mut kept, mut reporter| {
        let mut host = Places::default();
        let _ = reporter.poll(seconds(2), a, &mut host);
        let first = std::mem::take(&mut host.asked);
        let stopped = *first.iter().max().expect("the first pass reports some");
        assert!(a.stats().unreported_free_frames > 0, "{first:?}");
        // Memory below is freed meanwhile: its turn comes after what is left above.
        kept.sort_unstable();
        let low = kept[0];
        assert!(low < stopped);
        a.free(cache, Frame::new(low), Order::PAGEBLOCK);
        a.drain(cache);
        let _ = reporter.poll(seconds(4), a, &mut host);
        assert!(
            host.asked.iter().all(|&place| place > stopped),
            "{:?} after {stopped}",
            host.asked
        );
        drain_out(
            &mut reporter,
            a,
            &mut Host {
                blind: true,
                ..Host::default()
            },
            seconds(6),
        );
        assert_eq!(a.stats().unreported_free_frames, 0);
    });
}

#[test]
fn a_pass_begins_behind_a_request_that_failed() {
    blocks_apart(|a, _, _, mut reporter| {
        let mut host = Places {
            fail: true,
            ..Places::default()
        };
        let _ = reporter.poll(seconds(2), a, &mut host);
        let failed = std::mem::take(&mut host.asked);
        assert_eq!(failed.len(), REQUEST_RANGES);
        host.fail = false;
        let _ = reporter.poll(seconds(4), a, &mut host);
        let stopped = failed.iter().max().expect("a request has ranges");
        assert!(
            host.asked[0] > *stopped,
            "{:?} after {failed:?}",
            host.asked
        );
    });
}

/// A host during whose first report the guest turns reporting off.
struct TurnsOff<'a, 'm> {
    allocator: &'a Allocator<'m>,
    requests: u64,
}

impl ReportSink for TurnsOff<'_, '_> {
    type Error = ();

    fn report(&mut self, _: &[FrameRange]) -> Result<(), ()> {
        self.requests += 1;
        self.allocator
            .set_reporting_order(None)
            .expect("an order that can be given back");
        Ok(())
    }
}

#[test]
fn turning_reporting_off_ends_the_pass_under_way() {
    blocks_apart(|allocator, _, _, mut reporter| {
        let mut host = TurnsOff {
            allocator,
            requests: 0,
        };
        let _ = reporter.poll(seconds(2), allocator, &mut host);
        assert_eq!(host.requests, 1);
        assert_eq!(
            reporter.poll(seconds(4), allocator, &mut host).next,
            None,
            "it is off"
        );
        assert_eq!(host.requests, 1);
    });
}

/// A host that does not answer, and may drop what it was asked for at any time.
struct Silent(Vec<FrameRange>);

impl ReportSink for Silent {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        self.0.extend(ranges);
        Err(())
    }

    fn may_drop_later((): &()) -> bool {
        true
    }
}

#[test]
fn frames_that_a_host_may_drop_later_stay_out_of_use() {
    for lowest in [3, 7, 9, 10] {
        memory(1, |a, _| {
            let mut cache = CpuCache::new();
            let (mut reporter, mut host) = (Reporter::new(), Silent(Vec::new()));
            a.set_reporting_order(Some(order(lowest)))
                .expect("an order that can be given back");
            for frame in take(a, &mut cache, Order::BASE, 64 * MIB) {
                if frame.number() >> lowest & 1 == 0 {
                    a.free(&mut cache, frame, Order::BASE);
                }
            }
            a.drain(&mut cache);
            let before = a.stats();
            let _ = reporter.poll(seconds(0), a, &mut host);
            let poll = reporter.poll(seconds(2), a, &mut host);
            assert_eq!((poll.error, poll.frames), (Some(()), 0));
            let lost: u64 = host.0.iter().map(|range| range.frames).sum();
            assert_ne!(lost, 0);
            assert_eq!(a.stats().free_frames, before.free_frames - lost);
            assert_eq!(a.stats().isolated_frames, 0);
            a.validate().expect("valid");
            // All other memory can be used.
            a.set_watermarks(ZONE, ebb_mm::Watermarks::default())
                .expect("rising marks");
            let rest = take(a, &mut cache, Order::BASE, a.stats().free_frames);
            assert!(rest.iter().all(|&frame| {
                let lost = |range: &FrameRange| range.start <= frame && frame < range.end();
                !host.0.iter().any(lost)
            }));
            a.drain(&mut cache);
            a.validate().expect("valid");
            let request = ebb_mm::Request::new(Order::BASE, ebb_mm::Mobility::Movable);
            assert!(matches!(
                a.allocate(&mut cache, request),
                Err(ebb_mm::AllocError::Exhausted { .. })
            ));
        });
    }
}

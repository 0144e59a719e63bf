//! Tests of a host that takes free memory: it takes all of it, takes no frame in use, and no frame
//! is lost if the host is killed.

use std::{
    io,
    mem::ManuallyDrop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::exercise::Memory;
use ebb_mm::{
    Allocator, Config, Contents, CpuCache, Events, Frame, FrameRange, Mobility, Order, Reclaimer,
    ReportSink, Request, Reserve, StepEnd, ZoneConfig, ZoneKind, attach::Attached,
};

const FRAMES: u64 = 2 << 18;

fn request(order: Order) -> Request {
    Request::new(order, Mobility::Movable).reserve(Reserve::Use)
}

fn with<T>(
    frames: u64,
    events: &dyn Events,
    test: impl FnOnce(&Allocator<'_>, &Attached<'_>, &Memory) -> T,
) -> T {
    let ranges = [FrameRange::new(Frame::new(0), frames)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    let config = Config::new(&zones).with_use_marks();
    let layout = ebb_mm::metadata_layout(&config).expect("a valid configuration");
    let memory = Memory::shared(layout.size());
    // SAFETY: zeroed memory of this layout, and longer-lived than both.
    let allocator = unsafe { Allocator::new(memory.base(), &config, events) }.expect("valid");
    // SAFETY: the same memory, changed by atomics only.
    let attached = unsafe { Attached::new(memory.base(), memory.bytes()) }.expect("metadata");
    test(&allocator, &attached, &memory)
}

/// Stores the ranges that are reported.
#[derive(Default)]
struct Told {
    ranges: Vec<FrameRange>,
    fails: bool,
}

impl ReportSink for Told {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        self.ranges.extend_from_slice(ranges);
        if self.fails { Err(()) } else { Ok(()) }
    }
}

/// Runs steps until the end of a pass. Returns the number of frames that were dropped.
fn pass(attached: &Attached<'_>, sink: &mut Told) -> u64 {
    let mut reclaimer = Reclaimer::new();
    let mut frames = 0;
    loop {
        let step = reclaimer.step(attached, u64::MAX, sink);
        frames += step.frames;
        match step.end {
            StepEnd::More => {}
            _ => return frames,
        }
    }
}

#[test]
fn a_pass_takes_all_that_is_free_and_touched_in_large_ranges() {
    with(FRAMES, &(), |a, attached, _| {
        let mut cache = CpuCache::new();
        let mut told = Told::default();
        assert_eq!(pass(attached, &mut told), 0, "nothing was touched");
        let gib = a.allocate(&mut cache, request(Order::GIB)).expect("free");
        let blocks: Vec<_> = (0..100)
            .map(|_| {
                a.allocate(&mut cache, request(Order::PAGEBLOCK))
                    .expect("free")
            })
            .collect();
        assert_eq!(pass(attached, &mut told), 0, "all of it is in use");
        a.free(&mut cache, gib, Order::GIB);
        for &block in blocks.iter().step_by(2) {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        told.fails = true;
        assert_eq!(pass(attached, &mut told), 0);
        assert_eq!(a.stats().unreported_free_frames, FRAMES / 2 + 50 * 512);
        told = Told::default();
        assert_eq!(pass(attached, &mut told), FRAMES / 2 + 50 * 512);
        let whole = told.ranges.iter().filter(|range| range.frames == 32 * 512);
        assert!(whole.count() >= 15, "{:?}", told.ranges);
        assert_eq!(a.stats().unreported_free_frames, 0);
        assert_eq!(pass(attached, &mut told), 0, "once is enough");
        // Dropped memory is zero again, and counts as never handed out.
        let (_, contents) = a
            .allocate_known(&mut cache, request(Order::GIB))
            .expect("free");
        assert_eq!(contents, Contents::NeverUsed);
        assert_eq!(a.stats().isolated_frames, 0);
        for &block in blocks.iter().skip(1).step_by(2) {
            a.free(&mut cache, block, Order::PAGEBLOCK);
        }
        a.drain(&mut cache);
        a.validate().expect("valid");
    });
}

/// Counts the calls.
#[derive(Default)]
struct Calls(AtomicU64);

impl Events for Calls {
    fn report_requested(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_host_is_called_once_and_only_while_it_sleeps() {
    let calls = Calls::default();
    with(FRAMES, &calls, |a, attached, _| {
        let count = || calls.0.load(Ordering::Relaxed);
        let mut cache = CpuCache::new();
        let mut use_some = || {
            for _ in 0..3 {
                let block = a
                    .allocate(&mut cache, request(Order::PAGEBLOCK))
                    .expect("free");
                a.free(&mut cache, block, Order::PAGEBLOCK);
                a.drain(&mut cache);
            }
        };
        attached.sleep();
        use_some();
        assert_eq!(count(), 0, "the mode is off");
        a.set_shared();
        assert!(a.is_shared());
        assert_eq!(count(), 1, "what is free already waits");
        attached.wake();
        use_some();
        assert_eq!(count(), 1, "it is awake");
        attached.sleep();
        use_some();
        assert_eq!(count(), 2);
        a.set_reporting_order(None)
            .expect("an order that can be given back");
        attached.sleep();
        use_some();
        assert_eq!(count(), 2, "the mode is off again");
        assert!(!a.is_shared());
    });
}

/// If the guest frees a block while the host goes to sleep, one of them sees the other: no block is
/// left untaken.
#[test]
fn no_free_is_missed() {
    let calls = Calls::default();
    with(FRAMES, &calls, |a, attached, _| {
        a.set_shared();
        for round in 0..2_000_u32 {
            attached.wake();
            let before = calls.0.load(Ordering::Relaxed);
            let found = thread_pair(
                || {
                    let mut cache = CpuCache::new();
                    let block = a
                        .allocate(&mut cache, request(Order::PAGEBLOCK))
                        .expect("free");
                    a.free(&mut cache, block, Order::PAGEBLOCK);
                    a.drain(&mut cache);
                },
                || {
                    attached.sleep();
                    pass(attached, &mut Told::default())
                },
                round,
            );
            let called = calls.0.load(Ordering::Relaxed) != before;
            assert!(found != 0 || called || a.stats().unreported_free_frames == 0);
            pass(attached, &mut Told::default());
        }
        a.validate().expect("valid");
    });
}

/// Runs both functions at once. Returns the result of the second.
fn thread_pair<T>(first: impl FnOnce() + Send, second: impl FnOnce() -> T, shift: u32) -> T {
    let ready = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            ready.store(true, Ordering::Release);
            (0..shift % 64).for_each(|_| std::hint::spin_loop());
            first();
        });
        while !ready.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        second()
    })
}

/// Kills a host process at a random moment while the guest allocates and frees. The next host
/// repairs the metadata.
#[test]
fn a_killed_host_loses_no_block() {
    let rounds = std::env::var("EBB_KILLS").ok().and_then(|n| n.parse().ok());
    let seed = std::process::id();
    println!("EBB_KILLS=1000 kills more often; seed {seed}");
    with(FRAMES, &(), |a, attached, _| {
        let mut random = u64::from(seed) | 1;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let (mut recovered, mut cache) = (0, CpuCache::new());
        for _ in 0..rounds.unwrap_or(100) {
            let blocks: Vec<_> = (0..700)
                .map(|_| {
                    a.allocate(&mut cache, request(Order::PAGEBLOCK))
                        .expect("free")
                })
                .collect();
            for &block in &blocks {
                a.free(&mut cache, block, Order::PAGEBLOCK);
            }
            a.drain(&mut cache);
            // SAFETY: the child uses no lock, and no memory of its parent except the metadata. It
            // ends by a signal.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "{}", io::Error::last_os_error());
            if child == 0 {
                host(attached);
            }
            let end = Instant::now() + Duration::from_micros(200 + next() % 2000);
            while Instant::now() < end {
                if let Ok(block) = a.allocate(&mut cache, request(Order::PAGEBLOCK)) {
                    a.free(&mut cache, block, Order::PAGEBLOCK);
                    a.drain(&mut cache);
                }
            }
            let mut status = 0;
            // SAFETY: our own child, whose number is not reused before it is waited for.
            let killed = unsafe {
                libc::kill(child, libc::SIGKILL) == 0
                    && libc::waitpid(child, &raw mut status, 0) == child
            };
            assert!(
                killed && libc::WTERMSIG(status) == libc::SIGKILL,
                "{status:#x}"
            );
            recovered += attached.recover(|| thread::sleep(Duration::from_micros(10)));
            a.drain(&mut cache);
            a.validate().expect("a successor puts all right");
            assert_eq!(a.stats().free_frames, FRAMES);
            assert_eq!(a.stats().isolated_frames, 0);
        }
        println!("{recovered} blocks were put back for killed hosts");
        for _ in 0..2 {
            a.allocate(&mut cache, request(Order::GIB))
                .expect("all is free");
        }
    });
}

/// Takes blocks and puts them back for ever. Runs in a child of `fork`, so it must not allocate or
/// lock.
fn host(attached: &Attached<'_>) -> ! {
    struct Keep;
    impl ReportSink for Keep {
        type Error = ();
        fn report(&mut self, _: &[FrameRange]) -> Result<(), ()> {
            Err(())
        }
    }
    struct Drop;
    impl ReportSink for Drop {
        type Error = ();
        fn report(&mut self, _: &[FrameRange]) -> Result<(), ()> {
            Ok(())
        }
    }
    let mut reclaimer = Reclaimer::new();
    loop {
        for _ in 0..64 {
            let _ = reclaimer.step(attached, u64::MAX, &mut Keep);
        }
        for _ in 0..4 {
            let _ = reclaimer.step(attached, u64::MAX, &mut Drop);
        }
    }
}

/// A hostile guest writes to the words at full speed. The host does not panic, hang or leave the
/// memory.
fn hostile(steps: u64) {
    with(FRAMES, &(), |_, attached, memory| {
        let (done, words) = (AtomicBool::new(false), memory.words());
        let mut longest = Duration::ZERO;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = u64::from(std::process::id()) | 1;
                while !done.load(Ordering::Relaxed) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    // Mostly words that the host reads, sometimes all words.
                    let span = if random.is_multiple_of(8) {
                        words.len()
                    } else {
                        4096.min(words.len())
                    };
                    let at = usize::try_from(random >> 20).unwrap_or(0) % span;
                    let value = match random % 7 {
                        0 => 0,
                        1 => u64::MAX,
                        2 => 0x0400_0400_0400_0400,
                        3 => 0x2020_2020_2020_2020,
                        _ => random,
                    };
                    words[at].store(value, Ordering::Relaxed);
                }
            });
            let (mut reclaimer, mut told) = (Reclaimer::new(), Told::default());
            for step in 0..steps {
                let begin = Instant::now();
                let _ = reclaimer.step(attached, u64::MAX, &mut told);
                longest = longest.max(begin.elapsed());
                assert!(
                    told.ranges
                        .iter()
                        .all(|range| range.end().number() <= FRAMES)
                );
                told.ranges.clear();
                if step.is_multiple_of(1 << 14) {
                    attached.recover(|| ());
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        println!("{steps} steps beside a hostile writer, the longest took {longest:?}");
    });
}

#[test]
fn a_hostile_writer_harms_itself_alone() {
    hostile(1_000_000);
}

/// The same for minutes: `cargo test --release -p ebb-mm --test all for_long -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn a_hostile_writer_harms_itself_alone_for_long() {
    hostile(10_000_000);
}

/// Prints the time of a pass that finds no memory to take: `cargo test --release -p ebb-mm --test
/// all a_look -- --ignored --nocapture`
#[test]
#[ignore = "prints a time"]
fn a_look_at_a_tebibyte() {
    with(1 << 28, &(), |a, attached, _| {
        let mut cache = CpuCache::new();
        let gibs: Vec<_> = (0..1 << 10)
            .map(|_| a.allocate(&mut cache, request(Order::GIB)).expect("free"))
            .collect();
        for gib in gibs {
            a.free(&mut cache, gib, Order::GIB);
        }
        a.drain(&mut cache);
        let timed = |told: &mut Told| {
            let begin = Instant::now();
            (pass(attached, told), begin.elapsed())
        };
        let (frames, all) = timed(&mut Told::default());
        println!("1 TiB, all of it taken without dropping: {frames} frames in {all:?}");
        let mut least = Duration::MAX;
        for _ in 0..100 {
            let (frames, time) = timed(&mut Told::default());
            assert_eq!(frames, 0);
            least = least.min(time);
        }
        println!("1 TiB, nothing to take, all of it used before: {least:?}");
        assert!(least < Duration::from_millis(1), "{least:?}");
    });
}

/// The pass of a host that wants one block ends even if the guest takes blocks back during the
/// drop.
#[test]
fn what_the_guest_takes_back_counts_as_taken() {
    struct Back<'a>(&'a Attached<'a>, u64);
    impl ReportSink for Back<'_> {
        type Error = ();
        fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
            self.1 += ranges.iter().map(|range| range.frames).sum::<u64>();
            self.0.recover(|| ());
            Ok(())
        }
    }
    with(FRAMES, &(), |a, attached, _| {
        let mut cache = CpuCache::new();
        let gib = a.allocate(&mut cache, request(Order::GIB)).expect("free");
        a.free(&mut cache, gib, Order::GIB);
        a.drain(&mut cache);
        let (mut reclaimer, mut back) = (Reclaimer::new(), Back(attached, 0));
        let step = reclaimer.step(attached, 1, &mut back);
        assert_eq!(step.end, StepEnd::More);
        assert_eq!(
            (step.frames, back.1),
            (512, 512),
            "all that was dropped is told"
        );
        a.validate().expect("valid");
    });
}

/// Unmovable memory stays in the lowest GiB that has a free block, even while a host takes freed
/// memory. Elsewhere it would prevent pages of 1 GiB.
#[test]
fn what_does_not_move_is_not_pushed_upwards() {
    const GIB: u64 = 1 << 18;
    with(3 * GIB, &(), |allocator, attached, _| {
        // A panic in the drop of the cache while a test panics would end the test in an abort.
        let mut cache = ManuallyDrop::new(CpuCache::new());
        let movable = request(Order::PAGEBLOCK);
        let blocks: Vec<Frame> = (0..3 * 512)
            .map(|_| allocator.allocate(&mut cache, movable).expect("memory"))
            .collect();
        for &block in &blocks {
            allocator.free(&mut cache, block, Order::PAGEBLOCK);
        }
        allocator.drain(&mut cache);
        let mut reclaimer = Reclaimer::new();
        let mut left = GIB;
        while left != 0 {
            left -= reclaimer.step(attached, left, &mut Told::default()).frames;
        }
        for order in [Order::PAGEBLOCK, Order::BASE] {
            let unmovable = Request::new(order, Mobility::Unmovable);
            let frame = allocator.allocate(&mut cache, unmovable).expect("memory");
            assert_eq!(frame.number() / GIB, 0, "{order:?}");
        }
    });
}

#[test]
fn a_pass_takes_the_blocks_alone_that_are_wanted() {
    with(FRAMES, &(), |a, attached, _| {
        let mut cache = CpuCache::new();
        let blocks: Vec<Frame> = (0..8)
            .map(|_| {
                a.allocate(&mut cache, request(Order::PAGEBLOCK))
                    .expect("room")
            })
            .collect();
        blocks
            .iter()
            .for_each(|&block| a.free(&mut cache, block, Order::PAGEBLOCK));
        a.drain(&mut cache);
        let chosen = [blocks[1], blocks[2], blocks[6]];
        let (mut reclaimer, mut told, mut asked) = (Reclaimer::new(), Told::default(), Vec::new());
        let mut frames = 0;
        loop {
            let mut wanted = |frame: Frame| {
                asked.push(frame);
                chosen.contains(&frame)
            };
            let step = reclaimer.step_where(attached, u64::MAX, &mut told, &mut wanted);
            frames += step.frames;
            if step.end != StepEnd::More {
                assert_eq!(step.end, StepEnd::Done);
                break;
            }
        }
        assert_eq!(frames, 3 * Order::PAGEBLOCK.frames());
        assert!(blocks.iter().all(|block| asked.contains(block)));
        let dropped = |frame: Frame| {
            let inside = |range: &FrameRange| (range.start..range.end()).contains(&frame);
            told.ranges.iter().any(inside)
        };
        for block in blocks {
            assert_eq!(dropped(block), chosen.contains(&block), "{block:?}");
        }
        assert_eq!(
            pass(attached, &mut Told::default()),
            5 * Order::PAGEBLOCK.frames()
        );
    });
}

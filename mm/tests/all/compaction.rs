//! Tests of compaction: the plan against every possible choice, the results against a model, and
//! threads that allocate and free while blocks are emptied.

use std::{
    collections::BTreeMap,
    mem::ManuallyDrop,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::arena::{ZONE, in_small_memory, one, order, range, validate_after, with};
use ebb_mm::{
    AllocError, Allocator, Compactor, Compacts, Config, CpuCache, Emptied, EmptyingBlock, Frame,
    Mobility, Order, PAGEBLOCK_FRAMES, RangeError, Request, ZoneConfig, ZoneKind,
};
use proptest::prelude::*;

const BLOCKS: usize = 32;
const NOW: Duration = Duration::from_secs(100);

/// Allocates `used[i]` frames of pageblock `i`, spread over it. Returns the frames in use.
fn fill(a: &Allocator<'_>, cache: &mut CpuCache, used: &[u64]) -> Vec<Frame> {
    let mut held = Vec::new();
    for (block, &used) in (0..).zip(used) {
        for frame in 0..used {
            let spread = frame * PAGEBLOCK_FRAMES / used;
            let frame = range(block * PAGEBLOCK_FRAMES + spread, 1);
            a.allocate_range(cache, frame, Mobility::Movable)
                .expect("free");
            held.push(frame.start);
        }
    }
    held
}

fn block_of(frame: Frame) -> u64 {
    frame.number() / PAGEBLOCK_FRAMES
}

/// Migrates the frames in use out of a block, except those that do not move.
fn clear(
    (a, cache): (&Allocator<'_>, &mut CpuCache),
    compactor: &mut Compactor,
    block: &EmptyingBlock,
    held: &mut [Frame],
    moves: impl Fn(Frame) -> bool,
) -> usize {
    let sources: Vec<_> = a
        .frames_in_use(**block)
        .filter(|&frame| moves(frame))
        .collect();
    let mut targets = vec![Frame::new(0); sources.len()];
    let found = compactor.targets(a, Compacts::Daemon, &mut targets);
    for (&from, &to) in sources.iter().zip(&targets[..found]) {
        let mut owned = held.iter_mut().filter(|frame| **frame == from);
        *owned.next().expect("a held frame") = to;
        assert!(!block.range().contains(to), "into the block itself");
        a.free(cache, from, Order::BASE);
    }
    a.drain(cache);
    found
}

#[test]
fn the_emptiest_block_is_emptied_into_the_fullest() {
    in_small_memory(|a, cache| {
        let mut held = fill(a, cache, &[100, 500, 40, 300, 511]);
        let (free, whole) = (a.stats().free_frames, a.zone_stats(ZONE).free_blocks);
        let mut compactor = Compactor::new(ZONE);
        let plan = compactor.plan(NOW, a, 1, Compacts::Direct).expect("room");
        assert_eq!((plan.blocks, plan.frames), (1, 40));
        let block = compactor.next(a).expect("planned");
        assert_eq!(block_of(block.range().start), 2);
        assert_eq!((block.used(), compactor.next(a)), (40, None));
        let mut holders = [0_u64; 5];
        assert_eq!(
            clear((a, cache), &mut compactor, &block, &mut held, |_| true),
            40
        );
        for frame in &held {
            holders[usize::try_from(block_of(*frame)).expect("small")] += 1;
        }
        assert_eq!(holders, [100, 512, 0, 328, 511]);
        assert_eq!(
            compactor.finish(NOW, a, Compacts::Daemon, block),
            Emptied::Whole
        );
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, free);
        assert_eq!(a.zone_stats(ZONE).free_blocks, whole + 1);
        let counters = compactor.counters();
        assert_eq!(counters.isolated, 80);
        assert_eq!(counters.daemon_migrate_scanned, 0);
        assert!(counters.migrate_scanned >= 40 && counters.free_scanned >= 40);
    });
}

#[test]
fn nothing_of_a_block_that_is_emptied_is_handed_out_and_what_is_freed_stays_in_it() {
    in_small_memory(|a, cache| {
        let held = fill(a, cache, &[3, 500]);
        let block = a.begin_emptying(held[0]).expect("in use");
        assert!(a.begin_emptying(held[0]).is_none(), "it is being emptied");
        assert!(a.isolate(held[0]).is_none());
        assert_eq!(a.stats().isolated_frames, PAGEBLOCK_FRAMES);
        let exactly = a.allocate_range(cache, range(1, 1), Mobility::Movable);
        assert_eq!(exactly, Err(RangeError::Isolated(Frame::new(1))));
        a.free(cache, held[1], Order::BASE);
        a.drain(cache);
        a.validate().expect("valid");
        assert_eq!(a.free_areas(ZONE).frames(), 12 + 30 * PAGEBLOCK_FRAMES);
        let mut taken = Vec::new();
        let request = Request::new(Order::BASE, Mobility::Unmovable).reserve(ebb_mm::Reserve::Use);
        let error = loop {
            match a.allocate(cache, request) {
                Ok(frame) => taken.push(frame),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AllocError::Isolated { .. }), "{error}");
        // Frames are set aside for the two that are left.
        assert_eq!(taken.len() as u64, 12 - 2 + 30 * PAGEBLOCK_FRAMES);
        assert!(taken.iter().all(|&frame| block_of(frame) != 0));
        assert_eq!(a.frames_left(*block), 2);
        assert_eq!(a.end_emptying(block), 2);
        validate_after(a, cache);
        assert_eq!(a.free_areas(ZONE).frames(), 510 + 2);
        assert_eq!(block_of(one(a, cache, order(1))), 0);
    });
}

#[test]
fn an_emptied_block_is_handed_to_who_waits_for_it() {
    in_small_memory(|a, cache| {
        let mut held = fill(a, cache, &[9, 500]);
        let free = a.stats().free_frames;
        let mut compactor = Compactor::new(ZONE);
        let plan = compactor.plan(NOW, a, 1, Compacts::Direct).expect("room");
        assert_eq!(plan.frames, 9);
        let block = compactor.next(a).expect("planned");
        let emptied = a.begin_emptying(Frame::new(600)).expect("in use");
        assert_eq!(
            a.take_emptied(emptied, Mobility::Movable)
                .map_err(|block| a.end_emptying(block)),
            Err(500)
        );
        clear((a, cache), &mut compactor, &block, &mut held, |_| true);
        let frame = compactor.take(NOW, a, Compacts::Daemon, block, Mobility::Unmovable);
        assert_eq!(frame, Ok(Frame::new(0)));
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, free - PAGEBLOCK_FRAMES);
        a.free(cache, Frame::new(0), Order::PAGEBLOCK);
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, free);
        assert_eq!(a.stats().isolated_frames, 0);
    });
}

#[test]
fn a_block_that_does_not_move_is_remembered() {
    in_small_memory(|a, cache| {
        let mut held = fill(a, cache, &[40, 60, 500, 300]);
        let pinned = held[7];
        let mut compactor = Compactor::new(ZONE);
        compactor.plan(NOW, a, 1, Compacts::Daemon).expect("room");
        let block = compactor.next(a).expect("planned");
        let moved = clear((a, cache), &mut compactor, &block, &mut held, |frame| {
            frame != pinned
        });
        assert_eq!(moved, 39);
        assert_eq!(
            compactor.finish(NOW, a, Compacts::Daemon, block),
            Emptied::Stuck(1)
        );
        validate_after(a, cache);
        let later = NOW + Duration::from_secs(30);
        let plan = compactor.plan(later, a, 1, Compacts::Daemon).expect("room");
        assert_eq!(plan.frames, 60, "the block of 60, not that of one");
        let long_after = NOW + Duration::from_secs(61);
        let plan = compactor
            .plan(long_after, a, 1, Compacts::Daemon)
            .expect("room");
        assert_eq!(plan.frames, 1, "it may have been unpinned");
    });
}

#[test]
fn targets_count_for_the_one_that_moves_frames() {
    in_small_memory(|a, cache| {
        let _held = fill(a, cache, &[40, 60, 500, 300]);
        let mut compactor = Compactor::new(ZONE);
        compactor.plan(NOW, a, 1, Compacts::Daemon).expect("room");
        let block = compactor.next(a).expect("planned");
        // A task compacts the zone at the same time.
        compactor.plan(NOW, a, 1, Compacts::Direct).expect("room");
        let mut to = [Frame::new(0); 1];
        assert_eq!(compactor.targets(a, Compacts::Daemon, &mut to), 1);
        let counters = compactor.counters();
        assert!(counters.free_scanned > 1);
        assert_eq!(counters.daemon_free_scanned, counters.free_scanned);
        a.free(cache, to[0], Order::BASE);
        compactor.give_up(a, block);
        validate_after(a, cache);
    });
}

#[test]
fn where_nothing_is_to_be_had_nothing_is_looked_at() {
    in_small_memory(|a, cache| {
        a.set_watermarks(ZONE, ebb_mm::Watermarks::default())
            .expect("rising marks");
        let held = fill(a, cache, &[512; BLOCKS]);
        for frame in &held[..700] {
            a.free(cache, *frame, Order::BASE);
        }
        a.drain(cache);
        a.claim(range(0, 1)).expect("free");
        let mut compactor = Compactor::new(ZONE);
        assert_eq!(compactor.plan(NOW, a, 1, Compacts::Direct), None);
        let looked = compactor.counters().migrate_scanned;
        assert_eq!(looked, 1);
        for ms in 0..400 {
            let now = NOW + Duration::from_millis(ms);
            assert_eq!(compactor.plan(now, a, 1, Compacts::Direct), None);
        }
        assert_eq!(compactor.counters().migrate_scanned, looked);
        // After 512 more frees it looks again.
        for frame in held[BLOCKS * 512 - 1400..].iter().step_by(2) {
            a.free(cache, *frame, Order::BASE);
        }
        a.drain(cache);
        assert!(compactor.plan(NOW, a, 1, Compacts::Direct).is_some());
    });
}

#[test]
fn whole_blocks_and_parts_of_them_are_freed_while_they_are_emptied() {
    in_small_memory(|a, cache| {
        let total = a.stats().free_frames;
        let whole = one(a, cache, Order::PAGEBLOCK);
        let split = one(a, cache, Order::PAGEBLOCK);
        let bulk = one(a, cache, Order::PAGEBLOCK);
        let blocks = [whole, split, bulk].map(|frame| a.begin_emptying(frame).expect("in use"));
        assert!(a.is_whole(*blocks[0]));
        assert_eq!(a.frames_in_use(*blocks[0]).count(), 0);
        a.split(split, Order::PAGEBLOCK, order(6));
        assert_eq!(a.frames_in_use(*blocks[1]).count(), 512);
        a.free(cache, whole, Order::PAGEBLOCK);
        for part in 0..8 {
            a.free(cache, split.offset(part * 64), order(6));
        }
        let another = one(a, cache, Order::PAGEBLOCK);
        a.free_bulk(cache, &[bulk, another], Order::PAGEBLOCK);
        a.drain(cache);
        a.validate().expect("valid");
        assert_eq!(a.stats().free_frames, total - 3 * PAGEBLOCK_FRAMES);
        for block in blocks {
            assert_eq!(a.end_emptying(block), 0);
        }
        validate_after(a, cache);
        assert_eq!(a.stats().free_frames, total);
        assert_eq!(a.free_blocks(ZONE, order(10), None), BLOCKS as u64 / 2);
    });
}

/// Returns the fewest frames that have to move to free `blocks` of these blocks, or `None` if there
/// is not enough space.
fn cheapest(used: &[u64], blocks: u32) -> Option<u64> {
    let mut best = None;
    for set in 0_u32..1 << used.len() {
        if set.count_ones() != blocks {
            continue;
        }
        let inside = |block: &usize| set >> block & 1 != 0;
        let cost: u64 = (0..used.len())
            .filter(inside)
            .map(|block| used[block])
            .sum();
        let others = (0..used.len()).filter(|block| !inside(block));
        let room: u64 = others.map(|block| PAGEBLOCK_FRAMES - used[block]).sum();
        if cost <= room && best.is_none_or(|best| cost < best) {
            best = Some(cost);
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// For every number of blocks the plan is the cheapest choice, and it costs what it says, or no
    /// choice has enough space.
    #[test]
    fn no_other_choice_is_cheaper(used in prop::collection::vec(1..512_u64, 1..9), wanted in 1..9_u32) {
        in_small_memory(|a, cache| {
            a.set_watermarks(ZONE, ebb_mm::Watermarks::default()).expect("rising marks");
            let mut held = fill(a, cache, &used);
            let whole = a.zone_stats(ZONE).free_blocks;
            let mut compactor = Compactor::new(ZONE);
            let plan = compactor.plan(NOW, a, wanted as usize, Compacts::Direct);
            let most = (1..=wanted).rev().find(|&blocks| cheapest(&used, blocks).is_some());
            assert_eq!(plan.map(|plan| plan.blocks), most.map(u64::from));
            let Some(plan) = plan else { return };
            assert_eq!(Some(plan.frames), cheapest(&used, most.unwrap_or(0)));
            let mut moved = 0;
            while let Some(block) = compactor.next(a) {
                moved += clear((a, cache), &mut compactor, &block, &mut held, |_| true) as u64;
                assert_eq!(compactor.finish(NOW, a, Compacts::Daemon, block), Emptied::Whole);
                a.validate().expect("valid");
            }
            assert_eq!(moved, plan.frames);
            assert_eq!(a.zone_stats(ZONE).free_blocks, whole + plan.blocks);
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len() as u64, used.iter().sum::<u64>(), "no frame has two owners");
            for frame in held {
                a.free(cache, frame, Order::BASE);
            }
            validate_after(a, cache);
            assert_eq!(a.zone_stats(ZONE).free_blocks, BLOCKS as u64);
        });
    }
}

/// The contents of a page, and the frame that it is in.
struct Page {
    frame: Option<Frame>,
    contents: u64,
}

/// Memory that programs use during compaction.
struct Shared<'a, 'm> {
    a: &'a Allocator<'m>,
    pages: Vec<Mutex<Page>>,
    /// The page that each frame holds, as a reverse mapping would say.
    owners: Vec<AtomicU32>,
    /// One word of the contents of each frame.
    memory: Vec<AtomicU64>,
    /// The number of blocks that compaction has emptied.
    gained: AtomicU64,
    end: AtomicBool,
}

const UNOWNED: u32 = u32::MAX;

impl Shared<'_, '_> {
    fn frame(&self, frame: Frame) -> usize {
        usize::try_from(frame.number()).expect("small")
    }

    fn put(&self, page: u32, frame: Frame, contents: u64) {
        let at = self.frame(frame);
        assert_eq!(self.owners[at].swap(page, Ordering::AcqRel), UNOWNED);
        self.memory[at].store(contents, Ordering::Relaxed);
    }

    fn remove(&self, page: u32, frame: Frame, contents: u64) {
        let at = self.frame(frame);
        assert_eq!(self.memory[at].load(Ordering::Relaxed), contents);
        assert_eq!(self.owners[at].swap(UNOWNED, Ordering::AcqRel), page);
    }

    /// Runs a program that touches and frees its pages.
    fn churn(&self, seed: u64) {
        let mut cache = ManuallyDrop::new(CpuCache::new());
        let mut random = seed;
        while !self.end.load(Ordering::Relaxed) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let page = u32::try_from(random % self.pages.len() as u64).expect("small");
            let mut held = self.pages[page as usize].lock().expect("no panic");
            if let Some(frame) = held.frame.take() {
                self.remove(page, frame, held.contents);
                self.a.free(&mut cache, frame, Order::BASE);
            }
            let request = Request::new(Order::BASE, Mobility::Movable);
            if random >> 32 & 7 != 0
                && let Ok(frame) = self.a.allocate(&mut cache, request)
            {
                *held = Page {
                    frame: Some(frame),
                    contents: random,
                };
                self.put(page, frame, random);
            }
            if self.a.drain_requested(&cache) {
                self.a.drain(&mut cache);
            }
        }
        self.a.drain(&mut cache);
    }

    /// Moves the page in frame `from` to frame `to`. Returns `false` if there is no page that is
    /// unused at this moment.
    fn migrate(&self, cache: &mut CpuCache, from: Frame, to: Frame) -> bool {
        let page = self.owners[self.frame(from)].load(Ordering::Acquire);
        let held = self.pages.get(page as usize).map(|page| page.try_lock());
        let Some(Ok(mut held)) = held else {
            return false;
        };
        if held.frame != Some(from) {
            return false;
        }
        self.remove(page, from, held.contents);
        held.frame = Some(to);
        self.put(page, to, held.contents);
        self.a.free(cache, from, Order::BASE);
        true
    }

    /// Empties blocks until the programs end.
    fn compact(&self) {
        let mut cache = ManuallyDrop::new(CpuCache::new());
        let mut compactor = Compactor::new(ZONE);
        let mut now = NOW;
        while !self.end.load(Ordering::Relaxed) {
            now += Duration::from_secs(100);
            self.a.request_drain();
            if compactor.plan(now, self.a, 4, Compacts::Daemon).is_none() {
                thread::yield_now();
            }
            while let Some(block) = compactor.next(self.a) {
                for _ in 0..3 {
                    let sources: Vec<_> = self.a.frames_in_use(*block).collect();
                    let mut targets = vec![Frame::new(0); sources.len()];
                    let found = compactor.targets(self.a, Compacts::Daemon, &mut targets);
                    for (&from, &to) in sources.iter().zip(&targets[..found]) {
                        assert!(!block.range().contains(to));
                        if !self.migrate(&mut cache, from, to) {
                            self.a.free(&mut cache, to, Order::BASE);
                        }
                    }
                    self.a.drain(&mut cache);
                }
                if compactor.finish(now, self.a, Compacts::Daemon, block) == Emptied::Whole {
                    self.gained.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.a.drain(&mut cache);
    }
}

#[test]
fn pages_move_while_programs_use_them() {
    const FRAMES: u64 = 64 * 256;
    let ranges = [range(0, FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Dma32,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones).with_frame_marks(), &(), |a| {
        let empty = || {
            Mutex::new(Page {
                frame: None,
                contents: 0,
            })
        };
        let shared = Shared {
            a,
            pages: (0..FRAMES / 2).map(|_| empty()).collect(),
            owners: (0..FRAMES).map(|_| AtomicU32::new(UNOWNED)).collect(),
            memory: (0..FRAMES).map(|_| AtomicU64::new(0)).collect(),
            gained: AtomicU64::new(0),
            end: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            let shared = &shared;
            scope.spawn(|| shared.compact());
            for seed in [3, 77] {
                scope.spawn(move || shared.churn(seed));
            }
            // Two seconds, and on a busy host until a block has become free.
            for second in 1..=300 {
                thread::sleep(Duration::from_secs(1));
                if second >= 2 && shared.gained.load(Ordering::Relaxed) > 0 {
                    break;
                }
            }
            shared.end.store(true, Ordering::Relaxed);
        });
        a.validate().expect("valid");
        let gained = shared.gained.load(Ordering::Relaxed);
        assert!(gained > 0, "not one block became free");
        let mut seen = BTreeMap::new();
        for (number, page) in shared.pages.iter().enumerate() {
            let page = page.lock().expect("no panic");
            if let Some(frame) = page.frame {
                assert_eq!(seen.insert(frame, number), None);
                let at = shared.frame(frame);
                assert_eq!(shared.memory[at].load(Ordering::Relaxed), page.contents);
            }
        }
        assert_eq!(a.stats().free_frames, FRAMES - seen.len() as u64);
    });
}

#[derive(Clone, Debug)]
enum Event {
    Allocate { order: u8, mobility: Mobility },
    Free(usize),
    Begin(usize),
    End(usize),
    Take(usize),
    Targets(usize),
    Drain,
}

fn event() -> impl Strategy<Value = Event> {
    let mobility = prop::sample::select(Mobility::ALL.to_vec());
    prop_oneof![
        6 => (0..=9_u8, mobility).prop_map(|(order, mobility)| Event::Allocate { order, mobility }),
        6 => any::<usize>().prop_map(Event::Free),
        3 => any::<usize>().prop_map(Event::Begin),
        2 => any::<usize>().prop_map(Event::End),
        1 => any::<usize>().prop_map(Event::Take),
        1 => (1..700_usize).prop_map(Event::Targets),
        1 => Just(Event::Drain),
    ]
}

proptest! {
    /// Blocks of all orders are allocated and freed while other blocks are emptied. No allocation
    /// returns a frame that is taken out or in use, no target frame is in a free block, and in the
    /// end no frame is missing.
    #[test]
    fn nothing_is_lost_whatever_happens(events in prop::collection::vec(event(), 1..250)) {
        in_small_memory(|a, cache| {
            a.set_watermarks(ZONE, ebb_mm::Watermarks::default()).expect("rising marks");
            let total = a.stats().free_frames;
            let mut held: Vec<(Frame, Order)> = Vec::new();
            let mut emptying: Vec<EmptyingBlock> = Vec::new();
            let mut compactor = Compactor::new(ZONE);
            let mut used = vec![false; usize::try_from(total).expect("small")];
            let frames = |frame: Frame, order: Order| {
                let first = usize::try_from(frame.number()).expect("small");
                first..first + usize::try_from(order.frames()).expect("small")
            };
            for event in &events {
                match *event {
                    Event::Allocate { order: of, mobility } => {
                        if let Ok(frame) = a.allocate(cache, Request::new(order(of), mobility)) {
                            // Frames that were in the cache before may be in any block.
                            let inside = emptying.iter().any(|block| block.range().contains(frame));
                            assert!(!inside || of != 9, "a block that is being emptied");
                            for at in frames(frame, order(of)) {
                                assert!(!std::mem::replace(&mut used[at], true), "two owners");
                            }
                            held.push((frame, order(of)));
                        }
                    }
                    Event::Free(which) if !held.is_empty() => {
                        let (frame, order) = held.swap_remove(which % held.len());
                        used[frames(frame, order)].fill(false);
                        a.free(cache, frame, order);
                    }
                    Event::Begin(which) if !held.is_empty() => {
                        // After this the cache has no frame of the block.
                        a.drain(cache);
                        emptying.extend(a.begin_emptying(held[which % held.len()].0));
                    }
                    Event::End(which) if !emptying.is_empty() => {
                        let block = emptying.swap_remove(which % emptying.len());
                        a.drain(cache);
                        let left = a.frames_left(*block);
                        assert_eq!(a.end_emptying(block), left);
                    }
                    Event::Take(which) if !emptying.is_empty() => {
                        let block = emptying.swap_remove(which % emptying.len());
                        match a.take_emptied(block, Mobility::Movable) {
                            Ok(frame) => {
                                for at in frames(frame, order(9)) {
                                    assert!(!std::mem::replace(&mut used[at], true), "two owners");
                                }
                                held.push((frame, order(9)));
                            }
                            Err(block) => emptying.push(block),
                        }
                    }
                    Event::Targets(count) => {
                        a.drain(cache);
                        let mut targets = vec![Frame::new(0); count];
                        let free = a.zone_stats(ZONE).free_blocks;
                        let found = compactor.targets(a, Compacts::Daemon, &mut targets);
                        assert_eq!(a.zone_stats(ZONE).free_blocks, free);
                        for &frame in &targets[..found] {
                            assert!(emptying.iter().all(|block| !block.range().contains(frame)));
                            for at in frames(frame, Order::BASE) {
                                assert!(!std::mem::replace(&mut used[at], true), "two owners");
                            }
                            held.push((frame, Order::BASE));
                        }
                    }
                    Event::Drain => {
                        a.drain(cache);
                        a.validate().expect("valid");
                    }
                    _ => {}
                }
            }
            for (frame, order) in held {
                a.free(cache, frame, order);
            }
            validate_after(a, cache);
            for block in emptying {
                assert_eq!(a.end_emptying(block), 0);
            }
            validate_after(a, cache);
            assert_eq!(a.stats().free_frames, total);
            assert_eq!(a.stats().isolated_frames, 0);
            assert_eq!(a.zone_stats(ZONE).free_blocks, BLOCKS as u64);
            assert!(a.allocate(cache, Request::new(Order::MAX, Mobility::Movable)).is_ok());
        });
    }
}

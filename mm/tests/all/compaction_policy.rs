//! Tests of the policies of compaction with the compactor, in virtual time: with the memory of the
//! original experiments, and with memory that does not move. `compaction_for_host.rs` has the
//! policy for the host.

use std::{mem::ManuallyDrop, time::Duration};

use crate::arena::{ZONE, range, with};
use ebb_mm::{
    Allocator, Compactor, Compacts, Config, CpuCache, Emptied, Frame, Mobility, Order,
    PAGEBLOCK_FRAMES, PROACTIVE_SLICE, Plan, Proactive, ProactiveSlice, Request, ZoneConfig,
    ZoneKind,
};

/// The number of blocks of the usual machine.
const BLOCKS: u64 = 256;
/// The time to move a frame.
const MOVE: Duration = Duration::from_micros(2);

/// A machine. The frames of some of its blocks do not move.
struct Machine<'a, 'm> {
    a: &'a Allocator<'m>,
    cache: ManuallyDrop<CpuCache>,
    compactor: Compactor,
    /// The block from which on frames do not move.
    stuck: u64,
    by: Compacts,
    now: Duration,
    moved: u64,
}

/// Calls `test` with a machine of 512 MiB. In each block `used` frames are in use. They move,
/// except in the `stuck` highest blocks, which are the first to be tried.
fn machine(used: u64, stuck: u64, test: impl FnOnce(&mut Machine<'_, '_>)) {
    let used = |_| used;
    sized_machine(BLOCKS, used, stuck, test);
}

/// Calls `test` with a machine of this number of blocks. `used` returns how many frames of a block
/// are in use. They move, except in the `stuck` highest blocks.
fn sized_machine(
    blocks: u64,
    used: impl Fn(u64) -> u64,
    stuck: u64,
    test: impl FnOnce(&mut Machine<'_, '_>),
) {
    let ranges = [range(1 << 20, blocks * PAGEBLOCK_FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let mut cache = ManuallyDrop::new(CpuCache::new());
        for block in 0..blocks {
            let frames = range((1 << 20) + block * PAGEBLOCK_FRAMES, used(block));
            a.allocate_range(&mut cache, frames, Mobility::Movable)
                .expect("free");
        }
        a.drain(&mut cache);
        test(&mut Machine {
            a,
            cache,
            compactor: Compactor::new(ZONE),
            stuck: blocks - stuck,
            by: Compacts::Daemon,
            now: Duration::from_secs(50),
            moved: 0,
        });
        a.validate().expect("valid");
    });
}

impl Machine<'_, '_> {
    fn score(&self) -> u64 {
        let zone = self.a.fragmentation(ZONE);
        zone.score(zone.present_frames)
    }

    fn plan(&mut self, blocks: u64) -> Option<Plan> {
        let blocks = usize::try_from(blocks).expect("small");
        self.compactor.plan(self.now, self.a, blocks, self.by)
    }

    /// Empties the next block of the plan. Returns whether it became free, or `None` at the end of
    /// the plan.
    fn empty(&mut self) -> Option<bool> {
        let block = self.compactor.next(self.a)?;
        self.now += MOVE * block.used();
        if block.range().start.number() < (1 << 20) + self.stuck * PAGEBLOCK_FRAMES {
            let sources: Vec<_> = self.a.frames_in_use(*block).collect();
            let mut targets = vec![Frame::new(0); sources.len()];
            let found = self.compactor.targets(self.a, self.by, &mut targets);
            assert_eq!(found, sources.len(), "the plan promised room");
            for &from in &sources {
                self.a.free(&mut self.cache, from, Order::BASE);
            }
            self.a.drain(&mut self.cache);
            self.moved += sources.len() as u64;
        }
        Some(self.compactor.finish(self.now, self.a, self.by, block) == Emptied::Whole)
    }
}

/// Runs the daemon until the time `until`. Returns how often it woke up by itself, how often it
/// tried to compact, and how long it worked.
fn run_proactive(
    m: &mut Machine<'_, '_>,
    until: Duration,
    proactiveness: u64,
) -> (u32, u32, Duration) {
    let mut daemon = Proactive::new();
    daemon.set_proactiveness(proactiveness).expect("valid");
    let low = daemon.thresholds().low;
    let (mut wakes, mut tries, mut busy) = (0, 0, Duration::ZERO);
    while m.now < until {
        let poll = daemon.poll(m.now, m.score(), false);
        if poll.compact {
            tries += 1;
            let begun = m.now;
            let free = |m: &Machine<'_, '_>| m.a.zone_stats(ZONE).free_blocks;
            let before = free(m);
            let (mut more, mut tried) = (true, 0);
            while more && m.now - begun < PROACTIVE_SLICE {
                let dearest = m.a.fragmentation(ZONE).dearest(low);
                let fits = |plan: Plan| dearest != 0 && plan.frames <= dearest;
                more = m.plan(1).is_some_and(fits) && m.empty().is_some();
                tried += u64::from(more);
            }
            busy += m.now - begun;
            let slice = ProactiveSlice {
                blocks: free(m).saturating_sub(before),
                tried,
                score: m.score(),
                more,
                kept_waiting: None,
            };
            daemon.worked(m.now, slice);
            continue;
        }
        wakes += u32::from(poll.next.is_some());
        // Other code runs all the time, so the daemon looks at every chance.
        m.now = poll.next.unwrap_or(poll.look_after);
    }
    (wakes, tries, busy)
}

#[test]
fn dear_blocks_are_emptied_down_to_the_low_threshold_and_no_further() {
    // Of each block more than half is in use.
    machine(300, 0, |m| {
        assert!(m.score() > 90);
        let start = m.now;
        let zone = m.a.fragmentation(ZONE);
        let wanted = zone.blocks_to(80, zone.present_frames + 1);
        let (_, _, busy) = run_proactive(m, start + Duration::from_secs(60), 20);
        assert!(m.score() <= 80, "{}", m.score());
        let made = m.a.zone_stats(ZONE).free_blocks;
        assert!(wanted <= made && made <= wanted + 1, "{wanted} {made}");
        assert_eq!(m.moved, made * 300);
        assert!(busy <= MOVE * u32::try_from(m.moved).expect("few"));
        // From here on there is no work, and the daemon does not wake.
        let start = m.now;
        let (wakes, tries, _) = run_proactive(m, start + Duration::from_secs(60), 20);
        assert_eq!((wakes, tries), (0, 0));
    });
}

#[test]
fn the_seeds_memory_is_whole_before_it_is_wanted() {
    machine(128, 0, |m| {
        let start = m.now;
        let (_, tries, _) = run_proactive(m, start + Duration::from_secs(1), 20);
        let made = m.a.zone_stats(ZONE).free_blocks;
        assert_eq!(m.a.fragmentation(ZONE).percent(), 5);
        assert!(made * 100 > BLOCKS * 3 / 4 * 94, "{made}");
        assert_eq!(m.moved, made * 128);
        // No other thread wants the CPU: one slice after the other.
        assert!(m.now - start <= Duration::from_millis(1500));
        assert!(tries <= 16, "{tries}");
    });
}

#[test]
fn at_100_all_memory_but_the_least_threshold_is_made_whole_and_the_work_ends() {
    for used in [128, 300] {
        machine(used, 0, |m| {
            let start = m.now;
            run_proactive(m, start + Duration::from_secs(60), 100);
            let percent = m.a.fragmentation(ZONE).percent();
            assert!(
                percent <= 5,
                "{percent} %, {used} frames used of each block"
            );
            let moved = m.moved;
            let start = m.now;
            let (wakes, tries, _) = run_proactive(m, start + Duration::from_secs(600), 100);
            assert_eq!((wakes, tries, m.moved - moved), (0, 0, 0));
        });
    }
}

#[test]
fn on_demand_98_percent_of_the_seeds_free_memory_is_had_as_huge_pages() {
    machine(128, 0, |m| {
        m.by = Compacts::Direct;
        let free = m.a.stats().free_frames;
        let request = Request::new(Order::PAGEBLOCK, Mobility::Movable);
        let mut had = 0;
        loop {
            if m.a.allocate(&mut m.cache, request).is_ok() {
                had += PAGEBLOCK_FRAMES;
            } else if m.plan(1).is_none() || m.empty() != Some(true) {
                break;
            }
        }
        assert!(had * 100 >= free * 98, "{had} of {free} frames");
    });
}

#[test]
fn memory_that_does_not_move_costs_next_to_nothing() {
    for proactiveness in [40, 100] {
        machine(128, BLOCKS, |m| {
            let end = m.now + Duration::from_secs(600);
            let (wakes, tries, busy) = run_proactive(m, end, proactiveness);
            assert_eq!(m.a.zone_stats(ZONE).free_blocks, 0);
            assert!(wakes <= 600 / 30, "{wakes} wake-ups");
            assert!(tries <= 600 / 8, "{tries} slices");
            assert!(busy * 1000 <= Duration::from_secs(600), "{busy:?}");
        });
    }
}

#[test]
fn blocks_that_do_not_move_hide_the_others_for_a_while_only() {
    machine(128, 128, |m| {
        let start = m.now;
        let (_, tries, busy) = run_proactive(m, start + Duration::from_secs(120), 40);
        assert_eq!(m.a.zone_stats(ZONE).free_blocks, 0, "the stuck ones, twice");
        assert!(tries <= 120 / 7, "{tries} slices");
        assert!(busy * 1000 <= Duration::from_secs(120), "{busy:?}");
        run_proactive(m, start + Duration::from_secs(240), 40);
        let free = m.a.zone_stats(ZONE).free_blocks;
        assert!(free > BLOCKS / 3, "{free}");
    });
}

#[test]
fn any_number_of_cheap_blocks_that_do_not_move_hides_the_others_for_a_while_only() {
    // The stuck ones are the cheaper ones, and six times as many as are remembered.
    let (blocks, stuck) = (2048, 1536);
    let used = |block| {
        if block < blocks - stuck {
            128
        } else {
            1 + block % 8
        }
    };
    sized_machine(blocks, used, stuck, |m| {
        let start = m.now;
        let (_, _, busy) = run_proactive(m, start + Duration::from_secs(150), 40);
        let free = m.a.zone_stats(ZONE).free_blocks;
        assert!(free > 300, "{free}");
        assert!(busy * 100 <= Duration::from_secs(150), "{busy:?}");
        // Nothing is left, and little work is done for that.
        let start = m.now;
        let (wakes, _, busy) = run_proactive(m, start + Duration::from_secs(600), 40);
        assert!(wakes <= 600 / 30, "{wakes} wake-ups");
        assert!(busy * 1000 <= Duration::from_secs(600), "{busy:?}");
    });
}

#[test]
fn they_hide_no_block_from_a_task_that_waits() {
    machine(128, 128, |m| {
        // The background thread pauses.
        while m.plan(1).is_some() {
            assert_eq!(m.empty(), Some(false));
        }
        m.by = Compacts::Direct;
        for _ in 0..64 {
            m.plan(1).expect("the others");
            assert_eq!(m.empty(), Some(false));
        }
        m.plan(1).expect("what moves");
        assert_eq!(m.empty(), Some(true));
    });
}

#[test]
fn tasks_do_not_wait_again_and_again_for_nothing() {
    let mut compactor = Compactor::new(ZONE);
    let now = Duration::from_secs(1);
    for _ in 0..3 {
        for _ in 0..5 {
            compactor.count_stall_ended(now, false);
        }
        compactor.count_stall_ended(now, true);
    }
    assert!(compactor.may_stall(now), "some got a block");
    for _ in 0..6 {
        assert!(compactor.may_stall(now));
        compactor.count_stall_ended(now, false);
    }
    assert!(!compactor.may_stall(now + Duration::from_millis(499)));
    assert!(compactor.may_stall(now + Duration::from_millis(500)));
}

//! Tests of the policies of compaction with the compactor, in virtual time: with the memory of the
//! original experiments, with memory that does not move, and with memory that the host gets.

mod arena;

use std::{mem::ManuallyDrop, time::Duration};

use arena::{MIB, range, with};
use ebb_mm::{
    Allocator, Compactor, Compacts, Config, Consolidation, CpuCache, Emptied, Frame, FrameRange,
    Mobility, Order, PAGEBLOCK_FRAMES, PROACTIVE_SLICE, Plan, Proactive, ReportSink, Reporter,
    ZoneConfig, ZoneKind,
};

const BLOCKS: u64 = 256;
/// The time to move a frame.
const MOVE: Duration = Duration::from_micros(2);

/// A machine whose frames all move, or all do not.
struct Machine<'a, 'm> {
    a: &'a Allocator<'m>,
    cache: ManuallyDrop<CpuCache>,
    compactor: Compactor,
    moves: bool,
    now: Duration,
    moved: u64,
}

/// Calls `test` with a machine of 512 MiB. In each block `used` frames are in use.
fn machine(used: u64, moves: bool, test: impl FnOnce(&mut Machine<'_, '_>)) {
    let ranges = [range(1 << 20, BLOCKS * PAGEBLOCK_FRAMES)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    with(&Config::new(&zones), &(), |a| {
        let mut cache = ManuallyDrop::new(CpuCache::new());
        for block in 0..BLOCKS {
            let frames = range((1 << 20) + block * PAGEBLOCK_FRAMES, used);
            a.allocate_range(&mut cache, frames, Mobility::Movable)
                .expect("free");
        }
        a.drain(&mut cache);
        test(&mut Machine {
            a,
            cache,
            compactor: Compactor::new(0),
            moves,
            now: Duration::from_secs(50),
            moved: 0,
        });
        a.validate().expect("valid");
    });
}

impl Machine<'_, '_> {
    fn score(&self) -> u64 {
        let zone = self.a.fragmentation(0);
        zone.score(zone.present_frames)
    }

    fn plan(&mut self, blocks: u64) -> Option<Plan> {
        let blocks = usize::try_from(blocks).expect("small");
        self.compactor
            .plan(self.now, self.a, blocks, Compacts::Daemon)
    }

    /// Empties the next block of the plan. Returns whether it became free, or `None` at the end of
    /// the plan.
    fn empty(&mut self) -> Option<bool> {
        let block = self.compactor.next(self.a)?;
        self.now += MOVE * block.used();
        if self.moves {
            let sources: Vec<_> = self.a.frames_in_use(*block).collect();
            let mut targets = vec![Frame::new(0); sources.len()];
            let found = self.compactor.targets(self.a, &mut targets);
            assert_eq!(found, sources.len(), "the plan promised room");
            for &from in &sources {
                self.a.free(&mut self.cache, from, Order::BASE);
            }
            self.a.drain(&mut self.cache);
            self.moved += sources.len() as u64;
        }
        Some(self.compactor.finish(self.now, self.a, block) == Emptied::Whole)
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
            let zone = m.a.fragmentation(0);
            let wanted = zone.blocks_to(low, zone.present_frames);
            let mut more = m.score() > low && m.plan(wanted).is_some();
            while more && m.now - begun < PROACTIVE_SLICE {
                more = (m.empty().is_some() || m.plan(wanted).is_some()) && m.score() > low;
            }
            busy += m.now - begun;
            daemon.worked(m.now, m.now - begun, m.score(), more);
            continue;
        }
        wakes += u32::from(poll.next.is_some());
        // Other code runs all the time, so the daemon looks at every chance.
        m.now = poll.next.unwrap_or(poll.look_after);
    }
    (wakes, tries, busy)
}

#[test]
fn the_seeds_memory_is_brought_to_the_low_threshold_and_no_further() {
    machine(128, true, |m| {
        assert!(m.score() > 90);
        let start = m.now;
        let zone = m.a.fragmentation(0);
        let wanted = zone.blocks_to(80, zone.present_frames);
        let (_, _, busy) = run_proactive(m, start + Duration::from_secs(60), 20);
        assert!(m.score() <= 80, "{}", m.score());
        assert_eq!(m.a.zone_stats(0).free_blocks, wanted);
        assert_eq!(m.moved, wanted * 128);
        assert!(busy <= Duration::from_secs(6));
        // From here on there is no work, and the daemon does not wake.
        let start = m.now;
        let (wakes, tries, _) = run_proactive(m, start + Duration::from_secs(60), 20);
        assert_eq!((wakes, tries), (0, 0));
        // Nearly all blocks that the free memory could make, if they are wanted.
        let start = m.now;
        run_proactive(m, start + Duration::from_secs(600), 100);
        assert_eq!(m.score(), 5);
        // The rest is below 7 %: the percentage is rounded down, and once more when it is weighted.
        assert!(m.a.zone_stats(0).free_blocks * 100 > BLOCKS * 3 / 4 * 93);
    });
}

#[test]
fn memory_that_does_not_move_costs_next_to_nothing() {
    machine(128, false, |m| {
        let start = m.now;
        let (wakes, tries, busy) = run_proactive(m, start + Duration::from_secs(600), 40);
        assert_eq!(m.a.zone_stats(0).free_blocks, 0);
        assert!(wakes <= 600 / 30, "{wakes} wake-ups");
        assert!(tries <= 600 / 15, "{tries} tries");
        assert!(busy * 1000 <= Duration::from_secs(600), "{busy:?}");
    });
}

struct Host(u64);

impl ReportSink for Host {
    type Error = ();

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ()> {
        self.0 += ranges.iter().map(|range| range.frames).sum::<u64>();
        Ok(())
    }
}

#[test]
fn what_is_free_in_pieces_goes_back_to_the_host() {
    machine(128, true, |m| {
        m.a.set_reporting_order(Some(Order::PAGEBLOCK))
            .expect("an order that can be given back");
        let (mut rule, mut reporter, mut host) = (Consolidation::new(), Reporter::new(), Host(0));
        let start = m.now;
        let free = m.a.stats().free_frames;
        while m.now - start < Duration::from_secs(15) {
            let scattered = m.a.fragmentation(0).scattered_frames();
            let (now, a) = (m.now, m.a);
            let compactor = &mut m.compactor;
            let poll = rule.poll(now, scattered, 100, || {
                compactor.plan(now, a, 1, Compacts::Daemon)
            });
            let mut gained = 0;
            while gained < poll.blocks.min(8) {
                let plan = m.plan(1).filter(|&plan| rule.pays(m.now, plan));
                if plan.is_none() || m.empty() != Some(true) {
                    break;
                }
                gained += 1;
            }
            rule.worked(m.now, m.now - now, gained);
            let report = reporter.poll(m.now, m.a, &mut host);
            let next = poll.next.into_iter().chain(report.next).min();
            let Some(next) = next else { break };
            m.now = next.max(m.now + Duration::from_millis(1));
        }
        let stays = m.a.fragmentation(0).scattered_frames();
        assert!(stays < PAGEBLOCK_FRAMES, "{stays} frames in pieces");
        assert!(host.0 * 100 >= free * 95, "{} of {free} frames", host.0);
        assert!(m.moved <= host.0 / 2, "{} moves for {}", m.moved, host.0);
        assert!(m.now - start < Duration::from_secs(15), "and it sleeps");
        assert_eq!(free, (BLOCKS * 3 / 4) * PAGEBLOCK_FRAMES);
        assert!(free > 300 * MIB);
    });
}

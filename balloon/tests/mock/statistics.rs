//! The statistics queue.

use crate::transport::Machine;
use ebb_balloon::{Features, Options, STAT_TAGS, Stats, Work};

fn options(stats: Stats) -> Options {
    Options {
        stats: Some(stats),
        ..Options::default()
    }
}

fn all_from(first: u64) -> Stats {
    let mut value = first..;
    let mut next = || value.next();
    Stats {
        swap_in_bytes: next(),
        swap_out_bytes: next(),
        major_faults: next(),
        minor_faults: next(),
        free_bytes: next(),
        total_bytes: next(),
        available_bytes: next(),
        cache_bytes: next(),
        huge_page_allocations: next(),
        huge_page_failures: next(),
    }
}

#[test]
fn tags_are_those_of_the_standard() {
    let machine = Machine::new(Features::STATS_VQ);
    let mut driver = machine.start(options(all_from(100))).unwrap();
    let expected = |first: u64| (0..STAT_TAGS as u16).map(move |tag| (tag, first + u64::from(tag)));
    assert!(machine.device().stats[0].iter().copied().eq(expected(100)));
    for round in 1..50 {
        // `collect` is not called before the device asks.
        assert_eq!(driver.answer_stats(|| panic!("not asked")), Ok(false));
        machine.device().ask_stats();
        assert_eq!(driver.ack_interrupt(), Work::STATS);
        let first = u64::MAX - 100 - round;
        assert_eq!(driver.answer_stats(|| all_from(first)), Ok(true));
        assert!(
            machine
                .device()
                .stats
                .pop()
                .unwrap()
                .iter()
                .copied()
                .eq(expected(first))
        );
    }
}

#[test]
fn the_subset_never_changes() {
    let machine = Machine::new(Features::STATS_VQ);
    let first = Stats {
        free_bytes: Some(1),
        cache_bytes: Some(2),
        ..Stats::default()
    };
    let mut driver = machine.start(options(first)).unwrap();
    machine.device().ask_stats();
    let other = Stats {
        free_bytes: Some(3),
        major_faults: Some(4),
        ..Stats::default()
    };
    driver.answer_stats(|| other).unwrap();
    assert_eq!(machine.device().stats, [[(4, 1), (7, 2)], [(4, 3), (7, 2)]]);
}

#[test]
fn without_the_queue_nothing_happens() {
    for machine in [
        Machine::new(Features::empty()),
        Machine::new(Features::STATS_VQ),
    ] {
        let mut driver = machine.driver();
        assert_eq!(driver.answer_stats(|| panic!("not asked")), Ok(false));
        assert!(machine.device().stats.is_empty());
    }
}

//! Compares the exchange with a naive table of the state of each frame, step by step.

use super::pool::Pool;
use super::simulated::Simulated;
use proptest::prelude::*;
use std::vec::Vec;

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    AddGiant,
    GiveBack {
        place: usize,
        pages: usize,
        supply: u64,
    },
    GiveBackGiant(usize),
    Demote(usize),
    Relieve,
    Fill(usize),
    Release {
        place: usize,
        frames: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let place = || 0..1000usize;
    prop_oneof![
        4 => (1..9usize).prop_map(Step::Add),
        2 => Just(Step::AddGiant),
        4 => (place(), 1..9usize, prop_oneof![Just(0), Just(40)])
            .prop_map(|(place, pages, supply)| Step::GiveBack { place, pages, supply }),
        2 => place().prop_map(Step::GiveBackGiant),
        1 => place().prop_map(Step::Demote),
        1 => Just(Step::Relieve),
        2 => prop_oneof![1..20usize, Just(10_000)].prop_map(Step::Fill),
        3 => (place(), prop_oneof![1..20usize, 20..400usize])
            .prop_map(|(place, frames)| Step::Release { place, frames }),
    ]
}

/// Replays `steps` on a machine of `giants` pages of 1 GiB, whose allocator chooses frames by
/// `seed`.
fn replay<const E: usize, const P: usize>(giants: usize, seed: u64, steps: &[Step]) {
    let frames = giants * Simulated::<E, P>::IN_GIANT;
    let machine = Simulated::<E, P>::new(frames, seed);
    let mut pool = Pool::new(&machine);
    for step in steps {
        match *step {
            Step::Add(pages) => pool.add(pages, E),
            Step::AddGiant => pool.add(1, E * E),
            Step::GiveBack {
                place,
                pages,
                supply,
            } => pool.give_back(place, pages, supply),
            Step::GiveBackGiant(place) => pool.give_back_giant(place),
            Step::Demote(place) => pool.demote(place),
            Step::Relieve => pool.relieve(),
            Step::Fill(frames) => pool.fill(frames),
            Step::Release { place, frames } => pool.release(place, frames),
        }
        pool.check();
    }
    pool.empty();
}

/// There are more runs of frames than are kept. The flush that makes room for them comes in the
/// middle of a block.
#[test]
fn a_flush_in_the_middle_of_a_block_is_not_its_last() {
    for blocks in 7..16 {
        let machine = Simulated::<32, 8>::new(4096, 0);
        let mut pool = Pool::new(&machine);
        pool.add(blocks, 32);
        pool.fill(4096);
        // The free frames are then single: no two are adjacent.
        pool.release_even(blocks * 10);
        pool.give_back(0, blocks, 0);
        assert!(!pool.carries());
        pool.add(blocks, 32);
        assert_eq!(pool.shared_pages(), blocks);
        pool.check();
        pool.empty();
    }
}

/// Carrying blocks are made whole together: the part of one does not move into the free frames of
/// another.
#[test]
fn no_block_that_carries_takes_another_in() {
    for seed in 0..8 {
        let machine = Simulated::<32, 8>::new(4096, seed);
        let mut pool = Pool::new(&machine);
        pool.add(8, 32);
        pool.fill(4096);
        pool.give_back(0, 8, 0);
        assert!(pool.carries());
        // The number of frames that all blocks carry together, including tables.
        pool.release(0, 8 * 9);
        pool.relieve();
        assert!(!pool.carries());
        pool.check();
        pool.empty();
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_is_lost_and_each_says_whose_it_is(seed in 0..u64::MAX, steps in steps()) {
        replay::<8, 2>(6, seed, &steps);
    }

    #[test]
    fn nor_with_as_many_pages_to_a_block_as_there_are(seed in 0..u64::MAX, steps in steps()) {
        replay::<32, 8>(4, seed, &steps);
    }
}

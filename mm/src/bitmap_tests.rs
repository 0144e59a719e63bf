//! Compares the orders of runs that [`Line`] finds with those that a search bit by bit finds.

use super::*;

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random >> 32
}

/// Returns a random `u64`: full, or with one free run of an order up to `most`. If `most` is above
/// 6, it may also be any value.
fn word(random: &mut u64, most: u64) -> u64 {
    let order = next(random) % (most.min(6) + 1);
    let first = (next(random) % (64 >> order)) << order;
    let one = !(run(u8::try_from(order).unwrap_or(0)) << first);
    let any = next(random) | next(random) << 32;
    match next(random) % 8 {
        0 | 1 => !0,
        2 | 3 if most > 6 => 0,
        4 if most > 6 => any,
        5 if most > 6 => any & (next(random) | next(random) << 32),
        6 => one | any,
        _ => one,
    }
}

/// Returns the largest order below 9 of an aligned free run, or 0 if no frame is free.
fn naive(words: &[u64; WORDS]) -> u8 {
    let frames = WORDS * WORD_FRAMES as usize;
    let is_free = |frame: usize| words[frame / 64] >> (frame % 64) & 1 == 0;
    let has = |order: &u8| {
        let size = 1_usize << *order;
        let mut starts = (0..frames).step_by(size);
        starts.any(|first| (first..first + size).all(is_free))
    };
    (0..Order::PAGEBLOCK.get()).rev().find(has).unwrap_or(0)
}

#[test]
fn the_run_bound_of_a_line_is_that_of_its_largest_run() {
    let mut random = 0x2545_f491_4f6c_dd1d;
    let mut seen = [0; Order::PAGEBLOCK.get() as usize];
    for round in 0..20_000 {
        let words = core::array::from_fn(|_| word(&mut random, round % 9));
        let line = Line {
            words: words.map(AtomicU64::new),
        };
        let order = naive(&words);
        seen[usize::from(order)] += 1;
        assert_eq!(line.run_bound(), RunBound::of(order), "{words:#x?}");
        let parts = (0..WORDS).map(|word| line.run_bound_of(word, words[word]));
        assert_eq!(parts.max(), Some(RunBound::of(order)), "{words:#x?}");
        for order in (0..Order::PAGEBLOCK.get()).filter_map(Order::new) {
            let has = line.has_run(order);
            let full = words.iter().all(|&word| word == !0);
            assert_eq!(has, !full && order.get() <= naive(&words));
        }
    }
    assert!(seen.iter().all(|&lines| lines > 10), "{seen:?}");
}

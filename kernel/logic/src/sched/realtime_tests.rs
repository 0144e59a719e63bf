//! Real-time arithmetic.

use super::realtime::{Places, Share, Spent, priority_of};
use proptest::prelude::*;

const SHARE: Share = Share {
    period_ns: 1000,
    runtime_ns: 950,
};

#[test]
fn priorities_come_first_then_places() {
    let mut places = Places::new();
    let low = places.key(1, false);
    let first = places.key(50, false);
    let second = places.key(50, false);
    let before = places.key(50, true);
    let high = places.key(99, false);
    let mut keys = [low, first, second, before, high];
    keys.sort_unstable();
    assert_eq!(keys, [high, before, first, second, low]);
    assert_eq!(keys.map(priority_of), [99, 50, 50, 50, 1]);
}

#[test]
fn a_period_forgives_one_runtime() {
    let spent = Spent {
        period_end_ns: 1000,
        ran_ns: 960,
    };
    assert_eq!(spent.left_ns(SHARE), Some(0));
    assert_eq!(spent.at(999, SHARE), spent);
    let next = spent.at(1000, SHARE);
    assert_eq!((next.period_end_ns, next.ran_ns), (2000, 10));
    assert_eq!(next.left_ns(SHARE), Some(940));
    let later = spent.at(5500, SHARE);
    assert_eq!((later.period_end_ns, later.ran_ns), (6000, 0));
    let all = Share {
        runtime_ns: u64::MAX,
        ..SHARE
    };
    assert_eq!(spent.left_ns(all), None);
}

#[test]
fn a_thread_that_was_alone_owes_no_more_than_a_period() {
    // A thread computed for sixty periods and is charged once, when another thread came.
    let spent = Spent::default().charged(60_500, 60_500, SHARE);
    assert_eq!((spent.period_end_ns, spent.ran_ns), (61_000, 500));
    // A thread is charged a whole period in each period.
    let mut spent = Spent::default();
    for period in 1..=60 {
        spent = spent.charged(period * 1000 - 1, 1000, SHARE);
    }
    assert!(spent.ran_ns <= SHARE.runtime_ns + 1000, "{spent:?}");
    let next = spent.at(spent.period_end_ns + 1000, SHARE);
    assert!(next.left_ns(SHARE) > Some(0), "{next:?}");
}

proptest! {
    /// A thread that runs whenever it may gets exactly its runtime of each period.
    #[test]
    fn no_more_than_the_share(runtime in 1..1000_u64, step in 1..7_u64) {
        let share = Share { period_ns: 1000, runtime_ns: runtime };
        let (mut spent, mut ran, mut now) = (Spent::default(), 0, 0);
        while now < 100_000 {
            spent = spent.at(now, share);
            if spent.left_ns(share) != Some(0) {
                spent.ran_ns += step;
                ran += step;
            }
            now += step;
        }
        prop_assert!(ran <= 100 * runtime + 8, "{ran}");
        prop_assert!(ran + 100 * 8 >= 100 * runtime, "{ran}");
    }
}

//! Searches upwards and downwards find exactly the items that were announced.

use super::*;
use crate::ids::{TreeId, each};
use proptest::prelude::*;
use std::{collections::BTreeSet, vec::Vec};

const KINDS: usize = 3;

/// Calls `test` with an empty map of `items` items.
fn with(items: usize, test: impl FnOnce(&Map<'_, TreeId>)) {
    let zero = |words: usize| -> Vec<AtomicU64> { (0..words).map(|_| AtomicU64::new(0)).collect() };
    let levels = lengths(items, KINDS).map(zero);
    test(&Map::new(
        levels.each_ref().map(Vec::as_slice),
        KINDS,
        items,
    ));
}

/// Returns numbers of items that fill one level, two levels, three levels, and more.
fn items() -> impl Strategy<Value = usize> {
    prop_oneof![1..70_usize, 60..5000_usize, 4000..300_000_usize]
}

proptest! {
    #[test]
    fn what_is_announced_is_found(
        items in items(),
        chosen in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        asked in prop::collection::vec(any::<prop::sample::Index>(), 20),
        inverted in any::<bool>(),
    ) {
        let kind = Kind { index: 1, inverted };
        let nth = |index: &prop::sample::Index| TreeId::new(index.index(items));
        let chosen: BTreeSet<_> = chosen.iter().map(nth).collect();
        with(items, |map| {
            let (first, end) = (TreeId::FIRST, TreeId::new(items));
            if inverted {
                // Of an inverted kind all items are present at the start.
                for item in each(first..end).filter(|item| !chosen.contains(item)) {
                    map.retire(kind, item, || false);
                }
            }
            for &item in &chosen {
                map.announce(kind, item);
            }
            for asked in asked.iter().map(nth).chain([first, end]) {
                assert_eq!(map.next(kind, asked), chosen.range(asked..).next().copied());
                assert_eq!(map.last(kind, asked), chosen.range(..asked).next_back().copied());
            }
        });
    }
}

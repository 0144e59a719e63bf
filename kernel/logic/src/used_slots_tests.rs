use super::used_slots::UsedSlots;
use proptest::prelude::{any, prop, prop_assert_eq, proptest};
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn answers_as_a_sorted_set_does(
        changes in prop::collection::vec((any::<bool>(), 0_usize..9000), 0..200),
        full in 0_usize..9000,
        from in 0_usize..10_000,
    ) {
        let mut slots = UsedSlots::new();
        slots.grow_to(9000).unwrap();
        let mut naive: BTreeSet<usize> = (0..full).collect();
        naive.iter().for_each(|&slot| slots.set(slot));
        for (set, slot) in changes {
            if set {
                slots.set(slot);
                naive.insert(slot);
            } else {
                slots.clear(slot);
                naive.remove(&slot);
            }
        }
        prop_assert_eq!(slots.first_free(from), (from..).find(|slot| !naive.contains(slot)).unwrap());
        prop_assert_eq!(slots.first_used(from), naive.range(from..).next().copied());
        let mut copy = UsedSlots::new();
        copy.grow_to(slots.end()).unwrap();
        copy.copy_from(&slots, slots.end());
        prop_assert_eq!(copy.first_free(from), slots.first_free(from));
        prop_assert_eq!(copy.first_used(from), slots.first_used(from));
        prop_assert_eq!(slots.end(), naive.last().map_or(0, |last| last + 1));
    }
}

#[test]
fn there_is_always_a_free_slot_behind_the_last() {
    let mut slots = UsedSlots::new();
    assert_eq!(
        (slots.first_free(0), slots.first_free(77), slots.end()),
        (0, 77, 0)
    );
    slots.grow_to(4096 * 2).unwrap();
    (0..4096 * 2).for_each(|slot| slots.set(slot));
    assert_eq!(slots.first_free(0), 4096 * 2);
    slots.clear(4095);
    assert_eq!(
        (slots.first_free(1), slots.first_free(4096)),
        (4095, 4096 * 2)
    );
}

//! Compares slabs with a set of numbers.

use crate::slab::{MAX_SIZE, Objects, SIZES, SLAB_BYTES, capacity, class_of, object_at};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

#[test]
fn the_smallest_class_that_does_is_taken_and_none_beyond_the_largest() {
    for size in 0..=MAX_SIZE + 64 {
        for align in [1, 8, 16, 64, 2048] {
            let fits = |&class: &usize| SIZES[class] >= size && SIZES[class].is_multiple_of(align);
            let first = (0..SIZES.len()).find(fits);
            assert_eq!(class_of(size, align), first, "{size} aligned to {align}");
        }
    }
}

#[test]
fn an_object_begins_where_its_number_says_and_nowhere_else() {
    for (class, size) in SIZES.into_iter().enumerate() {
        for offset in 0..4096_u16 {
            let place = usize::from(offset);
            let object = (place % size == 0).then_some(place / size);
            assert_eq!(object_at(class, offset).map(usize::from), object);
        }
    }
}

#[test]
fn classes_hold_what_they_are_for() {
    for size in 1..=MAX_SIZE {
        for align in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048] {
            let Some(class) = class_of(size, align) else {
                assert!(
                    size.max(align) > MAX_SIZE / 2,
                    "{size} aligned to {align} has no class"
                );
                continue;
            };
            assert!(SIZES[class] >= size);
            for object in 0..usize::from(capacity(class)) {
                assert_eq!(object * SIZES[class] % align, 0);
                assert!((object + 1) * SIZES[class] <= SLAB_BYTES);
            }
        }
    }
}

proptest! {
    #[test]
    fn hands_each_object_out_once(
        class in 0..SIZES.len(),
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..2000),
    ) {
        let room = capacity(class);
        let mut links = std::vec![0u16; usize::from(room)];
        let mut word = 0;
        let mut used: BTreeSet<u16> = BTreeSet::new();
        for (take, which) in steps {
            let mut objects = Objects::from_word(word);
            if take {
                match objects.take(room, |object| links[usize::from(object)]) {
                    Some(object) => prop_assert!(object < room && used.insert(object)),
                    None => prop_assert_eq!(used.len(), usize::from(room)),
                }
            } else if !used.is_empty() {
                let all: Vec<u16> = used.iter().copied().collect();
                let object = *which.get(&all);
                used.remove(&object);
                objects.put(object, |next| links[usize::from(object)] = next);
            }
            prop_assert_eq!(usize::from(objects.used()), used.len());
            word = objects.to_word();
        }
    }
}

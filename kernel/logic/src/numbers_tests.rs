//! Compares process numbers with a set.

use super::numbers::{GROUP, Numbers, PID_MAX, RESERVED, USUAL_LIMIT};
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeSet;

#[test]
fn new_numbers_are_below_the_limit() {
    let mut numbers = Numbers::new();
    for _ in 0..500 {
        numbers.take().expect("there are more");
    }
    numbers.set_limit(310);
    assert_eq!(numbers.take(), None, "all below are in use");
    numbers.give_back(305);
    numbers.give_back(400);
    assert_eq!(numbers.take(), Some(305));
    assert_eq!(numbers.take(), None);
    numbers.set_limit(PID_MAX);
    assert_eq!(numbers.take(), Some(400));
}

#[test]
fn the_first_numbers_are_used_once() {
    let mut numbers = Numbers::new();
    numbers.set_limit(RESERVED + 1);
    for expected in 1..=RESERVED {
        assert_eq!(numbers.take(), Some(expected));
    }
    for free in [1, 64, RESERVED - 1] {
        numbers.give_back(free);
        assert_eq!(numbers.take(), None);
    }
    numbers.give_back(RESERVED);
    assert_eq!(numbers.take(), Some(RESERVED));
}

#[test]
fn all_are_handed_out_once() {
    let mut numbers = Box::new(Numbers::new());
    for expected in 1..USUAL_LIMIT {
        assert_eq!(numbers.take(), Some(expected));
    }
    assert_eq!(numbers.take(), None);
    numbers.give_back(777);
    assert_eq!(
        numbers.take(),
        Some(777),
        "found behind the place where the search begins"
    );
    assert_eq!(numbers.count(), USUAL_LIMIT - 1);
}

#[test]
fn a_higher_limit_gives_higher_numbers() {
    let mut numbers = Box::new(Numbers::new());
    for _ in 1..USUAL_LIMIT {
        numbers.take().expect("there are more");
    }
    numbers.set_limit(PID_MAX);
    // The search continues where it was, and skips the numbers in use when it reaches the start
    // again.
    for expected in USUAL_LIMIT..USUAL_LIMIT + 3 * GROUP {
        assert_eq!(numbers.take(), Some(expected));
    }
    numbers.give_back(USUAL_LIMIT + 5);
    assert!(!numbers.contains(USUAL_LIMIT + 5));
    numbers.set_limit(USUAL_LIMIT);
    assert_eq!(numbers.take(), None);
    numbers.give_back(900);
    assert_eq!(numbers.take(), Some(900));
}

#[test]
fn the_last_number_is_handed_out() {
    let mut numbers = Box::new(Numbers::new());
    numbers.set_limit(PID_MAX);
    for expected in 1..PID_MAX {
        assert_eq!(numbers.take(), Some(expected));
        numbers.give_back(expected);
    }
    assert_eq!(numbers.take(), Some(RESERVED));
    assert_eq!(numbers.count(), 1);
}

#[test]
fn a_number_comes_back_late() {
    let mut numbers = Box::new(Numbers::new());
    let first = numbers.take().unwrap();
    numbers.give_back(first);
    for _ in 0..1000 {
        let next = numbers.take().unwrap();
        assert_ne!(next, first);
        numbers.give_back(next);
    }
}

#[test]
#[should_panic(expected = "is not in use")]
fn giving_back_twice_is_a_bug() {
    let mut numbers = Box::new(Numbers::new());
    let number = numbers.take().unwrap();
    numbers.give_back(number);
    numbers.give_back(number);
}

proptest! {
    #[test]
    fn it_does_what_a_set_does(takes in prop::collection::vec(any::<Option<u16>>(), 0..500)) {
        let mut numbers = Box::new(Numbers::new());
        let mut model = BTreeSet::new();
        for take in takes {
            match take {
                None => {
                    let number = numbers.take().unwrap();
                    prop_assert!((1..USUAL_LIMIT).contains(&number));
                    prop_assert!(model.insert(number));
                }
                Some(pick) if !model.is_empty() => {
                    let number = *model.iter().nth(pick as usize % model.len()).unwrap();
                    model.remove(&number);
                    numbers.give_back(number);
                }
                Some(_) => {}
            }
            prop_assert_eq!(numbers.count() as usize, model.len());
            for &number in &model {
                prop_assert!(numbers.contains(number));
            }
        }
    }
}

#[test]
fn the_last_number_stays_when_the_limit_changes() {
    let mut numbers = Numbers::new();
    assert_eq!(numbers.last(), 0);
    for _ in 0..400 {
        numbers.take();
    }
    for limit in [300, 5000, 2] {
        numbers.set_limit(limit);
        assert_eq!(numbers.last(), 400, "{limit}");
    }
    numbers.set_limit(5000);
    assert_eq!(numbers.take(), Some(401));
    assert_eq!(numbers.last(), 401);
}

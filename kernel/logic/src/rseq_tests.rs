//! A thread is moved out of a section exactly if it was in it, and never to an address in it.

use super::rseq::{Section, Senseless};
use proptest::prelude::*;

const END: u64 = 1 << 20;

fn section(start: u64, length: u64, abort: u64) -> Section {
    Section {
        start,
        length,
        abort,
        ..Section::default()
    }
}

#[test]
fn the_borders_are_the_first_byte_and_the_one_behind_the_last() {
    let it = section(100, 10, 50);
    for (next, inside) in [(99, false), (100, true), (109, true), (110, false)] {
        assert_eq!(it.interrupts(next, END), Ok(inside));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for it in [
        section(100, 10, 105),
        section(100, 10, END),
        section(END, 10, 50),
        section(END - 10, 10, 50),
        section(100, u64::MAX, 50),
        Section {
            version: 1,
            ..section(100, 10, 50)
        },
    ] {
        assert_eq!(it.interrupts(0, END), Err(Senseless), "{it:?}");
    }
    let flagged = Section {
        flags: 1,
        ..section(100, 10, 50)
    };
    assert_eq!(flagged.interrupts(100, END), Err(Senseless));
    assert_eq!(flagged.interrupts(99, END), Ok(false));
}

proptest! {
    #[test]
    fn who_is_sent_away_does_not_come_back(start: u64, length: u64, abort: u64, next: u64) {
        let small = |value: u64| value % (2 * END);
        let it = section(small(start), small(length), small(abort));
        if it.interrupts(small(next), END) == Ok(true) {
            prop_assert!((it.start..it.start + it.length).contains(&small(next)));
            prop_assert_eq!(it.interrupts(it.abort, END), Ok(false));
        }
    }
}

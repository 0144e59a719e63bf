//! Compares strings in pieces with a list of strings, and the room for them with Linux's.

use super::strings::{Strings, room};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    DropFirst,
    /// Inserts a script's interpreter and argument, of these two lengths, before all others.
    Before(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![8 => 0..40_usize, 1 => 60_000..140_000_usize];
    prop_oneof![
        6 => length.clone().prop_map(Step::Push),
        2 => Just(Step::DropFirst),
        1 => (length, 0..9_usize).prop_map(|(a, b)| Step::Before(a, b)),
    ]
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + (at % 23) as u8).collect()
}

proptest! {
    #[test]
    fn they_are_what_a_list_is(steps in prop::collection::vec(step(), 0..60)) {
        let mut strings = Strings::default();
        let mut model: Vec<Vec<u8>> = Vec::new();
        for step in steps {
            match step {
                Step::Push(length) => {
                    strings.push(&text(length)).unwrap();
                    model.push(text(length));
                }
                Step::DropFirst => {
                    strings.drop_first();
                    if !model.is_empty() {
                        model.remove(0);
                    }
                }
                Step::Before(a, b) => {
                    let mut longer = Strings::default();
                    longer.push(&text(a)).unwrap();
                    longer.push(&text(b)).unwrap();
                    longer.append(&mut strings).unwrap();
                    strings = longer;
                    model.splice(0..0, [text(a), text(b)]);
                }
            }
            prop_assert_eq!(strings.count(), model.len());
            let all: Vec<u8> = strings.pieces().flatten().copied().collect();
            let expected: Vec<u8> = model.iter().flat_map(|one| [one.as_slice(), &[0]].concat()).collect();
            prop_assert_eq!(strings.bytes(), all.len());
            prop_assert!(all == expected);
            let mut at = 1000;
            let mut starts = vec![];
            for one in &model {
                starts.push(at);
                at += one.len() as u64 + 1;
            }
            prop_assert_eq!(strings.addresses(1000).collect::<Vec<_>>(), starts);
            let first = model.first().map_or(&[][..], |first| first.as_slice());
            prop_assert!(first.starts_with(strings.first()));
            prop_assert_eq!(first.is_empty(), strings.first().is_empty());
        }
    }
}

#[test]
fn the_room_is_linuxs() {
    const KIB: u64 = 1 << 10;
    for (stack, args, env, expected) in [
        (u64::MAX, 0, 0, Some((6 << 20) - 8)),
        (u64::MAX, 1, 0, Some((6 << 20) - 8)),
        (8192 * KIB, 1, 1, Some((2 << 20) - 16)),
        (64 * KIB, 1, 0, Some((128 << 10) - 8)),
        (0, 2, 2, Some((128 << 10) - 32)),
        (0, 16_383, 0, Some(8)),
        (0, 16_384, 0, None),
        (0, 16_000, 1000, None),
        (u64::MAX, 0x7fff_ffff, 0x7fff_ffff, None),
    ] {
        assert_eq!(room(stack, args, env), expected, "{stack} {args} {env}");
    }
}

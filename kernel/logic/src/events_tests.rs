//! Events are read in the order of their arrival, except for repeated events and those beyond the
//! limit.

use super::events::{Event, Events, HEADER, TooLarge};
use proptest::prelude::*;
use std::prelude::v1::*;
use std::vec;

fn event(watch: i32, mask: u32, name: &[u8]) -> Event<'_> {
    Event {
        watch,
        mask,
        cookie: 0,
        name,
    }
}

/// Takes the next event out of `queue`. Returns its watch, its mask and its name, or `None` if
/// `queue` is empty.
fn read(queue: &mut Events) -> Option<(i32, u32, Vec<u8>)> {
    let bytes = queue.take(usize::MAX)?.expect("there is room");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(word(12) as usize, bytes.len() - HEADER);
    let name = bytes[HEADER..].iter().copied().take_while(|&b| b != 0);
    Some((word(0).cast_signed(), word(4), name.collect()))
}

#[test]
fn names_are_padded_with_one_nul_at_least() {
    let mut queue = Events::new();
    for (length, bytes) in [(0, 16), (1, 32), (15, 32), (16, 48), (255, 16 + 256)] {
        queue.add(&event(1, 2, &vec![b'x'; length]), 10);
        assert_eq!(queue.bytes(), bytes);
        assert_eq!(queue.take(bytes - 1), Some(Err(TooLarge)));
        assert_eq!(queue.take(bytes).unwrap().unwrap().len(), bytes);
    }
}

#[test]
fn what_is_said_twice_in_a_row_is_kept_once() {
    let mut queue = Events::new();
    assert!(queue.add(&event(1, 2, b"a"), 10));
    assert!(!queue.add(&event(1, 2, b"a"), 10));
    let moved = Event {
        cookie: 7,
        ..event(1, 2, b"a")
    };
    assert!(!queue.add(&moved, 10));
    for other in [
        event(1, 2, b"b"),
        event(1, 4, b"b"),
        event(2, 4, b"b"),
        event(2, 4, b""),
    ] {
        assert!(queue.add(&other, 10));
    }
    for _ in 0..2 {
        assert!(queue.add(&event(1, 0x8000, b""), 10));
    }
}

#[test]
fn loss_is_told_where_it_was_and_without_memory() {
    let mut queue = Events::new();
    // With a limit of 0 every event is lost, as when memory is short.
    assert!(queue.add(&event(1, 2, b"a"), 0));
    assert!(!queue.add(&event(1, 2, b"a"), 0));
    assert!(!queue.is_empty());
    assert_eq!(queue.take(HEADER - 1), Some(Err(TooLarge)));
    assert_eq!(read(&mut queue), Some((-1, 0x4000, Vec::new())));
    assert!(queue.add(&event(1, 2, b"a"), 9));
    assert!(queue.add(&event(1, 2, b"b"), 0));
    // The event does not equal the last one, which is the report of the loss.
    assert!(queue.add(&event(1, 2, b"a"), 9));
    assert_eq!(queue.bytes(), 2 * 32 + HEADER);
    assert_eq!(read(&mut queue), Some((1, 2, b"a".to_vec())));
    assert_eq!(read(&mut queue), Some((-1, 0x4000, Vec::new())));
    assert_eq!(read(&mut queue), Some((1, 2, b"a".to_vec())));
    assert_eq!(read(&mut queue), None);
}

proptest! {
    #[test]
    fn a_full_queue_says_so_once(count in 0_usize..40, limit in 0_usize..20) {
        let mut queue = Events::new();
        for n in 0..count {
            let number = i32::try_from(n).unwrap();
            prop_assert_eq!(queue.add(&event(number, 2, b"x"), limit), n <= limit);
        }
        for n in 0..count.min(limit) {
            let number = i32::try_from(n).unwrap();
            prop_assert_eq!(read(&mut queue), Some((number, 2, b"x".to_vec())));
        }
        if count > limit {
            prop_assert_eq!(read(&mut queue), Some((-1, 0x4000, Vec::new())));
        }
        prop_assert_eq!(read(&mut queue), None);
        prop_assert!(queue.is_empty() && queue.bytes() == 0);
        // The loss is reported again after its report was read.
        for n in 0..=limit {
            queue.add(&event(i32::try_from(n).unwrap(), 2, b""), limit);
        }
        prop_assert_eq!(queue.bytes(), (limit + 1) * HEADER);
    }
}

//! Compares the list with a deque.

use super::list::{Linked, Links, List, Sift};
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::vec::Vec;

struct Item {
    links: Links<Item>,
    number: usize,
}

// SAFETY: `links` always returns the same field, which only the list uses.
unsafe impl Linked for Item {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

fn item(number: usize) -> Box<Item> {
    Box::new(Item {
        links: Links::new(),
        number,
    })
}

#[derive(Clone, Debug)]
enum Event {
    Front,
    Back,
    Remove(usize),
    /// Removes items whose number has the first value as its remainder modulo 3, and stops after as
    /// many items as the second value says.
    Sift(usize, usize),
    /// Moves items whose number has this remainder modulo 3 to the end.
    Append(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Front),
        3 => Just(Event::Back),
        2 => (0..64_usize).prop_map(Event::Remove),
        1 => (0..3_usize, 0..20_usize).prop_map(|(rest, most)| Event::Sift(rest, most)),
        1 => (0..3_usize).prop_map(Event::Append),
    ]
}

proptest! {
    #[test]
    fn it_does_what_a_deque_does(events in prop::collection::vec(event(), 0..300)) {
        let mut list = List::new();
        let mut items: Vec<Box<Item>> = Vec::new();
        let mut model = VecDeque::new();
        for event in events {
            match event {
                Event::Front => {
                    let number = items.len();
                    items.push(item(number));
                    model.push_front(number);
                    // SAFETY: the item is new and boxed, and lives until the end of the test.
                    unsafe { list.push_front(NonNull::from(&*items[number])) };
                }
                Event::Back => {
                    let number = items.len();
                    items.push(item(number));
                    model.push_back(number);
                    // SAFETY: the item is new and boxed, and lives until the end of the test.
                    unsafe { list.push_back(NonNull::from(&*items[number])) };
                }
                Event::Remove(number) => {
                    if let Some(item) = items.get(number) {
                        let place = model.iter().position(|&other| other == number);
                        // SAFETY: the item is valid, and in this list or in none.
                        unsafe {
                            prop_assert_eq!(list.contains(NonNull::from(&**item)), place.is_some());
                            prop_assert_eq!(list.remove(NonNull::from(&**item)), place.is_some());
                        }
                        if let Some(place) = place {
                            model.remove(place);
                        }
                    }
                }
                Event::Sift(rest, most) => {
                    let mut taken = Vec::new();
                    let mut count = 0;
                    list.sift(
                        |item| {
                            if item.number % 3 != rest {
                                Sift::Keep
                            } else if count == most {
                                Sift::Stop
                            } else {
                                count += 1;
                                Sift::Take
                            }
                        },
                        // SAFETY: items live until the end of the test.
                        |item| taken.push(unsafe { item.as_ref() }.number),
                    );
                    let expected: Vec<usize> =
                        model.iter().copied().filter(|n| n % 3 == rest).take(most).collect();
                    model.retain(|n| !expected.contains(n));
                    prop_assert_eq!(taken, expected);
                }
                Event::Append(rest) => {
                    let mut moved = List::new();
                    list.sift(
                        |item| if item.number % 3 == rest { Sift::Take } else { Sift::Keep },
                        // SAFETY: the item has left its list, and lives until the end of the test.
                        |item| unsafe { moved.push_back(item) },
                    );
                    list.append(&mut moved);
                    prop_assert!(moved.is_empty());
                    let (behind, kept): (Vec<usize>, Vec<usize>) =
                        model.iter().partition(|&n| n % 3 == rest);
                    model = kept.into_iter().chain(behind).collect();
                }
            }
            let mut seen = Vec::new();
            list.sift(
                |item| {
                    seen.push(item.number);
                    Sift::Keep
                },
                |_| {},
            );
            prop_assert_eq!(&seen, &model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(list.is_empty(), model.is_empty());
        }
    }
}

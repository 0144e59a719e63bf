//! Compares the heap with a sorted list.

use super::heap::{Heap, Linked, Links};
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::vec::Vec;

struct Item {
    links: Links<Item>,
    number: usize,
}

// SAFETY: `links` always returns the same field, which only the heap uses.
unsafe impl Linked for Item {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

#[derive(Clone, Debug)]
enum Event {
    Push(u64),
    Pop,
    Remove(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..50_u64).prop_map(Event::Push),
        2 => Just(Event::Pop),
        2 => (0..64_usize).prop_map(Event::Remove),
    ]
}

proptest! {
    #[test]
    fn it_does_what_a_sorted_list_does(events in prop::collection::vec(event(), 0..300)) {
        let mut heap = Heap::new();
        let mut items: Vec<Box<Item>> = Vec::new();
        let mut model: BTreeSet<(u64, usize)> = BTreeSet::new();
        for event in events {
            match event {
                Event::Push(key) => {
                    let number = items.len();
                    items.push(Box::new(Item { links: Links::new(), number }));
                    model.insert((key, number));
                    // SAFETY: the item is new and boxed, and lives until the end of the test.
                    unsafe { heap.push(NonNull::from(&*items[number]), key) };
                }
                Event::Pop => {
                    let least = heap.least();
                    prop_assert_eq!(least, model.first().map(|&(key, _)| key));
                    match heap.pop() {
                        None => prop_assert!(model.is_empty()),
                        Some(item) => {
                            // SAFETY: items live until the end of the test.
                            let number = unsafe { item.as_ref() }.number;
                            // If several items have the least key, any of them may come first.
                            prop_assert!(model.remove(&(least.unwrap_or(0), number)));
                        }
                    }
                }
                Event::Remove(number) if number < items.len() => {
                    let was = model.iter().find(|&&(_, other)| other == number).copied();
                    // SAFETY: the item is in this heap or in none.
                    let removed = unsafe { heap.remove(NonNull::from(&*items[number])) };
                    prop_assert_eq!(removed, was.is_some());
                    if let Some(was) = was {
                        model.remove(&was);
                    }
                }
                Event::Remove(_) => {}
            }
            prop_assert_eq!(heap.len(), model.len());
            prop_assert_eq!(heap.least(), model.first().map(|&(key, _)| key));
        }
    }
}

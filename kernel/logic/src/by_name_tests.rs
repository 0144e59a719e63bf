use super::by_name::{ByName, Named};
use proptest::prelude::{any, prop, prop_assert_eq, proptest};
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

#[derive(Debug)]
struct Thing(String, u32);

impl Named for Thing {
    fn name(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

proptest! {
    #[test]
    fn finds_what_a_map_finds(
        key in any::<u64>(),
        changes in prop::collection::vec((any::<bool>(), "[ab]{0,3}|file-00[0-9]{1,2}", any::<u32>()), 0..200),
    ) {
        let (mut set, mut naive) = (ByName::new(key), BTreeMap::new());
        for (put, name, value) in changes {
            prop_assert_eq!(set.get(name.as_bytes()).map(|thing: &Thing| thing.1), naive.get(&name).copied());
            if !put {
                prop_assert_eq!(set.remove(name.as_bytes()).map(|thing| thing.1), naive.remove(&name));
            } else if let Some(known) = set.get_mut(name.as_bytes()) {
                known.1 = value;
                naive.insert(name, value);
            } else {
                set.insert(Thing(name.clone(), value));
                naive.insert(name, value);
            }
            prop_assert_eq!((set.len(), set.is_empty()), (naive.len(), naive.is_empty()));
        }
        let mut all: Vec<_> = set.take_all().map(|thing| (thing.0, thing.1)).collect();
        all.sort();
        prop_assert_eq!(all, naive.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(set.len(), 0);
    }
}

#[test]
fn names_with_one_hash_are_told_apart() {
    let mut set = ByName::new(1);
    for (value, name) in (0..).zip(["one", "two", "three"]) {
        set.insert_at(7, Thing(name.into(), value));
    }
    let find =
        |set: &ByName<Thing>, name: &str| set.get_at(7, name.as_bytes()).map(|thing| thing.1);
    assert_eq!(find(&set, "two"), Some(1));
    assert_eq!(set.remove_at(7, b"one").map(|thing| thing.1), Some(0));
    assert!(set.remove_at(7, b"one").is_none());
    assert_eq!(
        ["one", "two", "three"].map(|name| find(&set, name)),
        [None, Some(1), Some(2)]
    );
    assert_eq!(set.remove_at(7, b"two").map(|thing| thing.1), Some(1));
    assert_eq!(set.remove_at(7, b"three").map(|thing| thing.1), Some(2));
    assert!(set.is_empty() && find(&set, "three").is_none());
}

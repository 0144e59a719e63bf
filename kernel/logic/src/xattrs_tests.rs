//! Attributes have the values set last, even if calls in between were refused.

use super::xattrs::{Attribute, MOST, Refused, When, Xattrs};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::prelude::v1::*;

fn attribute(name: u8, value: u8) -> Attribute {
    Attribute {
        name: vec![name].into(),
        value: vec![value; usize::from(value)].into(),
    }
}

#[test]
fn the_youngest_name_comes_first_and_a_change_keeps_its_place() {
    let mut all = Xattrs::default();
    for name in *b"abc" {
        assert!(
            all.set(attribute(name, 1), When::default())
                .unwrap()
                .is_none()
        );
    }
    all.set(attribute(b'b', 2), When::default()).unwrap();
    assert_eq!(all.names().collect::<Vec<_>>(), [b"c", b"b", b"a"]);
    assert_eq!(all.get(b"b"), Some(&[2, 2][..]));
}

#[test]
fn a_full_list_takes_no_more_and_its_attributes_can_change() {
    let numbered = |n: usize, value: usize| Attribute {
        name: n.to_le_bytes().into(),
        value: vec![0; value].into(),
    };
    let mut all = Xattrs::default();
    for n in 0..MOST {
        assert!(all.set(numbered(n, 1), When::default()).is_ok());
    }
    let refused = all.set(numbered(MOST, 1), When::default());
    assert_eq!(refused.unwrap_err().0, Refused::TooMany);
    assert!(all.set(numbered(7, 5), When::default()).is_ok());
    assert_eq!(all.bytes_of(&7_usize.to_le_bytes()), numbered(7, 5).bytes());
    assert!(all.remove(&7_usize.to_le_bytes()).is_some());
    assert_eq!(all.bytes_of(&7_usize.to_le_bytes()), 0);
    assert!(all.set(numbered(MOST, 1), When::default()).is_ok());
}

proptest! {
    #[test]
    fn is_a_map(steps in prop::collection::vec((0_u8..5, 0_u8..5, 0_u8..4, any::<bool>()), 0..60)) {
        let mut all = Xattrs::default();
        let mut model = BTreeMap::new();
        for (name, value, how, remove) in steps {
            if remove {
                let gone = all.remove(&[name]).map(|one| one.value.len());
                prop_assert_eq!(gone, model.remove(&name).map(usize::from));
                continue;
            }
            let when = When { create: how & 1 != 0, replace: how & 2 != 0 };
            let result = all.set(attribute(name, value), when);
            let there = model.contains_key(&name);
            match result {
                Ok(before) => {
                    prop_assert_eq!(before.is_some(), there);
                    model.insert(name, value);
                }
                Err((why, _)) => {
                    let expected = if there { Refused::Exists } else { Refused::Absent };
                    prop_assert_eq!(why, expected);
                    let asked = if there { when.create } else { when.replace };
                    prop_assert!(asked);
                }
            }
        }
        for (name, value) in &model {
            prop_assert_eq!(all.get(&[*name]), Some(&vec![*value; usize::from(*value)][..]));
        }
        prop_assert_eq!(all.names().count(), model.len());
        let copy = all.copy().unwrap();
        prop_assert!(copy.names().eq(all.names()));
        prop_assert!(all.names().all(|name| copy.get(name) == all.get(name)));
    }
}

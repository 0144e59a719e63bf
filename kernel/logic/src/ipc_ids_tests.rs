//! Compares IDs and keys of IPC objects with a list that is searched.

use crate::errno::Errno;
use crate::ipc_ids::{IpcIds, PRIVATE};
use std::collections::BTreeSet;
use std::vec::Vec;

#[test]
fn numbers_are_linuxs() {
    let mut ids = IpcIds::new();
    let numbers: Vec<_> = (0..3).map(|n| ids.insert(n, 10, |id| id)).collect();
    assert_eq!(numbers, [Ok(0), Ok(1), Ok(2)]);
    assert_eq!(ids.remove(1), Ok(1));
    // The same place, in the next round.
    assert_eq!(ids.insert(PRIVATE, 10, |id| id), Ok(32769));
    assert_eq!(ids.insert(PRIVATE, 10, |id| id), Ok(32771));
    assert_eq!(ids.get(1), Err(Errno::EINVAL));
    assert_eq!(ids.at(1), Ok(32769));
    assert_eq!(ids.at(-1), Err(Errno::EINVAL));
    assert_eq!(ids.insert(PRIVATE, 4, |id| id), Err(Errno::ENOSPC));
    assert_eq!((ids.len(), ids.highest()), (4, 3));
}

#[test]
fn the_next_number_can_be_asked_for() {
    let mut ids = IpcIds::new();
    assert_eq!(
        (ids.next_id(), ids.insert(PRIVATE, 9, |id| id)),
        (None, Ok(0))
    );
    let asked = 3 << 15 | 7;
    ids.set_next_id(asked);
    assert_eq!(ids.next_id(), Some(asked));
    assert_eq!(ids.insert(PRIVATE, 9, |id| id), Ok(asked));
    assert_eq!((ids.next_id(), ids.highest()), (None, 7));
    // The requested ID applies once. If its place is in use, the next place is taken.
    assert_eq!(ids.insert(PRIVATE, 9, |id| id), Ok(1));
    ids.set_next_id(asked);
    assert_eq!(ids.insert(PRIVATE, 9, |id| id), Ok(asked + 1));
    ids.set_next_id(i32::MAX);
    assert_eq!(ids.insert(PRIVATE, 9, |id| id), Ok(i32::MAX));
    ids.set_next_id(i32::MAX);
    assert_eq!(ids.insert(PRIVATE, 9, |id| id), Err(Errno::ENOSPC));
    assert_eq!(ids.remove(i32::MAX), Ok(i32::MAX));
    assert_eq!(ids.highest(), 8);
}

#[test]
fn rounds_come_to_an_end() {
    let mut ids = IpcIds::new();
    let mut seen = BTreeSet::new();
    for _ in 0..65535 {
        let id = ids.insert(PRIVATE, 1, |_| ()).expect("one fits");
        assert!(id >= 0 && seen.insert(id), "{id}");
        ids.remove(id).expect("it is there");
    }
    assert_eq!(ids.insert(PRIVATE, 1, |_| ()), Ok(0));
}

#[test]
fn a_table_becomes_smaller_again() {
    let mut ids = IpcIds::new();
    let all: Vec<_> = (0..5000).map(|n| ids.insert(n, 5000, |id| id)).collect();
    assert!(ids.room() >= 5000);
    for &id in all.iter().skip(10).flatten() {
        assert_eq!(ids.remove(id), Ok(id));
    }
    assert!(ids.room() <= 64, "{}", ids.room());
    let ten: Vec<_> = all.iter().take(10).flatten().copied().collect();
    assert_eq!(ids.ids().collect::<Vec<_>>(), ten);
    assert_eq!((ids.highest(), ids.next_from(10)), (9, None));
    assert!(
        all.iter()
            .take(10)
            .flatten()
            .all(|&id| ids.get(id) == Ok(&id))
    );
}

#[test]
fn a_list_says_the_same() {
    const SEED: u64 = 0x1bc5;
    let mut ids = IpcIds::new();
    let mut model: Vec<(i32, i32, u64)> = Vec::new();
    let mut state = SEED;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for turn in 0..50_000 {
        let key = random(40) as i32;
        let of_key = model.iter().find(|entry| entry.1 == key && key != PRIVATE);
        if key != PRIVATE {
            assert_eq!(ids.find(key), of_key.map(|entry| entry.0), "seed {SEED}");
        }
        match random(4) {
            0 | 1 if of_key.is_none() => {
                let added = ids.insert(key, 30, |_| turn);
                if model.len() == 30 {
                    assert_eq!(added, Err(Errno::ENOSPC), "seed {SEED}");
                } else {
                    let id = added.expect("there is room");
                    assert!(model.iter().all(|entry| entry.0 != id), "seed {SEED}");
                    model.push((id, key, turn));
                }
            }
            2 if !model.is_empty() => {
                let gone = model.swap_remove(random(model.len() as u64) as usize);
                assert_eq!(ids.remove(gone.0), Ok(gone.2), "seed {SEED}");
                assert_eq!(ids.remove(gone.0), Err(Errno::EINVAL), "seed {SEED}");
            }
            _ if !model.is_empty() => {
                let at = random(model.len() as u64) as usize;
                assert_eq!(ids.key(model[at].0), Ok(model[at].1), "seed {SEED}");
                assert_eq!(ids.get(model[at].0), Ok(&model[at].2), "seed {SEED}");
                if random(8) == 0 {
                    ids.forget_key(model[at].0);
                    model[at].1 = PRIVATE;
                }
            }
            _ => {}
        }
        assert_eq!(ids.len(), model.len(), "seed {SEED}");
        let places = model.iter().map(|entry| entry.0 % 32768);
        assert_eq!(
            ids.highest() as i32,
            places.max().unwrap_or(0),
            "seed {SEED}"
        );
    }
    let known: BTreeSet<_> = ids.ids().collect();
    assert_eq!(known, model.iter().map(|entry| entry.0).collect());
    let mut place = 0;
    let walked = core::iter::from_fn(|| {
        let (id, next) = ids.next_from(place)?;
        place = next;
        Some(id)
    });
    assert!(walked.eq(ids.ids()));
}

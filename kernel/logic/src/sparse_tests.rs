//! Compares sparse tables with a map.

use crate::sparse::{CHUNK, Sparse};
use std::collections::BTreeMap;
use std::vec::Vec;

#[test]
fn memory_comes_for_what_is_used() {
    let mut table = Sparse::new();
    assert_eq!((table.len(), table.get(0)), (0, None));
    table.prepare(2).expect("memory");
    assert_eq!(table.len(), 8);
    assert!(table.has(7) && !table.has(8));
    table.prepare(10 * CHUNK + 3).expect("memory");
    assert!(table.has(11 * CHUNK - 1) && !table.has(11 * CHUNK) && !table.has(9 * CHUNK));
    assert_eq!(table.len(), 11 * CHUNK);
    assert_eq!(table.put(2, 'a'), None);
    assert_eq!(table.put(10 * CHUNK + 3, 'b'), None);
    table.prepare(100).expect("memory");
    assert_eq!((table.get(2), table.get(100)), (Some(&'a'), None));
    assert_eq!(table.take(9 * CHUNK), None);
    assert_eq!(table.into_values().collect::<Vec<_>>(), ['a', 'b']);
}

#[test]
fn a_map_says_the_same() {
    const SEED: u64 = 0x5ba5;
    let mut state = SEED;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from((state >> 33) % below).expect("it fits")
    };
    let mut table = Sparse::new();
    let mut model = BTreeMap::new();
    for step in 0..20_000 {
        let at = random(2000);
        match random(3) {
            0 => {
                table.prepare(at).expect("memory");
                assert_eq!(
                    table.put(at, step),
                    model.insert(at, step),
                    "{SEED:#x} {step}"
                );
            }
            1 => assert_eq!(table.take(at), model.remove(&at), "{SEED:#x} {step}"),
            _ => {
                assert_eq!(table.get(at), model.get(&at), "{SEED:#x} {step}");
                assert_eq!(table.get_mut(at), model.get_mut(&at), "{SEED:#x} {step}");
            }
        }
    }
    assert_eq!(
        table.into_values().collect::<Vec<_>>(),
        model.into_values().collect::<Vec<_>>()
    );
}

#[test]
fn a_copy_has_the_chunks_that_memory_was_reserved_for() {
    let mut table = Sparse::new();
    for at in [1, 7, 100, 3 * CHUNK + 5] {
        table.prepare(at).expect("memory");
        table.put(at, at);
    }
    let mut copy = Sparse::new();
    assert!(!copy.copy_chunk(100, &table), "nothing is reserved");
    copy.reserve_chunk(100).expect("memory");
    assert_eq!((copy.len(), copy.get(7)), (0, None));
    assert!(copy.copy_chunk(100, &table));
    assert_eq!(copy.len(), 128);
    assert!(!copy.copy_chunk(3 * CHUNK, &table));
    copy.reserve_chunk(3 * CHUNK).expect("memory");
    assert!(copy.copy_chunk(3 * CHUNK, &table));
    assert_eq!(copy.len(), 4 * CHUNK);
    assert!(!copy.has(CHUNK), "a chunk without values has no memory");
    // The first chunk of the copy is smaller if fewer slots are in use.
    let mut small = Sparse::new();
    small.reserve_chunk(7).expect("memory");
    assert!(small.copy_chunk(7, &table));
    assert_eq!(small.into_values().collect::<Vec<_>>(), [1, 7]);
    assert_eq!(
        copy.into_values().collect::<Vec<_>>(),
        [1, 7, 100, 3 * CHUNK + 5]
    );
}

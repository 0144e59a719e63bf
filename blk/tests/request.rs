//! Chains that no driver would make: a bounded run of the fuzz target (`fuzz/`), with input that is
//! mostly plausible. proptest prints and stores the seed of a failure.

#[path = "request/exercise.rs"]
#[allow(unreachable_pub, missing_docs, reason = "shared with the fuzz target")]
mod exercise;

use exercise::{HEADERS, INPUT, MEMORY, QUEUE};
use proptest::prelude::*;

/// Makes descriptors with addresses near borders, lengths of headers and sectors, and links inside
/// the table.
fn descriptor() -> impl Strategy<Value = Vec<u8>> {
    let (memory, half) = (MEMORY as u64, MEMORY as u64 / 2);
    let address = prop_oneof![
        4 => HEADERS..memory,
        1 => half - 600..half + 600,
        1 => memory - 600..memory + 600,
        1 => (1_u64 << 20) - 600..(1 << 20) + 4096,
        1 => any::<u64>(),
    ];
    let bytes = prop_oneof![
        2 => Just(1_u32),
        3 => Just(16_u32),
        3 => (1..9_u32).prop_map(|sectors| sectors * 512),
        1 => 0..2048_u32,
        1 => any::<u32>(),
    ];
    let flags = prop_oneof![6 => 0..4_u16, 1 => 0..8_u16, 1 => any::<u16>()];
    (address, bytes, flags, 0..QUEUE + 2).prop_map(|(address, bytes, flags, next)| {
        let mut raw = address.to_le_bytes().to_vec();
        raw.extend(bytes.to_le_bytes());
        raw.extend(flags.to_le_bytes());
        raw.extend(next.to_le_bytes());
        raw
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_chain_gets_out_of_its_memory_or_its_disk(
        table in prop::collection::vec(descriptor(), usize::from(QUEUE)),
        heads in prop::collection::vec(0..QUEUE + 1, usize::from(QUEUE)),
        kind in prop_oneof![4 => 0..14_u32, 1 => any::<u32>()],
        sector in prop_oneof![3 => 0..2100_u64, 1 => any::<u64>()],
        read_only in any::<bool>(),
    ) {
        let mut input = table.concat();
        input.extend(heads.iter().flat_map(|head| head.to_le_bytes()));
        input.extend(kind.to_le_bytes());
        input.extend([0; 4]);
        input.extend(sector.to_le_bytes());
        input.push(read_only.into());
        assert_eq!(input.len(), INPUT);
        exercise::exercise(&input);
    }

    #[test]
    fn nor_does_noise(input in prop::collection::vec(any::<u8>(), INPUT)) {
        exercise::exercise(&input);
    }
}

#[test]
fn what_fuzzing_begins_with_are_requests() {
    for (name, input) in exercise::seeds() {
        assert_eq!(input.len(), INPUT, "{name}");
        assert!(exercise::exercise(&input) > 0, "{name}");
    }
}

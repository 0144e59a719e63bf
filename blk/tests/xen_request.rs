//! Requests that no Xen front-end would make: a bounded run of the fuzz target (`fuzz/`), with
//! input that is mostly plausible. proptest prints and stores the seed of a failure.

#[path = "request/blkif.rs"]
#[allow(unreachable_pub, missing_docs, reason = "shared with the fuzz target")]
mod exercise;

use ebb_blk::request::Status;
use ebb_blk::xen::grants::GrantRef;
use ebb_blk::xen::protocol::{Abi, Body, REQUEST_BYTES, Segment, extent, parse, range, response};
use exercise::INPUT;
use proptest::prelude::*;

/// Makes segments with sectors inside a page, and some outside.
fn segment() -> impl Strategy<Value = [u8; 8]> {
    let sector = || prop_oneof![8 => 0..8_u8, 1 => any::<u8>()];
    (any::<u32>(), sector(), sector()).prop_map(|(grant, first, last)| {
        let mut raw = [0; 8];
        raw[..4].copy_from_slice(&grant.to_le_bytes());
        (raw[4], raw[5]) = (first.min(last.max(1) - 1), last);
        raw
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_request_gets_out_of_its_pages_or_its_disk(
        operation in prop_oneof![8 => 0..8_u8, 1 => any::<u8>()],
        second in prop_oneof![8 => 0..13_u8, 1 => any::<u8>()],
        count in prop_oneof![4 => 0..300_u16, 1 => any::<u16>()],
        sector in prop_oneof![4 => 0..2100_u64, 1 => any::<u64>()],
        wide in any::<bool>(),
        inside in prop::collection::vec(segment(), 11),
        table in prop::collection::vec(segment(), 256),
    ) {
        let id_at = if wide { 8 } else { 4 };
        let mut raw = [0; REQUEST_BYTES];
        let segments = inside.concat();
        raw[id_at + 16..id_at + 16 + segments.len()].copy_from_slice(&segments);
        raw[id_at + 8..id_at + 16].copy_from_slice(&sector.to_le_bytes());
        (raw[0], raw[1]) = (operation, second);
        if operation == 6 {
            raw[2..4].copy_from_slice(&count.to_le_bytes());
        }
        let input = [&raw[..], &table.concat()].concat();
        assert_eq!(input.len(), INPUT);
        exercise::exercise(&input);
    }

    #[test]
    fn nor_does_noise(input in prop::collection::vec(any::<u8>(), INPUT)) {
        exercise::exercise(&input);
    }
}

/// Parses requests in the layouts of 64-bit and 32-bit front-ends, as `blkif.h` defines them.
#[test]
fn both_layouts_are_understood() {
    for (abi, id_at) in [(Abi::X86_64, 8), (Abi::X86_32, 4)] {
        let mut raw = [0; REQUEST_BYTES];
        raw[id_at..id_at + 8].copy_from_slice(&0x1122_3344_5566_7788_u64.to_le_bytes());
        raw[id_at + 8..id_at + 16].copy_from_slice(&77_u64.to_le_bytes());
        raw[id_at + 16..id_at + 22].copy_from_slice(&[5, 0, 0, 0, 2, 7]);
        (raw[0], raw[1]) = (1, 1);
        let request = parse(abi, &raw);
        assert_eq!(request.id, 0x1122_3344_5566_7788);
        let only = Segment {
            grant: GrantRef(5),
            first: 2,
            last: 7,
        };
        let body = Body::Data {
            write: true,
            sector: 77,
            segments: vec![only],
        };
        assert_eq!(request.body, Ok(body));
        assert_eq!((only.offset(), only.bytes()), (1024, 3072));
        assert_eq!(extent(77, &[only], 83 * 512), Ok(77 * 512));
        assert_eq!(extent(77, &[only], 82 * 512), Err(Status::IoError));
        // Discard: the number of sectors is at the offset of the segments.
        raw[0] = 5;
        raw[1] = 0;
        raw[id_at + 16..id_at + 24].copy_from_slice(&9_u64.to_le_bytes());
        let discard = Body::Discard {
            sector: 77,
            sectors: 9,
        };
        assert_eq!(parse(abi, &raw).body, Ok(discard));
        raw[1] = 1;
        assert_eq!(parse(abi, &raw).body, Err(Status::Unsupported), "secure");
        // Indirect: padding of 64 bits is in front of the sector, and the handle is before the
        // grants.
        (raw[0], raw[1]) = (6, 1);
        raw[2..4].copy_from_slice(&256_u16.to_le_bytes());
        raw[id_at + 16..id_at + 24].copy_from_slice(&[0xff, 0xff, 0, 0, 6, 0, 0, 0]);
        let indirect = Body::Indirect {
            write: true,
            sector: 77,
            segments: 256,
            table: GrantRef(6),
        };
        assert_eq!(parse(abi, &raw).body, Ok(indirect));
        raw[2..4].copy_from_slice(&257_u16.to_le_bytes());
        assert_eq!(parse(abi, &raw).body, Err(Status::IoError));
        (raw[0], raw[1]) = (3, 0);
        assert_eq!(parse(abi, &raw).body, Ok(Body::Flush));
        for unknown in [2, 4, 7, 255] {
            raw[0] = unknown;
            assert_eq!(parse(abi, &raw).body, Err(Status::Unsupported));
        }
    }
    assert!(range(u64::MAX, 2, u64::MAX).is_err() && range(0, 0, 512).is_err());
    let answer = response(7, 1, Status::IoError);
    assert_eq!(answer, [7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xff, 0xff]);
}

#[test]
fn what_fuzzing_begins_with_are_requests() {
    for (name, input) in exercise::seeds() {
        assert!(exercise::exercise(&input) > 0, "{name}");
    }
}

//! blkif requests and tables of arbitrary bytes, and the properties that all parsed ones must have.

use ebb_blk::request::SECTOR_BYTES;
use ebb_blk::xen::grants::GRANT_BYTES;
use ebb_blk::xen::protocol::{
    Abi, Body, MAX_INDIRECT_SEGMENTS, MAX_SEGMENTS, REQUEST_BYTES, SEGMENT_BYTES, Segment, extent,
    parse, range, segments,
};

/// Bytes of an input: a request, then the table that it may name.
pub const INPUT: usize = REQUEST_BYTES + TABLE;
const TABLE: usize = MAX_INDIRECT_SEGMENTS as usize * SEGMENT_BYTES;
const DISK: u64 = 1 << 20;

/// Parses `input` in both layouts and checks the results. Returns the number of layouts in which it
/// is a valid request.
pub fn exercise(input: &[u8]) -> usize {
    let Some((raw, table)) = input.split_first_chunk::<REQUEST_BYTES>() else {
        return 0;
    };
    let mut requests = 0;
    for abi in [Abi::X86_64, Abi::X86_32] {
        let request = parse(abi, raw);
        let told = if raw[0] == 6 { raw[1] } else { raw[0] };
        assert_eq!(request.operation, told);
        match request.body {
            Ok(Body::Data {
                sector, segments, ..
            }) => {
                assert!((1..=MAX_SEGMENTS).contains(&segments.len()));
                requests += usize::from(transfer(sector, &segments));
            }
            Ok(Body::Indirect {
                sector,
                segments: count,
                ..
            }) => {
                assert!((1..=MAX_INDIRECT_SEGMENTS).contains(&count));
                let found = segments(table, count.into());
                assert_eq!(
                    found.len(),
                    usize::from(count).min(table.len() / SEGMENT_BYTES)
                );
                requests += usize::from(transfer(sector, &found));
            }
            Ok(Body::Discard { sector, sectors }) => {
                if let Ok((offset, bytes)) = range(sector, sectors, DISK) {
                    assert!(bytes > 0 && offset + bytes <= DISK);
                    assert_eq!((offset, bytes), (sector * 512, sectors * 512));
                    requests += 1;
                }
            }
            Ok(Body::Flush) => requests += 1,
            Err(_) => {}
        }
    }
    requests
}

/// Checks that an accepted transfer is inside the disk and its segments are inside their pages.
/// Returns whether it was accepted.
fn transfer(sector: u64, segments: &[Segment]) -> bool {
    let Ok(offset) = extent(sector, segments, DISK) else {
        return false;
    };
    let mut end = offset;
    for segment in segments {
        let (from, bytes) = (usize::from(segment.offset()), usize::from(segment.bytes()));
        assert!(bytes > 0 && from + bytes <= GRANT_BYTES);
        assert_eq!(bytes as u64 % SECTOR_BYTES, 0);
        end += bytes as u64;
    }
    assert!(end <= DISK);
    true
}

/// Returns inputs that are valid requests, each with a name.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let (read, write, flush, discard, indirect) = (0, 1, 3, 5, 6);
    let mut seeds = Vec::new();
    for (wide, id_at) in [(true, 8), (false, 4)] {
        let make = |operation: u8, second: u8, sector: u64, rest: &[u8]| {
            let mut input = vec![0; REQUEST_BYTES];
            (input[0], input[1]) = (operation, second);
            input[id_at + 8..id_at + 16].copy_from_slice(&sector.to_le_bytes());
            input[id_at + 16..id_at + 16 + rest.len()].copy_from_slice(rest);
            input
        };
        // A grant, and sectors of its page.
        let whole = [5, 0, 0, 0, 0, 7, 0, 0];
        let part = [6, 0, 0, 0, 2, 3, 0, 0];
        let mut table = make(indirect, read, 64, &[0, 0, 0, 0, 9, 0, 0, 0]);
        table[2..4].copy_from_slice(&3_u16.to_le_bytes());
        table.extend([whole, part, whole].concat());
        let named = |name: &'static str, narrow: &'static str, input| {
            (if wide { name } else { narrow }, input)
        };
        seeds.extend([
            named("read", "read-32", make(read, 1, 8, &whole)),
            named(
                "write",
                "write-32",
                make(write, 2, 0, &[whole, part].concat()),
            ),
            named("flush", "flush-32", make(flush, 0, 0, &[])),
            named(
                "discard",
                "discard-32",
                make(discard, 0, 77, &9_u64.to_le_bytes()),
            ),
            named("indirect", "indirect-32", table),
        ]);
    }
    seeds
}

//! blkif requests and tables made of arbitrary bytes, and what holds of each whatever they are.

use ebb_blk::request::SECTOR_BYTES;
use ebb_blk::xen::grants::GRANT_BYTES;
use ebb_blk::xen::protocol::{
    Abi, Body, MAX_INDIRECT_SEGMENTS, MAX_SEGMENTS, REQUEST_BYTES, SEGMENT_BYTES, Segment, extent,
    parse, range, segments,
};

/// A request, then the table that it may name.
pub const INPUT: usize = REQUEST_BYTES + TABLE;
const TABLE: usize = MAX_INDIRECT_SEGMENTS as usize * SEGMENT_BYTES;
const DISK: u64 = 1 << 20;

/// Reads `input` as front-ends of both layouts would have written it.
pub fn exercise(input: &[u8]) {
    let Some((raw, table)) = input.split_first_chunk::<REQUEST_BYTES>() else {
        return;
    };
    for abi in [Abi::X86_64, Abi::X86_32] {
        let request = parse(abi, raw);
        let told = if raw[0] == 6 { raw[1] } else { raw[0] };
        assert_eq!(request.operation, told);
        match request.body {
            Ok(Body::Data {
                sector, segments, ..
            }) => {
                assert!((1..=MAX_SEGMENTS).contains(&segments.len()));
                transfer(sector, &segments);
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
                transfer(sector, &found);
            }
            Ok(Body::Discard { sector, sectors }) => {
                if let Ok((offset, bytes)) = range(sector, sectors, DISK) {
                    assert!(bytes > 0 && offset + bytes <= DISK);
                    assert_eq!((offset, bytes), (sector * 512, sectors * 512));
                }
            }
            Ok(Body::Flush) | Err(_) => {}
        }
    }
}

/// What passes lies inside of the disk, and each piece inside of its page.
fn transfer(sector: u64, segments: &[Segment]) {
    let Ok(offset) = extent(sector, segments, DISK) else {
        return;
    };
    let mut end = offset;
    for segment in segments {
        let (from, bytes) = (usize::from(segment.offset()), usize::from(segment.bytes()));
        assert!(bytes > 0 && from + bytes <= GRANT_BYTES);
        assert_eq!(bytes as u64 % SECTOR_BYTES, 0);
        end += bytes as u64;
    }
    assert!(end <= DISK);
}

//! Tests the check of a disk's configuration and the format of requests.

use super::limits::{BadDisk, Features, Limits, MAX_SEGMENTS};
use super::request::{
    Direction, IoError, NO_STATUS, Operation, Segment, Segments, chunks, outcome, whole_blocks,
};
use proptest::prelude::*;
use std::vec::Vec;

/// Returns a configuration space of `bytes` bytes that holds these words.
fn space(words: &[(usize, u32)], bytes: usize) -> impl Fn(usize) -> Option<u32> {
    move |at| {
        (at + 4 <= bytes).then(|| {
            let word = words.iter().find(|(offset, _)| *offset == at);
            word.map_or(0, |&(_, value)| value)
        })
    }
}

#[test]
fn a_disk_without_features_has_sectors() {
    let limits = Limits::read(Features::VERSION_1, space(&[], 8)).expect("nothing is asked for");
    assert_eq!(limits.block_bytes, 512);
    assert_eq!(limits.physical_block_bytes, 512);
    assert_eq!(limits.segments, MAX_SEGMENTS);
    assert_eq!((limits.discard_sectors, limits.zeroes_sectors), (0, 0));
    assert!(!limits.read_only && !limits.flush);
}

#[test]
fn what_cannot_be_is_refused_by_its_value() {
    for bytes in [0, 1, 511, 513, 8192, u32::MAX] {
        let read = Limits::read(Features::BLK_SIZE, space(&[(20, bytes)], 60));
        assert_eq!(read, Err(BadDisk::BlockBytes(bytes)));
    }
    for bytes in [0, 512, 4095] {
        let read = Limits::read(Features::SIZE_MAX, space(&[(8, bytes)], 60));
        assert_eq!(read, Err(BadDisk::SegmentBytes(bytes)));
    }
    let short = Limits::read(Features::DISCARD, space(&[], 36));
    assert_eq!(short, Err(BadDisk::Config(40)));
    assert_eq!(
        std::format!(
            "{}",
            BadDisk::QueueSize {
                size: 0,
                needed: 128
            }
        ),
        "a queue of 0 descriptors; 128 are needed"
    );
}

#[test]
fn limits_are_what_requests_can_have() {
    let features = Features::SEG_MAX
        | Features::BLK_SIZE
        | Features::TOPOLOGY
        | Features::DISCARD
        | Features::WRITE_ZEROES;
    let words = [(12, 0), (20, 4096), (24, 0xffff_ff1f), (36, 9), (48, 7)];
    let limits = Limits::read(features, space(&words, 60)).expect("it can be used");
    assert_eq!(limits.segments, 1);
    assert_eq!(limits.physical_block_bytes, 4096, "2^31 blocks do not fit");
    assert_eq!(limits.discard_sectors, 8);
    assert_eq!(limits.zeroes_sectors, 0, "less than a block");
    assert_eq!(limits.usable_sectors(17), 16);
    assert_eq!(limits.usable_sectors(7), 0);
    let most = limits.usable_sectors(u64::MAX);
    assert!(
        most.checked_mul(512)
            .is_some_and(|bytes| i64::try_from(bytes).is_ok())
    );
}

#[test]
fn requests_are_as_the_standard_has_them() {
    let write = Operation::Write { sector: 0x0102 };
    assert_eq!(
        write.header(),
        [1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!((write.range(), write.direction()), (None, Direction::Out));
    let zeroes = Operation::WriteZeroes {
        sector: 3,
        sectors: 4,
        unmap: true,
    };
    assert_eq!(zeroes.header()[0], 13);
    assert_eq!(zeroes.header()[8..], [0; 8]);
    let range = [3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(zeroes.range(), Some(range));
    assert_eq!(Operation::Flush.direction(), Direction::None);
    assert_eq!(Operation::GetId.direction(), Direction::In);
    assert_eq!(outcome(0), Ok(()));
    assert_eq!(outcome(2), Err(IoError::Unsupported));
    for status in [1, 3, NO_STATUS] {
        assert_eq!(outcome(status), Err(IoError::Failed));
    }
}

#[test]
fn ranges_of_bytes_are_blocks_of_the_disk_or_nothing() {
    assert_eq!(whole_blocks(4096, 8192, 512, 24), Some((8, 16)));
    assert_eq!(whole_blocks(4096, 8192, 512, 23), None);
    assert_eq!(whole_blocks(512, 4096, 4096, 100), None);
    assert_eq!(whole_blocks(0, 513, 512, 100), None);
    assert_eq!(whole_blocks(u64::MAX - 511, 512, 512, u64::MAX), None);
    assert_eq!(whole_blocks(0, 0, 512, 0), Some((0, 0)));
}

proptest! {
    #[test]
    fn nothing_that_a_device_says_goes_wrong(
        bits in any::<u64>(),
        words in proptest::collection::vec(any::<u32>(), 15),
        bytes in 0_usize..64,
        capacity in any::<u64>(),
    ) {
        let words: Vec<(usize, u32)> =
            words.into_iter().enumerate().map(|(n, word)| (n * 4, word)).collect();
        let features = Features::from_bits_truncate(bits);
        if let Ok(limits) = Limits::read(features, space(&words, bytes)) {
            prop_assert!((1..=MAX_SEGMENTS).contains(&limits.segments));
            prop_assert!(limits.block_bytes.is_power_of_two());
            prop_assert!((512..=4096).contains(&limits.block_bytes));
            prop_assert!(limits.physical_block_bytes >= limits.block_bytes);
            let block = u64::from(limits.block_bytes) / 512;
            let sectors = limits.usable_sectors(capacity);
            prop_assert!(sectors <= capacity && sectors % block == 0);
            prop_assert!(sectors <= i64::MAX as u64 / 512);
            prop_assert!(limits.discard_sectors % block == 0);
        }
    }

    #[test]
    fn joined_segments_are_the_same_memory(
        pages in proptest::collection::vec(0_u64..40, 1..=MAX_SEGMENTS),
        last in 1_u32..=4096,
        longest in 4096_u32..20_000,
    ) {
        let count = pages.len();
        let pieces: Vec<Segment> = pages
            .into_iter()
            .enumerate()
            .map(|(n, page)| Segment {
                address: page * 4096,
                bytes: if n + 1 == count { last } else { 4096 },
            })
            .collect();
        let joined = Segments::join(pieces.iter().copied(), longest);
        let bytes = |list: &[Segment]| -> Vec<u64> {
            list.iter().flat_map(|s| s.address..s.address + u64::from(s.bytes)).collect()
        };
        prop_assert_eq!(bytes(joined.list()), bytes(&pieces));
        prop_assert!(joined.list().iter().all(|segment| segment.bytes <= longest));
    }

    #[test]
    fn chunks_are_the_range(sector in 0_u64..1 << 40, sectors in 0_u64..5000, most in 1_u64..700) {
        let mut at = sector;
        for (start, count) in chunks(sector, sectors, most) {
            prop_assert_eq!(start, at);
            prop_assert!(count > 0 && u64::from(count) <= most);
            at += u64::from(count);
        }
        prop_assert_eq!(at, sector + sectors);
    }
}

//! Tests how much of the metadata a reader reads if it claims too much.

use core::cell::Cell;
use std::{vec, vec::Vec};

use super::*;

/// Memory that counts how often words are read.
struct Counted {
    words: Vec<u64>,
    read: Cell<u64>,
}

impl Memory for Counted {
    fn word(&self, offset: u64) -> Option<u64> {
        self.read.set(self.read.get() + 1);
        let at = usize::try_from(offset / 8).ok()?;
        self.words.get(at).copied()
    }
}

/// An upper bound on the reads of the header and the zone records.
const RECORDS: u64 = (size_of::<Header>() / 8) as u64 * 2;

/// Metadata with the maximum number of zones. Each claims `trees` trees in one extent. All other
/// words are `gib`, and the memory ends after `words` words.
fn hostile(words: usize, trees: u64, gib: u64) -> Counted {
    let mut all = vec![gib; words];
    let mut put = |offset: usize, value: u64| all[offset / 8] = value;
    put(offset_of!(Header, magic), MAGIC);
    put(
        offset_of!(Header, version),
        u64::from(VERSION) | (MAX_ZONES as u64) << 32,
    );
    for zone in 0..MAX_ZONES {
        let record = offset_of!(Header, zone) + zone * size_of::<ZoneRecord>();
        put(record + offset_of!(ZoneRecord, trees), trees);
        put(record + offset_of!(ZoneRecord, managed), u64::MAX);
        put(record + offset_of!(ZoneRecord, summaries), 4096);
        put(record + offset_of!(ZoneRecord, gibs), 4096);
        for extent in 0..MAX_EXTENTS {
            let at = record + offset_of!(ZoneRecord, extent) + extent * size_of::<ExtentRecord>();
            put(at + offset_of!(ExtentRecord, first), 0);
            put(at + offset_of!(ExtentRecord, blocks), u64::MAX);
        }
    }
    Counted {
        words: all,
        read: Cell::new(0),
    }
}

#[test]
fn a_lie_about_trees_costs_no_more_than_the_memory_that_there_is() {
    let huge = (0..32).map(|bit| 1u32 << bit);
    let huge = huge
        .chain([0, u32::MAX])
        .map(|bits| u64::from(bits) << 32 | u64::from(bits));
    for gib in huge {
        for gibibytes in [1, 512] {
            let frames = gibibytes << 18;
            let most = frames / TREE_FRAMES + EDGES;
            for trees in [
                1,
                most / MAX_ZONES as u64,
                most,
                most + 1,
                1 << 24,
                u64::MAX,
            ] {
                let memory = hostile(1 << 16, trees, gib);
                let view = View::new(&memory).expect("a header").within(frames);
                let managed: u64 = view.zones().flatten().map(|zone| zone.managed_frames).sum();
                let read = memory.read.get();
                // One GiB word and one summary for each tree.
                assert!(read <= 2 * most + RECORDS, "{gib:#x} {trees}: {read} words");
                assert!(managed <= most * TREE_FRAMES, "{gib:#x} {trees}: {managed}");
            }
        }
    }
}

#[test]
fn a_map_of_lies_ends_where_its_reader_does() {
    let memory = hostile(1 << 16, u64::MAX, 0);
    let view = View::new(&memory).expect("a header");
    assert_eq!(view.blocks().take(1000).filter(Result::is_ok).count(), 1000);
    // One state word for each pageblock, and one GiB word for each tree.
    assert!(memory.read.get() <= 1000 + 1000 / TREE_BLOCKS as u64 + 1 + RECORDS);
}

//! Compares the log of written pages with a simple model. Also tests files that are no logs.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use super::*;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

fn file(bytes: u64) -> File {
    let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(bytes).unwrap();
    file
}

/// Returns the pages whose bits are set in the first `bytes` of `file`.
fn marked(file: &File, bytes: u64) -> BTreeSet<u64> {
    let mut log = vec![0; bytes as usize];
    file.read_exact_at(&mut log, 0).unwrap();
    let set = |page: &u64| log[(page / 8) as usize] & 1 << (page % 8) != 0;
    (0..bytes * 8).filter(set).collect()
}

const LOG: u64 = 40;
const END: u64 = LOG * 8 * PAGE_BYTES;

/// Makes addresses inside and outside of the log.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..END,
        2 => END - 3 * PAGE_BYTES..END + 3 * PAGE_BYTES,
        1 => any::<u64>(),
        1 => u64::MAX - 8192..=u64::MAX,
    ]
}

proptest! {
    #[test]
    fn pages_are_marked_that_were_written_and_no_others(
        writes in prop::collection::vec(
            (address(), prop_oneof![0..3_u64, 0..9 * PAGE_BYTES, 0..END, any::<u64>()]), 1..6),
        before in prop::collection::vec(any::<u8>(), LOG as usize),
    ) {
        // The file is longer than the log, so that a mark behind its end would be noticed.
        let behind = file(2 * LOG);
        behind.write_all_at(&before, 0).unwrap();
        let mut expected = marked(&behind, LOG);
        let log = DirtyLog::map(behind.try_clone().unwrap(), 0, LOG).unwrap();
        for (address, bytes) in writes {
            log.mark(address, bytes);
            let inside = |page: &u64| {
                let (start, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
                bytes > 0 && address < end && address.saturating_add(bytes) > start
            };
            expected.extend((0..LOG * 8).filter(inside));
        }
        prop_assert_eq!(marked(&behind, 2 * LOG), expected);
    }

    #[test]
    fn parts_of_a_used_ring_are_marked_where_the_log_has_them(
        log_address in address(), size in 0..=1024_u16, index in any::<u16>(), event in any::<bool>(),
    ) {
        let (shown, behind) = (file(LOG), file(LOG));
        let log = DirtyLog::map(behind.try_clone().unwrap(), 0, LOG).unwrap();
        let whole = DirtyLog::map(shown.try_clone().unwrap(), 0, LOG).unwrap();
        let ring = UsedRing { log_address, size };
        ring.answered(&log, index);
        ring.asked(&log, event);
        ring.all(&whole);
        prop_assert!(marked(&behind, LOG).is_subset(&marked(&shown, LOG)));
    }
}

#[test]
fn the_parts_of_a_used_ring_have_their_pages() {
    // 1,024 entries are two pages, and the event index is in the third.
    let ring = UsedRing {
        log_address: 5 * PAGE_BYTES,
        size: 1024,
    };
    let pages = |mark: &dyn Fn(&DirtyLog)| {
        let behind = file(LOG);
        mark(&DirtyLog::map(behind.try_clone().unwrap(), 0, LOG).unwrap());
        Vec::from_iter(marked(&behind, LOG))
    };
    assert_eq!(pages(&|log| ring.answered(log, 0)), [5]);
    // Entry 511 begins four bytes before the end of a page.
    assert_eq!(pages(&|log| ring.answered(log, 511)), [5, 6]);
    assert_eq!(pages(&|log| ring.answered(log, 1024 + 512)), [5, 6]);
    assert_eq!(pages(&|log| ring.answered(log, 1023)), [5, 6, 7]);
    assert_eq!(pages(&|log| ring.asked(log, true)), [7]);
    assert_eq!(pages(&|log| ring.asked(log, false)), [5]);
    assert_eq!(pages(&|log| ring.all(log)), [5, 6, 7]);
}

#[test]
fn what_is_no_log_is_refused() {
    let map = |file: File, offset, bytes| DirtyLog::map(file, offset, bytes).map(|_| ());
    assert!(map(file(4096), 0, 4097).is_err(), "longer than its file");
    assert!(map(file(4096), 4096, 1).is_err(), "behind its end");
    assert!(map(file(8192), 100, 8).is_err(), "inside of a page");
    assert!(map(file(4096), u64::MAX, 2).is_err());
    assert!(map(file(4096), 0, 0).is_err());
    if let Ok(huge) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) {
        rustix::fs::ftruncate(&huge, 1 << 31).unwrap();
        let why = map(huge.into(), 0, 4096);
        assert!(why.unwrap_err().to_string().contains("pages of"));
    }
    let null = File::open("/dev/null").unwrap();
    assert!(map(null, 0, 8).is_err());
    let most = map(file(MAX_LOG_BYTES * 4), 0, MAX_LOG_BYTES * 2);
    assert!(most.unwrap_err().to_string().contains("is the most"));
    let log = DirtyLog::map(file(4096), 0, 9).unwrap();
    assert!(log.covers(9 * 8 * PAGE_BYTES - 1) && !log.covers(9 * 8 * PAGE_BYTES));
    assert!(!log.covers(u64::MAX));
}

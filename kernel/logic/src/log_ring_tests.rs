//! Compares a ring of lines with the list of all lines.

use super::log_ring::LogRing;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const BYTES: usize = 64;

proptest! {
    #[test]
    fn it_has_the_newest_lines_whole(lengths in prop::collection::vec(0..30_usize, 0..40), room in 0..80_u64) {
        let mut ring = LogRing::<BYTES>::new();
        let mut all = Vec::new();
        let mut starts = vec![0];
        for (i, length) in lengths.into_iter().enumerate() {
            let mut line = vec![b'a' + (i % 26) as u8; length];
            line.push(b'\n');
            let (front, back) = line.split_at(length / 2);
            ring.push(front);
            ring.push(back);
            all.extend_from_slice(&line);
            starts.push(all.len());
        }
        let end = all.len();
        prop_assert_eq!(ring.end(), end as u64);
        // The contents begin with a line, and one more line would not fit.
        let mut place = 0;
        let mut read = vec![0; BYTES + 1];
        let count = ring.read(&mut place, &mut read);
        prop_assert_eq!(place, end as u64);
        let first = end - count;
        prop_assert!(starts.contains(&first));
        prop_assert_eq!(&read[..count], &all[first..]);
        let before = starts.iter().rev().find(|&&start| start < first);
        prop_assert!(before.is_none_or(|before| end - before > BYTES - 31));
        // The newest lines that fit into `room`.
        let from = ring.newest(0, room);
        let wanted = starts.iter().find(|&&start| start >= first && (end - start) as u64 <= room);
        prop_assert_eq!(Some(from as usize), wanted.copied());
        // A read at the end returns no bytes.
        prop_assert_eq!(ring.read(&mut place, &mut read), 0);
    }
}

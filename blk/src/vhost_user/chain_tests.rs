//! Tests of descriptor chains of chosen shapes. Random ones are in `tests/request.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use super::*;

const MEMORY: usize = 64 << 10;
const DISK: Limits = Limits {
    bytes: 1 << 20,
    read_only: false,
};

/// Makes two adjacent regions of guest memory, and a third behind a hole.
fn memory() -> Arc<GuestMemoryMmap> {
    let ranges = [
        (GuestAddress(0), MEMORY / 2),
        (GuestAddress(MEMORY as u64 / 2), MEMORY / 2),
        (GuestAddress(1 << 20), 4096),
    ];
    Arc::new(GuestMemoryMmap::from_ranges(&ranges).unwrap())
}

fn plain(address: u64, bytes: u32, flags: u16, next: u16) -> Descriptor {
    Descriptor::new(address, bytes, flags, next)
}

#[test]
fn a_header_may_lie_in_pieces_and_data_over_a_border() {
    let memory = memory();
    let mut header = [0; 16];
    header[8] = 4;
    memory
        .write_slice(&header[..7], GuestAddress(0x3000))
        .unwrap();
    memory
        .write_slice(&header[7..], GuestAddress(0x4000))
        .unwrap();
    let border = MEMORY as u64 / 2 - 256;
    let chain = [
        plain(0x3000, 7, 1, 1),
        plain(0x4000, 9, 1, 2),
        plain(border, 512, 3, 3),
        plain(0x5000, 1, 2, 0),
    ];
    let parsed = parse(&memory, chain.into_iter(), DISK);
    assert_eq!(parsed.status, Some(GuestAddress(0x5000)));
    let (op, payload) = parsed.request.unwrap();
    assert_eq!(op, Op::Read(2048));
    assert_eq!((payload.bytes(), payload.slices.len()), (512, 2));
    payload.copy_in(200, &[7; 100]).unwrap();
    let mut bytes = [0; 512];
    memory.read_slice(&mut bytes, GuestAddress(border)).unwrap();
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(i, b)| (*b == 7) == (200..300).contains(&i))
    );
}

#[test]
fn a_chain_that_was_cut_or_is_too_long_is_refused() {
    let memory = memory();
    let refused = |chain: Vec<Descriptor>| {
        let parsed = parse(&memory, chain.into_iter(), DISK);
        matches!(parsed.request, Err(Status::IoError))
    };
    assert!(refused(vec![]));
    assert!(
        refused(vec![plain(0x3000, 16, 1, 1), plain(0x5000, 513, 3, 2)]),
        "cut"
    );
    assert!(
        refused(vec![plain(0x5000, 1, 3, 1), plain(0x3000, 16, 0, 0)]),
        "written, then read"
    );
    let mut long = vec![plain(0x3000, 16, 1, 1)];
    long.extend((0..MAX_DESCRIPTORS).map(|_| plain(0x5000, 512, 3, 1)));
    long.push(plain(0x5000, 1, 2, 0));
    assert!(refused(long));
}

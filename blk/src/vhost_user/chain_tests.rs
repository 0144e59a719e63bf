//! Chains that no driver would make. A bounded run of the fuzz target, on seeds that are printed
//! when they fail, and the shapes that matter by hand.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use super::*;
use proptest::prelude::*;
use virtio_queue::{Queue, QueueOwnedT, QueueT};

const MEMORY: usize = 64 << 10;
const QUEUE: u16 = 16;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const DISK: Limits = Limits {
    bytes: 1 << 20,
    read_only: false,
};

/// Two regions with a hole between them, and one that touches the first.
fn memory() -> Arc<GuestMemoryMmap> {
    let ranges = [
        (GuestAddress(0), MEMORY / 2),
        (GuestAddress(MEMORY as u64 / 2), MEMORY / 2),
        (GuestAddress(1 << 20), 4096),
    ];
    Arc::new(GuestMemoryMmap::from_ranges(&ranges).unwrap())
}

fn queue() -> Queue {
    let mut queue = Queue::new(QUEUE).unwrap();
    queue.set_desc_table_address(Some(0), Some(0));
    queue.set_avail_ring_address(Some(AVAILABLE as u32), Some(0));
    queue.set_used_ring_address(Some(USED as u32), Some(0));
    queue.set_ready(true);
    queue
}

/// What holds of every chain, whatever is in it.
fn check(memory: &Arc<GuestMemoryMmap>, limits: Limits) {
    let mut queue = queue();
    let Ok(chains) = queue.iter(&**memory) else {
        return;
    };
    for chain in chains.take(QUEUE.into()) {
        let parsed = parse(memory, chain, limits);
        let Ok((op, payload)) = parsed.request else {
            continue;
        };
        assert!(
            parsed.status.is_some(),
            "a request without a place for its status"
        );
        assert!(payload.slices.len() <= MAX_DESCRIPTORS * 3);
        let bytes: u64 = payload
            .slices
            .iter()
            .map(|slice| slice.iov_len as u64)
            .sum();
        assert_eq!(bytes, payload.bytes());
        for slice in &payload.slices {
            let (start, len) = (slice.iov_base as usize, slice.iov_len);
            let inside = memory.iter().any(|region| {
                use vm_memory::{GuestMemoryRegion, MemoryRegionAddress};
                let base = region.get_host_address(MemoryRegionAddress(0)).unwrap() as usize;
                start >= base && start + len <= base + region.len() as usize
            });
            assert!(inside, "{start:#x}+{len:#x} is not guest memory");
        }
        match op {
            Op::Read(start) | Op::Write(start) => {
                assert!(start + payload.bytes() <= limits.bytes);
                assert!(payload.bytes() % SECTOR_BYTES == 0);
            }
            Op::Discard(ranges) | Op::WriteZeroes(ranges) => {
                assert!(ranges.len() <= MAX_RANGES);
                assert!(
                    ranges
                        .iter()
                        .all(|r| r.bytes > 0 && r.offset + r.bytes <= limits.bytes)
                );
            }
            Op::Flush | Op::GetId => {}
        }
        let mut all = vec![0; usize::try_from(payload.bytes()).unwrap()];
        if payload.copy_out(0, &mut all).is_ok() && !all.is_empty() {
            let mut last = [0];
            payload.copy_out(payload.bytes() - 1, &mut last).unwrap();
            assert_eq!(last[0], all[all.len() - 1]);
            assert_eq!(payload.copy_out(1, &mut all), Err(Fault), "past the end");
        }
    }
}

/// A descriptor that is mostly plausible: addresses near borders, links within the table.
fn descriptor() -> impl Strategy<Value = [u8; 16]> {
    let address = prop_oneof![
        4 => 0x3000..MEMORY as u64,
        1 => (MEMORY as u64 / 2 - 600)..(MEMORY as u64 / 2 + 600),
        1 => (MEMORY as u64 - 600)..(MEMORY as u64 + 600),
        1 => (1_u64 << 20) - 600..(1 << 20) + 4096,
        1 => any::<u64>(),
    ];
    let bytes = prop_oneof![
        2 => Just(1_u32), 3 => Just(16_u32), 3 => (1..9_u32).prop_map(|n| n * 512), 1 => 0..2048_u32,
        1 => any::<u32>(),
    ];
    let flags = prop_oneof![6 => 0..4_u16, 1 => 0..8_u16, 1 => any::<u16>()];
    (address, bytes, flags, 0..QUEUE + 2).prop_map(|(address, bytes, flags, next)| {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&address.to_le_bytes());
        raw[8..12].copy_from_slice(&bytes.to_le_bytes());
        raw[12..14].copy_from_slice(&flags.to_le_bytes());
        raw[14..].copy_from_slice(&next.to_le_bytes());
        raw
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_chain_gets_out_of_its_memory_or_its_disk(
        table in prop::collection::vec(descriptor(), QUEUE as usize),
        heads in prop::collection::vec(0..QUEUE + 1, QUEUE as usize),
        kind in prop_oneof![4 => 0..14_u32, 1 => any::<u32>()],
        sector in prop_oneof![3 => 0..2100_u64, 1 => any::<u64>()],
        read_only in any::<bool>(),
    ) {
        let memory = memory();
        // Every header that a descriptor can point at says the same.
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        for at in (0x3000..MEMORY as u64).step_by(16) {
            memory.write_slice(&header, GuestAddress(at)).unwrap();
        }
        for (index, raw) in table.iter().enumerate() {
            memory.write_slice(raw, GuestAddress(index as u64 * 16)).unwrap();
        }
        for (index, head) in heads.iter().enumerate() {
            memory.write_obj(*head, GuestAddress(AVAILABLE + 4 + index as u64 * 2)).unwrap();
        }
        memory.write_obj(QUEUE, GuestAddress(AVAILABLE + 2)).unwrap();
        check(&memory, Limits { read_only, ..DISK });
    }
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

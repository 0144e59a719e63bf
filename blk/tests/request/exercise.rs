//! One virtqueue full of chains made of arbitrary bytes, and what holds of each whatever they are.

use ebb_blk::request::{MAX_RANGES, Op, Payload, SECTOR_BYTES};
use ebb_blk::vhost_user::chain::{Limits, MAX_DESCRIPTORS, parse};
use std::sync::Arc;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
    MemoryRegionAddress,
};

pub const MEMORY: usize = 64 << 10;
pub const QUEUE: u16 = 16;
/// Descriptors, then heads, then a header, then whether the disk is read-only.
pub const INPUT: usize = 16 * QUEUE as usize + 2 * QUEUE as usize + 16 + 1;
/// Addresses from here on hold copies of the header.
pub const HEADERS: u64 = 0x3000;
const AVAILABLE: u32 = 0x1000;
const USED: u32 = 0x2000;
const DISK: u64 = 1 << 20;

/// Three regions: two that touch, and one behind a hole.
fn memory() -> Arc<GuestMemoryMmap> {
    let half = MEMORY / 2;
    let ranges = [
        (GuestAddress(0), half),
        (GuestAddress(half as u64), half),
        (GuestAddress(1 << 20), 4096),
    ];
    Arc::new(GuestMemoryMmap::from_ranges(&ranges).expect("memory"))
}

/// Lays `input` out as a virtqueue and reads all of its chains.
pub fn exercise(input: &[u8]) {
    let Some(input) = input.first_chunk::<INPUT>() else {
        return;
    };
    let (table, rest) = input.split_at(16 * usize::from(QUEUE));
    let (heads, rest) = rest.split_at(2 * usize::from(QUEUE));
    let (header, read_only) = rest.split_at(16);
    let memory = memory();
    for at in (HEADERS..MEMORY as u64).step_by(16) {
        memory
            .write_slice(header, GuestAddress(at))
            .expect("header");
    }
    memory.write_slice(table, GuestAddress(0)).expect("table");
    memory
        .write_slice(heads, GuestAddress(u64::from(AVAILABLE) + 4))
        .expect("heads");
    memory
        .write_obj(QUEUE, GuestAddress(u64::from(AVAILABLE) + 2))
        .expect("index");
    let mut queue = Queue::new(QUEUE).expect("queue");
    queue.set_desc_table_address(Some(0), Some(0));
    queue.set_avail_ring_address(Some(AVAILABLE), Some(0));
    queue.set_used_ring_address(Some(USED), Some(0));
    queue.set_ready(true);
    let limits = Limits {
        bytes: DISK,
        read_only: read_only[0] & 1 == 1,
    };
    let chains = queue.iter(&*memory).expect("the ring itself is sound");
    for chain in chains.take(QUEUE.into()) {
        let parsed = parse(&memory, chain, limits);
        let Ok((op, payload)) = parsed.request else {
            continue;
        };
        assert!(
            parsed.status.is_some(),
            "a request without a place for its status"
        );
        check_payload(&memory, &payload);
        check_op(&op, payload.bytes(), limits);
    }
}

fn check_payload(memory: &GuestMemoryMmap, payload: &impl Payload) {
    let slices = payload.in_place().expect("guest memory is mapped");
    // A segment can lie over all three regions.
    assert!(slices.len() <= MAX_DESCRIPTORS * 3);
    let bytes: u64 = slices.iter().map(|slice| slice.iov_len as u64).sum();
    assert_eq!(bytes, payload.bytes());
    for slice in slices {
        let (start, len) = (slice.iov_base as usize, slice.iov_len);
        let inside = memory.iter().any(|region| {
            let base = region
                .get_host_address(MemoryRegionAddress(0))
                .expect("mapped") as usize;
            start >= base && start + len <= base + usize::try_from(region.len()).expect("small")
        });
        assert!(inside, "{start:#x}+{len:#x} is not guest memory");
    }
    let mut all = vec![0; usize::try_from(bytes).expect("fits: it is mapped")];
    payload
        .copy_out(0, &mut all)
        .expect("checked when it was made");
    if let Some(last) = all.last().copied() {
        let mut byte = [0];
        payload
            .copy_out(bytes - 1, &mut byte)
            .expect("the last byte");
        assert_eq!(byte[0], last);
        assert!(payload.copy_out(1, &mut all).is_err(), "past the end");
    }
}

fn check_op(op: &Op, bytes: u64, limits: Limits) {
    match op {
        Op::Read(start) | Op::Write(start) => {
            assert!(start + bytes <= limits.bytes && bytes.is_multiple_of(SECTOR_BYTES));
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
    let writes = matches!(op, Op::Write(_) | Op::Discard(_) | Op::WriteZeroes(_));
    assert!(
        !(limits.read_only && writes),
        "a write to a disk that is read-only"
    );
}
